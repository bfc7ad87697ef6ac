"""Boxes to tokens: worked by hand, equal to exact arithmetic over every cell, and in every frame the same."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conceptformer.backbones.protocol import TokenGrid
from conceptformer.errors import BoxError
from conceptformer.records import EvidenceBox
from conceptformer.regions import (
    AbsoluteFrame,
    RelativeFrame,
    ThousandthsFrame,
    concept_length,
    concept_tokens,
    covered_tokens,
    valid_boxes,
)


def grid(rows: int, columns: int, image_size: tuple[int, int] = (1000, 1000)) -> TokenGrid:
    return TokenGrid(rows, columns, image_size, (columns * 28, rows * 28))


# 5 rows and 7 columns over 140 x 100 pixels: cells of 20 x 20 pixels of the page.
PAGE = grid(5, 7, (140, 100))


def boxes_of(*rows: object, frame=None, size: tuple[int, int] = PAGE.image_size) -> tuple[EvidenceBox, ...]:
    return valid_boxes(rows, None, frame or AbsoluteFrame(), size).boxes


def tokens_of(*row: float, page: TokenGrid = PAGE) -> list[int]:
    (box,) = boxes_of(row, size=page.image_size)
    return covered_tokens(box, page).tolist()


# covered_tokens


def test_tokens_worked_by_hand():
    # columns floor(25 / 20) = 1 to ceil(61 / 20) - 1 = 3, rows floor(39 / 20) = 1 to ceil(41 / 20) - 1 = 2
    assert tokens_of(25, 39, 61, 41) == [8, 9, 10, 15, 16, 17]


def test_a_box_of_whole_cells_does_not_spill_into_its_neighbours():
    assert tokens_of(20, 40, 60, 60) == [15, 16]
    assert tokens_of(20, 40, 61, 60) == [15, 16, 17]
    assert tokens_of(19, 40, 60, 60) == [14, 15, 16]


@pytest.mark.parametrize("columns", [3, 7, 11, 29, 46, 97, 331])
@pytest.mark.parametrize("cell", [5, 14, 28])
def test_no_whole_cell_spills_at_any_place_of_a_page(columns: int, cell: int):
    page = grid(1, columns, (columns * cell, cell))
    for column in range(columns):
        assert tokens_of(column * cell, 0, (column + 1) * cell, cell, page=page) == [column]


def test_a_page_scaled_to_its_grid_divides_into_uneven_pixels():
    # 3 columns over 100 pixels: cells end at 33.33 and 66.67
    page = grid(1, 3, (100, 50))
    assert tokens_of(0, 0, 33, 50, page=page) == [0]
    assert tokens_of(0, 0, 34, 50, page=page) == [0, 1]
    assert tokens_of(66, 0, 67, 50, page=page) == [1, 2]


def test_the_smallest_box_covers_a_token():
    assert tokens_of(30, 50, 30.001, 50.001) == [15]
    edge = EvidenceBox(1 - 1e-12, 0.0, 1.0, 1e-12)
    assert covered_tokens(edge, PAGE).tolist() == [6]
    between_cells = EvidenceBox(3 / 7 - 1e-13, 0.3, 3 / 7 + 1e-13, 0.31)
    assert len(covered_tokens(between_cells, PAGE)) == 1


@pytest.mark.parametrize(
    "edges",
    [(0.5, 0, 0.5, 1), (0.5, 0, 0.4, 1), (0, 0, 1.1, 1), (-0.1, 0, 1, 1), (0, math.nan, 1, 1), (0, 0, math.inf, 1)],
)
def test_a_box_that_was_never_checked_is_refused(edges: tuple[float, ...]):
    with pytest.raises(BoxError, match="valid_boxes"):
        covered_tokens(EvidenceBox(*edges), PAGE)


def cells_that_share_area(row: tuple[int, int, int, int], page: TokenGrid) -> list[int]:
    """Every cell of the resized page, by exact fractions: the slow form."""
    width, height = page.resized_size
    across, down = Fraction(width, page.image_size[0]), Fraction(height, page.image_size[1])
    x1, y1, x2, y2 = row[0] * across, row[1] * down, row[2] * across, row[3] * down
    cell_width, cell_height = Fraction(width, page.columns), Fraction(height, page.rows)
    return [
        line * page.columns + column
        for line in range(page.rows)
        for column in range(page.columns)
        if min(x2, (column + 1) * cell_width) > max(x1, column * cell_width)
        and min(y2, (line + 1) * cell_height) > max(y1, line * cell_height)
    ]


@st.composite
def pages_with_boxes(draw, count: int = 1):
    """A grid over a page of any size, and boxes in whole pixels, none of which could be meant as relative."""
    width, height = draw(st.integers(2, 3000)), draw(st.integers(2, 3000))
    rows = []
    for _ in range(count):
        x1, y1 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        rows.append((x1, y1, draw(st.integers(max(2, x1 + 1), width)), draw(st.integers(y1 + 1, height))))
    return grid(draw(st.integers(1, 23)), draw(st.integers(1, 19)), (width, height)), rows


@given(pages_with_boxes())
def test_tokens_are_the_cells_that_share_area_with_the_box(case):
    page, (row,) = case
    assert tokens_of(*row, page=page) == cells_that_share_area(row, page)


@given(st.data())
def test_tokens_are_the_cells_that_hold_a_pixel_of_the_box(data):
    rows, columns, cell = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 11)), data.draw(st.integers(2, 7))
    drawn = np.zeros((rows * cell, columns * cell), dtype=bool)
    y1, x1 = data.draw(st.integers(0, len(drawn) - 1)), data.draw(st.integers(0, drawn.shape[1] - 1))
    y2 = data.draw(st.integers(max(2, y1 + 1), len(drawn)))
    x2 = data.draw(st.integers(x1 + 1, drawn.shape[1]))
    drawn[y1:y2, x1:x2] = True
    touched = drawn.reshape(rows, cell, columns, cell).any(axis=(1, 3))
    page = grid(rows, columns, (columns * cell, rows * cell))
    assert tokens_of(x1, y1, x2, y2, page=page) == np.flatnonzero(touched).tolist()


@given(pages_with_boxes(count=2))
def test_a_box_around_two_others_covers_at_least_their_tokens(case):
    page, (first, second) = case
    outer = (*(min(a, b) for a, b in zip(first[:2], second[:2], strict=True)),
             *(max(a, b) for a, b in zip(first[2:], second[2:], strict=True)))  # fmt: skip
    inner = {*tokens_of(*first, page=page), *tokens_of(*second, page=page)}
    assert inner <= {*tokens_of(*outer, page=page)}


@given(st.integers(1, 300), st.integers(1, 300))
def test_the_whole_page_covers_every_token(rows: int, columns: int):
    page = grid(rows, columns)
    assert covered_tokens(EvidenceBox(0, 0, 1, 1), page).tolist() == list(range(len(page)))
    assert concept_length([EvidenceBox(0, 0, 1, 1)], page) == rows * columns


# concept_tokens, concept_length


def test_the_overlap_of_two_boxes_counts_twice_or_once():
    boxes = boxes_of((60, 20, 120, 60), (0, 40, 80, 60))  # rows 1-2, columns 3-5; row 2, columns 0-3
    tokens = concept_tokens(boxes, PAGE)
    assert tokens.tolist() == [10, 11, 12, 17, 18, 19, 14, 15, 16, 17]
    assert tokens.dtype == torch.int64
    assert concept_length(boxes, PAGE) == 10
    assert concept_tokens(boxes, PAGE, union=True).tolist() == [10, 11, 12, 14, 15, 16, 17, 18, 19]
    assert concept_length(boxes, PAGE, union=True) == 9


def test_no_box_needs_no_concept():
    for union in (False, True):
        assert concept_tokens([], PAGE, union=union).tolist() == []
        assert concept_length([], PAGE, union=union) == 0


@given(pages_with_boxes(count=3))
def test_length_is_the_sum_over_boxes_and_the_union_is_no_longer(case):
    page, rows = case
    boxes = boxes_of(*rows, size=page.image_size)
    lists = [cells_that_share_area(row, page) for row in rows]
    assert concept_tokens(boxes, page).tolist() == sum(lists, [])
    assert concept_length(boxes, page) == sum(map(len, lists))
    assert concept_tokens(boxes, page, union=True).tolist() == sorted(set().union(*lists))
    assert len(set().union(*lists)) == concept_length(boxes, page, union=True) <= concept_length(boxes, page)


@given(pages_with_boxes())
def test_the_same_box_covers_the_same_tokens_in_every_frame(case):
    page, (row,) = case
    width, height = page.image_size
    relative = (row[0] / width, row[1] / height, row[2] / width, row[3] / height)
    twice = tuple(2 * edge for edge in row)
    stated = [
        (relative, RelativeFrame()),
        (twice, AbsoluteFrame((2 * width, 2 * height))),
        (tuple(1000 * edge for edge in relative), ThousandthsFrame()),
    ]
    for numbers, frame in stated:
        (box,) = boxes_of(numbers, frame=frame, size=page.image_size)
        assert covered_tokens(box, page).tolist() == tokens_of(*row, page=page)
