"""What stands on a drawn page: coloured shapes, words, tables and charts, each with its name."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Protocol

from PIL import Image

from conceptformer.drawn import drawing
from conceptformer.drawn.drawing import COLOURS, INK, INKS, LINE, WHITE, Pen, Point

WORDS: tuple[str, ...] = (
    "harbour", "garden", "lemon", "river", "candle", "forest", "island", "marble",
    "basket", "pepper", "rocket", "violin", "anchor", "bridge", "castle", "desert",
    "engine", "falcon", "guitar", "hammer", "jacket", "kettle", "ladder", "magnet",
    "needle", "oyster", "parrot", "quartz", "ribbon", "saddle", "temple", "velvet",
    "walnut", "zebra", "breeze", "cactus", "dragon", "meadow", "window", "winter",
)  # fmt: skip
"""Words that can be printed on a page."""


class Thing(Protocol):
    """Something that can stand on a page.

    Attributes:
        name: What it is called, without an article; no two things share one.
        phrase: The name as it stands in a query.
        columns, rows: Of cells that it occupies.
    """

    columns: int
    rows: int

    @property
    def name(self) -> str: ...

    @property
    def phrase(self) -> str: ...

    def paint(self, random: Random) -> Image.Image:
        """An RGBA tile that fits into ``drawing.room(columns, rows)``; what the name leaves open is drawn by lot."""


@dataclass(frozen=True)
class Shape:
    """A shape in one colour.

    Attributes:
        form: One of :data:`FORMS`.
    """

    colour: str
    form: str
    columns: ClassVar[int] = 1
    rows: ClassVar[int] = 1

    @property
    def name(self) -> str:
        return f"{self.colour} {self.form}"

    @property
    def phrase(self) -> str:
        return _with_article(self.name)

    def paint(self, random: Random) -> Image.Image:
        """The shape, a little larger or smaller."""
        width, height = drawing.room(self.columns, self.rows)
        size = random.uniform(0.86, 1) * min(width, height)
        left, top = (width - size) / 2, (height - size) / 2
        points = [(left + x * size, top + y * size) for x, y in FORMS[self.form]]
        pen = Pen((width, height))
        pen.polygon(points, COLOURS[self.colour])
        return pen.tile()


@dataclass(frozen=True)
class Word:
    """A printed word.

    Attributes:
        text: One of :data:`WORDS`.
    """

    text: str
    columns: ClassVar[int] = 2
    rows: ClassVar[int] = 1

    @property
    def name(self) -> str:
        return f"the word {self.text}"

    @property
    def phrase(self) -> str:
        return self.name

    def paint(self, random: Random) -> Image.Image:
        """The word in one of the inks, in letters that are a little larger or smaller."""
        fill, largest = random.choice(INKS), random.choice((13, 14, 15))
        return drawing.text_tile(self.text, largest=largest, size=drawing.room(self.columns, self.rows), fill=fill)


@dataclass(frozen=True)
class Table:
    """A table of numbers under a coloured header."""

    colour: str
    columns: ClassVar[int] = 2
    rows: ClassVar[int] = 2

    @property
    def name(self) -> str:
        return f"table with {_with_article(self.colour)} header"

    @property
    def phrase(self) -> str:
        return _with_article(self.name)

    def paint(self, random: Random) -> Image.Image:
        """Two columns of two-digit numbers, two or three rows below the header."""
        width, height = drawing.room(self.columns, self.rows)
        lines, line_height, letters = random.choice(((2, 17, 11), (3, 12, 9)))
        header = height - lines * line_height
        pen = Pen((width, height))
        pen.rectangle(0, 0, width, height, LINE, radius=3)
        pen.rectangle(1, 1, width - 1, height - 1, WHITE, radius=2)
        pen.rectangle(0, 0, width, header, COLOURS[self.colour], radius=3, flat_below=True)
        for line in range(1, lines):
            pen.rectangle(1, header + line * line_height, width - 1, header + line * line_height + 1, LINE)
        pen.rectangle(width / 2, header, width / 2 + 1, height - 1, LINE)
        tile = pen.tile()
        for line in range(lines):
            for share in (0.27, 0.76):
                centre = (width * share, header + (line + 0.5) * line_height + 0.5)
                drawing.write_centred(tile, str(random.randint(10, 99)), centre, letters=letters, fill=INK)
        return tile


@dataclass(frozen=True)
class BarChart:
    """A chart of four bars in one colour."""

    colour: str
    columns: ClassVar[int] = 2
    rows: ClassVar[int] = 2

    @property
    def name(self) -> str:
        return f"{self.colour} bar chart"

    @property
    def phrase(self) -> str:
        return _with_article(self.name)

    def paint(self, random: Random) -> Image.Image:
        """Bars of any heights between two axes."""
        width, height = drawing.room(self.columns, self.rows)
        pen = Pen((width, height))
        for bar in range(4):
            tall = random.uniform(0.25, 1) * (height - 4)
            left = 5 + bar * (width - 5) / 4
            pen.rectangle(left, height - 2 - tall, left + 8.5, height - 2, COLOURS[self.colour], radius=1.5)
        pen.line([(1, 0), (1, height - 1), (width, height - 1)], INK, width=1.5)
        return pen.tile()


@dataclass(frozen=True)
class PieChart:
    """A pie chart in shades of one colour."""

    colour: str
    columns: ClassVar[int] = 2
    rows: ClassVar[int] = 2

    @property
    def name(self) -> str:
        return f"{self.colour} pie chart"

    @property
    def phrase(self) -> str:
        return _with_article(self.name)

    def paint(self, random: Random) -> Image.Image:
        """Three slices, the largest in the full colour."""
        size = min(drawing.room(self.columns, self.rows))
        box = (0, 0, size, size)
        first = random.uniform(0.4, 0.55)
        second = random.uniform(0.2, 0.3)
        turn = random.uniform(0, 360)
        ends = [turn, turn + 360 * first, turn + 360 * (first + second), turn + 360]
        pen = Pen((size, size))
        for start, end, share in zip(ends, ends[1:], (0, 0.4, 0.68), strict=False):
            pen.slice(box, start, end, drawing.blend(COLOURS[self.colour], WHITE, share))
        centre = size / 2
        for degrees in ends[:-1]:
            angle = math.radians(degrees)
            edge = (centre + centre * math.cos(angle), centre + centre * math.sin(angle))
            pen.line([(centre, centre), edge], WHITE, width=1.5)
        return pen.tile()


def all_things(*, colours: int, shapes: int, words: int) -> tuple[Thing, ...]:
    """Every thing that can be made of the first so many colours, shapes and words."""
    shades = list(COLOURS)[:colours]
    forms = list(FORMS)[:shapes]
    return (
        *(Shape(colour, form) for form in forms for colour in shades),
        *(Word(text) for text in WORDS[:words]),
        *(kind(colour) for kind in (Table, BarChart, PieChart) for colour in shades),
    )


def _with_article(name: str) -> str:
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _around(corners: int, radii: tuple[float, ...], start: float) -> list[Point]:
    """Points around the middle of the unit square, at radii that take turns."""
    angles = [math.radians(start + 360 * corner / corners) for corner in range(corners)]
    spokes = [radii[corner % len(radii)] for corner in range(corners)]
    return [
        (0.5 + spoke * math.cos(angle), 0.5 + spoke * math.sin(angle))
        for spoke, angle in zip(spokes, angles, strict=True)
    ]


def _heart() -> list[Point]:
    """The well-known curve x = 16 sin^3 t, y = 13 cos t - 5 cos 2t - 2 cos 3t - cos 4t in the unit square."""
    turns = [2 * math.pi * step / 72 for step in range(72)]
    across = [16 * math.sin(turn) ** 3 for turn in turns]
    up = [13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t) for t in turns]
    return [(0.5 + x / 32, (12 - y) / 29) for x, y in zip(across, up, strict=True)]


FORMS: dict[str, list[Point]] = {
    "circle": _around(72, (0.5,), 0),
    "square": [(0.06, 0.06), (0.94, 0.06), (0.94, 0.94), (0.06, 0.94)],
    "triangle": [(0.5, 0.03), (1, 0.94), (0, 0.94)],
    "star": _around(10, (0.54, 0.23), -90),
    "heart": _heart(),
    "cross": [
        (0.34, 0.02), (0.66, 0.02), (0.66, 0.34), (0.98, 0.34), (0.98, 0.66), (0.66, 0.66),
        (0.66, 0.98), (0.34, 0.98), (0.34, 0.66), (0.02, 0.66), (0.02, 0.34), (0.34, 0.34),
    ],
}  # fmt: skip
"""Outlines in the unit square, by the names of the shapes."""
