"""Where the patches of a page image lie, read off what a processor has put out. No guessing: None where it is unclear.

Every function takes the number of image tokens that are to be placed and returns [count, 4] boxes (left, top, right,
bottom) as fractions of the page, in the tokens' order, or None when the layout does not give that many.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch

from visar.records import Box

WHOLE_PAGE: Box = (0.0, 0.0, 1.0, 1.0)

_TILE = re.compile(r"<row_(\d+)_col_(\d+)>")
_WHOLE = "<global-img>"


def grid_boxes(rows: int, columns: int, area: Box = WHOLE_PAGE) -> torch.Tensor:
    """[rows * columns, 4] boxes of an even grid over ``area``, row by row."""
    left, top, right, bottom = area
    x = torch.linspace(left, right, columns + 1, dtype=torch.float64)
    y = torch.linspace(top, bottom, rows + 1, dtype=torch.float64)
    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    corners = (x[column], y[row], x[column + 1], y[row + 1])
    return torch.stack([corner.flatten() for corner in corners], dim=1).float()


def fixed_grid(count: int, height: int, width: int, patch_size: int) -> torch.Tensor | None:
    """Boxes where the page was stretched to ``height`` x ``width`` pixels and cut into patches (PaliGemma)."""
    rows, columns = height // patch_size, width // patch_size
    return grid_boxes(rows, columns) if rows * columns == count else None


def merged_grid(count: int, grid: Sequence[int], merge_size: int) -> torch.Tensor | None:
    """Boxes where patches are merged ``merge_size`` x ``merge_size`` to one token (Qwen-VL).

    Args:
        grid: (time, height, width) in patches before merging, as in ``image_grid_thw``.
    """
    time, height, width = grid
    rows, columns = height // merge_size, width // merge_size
    return grid_boxes(rows, columns) if time == 1 and rows * columns == count else None


def tiled(count: int, tokens: Sequence[str], image_token: str) -> torch.Tensor | None:
    """Boxes where the page is cut into tiles, each a square of tokens, followed by the whole page (Idefics3 and kin).

    Args:
        tokens: The row's tokens as strings. A run of image tokens belongs to the ``<row_r_col_c>`` or
            ``<global-img>`` before it.
    """
    runs = _runs(tokens, image_token)
    tiles = [tile for tile, _ in runs if tile]
    rows, columns = (max(numbers) for numbers in zip(*tiles, strict=True)) if tiles else (1, 1)
    boxes = []
    for tile, length in runs:
        side = math.isqrt(length)
        if tile is None or side * side != length:
            return None
        row, column = tile if tile else (1, 1)
        height, width = (rows, columns) if tile else (1, 1)
        area = ((column - 1) / width, (row - 1) / height, column / width, row / height)
        boxes.append(grid_boxes(side, side, area))
    placed = torch.cat(boxes) if boxes else torch.empty(0, 4)
    return placed if len(placed) == count else None


def _runs(tokens: Sequence[str], image_token: str) -> list[tuple[tuple[int, ...] | None, int]]:
    """Runs of image tokens as (tile, length): tile is (row, column) from 1, () for the whole page, None if unmarked."""
    runs: list[tuple[tuple[int, ...] | None, int]] = []
    before = ""
    for token in tokens:
        if token != image_token:
            before = token
            continue
        if before == image_token:
            tile, length = runs[-1]
            runs[-1] = (tile, length + 1)
            continue
        found = _TILE.fullmatch(before)
        marked = tuple(map(int, found.groups())) if found else () if before == _WHOLE else None
        runs.append((marked, 1))
        before = image_token
    return runs
