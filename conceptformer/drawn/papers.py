"""Papers: the faint background that a page is drawn on. It tells nothing about what stands there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from PIL import Image, ImageDraw

from conceptformer.drawn.drawing import CELL, INK, Colour, blend

Ruling: TypeAlias = Callable[[ImageDraw.ImageDraw, tuple[int, int], Colour], None]
"""Draws a pattern on an image of (width, height) in a colour."""


@dataclass(frozen=True)
class Paper:
    """A colour and a ruling hardly darker than it."""

    colour: Colour
    ruling: Ruling

    def sheet(self, size: tuple[int, int]) -> Image.Image:
        """An empty page of (width, height) pixels, RGB."""
        page = Image.new("RGB", size, self.colour)
        self.ruling(ImageDraw.Draw(page), size, blend(self.colour, INK, 0.08))
        return page


def plain(draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Colour) -> None:
    """No ruling."""


def dotted(draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Colour) -> None:
    """Dots in rows and columns."""
    step = CELL // 2
    draw.point([(x, y) for x in range(step, size[0], step) for y in range(step, size[1], step)], fill=colour)


def ruled(draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Colour) -> None:
    """Lines to write on."""
    for y in range(CELL, size[1], CELL):
        draw.line([(0, y), (size[0], y)], fill=colour)


def squared(draw: ImageDraw.ImageDraw, size: tuple[int, int], colour: Colour) -> None:
    """Squares, as in exercise books for sums."""
    ruled(draw, size, colour)
    for x in range(CELL, size[0], CELL):
        draw.line([(x, 0), (x, size[1])], fill=colour)


PAPERS: tuple[Paper, ...] = (
    Paper((252, 249, 241), dotted),
    Paper((245, 248, 252), squared),
    Paper((251, 246, 247), plain),
    Paper((245, 250, 245), ruled),
)
"""The papers that a page may be drawn on."""
