"""Patches on the page: boxes follow from what the processor put out, or there are none."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from visar.encoders.patch_grid import fixed_grid, grid_boxes, merged_grid, tiled


def test_a_grid_of_two_rows_and_three_columns_by_hand():
    third = 1 / 3
    expected = [
        [0, 0, third, 0.5],
        [third, 0, 2 * third, 0.5],
        [2 * third, 0, 1, 0.5],
        [0, 0.5, third, 1],
        [third, 0.5, 2 * third, 1],
        [2 * third, 0.5, 1, 1],
    ]
    assert torch.allclose(grid_boxes(2, 3), torch.tensor(expected))


@given(st.integers(1, 40), st.integers(1, 40))
def test_a_grid_covers_the_page_once(rows, columns):
    boxes = grid_boxes(rows, columns)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    assert boxes.shape == (rows * columns, 4)
    assert torch.allclose(area, torch.full_like(area, 1 / (rows * columns)), atol=1e-6)
    assert torch.equal(boxes.unique(dim=0), boxes[torch.argsort(boxes[:, 0] * 1e4 + boxes[:, 1])].unique(dim=0))
    assert (boxes[:, :2].min(), boxes[:, 2:].max()) == (0, 1)


def test_colpali_has_32_by_32_patches_of_14_pixels():
    boxes = fixed_grid(1024, 448, 448, 14)
    assert torch.equal(boxes[33], torch.tensor([1 / 32, 1 / 32, 2 / 32, 2 / 32]))


def test_qwen_counts_rows_and_columns_after_merging():
    boxes = merged_grid(6, (1, 4, 6), 2)
    assert torch.allclose(boxes, grid_boxes(2, 3))


def test_a_count_that_does_not_fit_gives_no_boxes():
    assert fixed_grid(1023, 448, 448, 14) is None
    assert merged_grid(5, (1, 4, 6), 2) is None
    assert merged_grid(12, (2, 4, 6), 2) is None, "two time steps are a film, not a page"
    assert tiled(3, ["<global-img>", "<image>", "<image>", "<image>"], "<image>") is None, "3 is no square"
    assert tiled(5, ["<global-img>", *["<image>"] * 4], "<image>") is None, "one token is unaccounted for"
    assert tiled(4, ["User:", *["<image>"] * 4], "<image>") is None, "nothing says which part of the page this is"


def test_tiles_lie_in_their_rows_and_columns_and_the_whole_page_over_all():
    tokens = ["User:"]
    for row in (1, 2):
        for column in (1, 2, 3):
            tokens += ["<fake>", f"<row_{row}_col_{column}>", *["<image>"] * 4]
        tokens.append("\n")
    tokens += ["<fake>", "<global-img>", *["<image>"] * 4, "<fake>", "Describe"]
    boxes = tiled(28, tokens, "<image>")
    # Tile of row 2, column 3: right third, lower half; its second token is the upper right quarter of that.
    assert torch.allclose(boxes[5 * 4 + 1], torch.tensor([5 / 6, 0.5, 1.0, 0.75]))
    assert torch.allclose(boxes[24:], grid_boxes(2, 2))


def test_a_small_page_is_one_tile_of_the_whole():
    assert torch.allclose(tiled(4, ["<global-img>", *["<image>"] * 4], "<image>"), grid_boxes(2, 2))
