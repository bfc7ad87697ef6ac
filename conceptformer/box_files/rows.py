"""The rows of a file with evidence boxes: a box file (``evidence-boxes/1``), or a training file.

Training refuses a file for its faults; here they are what is looked for, so each row is kept with its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from conceptformer.box_files.schema import schema_faults
from conceptformer.data.images import ImageFacts, read_image_facts
from conceptformer.data.json_rows import Refusals, read_json_rows, shown
from conceptformer.data.one_line import one_line
from conceptformer.data.training_files import PairRow, pair_rows
from conceptformer.errors import DataError
from conceptformer.proposals.box_file import LOST_KEYS, NEEDED_KEYS, POSSIBLE_KEYS
from conceptformer.records import EvidenceBox, OnProgress
from conceptformer.regions import RelativeFrame, frame_named, valid_boxes

_BASIC = ("query_id", "query", "page_id", "image", "boxes")
_POSSIBLE = tuple(key for key in (*NEEDED_KEYS, *POSSIBLE_KEYS) if key not in _BASIC)
_CHARACTERS = 500


@dataclass(frozen=True)
class Fault:
    """Something in a file that cannot be used, or not as it stands there.

    Attributes:
        place: File name and line.
        reason: In one line.
    """

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class FaultList(Refusals):
    """Collects what is refused, row by row."""

    def __init__(self, source: Path) -> None:
        super().__init__(source, skip=True)
        self.faults: list[Fault] = []

    def refuse(self, place: str, reason: object) -> None:
        """List a row or a part of one."""
        self.faults.append(Fault(place, one_line(str(reason), most=_CHARACTERS)))


@dataclass(frozen=True)
class BoxRow(PairRow):
    """A row whose texts can be read.

    Attributes:
        image_size: (width, height) of the page, upright; None where it is not known.
        boxes: Those that can be used.
        numbers: The place of each of them among all boxes of the row, from 1.
        dropped: A line with the reason for each box that cannot.
        clipped: A line for each box of ``boxes`` that reaches beyond the page.
        fault: Why the row cannot be used; None for a row that can.
    """

    image_size: tuple[int, int] | None = None
    boxes: tuple[EvidenceBox, ...] = ()
    numbers: tuple[int, ...] = ()
    dropped: tuple[str, ...] = ()
    clipped: tuple[str, ...] = ()
    fault: str | None = None

    @property
    def lost_before(self) -> tuple[int, int]:
        """How many boxes were cut off, and how many dropped, before the row was written, as it says itself."""
        clipped, dropped = (count if type(count := self.row.values.get(key)) is int else 0 for key in LOST_KEYS)
        return clipped, dropped


@dataclass(frozen=True)
class BoxFile:
    """What a file holds.

    Attributes:
        rows: In their order, those with a fault too.
        unreadable: Lines that are no rows at all.
    """

    path: Path
    rows: tuple[BoxRow, ...]
    unreadable: tuple[Fault, ...]

    @property
    def pairs(self) -> tuple[BoxRow, ...]:
        """The rows that can be used."""
        return tuple(row for row in self.rows if row.fault is None)

    @property
    def invalid(self) -> tuple[Fault, ...]:
        """The rows that cannot be used, in their order."""
        faults = [*self.unreadable, *(Fault(row.place, row.fault) for row in self.rows if row.fault is not None)]
        return tuple(sorted(faults, key=lambda fault: int(fault.place.rpartition(":")[2])))

    @property
    def dropped(self) -> tuple[Fault, ...]:
        """The boxes that cannot be used, of rows that can."""
        return tuple(Fault(row.place, line) for row in self.pairs for line in row.dropped)

    @property
    def clipped(self) -> tuple[Fault, ...]:
        """The boxes that reach beyond their page."""
        return tuple(Fault(row.place, line) for row in self.pairs for line in row.clipped)


def read_box_file(path: Path, *, open_images: bool = True, on_progress: OnProgress | None = None) -> BoxFile:
    """All rows of a file, with what is wrong in each.

    A row that states a format must be as the schema of box files says. A file in which none does is a training file,
    see :mod:`conceptformer.data.training_files`.

    Args:
        open_images: Read the sizes of the page images from their headers. Otherwise the sizes that rows state are
            believed, and whether the images are there is not looked at.
        on_progress: Called with (done, all) after each image.

    Raises:
        DataError: The file is missing, cannot be read, or is empty.
    """
    faults = FaultList(path)
    rows = read_json_rows(path, _BASIC, _POSSIBLE, faults)
    if not rows and not faults.faults:
        raise DataError(f"{path}: no rows; expected one JSON object per line with {', '.join(_BASIC)}")
    in_format = any("format" in row.values for row in rows)
    readable: list[BoxRow] = []
    for row, pair, fault in pair_rows(rows, path.parent):
        if pair is None:
            faults.refuse(row.place, fault)
        else:
            texts = (pair.row, pair.query_id, pair.query, pair.page_id, pair.image, pair.other_positives)
            readable.append(BoxRow(*texts, fault=None if fault is None else str(fault)))
    facts = read_image_facts(list(dict.fromkeys(row.image for row in readable)), on_progress) if open_images else {}
    checked = tuple(_checked(row, in_format, facts.get(row.image)) for row in readable)
    return BoxFile(path, checked, tuple(faults.faults))


def _checked(row: BoxRow, in_format: bool, facts: ImageFacts | DataError | None) -> BoxRow:
    """The row with its boxes, or with the first thing that is wrong in it."""
    values = row.row.values
    size = facts.size if isinstance(facts, ImageFacts) else None if facts is not None else _stated_size(values)
    row = replace(row, image_size=size)
    if row.fault is not None:
        return row
    faults = schema_faults(values) if in_format else ()
    try:
        if faults:
            raise DataError("; ".join(faults[:3]) + (f"; and {len(faults) - 3:,} more" if len(faults) > 3 else ""))
        if isinstance(facts, DataError):
            raise facts
        if size is None:
            raise DataError("there is no image_size; expected it where images are not to be opened")
        if in_format and tuple(values["image_size"]) != size:
            stated = " x ".join(map(str, values["image_size"]))
            raise DataError(f"image_size is {stated} and the image has {size[0]} x {size[1]} pixels, upright")
        return _with_boxes(row, size)
    except DataError as error:
        collected = FaultList(row.image)
        collected.refuse(row.place, error)
        return replace(row, fault=collected.faults[0].reason)


def _with_boxes(row: BoxRow, size: tuple[int, int]) -> BoxRow:
    values = row.row.values
    boxes, labels = values["boxes"], values.get("labels")
    if not isinstance(boxes, list):
        raise DataError(f"boxes are {shown(boxes)}; expected a list of [x1, y1, x2, y2]")
    if labels is not None and not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        raise DataError(f"labels are {shown(labels)}; expected a list of texts, one for each box")
    # As in training, a frame need not be stated where there is no box.
    frame = frame_named(values.get("frame"), values.get("input_size")) if boxes else RelativeFrame()
    checked = valid_boxes(boxes, labels, frame, size)
    # With numbers for labels, those that are left tell which boxes are.
    numbered = valid_boxes(boxes, [str(number) for number in range(1, len(boxes) + 1)], frame, size)
    numbers = tuple(int(box.label) for box in numbered.boxes)
    return replace(row, boxes=checked.boxes, numbers=numbers, dropped=checked.dropped, clipped=checked.clipped)


def _stated_size(values: Mapping[str, object]) -> tuple[int, int] | None:
    size = values.get("image_size")
    if isinstance(size, list) and len(size) == 2 and all(type(side) is int and side > 0 for side in size):
        return size[0], size[1]
    return None
