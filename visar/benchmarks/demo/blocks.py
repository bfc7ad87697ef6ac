"""What the demo documents are made of: blocks of content as plain data. Nothing here draws.

A block may carry a ``mark``. Where a marked block lands when it is drawn is recorded, and questions name marks
instead of page numbers, so evidence pages follow the layout and cannot go stale.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Series = tuple[str, tuple[float, ...]]


@dataclass(frozen=True)
class Cover:
    """A title page of its own."""

    title: str
    subtitle: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contents:
    """The chapters (level 1 headings) and their page numbers."""


@dataclass(frozen=True)
class Heading:
    """A heading. Level 1 opens a chapter, on a new page unless ``new_page`` says otherwise."""

    text: str
    level: int = 1
    new_page: bool = True
    mark: str | None = None


@dataclass(frozen=True)
class Text:
    """One paragraph."""

    text: str
    mark: str | None = None


@dataclass(frozen=True)
class Items:
    """A list, with bullets or with numbers."""

    items: tuple[str, ...]
    numbered: bool = False


@dataclass(frozen=True)
class Callout:
    """A framed note: a warning in a manual, a resolution in minutes."""

    title: str
    text: str


@dataclass(frozen=True)
class Table:
    """A table with a caption. An empty ``header`` makes a list of names and values.

    Attributes:
        widths: Relative column widths; equal where empty.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    widths: tuple[float, ...] = ()
    mark: str | None = None


@dataclass(frozen=True)
class BarChart:
    """Grouped vertical bars, each with its value written above it in ``form``."""

    caption: str
    categories: tuple[str, ...]
    series: tuple[Series, ...]
    form: str = "%.1f"
    mark: str | None = None


@dataclass(frozen=True)
class LineChart:
    """Lines over numeric x, one point per x value, each line's values written at its points."""

    caption: str
    x_values: tuple[float, ...]
    series: tuple[Series, ...]
    x_title: str
    y_title: str
    form: str = "%.0f"
    mark: str | None = None


@dataclass(frozen=True)
class PieChart:
    """Shares of a whole with a legend that holds the values."""

    caption: str
    slices: tuple[tuple[str, float], ...]
    form: str = "%.0f %%"
    mark: str | None = None


@dataclass(frozen=True)
class FlowerPlate:
    """A drawn flower beside a strip of the months in which it blooms.

    Attributes:
        months: First and last month of bloom, 1 to 12.
    """

    petals: int
    colour: str
    heart: str
    months: tuple[int, int]


Block = Cover | Contents | Heading | Text | Items | Callout | Table | BarChart | LineChart | PieChart | FlowerPlate


@dataclass(frozen=True)
class Part:
    """Pages that belong together. Each part starts on a new page.

    Attributes:
        scanned: Put into the PDF as images of printed pages, without a text layer.
    """

    blocks: tuple[Block, ...]
    scanned: bool = False


@dataclass(frozen=True)
class Design:
    """How a document looks.

    Attributes:
        serif: Times instead of Helvetica.
        accent: Colour of headings and bars, as ``#rrggbb``.
        columns: Columns of text on a page.
        font_size: Of the running text, in points.
        page_size: Width and height in points.
    """

    accent: str
    serif: bool = False
    columns: int = 1
    font_size: float = 10.0
    page_size: tuple[float, float] = (595.28, 841.89)


@dataclass(frozen=True)
class DemoQuestion:
    """A question and what proves its answer.

    Attributes:
        evidence: (mark, key) pairs: the block that is needed and a string in it that stands on no page without
            evidence. Empty where the document does not answer the question.
        absent: For questions without evidence: words that an answer would need and that the document never uses.
    """

    id: str
    text: str
    answer: str
    evidence: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True)
class DemoDocument:
    """A document to be drawn, and the questions about it."""

    id: str
    title: str
    design: Design
    parts: tuple[Part, ...]
    questions: tuple[DemoQuestion, ...]


def paragraphs(text: str) -> tuple[Text, ...]:
    """Split at blank lines into paragraphs; one that starts with ``{name}`` carries that mark."""
    blocks = []
    for piece in text.strip().split("\n\n"):
        mark, words = re.fullmatch(r"(?:\{([\w-]+)\} )?(.*)", " ".join(piece.split())).groups()
        blocks.append(Text(words, mark))
    return tuple(blocks)
