"""PDFs and images that the tests of documents draw for themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pypdfium2
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

LETTER = (612, 792)
SENTENCES = (
    "The harbour of Rotterdam handled more containers in 2019",
    "than Antwerp, Hamburg and Bremerhaven together, while",
    "total revenue rose by 12.5 percent to 847 million euros.",
    "Seven engineers inspected the northern breakwater twice.",
)


def draw_pdf(path: Path, *pages: Callable[[Canvas], Any], size: tuple[float, float] = LETTER, **options: Any) -> Path:
    """A PDF whose pages the functions draw."""
    canvas = Canvas(str(path), pagesize=size, invariant=True, **options)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return path


def lines(texts: Sequence[str], *, left: float = 72, top: float = 700, size: float = 14) -> Callable[[Canvas], None]:
    """Lines of text below each other."""

    def draw(canvas: Canvas) -> None:
        canvas.setFont("Helvetica", size)
        for number, text in enumerate(texts):
            canvas.drawString(left, top - 1.5 * size * number, text)

    return draw


def picture(image: Image.Image, box: tuple[float, float, float, float]) -> Callable[[Canvas], None]:
    """An image at (left, bottom, width, height) in points."""
    return lambda canvas: canvas.drawImage(ImageReader(image), *box)


def together(*drawings: Callable[[Canvas], None]) -> Callable[[Canvas], None]:
    """One page from several drawings."""

    def draw(canvas: Canvas) -> None:
        for drawing in drawings:
            drawing(canvas)

    return draw


def change_pages(path: Path, change: Callable[[pypdfium2.PdfPage], None]) -> Path:
    """Change every page of a PDF in place, by pypdfium2."""
    with pypdfium2.PdfDocument(path.read_bytes()) as document:
        for number in range(len(document)):
            change(document[number])
        document.save(path)
    return path


LINE_SPACING = 1.8
MARGIN = 40


def typed_page(texts: Sequence[str], *, size: tuple[int, int] = (900, 500), font_size: int = 28) -> Image.Image:
    """An image of lines of text, black on white, as a scan is."""
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(font_size)
    for number, text in enumerate(texts):
        pen.text((MARGIN, MARGIN + LINE_SPACING * font_size * number), text, fill="black", font=font)
    return image


def typed_places(texts: Sequence[str], *, font_size: int = 28) -> dict[str, tuple[float, float, float]]:
    """Left, right and the line's upper edge, in pixels, of each word of a typed page; of equal words the last."""
    font = ImageFont.load_default(font_size)
    places = {}
    for number, text in enumerate(texts):
        start = 0
        for word in text.split():
            start = text.index(word, start)
            left = MARGIN + font.getlength(text[:start])
            places[word] = left, left + font.getlength(word), MARGIN + LINE_SPACING * font_size * number
            start += len(word)
    return places
