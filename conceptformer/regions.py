"""Evidence boxes on a page: the frames in which files state them, their checks, and the visual tokens they cover.

Eq. 8-10 and 19-20 of the paper. Pure geometry: no pixel is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch

from conceptformer.errors import BoxError
from conceptformer.records import EvidenceBox

if TYPE_CHECKING:  # the protocol needs transformers, geometry does not
    from conceptformer.backbones.protocol import TokenGrid

Corners: TypeAlias = tuple[float, float, float, float]
"""x1, y1, x2, y2: left, top, right and bottom edge."""

# Proposers overshoot the page a little. Numbers beyond this share of the frame were not meant in it.
_OVERSHOOT = 1.05
# In pages: what rounding makes of a box that ends at the edge; not worth a line in a list of clipped boxes.
_EDGE_ROUNDING = 1e-9
# In cells. A box of whole cells, divided by the page's width and multiplied by the number of columns, is off by about
# 1e-13 cells; pixel coordinates with three decimals on a page of 20,000 pixels differ by 5e-8 pages.
_CELL_ROUNDING = 1e-9
_SAME_SHAPE, _OTHER_SHAPE = math.log(1.05), math.log(1.2)


class Frame(Protocol):
    """What the numbers of boxes are measured in."""

    def fractions(self, boxes: Sequence[Corners], image_size: tuple[int, int]) -> list[Corners]:
        """The same boxes in fractions of the page's width and height.

        Args:
            boxes: All boxes of a page, each with x1 < x2 and y1 < y2.
            image_size: (width, height) of the page in pixels, upright.

        Raises:
            BoxError: The numbers look like those of another frame; the message names it.
        """


@dataclass(frozen=True)
class AbsoluteFrame:
    """Pixels of the page's own image, or of the resized copy that the proposer saw.

    Attributes:
        input_size: (width, height) of that copy; None for the page's own image.
    """

    input_size: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        size = self.input_size
        if size is not None and not (len(size) == 2 and all(math.isfinite(side) and side > 0 for side in size)):
            raise BoxError(f"input_size is {size}; expected [width, height] in pixels, both above 0")

    def fractions(self, boxes: Sequence[Corners], image_size: tuple[int, int]) -> list[Corners]:
        """See :meth:`Frame.fractions`. An ``input_size`` that is (height, width) is an error too."""
        size = self.input_size or image_size
        if boxes and max(size) > 1 and _within_one(boxes):
            raise _wrong_frame("absolute", "pixels", "no number is above 1", "'relative' (0 to 1)")
        stated, own = math.log(size[0] / size[1]), math.log(image_size[0] / image_size[1])
        if abs(stated - own) > _OTHER_SHAPE and abs(stated + own) < _SAME_SHAPE:
            raise BoxError(
                f"input_size is {_joined(size)} and the page is {image_size[0]} x {image_size[1]} pixels, upright; "
                "expected [width, height]: swap them, or state boxes of the upright page"
            )
        return _divided(boxes, *size)


@dataclass(frozen=True)
class RelativeFrame:
    """0 to 1 across the page and down."""

    def fractions(self, boxes: Sequence[Corners], image_size: tuple[int, int]) -> list[Corners]:
        """See :meth:`Frame.fractions`."""
        largest = max((max(box) for box in boxes), default=0)
        if largest > _OVERSHOOT:
            thousandths, pixels = "'relative1000' (0 to 1000)", "'absolute' (pixels)"
            if largest > 1000 * _OVERSHOOT:
                likelier = pixels
            elif any(box[2] > image_size[0] or box[3] > image_size[1] for box in boxes):
                likelier = thousandths
            else:
                likelier = f"{pixels} or {thousandths}"
            raise _wrong_frame("relative", "0 to 1", f"a number is {largest:g}", likelier)
        return list(boxes)


@dataclass(frozen=True)
class ThousandthsFrame:
    """0 to 1000 across the page and down, as Qwen2-VL and Qwen3-VL state boxes."""

    def fractions(self, boxes: Sequence[Corners], image_size: tuple[int, int]) -> list[Corners]:
        """See :meth:`Frame.fractions`."""
        largest = max((max(box) for box in boxes), default=0)
        if largest > 1000 * _OVERSHOOT:
            raise _wrong_frame("relative1000", "0 to 1000", f"a number is {largest:g}", "'absolute' (pixels)")
        if boxes and _within_one(boxes):
            raise _wrong_frame("relative1000", "0 to 1000", "no number is above 1", "'relative' (0 to 1)")
        return _divided(boxes, 1000, 1000)


def frame_named(name: object, input_size: Sequence[float] | None = None) -> Frame:
    """The frame that a data file states.

    Args:
        name: "absolute", "relative" or "relative1000".
        input_size: (width, height) that "absolute" numbers are pixels of, if not of the page's own image. The other
            two do not depend on a size: it may be stated with them and changes nothing.

    Raises:
        BoxError: Another name or none, or no size.
    """
    if input_size is not None and not (isinstance(input_size, (list, tuple)) and all(map(_is_number, input_size))):
        raise BoxError(f"input_size is {input_size!r}; expected [width, height] in pixels")
    frames: dict[object, Frame] = {
        "absolute": AbsoluteFrame(None if input_size is None else tuple(input_size)),
        "relative": RelativeFrame(),
        "relative1000": ThousandthsFrame(),
    }
    if not isinstance(name, str) or name not in frames:
        stated = "no frame is stated" if name is None else f"the frame is stated as {name!r}"
        raise BoxError(f"{stated}; expected 'absolute' (pixels), 'relative' (0 to 1) or 'relative1000' (0 to 1000)")
    return frames[name]


@dataclass(frozen=True)
class CheckedBoxes:
    """The usable boxes of a page, and what became of the others.

    Attributes:
        boxes: In their order, within the page.
        dropped: One line with the reason for each box that is not used.
        clipped: One line for each box of ``boxes`` that reached beyond the page.
    """

    boxes: tuple[EvidenceBox, ...]
    dropped: tuple[str, ...] = ()
    clipped: tuple[str, ...] = ()


def valid_boxes(
    rows: Sequence[object], labels: Sequence[str] | None, frame: Frame, image_size: tuple[int, int]
) -> CheckedBoxes:
    """Check boxes as a file or a proposer states them, and bring them into the page's fractions.

    A box is four finite numbers with x1 < x2 and y1 < y2 that shares some area with the page. What reaches beyond the
    page is cut off and listed.

    Args:
        rows: [x1, y1, x2, y2] each.
        labels: One for each row, or None.
        image_size: (width, height) of the page in pixels, upright.

    Raises:
        BoxError: The numbers look like those of another frame, or labels and boxes do not match.
    """
    if labels is not None and len(labels) != len(rows):
        raise BoxError(f"{len(rows)} boxes and {len(labels)} labels; expected one label for each box, or none at all")
    page = f"the page of {image_size[0]} x {image_size[1]} pixels"
    dropped: dict[int, str] = {}
    clipped: dict[int, str] = {}
    stated: dict[int, Corners] = {}
    for number, row in enumerate(rows):
        corners = _corners(row)
        if corners is None:
            dropped[number] = "expected four finite numbers [x1, y1, x2, y2]"
        elif not (corners[0] < corners[2] and corners[1] < corners[3]):
            dropped[number] = "empty or turned round; expected x1 < x2 and y1 < y2"
        else:
            stated[number] = corners
    boxes = []
    for number, corners in zip(stated, frame.fractions(list(stated.values()), image_size), strict=True):
        # "0.0 +" turns -0.0 into 0.0
        left, top, right, bottom = (0.0 + min(max(edge, 0.0), 1.0) for edge in corners)
        if not (left < right and top < bottom):
            dropped[number] = f"outside {page}"
            continue
        if min(corners) < -_EDGE_ROUNDING or max(corners) > 1 + _EDGE_ROUNDING:
            clipped[number] = f"reaches beyond {page}"
        boxes.append(EvidenceBox(left, top, right, bottom, labels[number] if labels is not None else ""))
    return CheckedBoxes(tuple(boxes), _lines(rows, dropped), _lines(rows, clipped))


def covered_tokens(box: EvidenceBox, grid: TokenGrid) -> torch.Tensor:
    """Visual tokens whose cells share area with a box (Eq. 8, 19).

    A cell is 1 / columns of the resized page's width and 1 / rows of its height. In these units the first covered
    column is floor(x1) and the last one ceil(x2) - 1, and every box covers at least one token. Overlaps of less than
    a billionth of a cell do not count: they are rounding of boxes that end where a cell ends.

    Returns:
        [n] int64, ascending; token index = row * columns + column.

    Raises:
        BoxError: The box is empty or not within the page; :func:`valid_boxes` makes boxes that are.
    """
    rows, columns = _spans(box, grid)
    return (torch.tensor(rows)[:, None] * grid.columns + torch.tensor(columns)).flatten()


def concept_tokens(boxes: Sequence[EvidenceBox], grid: TokenGrid, *, union: bool = False) -> torch.Tensor:
    """The visual tokens that the concept slots of a query and its page stand for.

    Args:
        union: Take a token that several boxes cover once, in ascending order. The paper takes it once for each box,
            box after box (Eq. 10).

    Returns:
        [T] int64; empty without boxes.

    Raises:
        BoxError: As :func:`covered_tokens`.
    """
    covered = [covered_tokens(box, grid) for box in boxes]
    tokens = torch.cat(covered) if covered else torch.empty(0, dtype=torch.int64)
    return tokens.unique() if union else tokens


def concept_length(boxes: Sequence[EvidenceBox], grid: TokenGrid, *, union: bool = False) -> int:
    """T, the number of concept slots (Eq. 9-10, 20): the length of :func:`concept_tokens`.

    Raises:
        BoxError: As :func:`covered_tokens`.
    """
    if union:
        return len(concept_tokens(boxes, grid, union=True))
    return sum(len(rows) * len(columns) for rows, columns in (_spans(box, grid) for box in boxes))


def _spans(box: EvidenceBox, grid: TokenGrid) -> tuple[range, range]:
    """Rows and columns that a box covers."""
    if not (0 <= box.left < box.right <= 1 and 0 <= box.top < box.bottom <= 1):
        raise BoxError(f"{box}: expected 0 <= left < right <= 1 and 0 <= top < bottom <= 1; use regions.valid_boxes")
    return _span(box.top, box.bottom, grid.rows), _span(box.left, box.right, grid.columns)


def _span(start: float, end: float, cells: int) -> range:
    first = min(math.floor(start * cells + _CELL_ROUNDING), cells - 1)
    last = math.ceil(end * cells - _CELL_ROUNDING) - 1
    return range(first, max(first, last) + 1)


def _corners(row: object) -> Corners | None:
    if not (isinstance(row, (list, tuple)) and len(row) == 4 and all(map(_is_number, row))):
        return None
    return tuple(float(number) for number in row)


def _lines(rows: Sequence[object], faults: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(f"box {number + 1} ({_shown(rows[number])}): {faults[number]}" for number in sorted(faults))


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond float's range
        return False


def _within_one(boxes: Sequence[Corners]) -> bool:
    return all(max(box) <= 1 for box in boxes)


def _divided(boxes: Sequence[Corners], width: float, height: float) -> list[Corners]:
    return [(x1 / width, y1 / height, x2 / width, y2 / height) for x1, y1, x2, y2 in boxes]


def _wrong_frame(name: str, meaning: str, found: str, likelier: str) -> BoxError:
    return BoxError(f"the frame is stated as '{name}' ({meaning}) but {found}; likelier {likelier}: correct the frame")


def _joined(size: Sequence[float]) -> str:
    return " x ".join(f"{side:g}" for side in size)


def _shown(row: object) -> str:
    text = ", ".join(map(repr, row)) if isinstance(row, (list, tuple)) else repr(row)
    return text if len(text) <= 60 else f"{text[:57]}..."
