"""Characters of a PDF page and where they stand on the page as it is displayed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PageCharacters:
    """The raw text layer of a page: n characters in the order of the file, spaces and line ends among them.

    Attributes:
        codes: [n] Unicode code points; a character beyond the basic plane may come as two surrogates.
        unmapped: [n] whether the font gives no Unicode for the glyph, so that the code means nothing.
        line_end_hyphens: [n] whether it is a hyphen that divides a word between two lines.
        boxes: [n, 4] left, top, right, bottom in points, origin at the top left, not clipped to the page.
        image_boxes: [k, 4] likewise for the page's images; only filled for pages with little text.
        size: Width and height of the displayed page in points.
    """

    codes: np.ndarray
    unmapped: np.ndarray
    line_end_hyphens: np.ndarray
    boxes: np.ndarray
    image_boxes: np.ndarray
    size: tuple[float, float]


def displayed_size(page_box: tuple[float, float, float, float], rotation: int) -> tuple[float, float]:
    """Width and height in points of a page that is turned by ``rotation`` degrees for display."""
    left, bottom, right, top = page_box
    return (right - left, top - bottom) if rotation in (0, 180) else (top - bottom, right - left)


def displayed_boxes(boxes: np.ndarray, page_box: tuple[float, float, float, float], rotation: int) -> np.ndarray:
    """Turn boxes of a PDF's coordinates (y upwards) into those of the displayed page (origin top left, y downwards).

    Args:
        boxes: [n, 4] left, bottom, right, top in points.
        page_box: The visible part of the page (crop box within media box): left, bottom, right, top.
        rotation: 0, 90, 180 or 270 degrees by which the page is turned clockwise for display.

    Returns:
        [n, 4] left, top, right, bottom in points.
    """
    left, bottom, right, top = page_box
    x, y = boxes[:, [0, 2]] - left, boxes[:, [1, 3]] - bottom
    width, height = right - left, top - bottom
    across, down = {
        0: (x, height - y),
        90: (y, x),
        180: (width - x, y),
        270: (height - y, width - x),
    }[rotation]
    return np.stack([across.min(1), down.min(1), across.max(1), down.max(1)], axis=1)
