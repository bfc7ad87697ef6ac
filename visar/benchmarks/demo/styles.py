"""Type and rules of a demo document: what its paragraphs and tables look like."""

from __future__ import annotations

from reportlab.lib.colors import HexColor, white
from reportlab.lib.enums import TA_JUSTIFY, TA_LEFT, TA_RIGHT
from reportlab.lib.styles import ParagraphStyle
from reportlab.platypus import TableStyle

from visar.benchmarks.demo.blocks import Design


class Styles:
    """Paragraph styles of one design.

    Args:
        typed: In the face of a typewriter, as the scanned pages are set.
    """

    def __init__(self, design: Design, typed: bool) -> None:
        self.font, self.bold = ("Times-Roman", "Times-Bold") if design.serif else ("Helvetica", "Helvetica-Bold")
        if typed:
            self.font = self.bold = "Courier"
        self.ink = HexColor("#222222" if typed else design.accent)
        self.size = size = design.font_size
        self.body = ParagraphStyle("body", fontName=self.font, fontSize=size, leading=size * 1.36)
        self.body.spaceAfter, self.body.alignment = size * 0.62, TA_LEFT if typed else TA_JUSTIFY
        self.item = ParagraphStyle("item", parent=self.body, spaceAfter=size * 0.35)
        self.cell = ParagraphStyle("cell", fontName=self.font, fontSize=size * 0.88, leading=size * 1.12)
        self.total = ParagraphStyle("total", parent=self.cell, fontName=self.bold)
        self.head = ParagraphStyle("head", parent=self.total, textColor=white)
        self.caption = ParagraphStyle("caption", parent=self.total, spaceAfter=3, textColor=self.ink)
        self.cover_title = ParagraphStyle("title", fontName=self.bold, fontSize=30, leading=36, textColor=white)
        self.cover_title.spaceAfter = 14
        self.cover_subtitle = ParagraphStyle("subtitle", parent=self.cover_title, fontName=self.font)
        self.cover_subtitle.fontSize, self.cover_subtitle.leading = 16, 22
        self.cover_line = ParagraphStyle("line", fontName=self.font, fontSize=11, leading=16, spaceAfter=6)

    def heading(self, level: int) -> ParagraphStyle:
        """Headings stay with what follows them."""
        size = self.size * (1.65 if level == 1 else 1.15)
        style = ParagraphStyle("heading", fontName=self.bold, fontSize=size, leading=size * 1.25, keepWithNext=1)
        style.textColor, style.spaceBefore, style.spaceAfter = self.ink, size * 0.55, size * 0.45
        return style

    def grid(self, headed: bool) -> TableStyle:
        """Rules and stripes of a table, with or without a row of column heads."""
        first = 1 if headed else 0
        commands = [
            ("ROWBACKGROUNDS", (0, first), (-1, -1), [white, HexColor("#f4f4f2")]),
            ("LINEABOVE", (0, 0), (-1, 0), 0.5, self.ink),
            ("LINEBELOW", (0, -1), (-1, -1), 0.5, self.ink),
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
            ("LEFTPADDING", (0, 0), (-1, -1), 4),
            ("RIGHTPADDING", (0, 0), (-1, -1), 4),
            ("TOPPADDING", (0, 0), (-1, -1), 3),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 4),
        ]
        return TableStyle(commands + [("BACKGROUND", (0, 0), (-1, 0), self.ink)] * headed)

    def contents(self) -> TableStyle:
        """Thin rules between the chapters."""
        return TableStyle([
            ("LINEBELOW", (0, 0), (-1, -1), 0.25, HexColor("#bbbbbb")),
            ("TOPPADDING", (0, 0), (-1, -1), 2),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 3),
        ])  # fmt: skip

    def callout(self) -> TableStyle:
        """A tinted box with a thick rule on its left."""
        return TableStyle([
            ("BACKGROUND", (0, 0), (-1, -1), HexColor("#f3f1ec")),
            ("LINEBEFORE", (0, 0), (0, -1), 3, self.ink),
            ("LEFTPADDING", (0, 0), (-1, -1), 10),
            ("TOPPADDING", (0, 0), (-1, -1), 6),
            ("BOTTOMPADDING", (0, 0), (-1, -1), 7),
        ])  # fmt: skip


def flush_right(style: ParagraphStyle) -> ParagraphStyle:
    """The same style for figures."""
    return ParagraphStyle(f"{style.name} right", parent=style, alignment=TA_RIGHT)
