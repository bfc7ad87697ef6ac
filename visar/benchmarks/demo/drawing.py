"""Draw a demo document: pages with a text layer, pages that are scans, and a record of what landed where."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from io import BytesIO

from reportlab.lib.colors import HexColor
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import BaseDocTemplate, Flowable, Frame, NextPageTemplate, PageBreak, PageTemplate

from visar.benchmarks.demo.blocks import Cover, DemoDocument, Part
from visar.benchmarks.demo.flowables import Landing, Typesetter
from visar.benchmarks.demo.scanning import scan

COLUMN_GAP = 16


@dataclass(frozen=True)
class DrawnDocument:
    """A document on pages.

    Attributes:
        pdf: The file's bytes; the same on every run.
        marks: 0-based page of each marked block.
        pages: How many pages it has.
        scanned: Text printed on each page that is a scan, by 0-based page number.
    """

    pdf: bytes
    marks: dict[str, int]
    pages: int
    scanned: dict[int, str]


class PageImage(Flowable):
    """A scan that covers the whole page."""

    def __init__(self, jpeg: bytes, page_size: tuple[float, float]) -> None:
        super().__init__()
        self.jpeg, self.page_size = jpeg, page_size

    def wrap(self, available_width: float, available_height: float) -> tuple[float, float]:
        return self.page_size

    def draw(self) -> None:
        self.canv.drawImage(ImageReader(BytesIO(self.jpeg)), 0, 0, *self.page_size)


class _Press:
    """Page templates of one document."""

    def __init__(self, document: DemoDocument) -> None:
        self.document, self.design = document, document.design
        self.width, self.height = self.design.page_size
        self.side, self.top, self.bottom = self.width * 0.11, self.height * 0.085, self.height * 0.085
        self.inner = self.width - 2 * self.side

    @property
    def column(self) -> float:
        return (self.inner - COLUMN_GAP * (self.design.columns - 1)) / self.design.columns

    def _frame(self, left: float, bottom: float, width: float, height: float) -> Frame:
        return Frame(left, bottom, width, height, leftPadding=0, rightPadding=0, topPadding=0, bottomPadding=0)

    def _columns(self) -> list[Frame]:
        height = self.height - self.top - self.bottom
        step = self.column + COLUMN_GAP
        return [
            self._frame(self.side + step * index, self.bottom, self.column, height)
            for index in range(self.design.columns)
        ]

    def _cover(self, canvas: Canvas, _: BaseDocTemplate) -> None:
        canvas.setFillColor(HexColor(self.design.accent))
        canvas.rect(0, self.height * 0.42, self.width, self.height * 0.58, stroke=0, fill=1)

    def _body(self, canvas: Canvas, template: BaseDocTemplate) -> None:
        serif = self.design.serif
        canvas.setFont("Times-Italic" if serif else "Helvetica-Oblique", 8)
        canvas.setFillColor(HexColor("#666666"))
        canvas.drawString(self.side, self.height - self.top * 0.62, self.document.title)
        canvas.drawRightString(self.width - self.side, self.bottom * 0.5, str(canvas.getPageNumber()))
        canvas.setStrokeColor(HexColor(self.design.accent))
        canvas.setLineWidth(0.6)
        canvas.line(self.side, self.height - self.top * 0.72, self.width - self.side, self.height - self.top * 0.72)

    def _templates(self) -> list[PageTemplate]:
        high, low = self.height * 0.55, self.height * 0.32
        cover = [
            self._frame(self.side, high, self.inner, self.height * 0.3),
            self._frame(self.side, low, self.inner, self.height * 0.08),
        ]
        return [
            PageTemplate("cover", cover, onPage=self._cover),
            PageTemplate("body", self._columns(), onPage=self._body),
            PageTemplate("scan", [self._frame(0, 0, self.width, self.height)]),
            PageTemplate("typed", self._columns()),
        ]

    def print(self, story: list[Flowable], first: str) -> tuple[bytes, int]:
        """The PDF and its number of pages. ``first`` names the template of the first page."""
        file = BytesIO()
        # invariant: no dates and no random identifier, so that the same content gives the same bytes.
        template = BaseDocTemplate(
            file, pagesize=self.design.page_size, title=self.document.title, author="", invariant=1, pageCompression=1
        )
        templates = self._templates()
        template.addPageTemplates(sorted(templates, key=lambda each: each.id != first))
        template.build(story)
        return file.getvalue(), template.page


def _first_template(part: Part) -> str:
    if part.scanned:
        return "typed"
    return "cover" if isinstance(part.blocks[0], Cover) else "body"


def _scan_story(press: _Press, jpegs: list[bytes]) -> list[Flowable]:
    story: list[Flowable] = []
    for jpeg in jpegs:
        story += [PageImage(jpeg, press.design.page_size), PageBreak()]
    return story[:-1]


def draw_document(document: DemoDocument) -> DrawnDocument:
    """Lay out, draw and, where a part asks for it, scan.

    Two rounds: the first lays out every part by itself to learn its length and the pages of its chapters, the second
    draws the whole with a complete table of contents.

    Raises:
        ValueError: A marked block does not fit a page, or the two rounds differ in where a mark stands.
    """
    press = _Press(document)
    chapters = {block.text: 0 for part in document.parts for block in part.blocks if _is_chapter(block)}
    expected, lengths, jpegs, scanned = Landing(), [], {}, {}
    for number, part in enumerate(document.parts):
        setter = Typesetter(document.design, press.column, expected, sum(lengths), chapters, part.scanned)
        pdf, pages = press.print(setter.story(part.blocks), _first_template(part))
        if part.scanned:
            jpegs[number], texts = scan(pdf, seed=zlib.crc32(document.id.encode()))
            scanned.update(enumerate(texts, start=sum(lengths)))
        lengths.append(pages)

    landing = Landing()
    story: list[Flowable] = []
    for number, part in enumerate(document.parts):
        template = "scan" if part.scanned else _first_template(part)
        story += [NextPageTemplate(template), PageBreak()] if story else []
        setter = Typesetter(document.design, press.column, landing, 0, expected.chapters, False)
        story += _scan_story(press, jpegs[number]) if part.scanned else setter.story(part.blocks)
    pdf, pages = press.print(story, _first_template(document.parts[0]))
    differing = [mark for mark, page in landing.marks.items() if expected.marks[mark] != page]
    if differing or pages != sum(lengths):
        raise ValueError(f"document '{document.id}': layout differs between the two rounds at {differing or 'its end'}")
    return DrawnDocument(pdf, expected.marks, pages, scanned)


def _is_chapter(block: object) -> bool:
    return getattr(block, "level", None) == 1
