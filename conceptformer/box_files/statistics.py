"""What the boxes of a file are like: how many, how large, how far they overlap, and how long their concepts get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conceptformer.backbones.protocol import TokenGrid
from conceptformer.box_files.frame_hints import frame_hints
from conceptformer.box_files.rows import BoxFile, BoxRow, Fault
from conceptformer.errors import DataError
from conceptformer.records import EvidenceBox
from conceptformer.regions import concept_length
from conceptformer.report.lengths import LengthSummary, summarise_lengths

MANY = 5
"""From so many boxes on pairs are counted together."""


@dataclass(frozen=True)
class Spread:
    """How numbers are distributed."""

    least: float
    median: float
    mean: float
    p90: float
    most: float


@dataclass(frozen=True)
class BoxStatistics:
    """Figures of a file.

    Attributes:
        rows: All lines that are not blank.
        invalid: Of these, those that cannot be used; the others are ``pairs``.
        without_boxes: Pairs for which no box is stated.
        none_usable: Pairs for which boxes are stated and none can be used.
        boxes: That can be used.
        dropped, clipped: Boxes that cannot, and those that reach beyond their page and are cut off there.
        clipped_before, dropped_before: Boxes that were cut off or dropped before, as the rows say themselves.
        pairs_by_boxes: Number of pairs with 0, 1, ... and with :data:`MANY` or more usable boxes.
        boxes_per_pair: Over pairs that have some, as the following.
        box_area: Of single boxes, in shares of the page.
        covered_area: Of a pair's boxes together, where several lie counted once, in shares of the page.
        overlapping_pairs: Pairs of whose area some is covered by several boxes.
        overlap: Share of a pair's covered area that several boxes cover, over pairs with several boxes.
        repeated_boxes: Boxes that are the same as an earlier one of their pair.
        frames, makers: Pairs with boxes by stated frame; pairs by model and version of the prompt.
        hints: Signs of a wrong frame.
        unfit_pages: Pairs whose page Qwen2.5-VL cannot take.
        lengths: Numbers of concept tokens on Qwen2.5-VL's grid, in the groups of the paper's Figure 3a.
    """

    rows: int
    pairs: int
    invalid: int
    without_boxes: int
    none_usable: int
    boxes: int
    dropped: int
    clipped: int
    clipped_before: int
    dropped_before: int
    pairs_by_boxes: Mapping[str, int]
    boxes_per_pair: Spread | None
    box_area: Spread | None
    covered_area: Spread | None
    overlapping_pairs: int
    overlap: Spread | None
    repeated_boxes: int
    frames: Mapping[str, int]
    makers: Mapping[str, int]
    hints: tuple[str, ...]
    unfit_pages: tuple[Fault, ...]
    lengths: LengthSummary | None


def box_statistics(file: BoxFile, grid_of: Callable[[tuple[int, int]], TokenGrid]) -> BoxStatistics:
    """The figures of a file.

    Args:
        grid_of: The grid of visual tokens of a page of (width, height); raises DataError where there is none.
    """
    pairs = file.pairs
    marked = [row for row in pairs if row.boxes]
    covered = [coverage(row.boxes) for row in marked]
    overlaps = [
        several / once for row, (once, several) in zip(marked, covered, strict=True) if len(row.boxes) > 1
    ]  # fmt: skip
    counts = [len(row.boxes) for row in marked]
    lengths, unfit = _lengths(pairs, grid_of)
    return BoxStatistics(
        rows=len(file.rows) + len(file.unreadable),
        pairs=len(pairs),
        invalid=len(file.invalid),
        without_boxes=sum(not row.row.values["boxes"] for row in pairs),
        none_usable=sum(bool(row.row.values["boxes"]) and not row.boxes for row in pairs),
        boxes=sum(counts),
        dropped=len(file.dropped),
        clipped=len(file.clipped),
        clipped_before=sum(row.lost_before[0] for row in pairs),
        dropped_before=sum(row.lost_before[1] for row in pairs),
        pairs_by_boxes=_by_boxes(pairs),
        boxes_per_pair=_spread(counts),
        box_area=_spread([area(box) for row in marked for box in row.boxes]),
        covered_area=_spread([once for once, _ in covered]),
        overlapping_pairs=sum(share > 0 for share in overlaps),
        overlap=_spread(overlaps),
        repeated_boxes=sum(len(row.boxes) - len({_corners(box) for box in row.boxes}) for row in marked),
        frames=dict(Counter(str(row.row.values["frame"]) for row in marked)),
        makers=dict(Counter(_maker(row) for row in pairs if "model" in row.row.values)),
        hints=frame_hints(file.rows),
        unfit_pages=unfit,
        lengths=summarise_lengths(lengths, papers_groups=True),
    )


def area(box: EvidenceBox) -> float:
    """Share of the page."""
    return (box.right - box.left) * (box.bottom - box.top)


def coverage(boxes: Sequence[EvidenceBox]) -> tuple[float, float]:
    """Shares of the page that at least one box covers, and that at least two do; exact but for rounding."""
    left, top, right, bottom = np.array([_corners(box) for box in boxes]).reshape(-1, 4).T
    x, y = np.unique([left, right]), np.unique([top, bottom])
    first, last = np.searchsorted(y, top), np.searchsorted(y, bottom)
    once = several = 0.0
    # Between two neighbouring vertical edges all boxes begin and end at the same heights.
    for start, end in zip(x[:-1], x[1:], strict=True):
        inside = (left <= start) & (right >= end)
        steps = np.bincount(first[inside], minlength=len(y)) - np.bincount(last[inside], minlength=len(y))
        layers = np.cumsum(steps)[:-1]
        heights = np.diff(y)
        once += (end - start) * heights[layers > 0].sum()
        several += (end - start) * heights[layers > 1].sum()
    return float(once), float(several)


def _lengths(
    pairs: Sequence[BoxRow], grid_of: Callable[[tuple[int, int]], TokenGrid]
) -> tuple[list[int], tuple[Fault, ...]]:
    lengths, unfit = [], []
    for row in pairs:
        try:
            lengths.append(concept_length(row.boxes, grid_of(row.image_size)))
        except DataError as error:
            unfit.append(Fault(row.place, str(error)))
    return lengths, tuple(unfit)


def _by_boxes(pairs: Sequence[BoxRow]) -> dict[str, int]:
    counts = Counter(min(len(row.boxes), MANY) for row in pairs)
    return {str(number) if number < MANY else f"{MANY} or more": counts[number] for number in range(MANY + 1)}


def _spread(numbers: Sequence[float]) -> Spread | None:
    if not numbers:
        return None
    median, p90 = np.percentile(numbers, [50, 90])
    return Spread(float(min(numbers)), float(median), float(np.mean(numbers)), float(p90), float(max(numbers)))


def _corners(box: EvidenceBox) -> tuple[float, float, float, float]:
    return box.left, box.top, box.right, box.bottom


def _maker(row: BoxRow) -> str:
    prompt = row.row.values.get("prompt_version")  # which a training file need not have
    return str(row.row.values["model"]) + ("" if prompt is None else f", prompt {prompt}")
