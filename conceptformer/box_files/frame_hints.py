"""Signs that the boxes of a file stand in another frame than it states.

A row whose numbers cannot stand in its frame at all is invalid, see :mod:`conceptformer.regions`. Here it is about
files whose rows are all possible and together unlikely.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

from conceptformer.box_files.rows import BoxRow
from conceptformer.errors import BoxError
from conceptformer.proposals.frame_watch import FrameWatch
from conceptformer.regions import frame_named

# So many rows will do where most of them had boxes cut off, see :mod:`conceptformer.proposals.frame_watch`.
_A_HANDFUL, _MOST = 4, 0.5
# Evidence at the right or lower edge is common: among so many pages some box reaches nearly to the end.
_ENOUGH, _NEVER_BEYOND = 30, 0.85
_OTHER_SHAPE = math.log(1.2)


def frame_hints(rows: Iterable[BoxRow]) -> tuple[str, ...]:
    """A line for each sign; empty where there is none."""
    watches: dict[str, FrameWatch] = {}
    reaches: dict[str, list[float]] = defaultdict(list)
    misshapen: list[str] = []
    with_boxes = cut_off = 0
    frames_of: dict[tuple[str, object], set[str]] = defaultdict(set)
    for row in rows:
        name, input_size, boxes = (row.row.values.get(key) for key in ("frame", "input_size", "boxes"))
        if row.image_size is None or not isinstance(boxes, list) or not boxes or not _is_frame(name, input_size):
            continue
        with_boxes += row.fault is None
        cut_off += row.fault is None and row.lost_before[0] > 0
        if row.fault is None and "model" in row.row.values:
            frames_of[str(row.row.values["model"]), row.row.values.get("prompt_version")].add(name)
        size = row.image_size if input_size is None else input_size
        watches.setdefault(name, FrameWatch(name)).see(boxes, size)
        if row.boxes:
            reaches[name].append(max(max(box.right, box.bottom) for box in row.boxes))
        if abs(math.log(size[0] / size[1]) - math.log(row.image_size[0] / row.image_size[1])) > _OTHER_SHAPE:
            misshapen.append(row.place)
    hints = []
    for name, watch in watches.items():
        doubt, found = watch.doubt(), reaches[name]
        if doubt is not None:
            # The watch speaks of a run's replies and its setting; here it is a file's rows.
            hints.append(
                doubt.replace("frame=", "").replace("replies", "rows").replace("that is sent", "of input_size")
            )
        elif len(found) >= _ENOUGH and max(found) < _NEVER_BEYOND:
            hints.append(
                f"no box of {len(found):,} rows in the frame {name} ends beyond {max(found):.0%} of its page: the "
                "numbers may be those of a smaller image or of another frame; look at some of them"
            )
    if with_boxes >= _A_HANDFUL and cut_off >= _MOST * with_boxes:
        hints.append(
            f"boxes of {cut_off:,} of {with_boxes:,} rows reached beyond their pages when they were proposed, and were "
            "cut off there: the proposer may have answered in another frame than it was read in; look at some of them"
        )
    for (model, _), names in frames_of.items():
        if len(names) > 1:
            hints.append(
                f"rows of {model} state the frames {' and '.join(sorted(names))}: a model answers in "
                "one; remove the rows of the wrong one and ask for them again"
            )
    if misshapen:
        hints.append(
            f"input_size has another shape than the page in {len(misshapen):,} rows, the first {misshapen[0]}: "
            "it may be that of another image"
        )
    return tuple(hints)


def _is_frame(name: object, input_size: object) -> bool:
    try:
        frame_named(name, input_size)
    except BoxError:
        return False
    return input_size is None or (len(input_size) == 2 and min(input_size) > 0)
