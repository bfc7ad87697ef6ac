"""The order in which a person reads lines of text: columns of text one after the other, all else row by row.

OCR engines that detect lines sort them by height, which mixes the sentences of a page of two columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from visar.records import Box

# Shares of the page's width, and of the lines. Tables stay in rows: their cells are narrower than columns of text.
COLUMN_LINE_WIDTH = 0.2
MIN_COLUMN_LINES = 3
MAX_SPANNING_LINES = 0.2
MIN_SHARED_HEIGHT = 0.5


def reading_order(boxes: Sequence[Box]) -> list[int]:
    """Order lines of text.

    The lines are divided at a gutter, left part first, and each part is divided again. Lines that span a gutter
    (titles, footers) divide what stands above them from what stands below. This is the recursive X-Y cut (Nagy and
    Seth, "Hierarchical representation of optically scanned documents", 1984) with gutters that a few lines may cross.

    Args:
        boxes: One box for each line, as fractions of the page.

    Returns:
        Indices into ``boxes``.
    """
    lines = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    return _ordered(np.arange(len(lines)), lines)


def _ordered(members: np.ndarray, lines: np.ndarray) -> list[int]:
    gutter = _gutter(lines[members])
    if gutter is None:
        return _in_rows(members, lines)
    left, top, right, bottom = lines[members].T
    spanning = members[(left < gutter) & (right > gutter)]
    spanning = spanning[np.argsort(lines[spanning, 1], kind="stable")]
    rest = members[(left >= gutter) | (right <= gutter)]
    order: list[int] = []
    for line in [*spanning.tolist(), None]:
        middle = lines[rest][:, [1, 3]].mean(axis=1)
        above = middle < lines[line, 1] if line is not None else np.ones(len(rest), dtype=bool)
        block, rest = rest[above], rest[~above]
        in_left = lines[block, 2] <= gutter
        order += _ordered(block[in_left], lines) + _ordered(block[~in_left], lines)
        if line is not None:
            order.append(line)
    return order


def _gutter(lines: np.ndarray) -> float | None:
    """Where the fewest lines cross between two columns of text that stand side by side; None without such a place."""
    left, top, right, bottom = lines.T
    best: tuple[int, float] | None = None
    for place in np.unique(right):
        in_left, in_right = right <= place, left >= place
        spanning = len(lines) - int(in_left.sum()) - int(in_right.sum())
        if spanning > MAX_SPANNING_LINES * len(lines) or (best is not None and spanning >= best[0]):
            continue
        sides = [lines[side] for side in (in_left, in_right)]
        if all(_is_column(side) for side in sides) and _stand_side_by_side(*sides):
            best = spanning, float(place)
    return best[1] if best is not None else None


def _is_column(lines: np.ndarray) -> bool:
    return len(lines) >= MIN_COLUMN_LINES and float(np.median(lines[:, 2] - lines[:, 0])) >= COLUMN_LINE_WIDTH


def _stand_side_by_side(one: np.ndarray, other: np.ndarray) -> bool:
    tops, bottoms = (one[:, 1].min(), other[:, 1].min()), (one[:, 3].max(), other[:, 3].max())
    shared = min(bottoms) - max(tops)
    return shared >= MIN_SHARED_HEIGHT * min(bottom - top for top, bottom in zip(tops, bottoms, strict=True))


def _in_rows(members: np.ndarray, lines: np.ndarray) -> list[int]:
    """From top to bottom; two lines stand in one row if the middle of each lies within the height of the other."""
    rows: list[list[int]] = []
    for line in members[np.argsort(lines[members, 1], kind="stable")].tolist():
        if rows and _in_one_row(lines[rows[-1][-1]], lines[line]):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda line: (lines[line, 0], line))]


def _in_one_row(one: np.ndarray, other: np.ndarray) -> bool:
    return all(box[1] <= middle <= box[3] for box, middle in ((one, other[[1, 3]].mean()), (other, one[[1, 3]].mean())))
