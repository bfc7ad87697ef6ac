"""Tiles: small pictures with transparent surroundings, and the colours and letters that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TypeAlias

from PIL import Image, ImageDraw, ImageFont

Colour: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]

CELL = 28
"""Side of a cell in pixels: what one visual token of Qwen2.5-VL sees."""

MARGIN = 3
"""Pixels between a thing and the edge of its cells; a thing moved by up to as much stays inside them."""

COLOURS: Mapping[str, Colour] = MappingProxyType(
    {
        "red": (218, 41, 48),
        "blue": (38, 103, 219),
        "green": (43, 158, 74),
        "yellow": (247, 200, 31),
        "purple": (128, 62, 190),
        "orange": (245, 128, 24),
        "pink": (246, 120, 176),
        "brown": (125, 76, 44),
    }
)
"""The colours that names of things use; no two are close to each other or to a paper."""

INK: Colour = (44, 48, 58)
INKS: tuple[Colour, ...] = (INK, (34, 44, 84), (74, 40, 34))
LINE: Colour = (150, 154, 164)
WHITE: Colour = (255, 255, 255)

_FINER = 4
# Fainter pixels would be part of a thing's box without anybody seeing them on the paper.
_FAINTEST = 40


def blend(colour: Colour, other: Colour, share: float) -> Colour:
    """``colour`` with ``share`` (0 to 1) of it replaced by ``other``."""
    return tuple(round(own + (new - own) * share) for own, new in zip(colour, other, strict=True))


def room(columns: int, rows: int) -> tuple[int, int]:
    """(width, height) in pixels that a thing of so many cells may fill."""
    return columns * CELL - 2 * MARGIN, rows * CELL - 2 * MARGIN


class Pen:
    """Draws in a tile's pixels with smooth edges: on four times as many pixels, which are averaged in the end."""

    def __init__(self, size: tuple[int, int]) -> None:
        self._image = Image.new("RGBA", (size[0] * _FINER, size[1] * _FINER), (0, 0, 0, 0))
        self._draw = ImageDraw.Draw(self._image)

    def polygon(self, points: list[Point], fill: Colour) -> None:
        """A filled polygon."""
        self._draw.polygon([(x * _FINER, y * _FINER) for x, y in points], fill=fill)

    def ellipse(self, left: float, top: float, right: float, bottom: float, fill: Colour) -> None:
        """A filled ellipse; right and bottom are where the next pixel begins."""
        self._draw.ellipse(_corners(left, top, right, bottom), fill=fill)

    def rectangle(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        fill: Colour,
        *,
        radius: float = 0,
        flat_below: bool = False,
    ) -> None:
        """A filled rectangle, its corners rounded, or only the upper ones."""
        corners = (True, True, not flat_below, not flat_below)
        self._draw.rounded_rectangle(
            _corners(left, top, right, bottom), radius=radius * _FINER, fill=fill, corners=corners
        )

    def slice(self, box: tuple[float, float, float, float], start: float, end: float, fill: Colour) -> None:
        """A slice of the ellipse in ``box``, from ``start`` to ``end`` in degrees, clockwise from three o'clock."""
        self._draw.pieslice(_corners(*box), start, end, fill=fill)

    def line(self, points: list[Point], fill: Colour, *, width: float) -> None:
        """Straight lines from point to point."""
        self._draw.line([(x * _FINER, y * _FINER) for x, y in points], fill=fill, width=round(width * _FINER))

    def tile(self) -> Image.Image:
        """What was drawn, RGBA in the tile's pixels."""
        return self._image.reduce(_FINER)


def cut_to_ink(tile: Image.Image) -> Image.Image:
    """The tile without its transparent surroundings; pixels too faint to be seen become transparent first."""
    alpha = tile.getchannel("A").point(_visible)
    tile.putalpha(alpha)
    return tile.crop(alpha.getbbox())


def text_tile(text: str, *, largest: int, size: tuple[int, int], fill: Colour) -> Image.Image:
    """A word as a tile, in the largest letters up to ``largest`` pixels that fit into ``size``."""
    return next(
        tile
        for letters in range(largest, 0, -1)
        if (tile := _word(text, letters, fill)).width <= size[0] and tile.height <= size[1]
    )


def write_centred(tile: Image.Image, text: str, centre: Point, *, letters: int, fill: Colour) -> None:
    """Write a word on a tile."""
    ImageDraw.Draw(tile).text(centre, text, font=_font(letters), fill=(*fill, 255), anchor="mm")


def _word(text: str, letters: int, fill: Colour) -> Image.Image:
    tile = Image.new("RGBA", (letters * (len(text) + 2), letters * 2), (*fill, 0))
    ImageDraw.Draw(tile).text((letters, letters), text, font=_font(letters), fill=(*fill, 255), anchor="lm")
    return cut_to_ink(tile)


@cache
def _font(letters: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font: no font file has to be found."""
    return ImageFont.load_default(letters)


def _corners(left: float, top: float, right: float, bottom: float) -> tuple[float, float, float, float]:
    """Pillow counts the last pixel in."""
    return left * _FINER, top * _FINER, right * _FINER - 1, bottom * _FINER - 1


def _visible(alpha: int) -> int:
    return alpha if alpha >= _FAINTEST else 0
