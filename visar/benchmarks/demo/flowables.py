"""From blocks of content to the things that reportlab lays out on pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import singledispatchmethod
from xml.sax.saxutils import escape

from reportlab.lib.styles import ParagraphStyle
from reportlab.platypus import (
    Flowable,
    FrameBreak,
    KeepTogether,
    ListFlowable,
    NextPageTemplate,
    PageBreak,
    Paragraph,
    Spacer,
)
from reportlab.platypus import Table as GridTable

from visar.benchmarks.demo import charts
from visar.benchmarks.demo.blocks import (
    BarChart,
    Block,
    Callout,
    Contents,
    Cover,
    Design,
    FlowerPlate,
    Heading,
    Items,
    LineChart,
    PieChart,
    Table,
    Text,
)
from visar.benchmarks.demo.styles import Styles, flush_right

CAPTIONED = (Table, BarChart, LineChart, PieChart, FlowerPlate)
TOTALS = ("Total", "Operating re", "Result")


@dataclass
class Landing:
    """Where marks and chapters came to stand, filled while pages are drawn.

    Attributes:
        marks: 0-based page of each mark.
        chapters: 0-based page of each heading of level 1, in order.
    """

    marks: dict[str, int] = field(default_factory=dict)
    chapters: dict[str, int] = field(default_factory=dict)


class Watched(Flowable):
    """Another flowable, never split, that tells on which page of its own PDF (1-based) it is drawn."""

    def __init__(self, inner: Flowable, report: Callable[[int], None]) -> None:
        super().__init__()
        self.inner, self.report = inner, report
        self.keepWithNext = inner.getKeepWithNext()
        self.spaceBefore, self.spaceAfter = inner.getSpaceBefore(), inner.getSpaceAfter()

    def wrap(self, available_width: float, available_height: float) -> tuple[float, float]:
        return self.inner.wrapOn(self.canv, available_width, available_height)

    def draw(self) -> None:
        self.report(self.canv.getPageNumber())
        self.inner.drawOn(self.canv, 0, 0)


class Typesetter:
    """Turns the blocks of one part into flowables.

    Args:
        design: Of the document.
        width: Of a column, in points.
        landing: Filled while the flowables are drawn.
        first_page: 0-based page of the document on which the part's own PDF starts.
        chapters: Pages of all chapters as known from an earlier round, for the table of contents.
        typed: Set in the face of a typewriter, as the scanned pages are.
    """

    def __init__(
        self, design: Design, width: float, landing: Landing, first_page: int, chapters: dict[str, int], typed: bool
    ) -> None:
        self.styles, self.accent, self.width = Styles(design, typed), design.accent, width
        self.landing, self.first_page, self.known_chapters = landing, first_page, chapters

    def story(self, blocks: tuple[Block, ...]) -> list[Flowable]:
        """The flowables of all blocks in order."""
        flowables: list[Flowable] = []
        headings: list[Flowable] = []
        for block in blocks:
            pieces = self.set(block)
            if isinstance(block, Heading):
                # The first heading of a part stands at the top anyway; a second break would leave an empty page.
                if block.level == 1 and block.new_page and flowables and not isinstance(flowables[-1], PageBreak):
                    flowables.append(PageBreak())
                headings += self._watched(block, pieces)
            elif isinstance(block, CAPTIONED) or getattr(block, "mark", None):
                # Headings go into the same KeepTogether as what they head: one inside another does not hold.
                flowables.append(KeepTogether([*headings, *self._watched(block, pieces)]))
                headings = []
            else:
                flowables += [*headings, *pieces]
                headings = []
        return flowables + headings

    def _watched(self, block: Block, pieces: list[Flowable]) -> list[Flowable]:
        mark = getattr(block, "mark", None)
        if mark is None:
            return pieces

        def report(page: int) -> None:
            landed = self.first_page + page - 1
            if self.landing.marks.setdefault(mark, landed) != landed:
                raise ValueError(
                    f"block '{mark}' is drawn on two pages or used twice; a marked block must fit one page"
                )

        return [Watched(piece, report) for piece in pieces]

    @singledispatchmethod
    def set(self, block: Block) -> list[Flowable]:
        """The flowables of one block."""
        raise TypeError(f"no way to draw a block of type {type(block).__name__}")

    @set.register
    def _(self, block: Cover) -> list[Flowable]:
        return [
            _paragraph(block.title, self.styles.cover_title),
            _paragraph(block.subtitle, self.styles.cover_subtitle),
            FrameBreak(),
            *(_paragraph(line, self.styles.cover_line) for line in block.lines),
            NextPageTemplate("body"),
            PageBreak(),
        ]

    @set.register
    def _(self, block: Contents) -> list[Flowable]:
        right = flush_right(self.styles.cell)
        rows = [
            (_paragraph(chapter, self.styles.cell), _paragraph(str(page + 1), right))
            for chapter, page in self.known_chapters.items()
        ]
        table = GridTable(rows, colWidths=[self.width - 40, 40], spaceBefore=4, spaceAfter=12)
        table.setStyle(self.styles.contents())
        return [table]

    @set.register
    def _(self, block: Heading) -> list[Flowable]:
        heading = _paragraph(block.text, self.styles.heading(block.level))
        if block.level > 1:
            return [heading]

        def report(page: int) -> None:
            self.landing.chapters[block.text] = self.first_page + page - 1

        return [Watched(heading, report)]

    @set.register
    def _(self, block: Text) -> list[Flowable]:
        return [_paragraph(block.text, self.styles.body)]

    @set.register
    def _(self, block: Items) -> list[Flowable]:
        entries = [_paragraph(item, self.styles.item) for item in block.items]
        numbers = {"bulletType": "1", "bulletFormat": "%s.", "bulletFontSize": self.styles.size}
        squares = {"bulletType": "bullet", "start": "square", "bulletFontSize": self.styles.size * 0.5}
        bullets = numbers if block.numbered else squares
        return [ListFlowable(entries, bulletFontName=self.styles.font, leftIndent=18, **bullets), Spacer(1, 4)]

    @set.register
    def _(self, block: Callout) -> list[Flowable]:
        content = [_paragraph(block.title, self.styles.caption), _paragraph(block.text, self.styles.cell)]
        box = GridTable([[content]], colWidths=[self.width], spaceBefore=4, spaceAfter=10)
        box.setStyle(self.styles.callout())
        return [box]

    @set.register
    def _(self, block: Table) -> list[Flowable]:
        shares = block.widths or (1,) * len(block.rows[0])
        right = [all(_is_figure(row[column]) for row in block.rows) for column in range(len(shares))]
        rows = [
            self._row(row, self.styles.total if row[0].startswith(TOTALS) else self.styles.cell, right)
            for row in block.rows
        ]
        if block.header:
            rows.insert(0, self._row(block.header, self.styles.head, right))
        grid = GridTable(rows, colWidths=[self.width * share / sum(shares) for share in shares])
        grid.setStyle(self.styles.grid(headed=bool(block.header)))
        return self._captioned(block.caption, grid)

    def _row(self, cells: tuple[str, ...], style: ParagraphStyle, right: list[bool]) -> list[Paragraph]:
        return [
            _paragraph(cell, flush_right(style) if flush else style) for cell, flush in zip(cells, right, strict=True)
        ]

    @set.register
    def _(self, block: BarChart) -> list[Flowable]:
        return self._captioned(block.caption, charts.bar_chart(block, self.width, self.accent, self.styles.font))

    @set.register
    def _(self, block: LineChart) -> list[Flowable]:
        return self._captioned(block.caption, charts.line_chart(block, self.width, self.accent, self.styles.font))

    @set.register
    def _(self, block: PieChart) -> list[Flowable]:
        return self._captioned(block.caption, charts.pie_chart(block, self.width, self.accent, self.styles.font))

    @set.register
    def _(self, block: FlowerPlate) -> list[Flowable]:
        return self._captioned("", charts.flower_plate(block, self.width, self.accent, self.styles.font))

    def _captioned(self, caption: str, flowable: Flowable) -> list[Flowable]:
        above = [_paragraph(caption, self.styles.caption)] if caption else []
        return [Spacer(1, 5), *above, flowable, Spacer(1, 10)]


def _paragraph(text: str, style: ParagraphStyle) -> Paragraph:
    return Paragraph(escape(text), style)


def _is_figure(cell: str) -> bool:
    """Whether a cell belongs to the right edge of its column."""
    return re.fullmatch(r"-?[\d.,]+( of \d+)?|none", cell) is not None
