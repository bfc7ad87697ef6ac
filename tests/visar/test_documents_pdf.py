"""PDFs: pictures and boxes of words agree, and files that cannot be read are told apart."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tests.visar.benchmark_files import write_pdf
from visar.documents import DocumentReader, NoOcr, pdf
from visar.documents.pdf import PdfFile
from visar.documents.text_layer import read_text_layer
from visar.errors import DocumentError
from visar.records import Document, Word

pytest.importorskip("reportlab", reason="reportlab draws the documents")
from reportlab.lib import pdfencrypt  # noqa: E402

from tests.visar.made_documents import SENTENCES, change_pages, draw_pdf, lines  # noqa: E402


def words(file: PdfFile, page: int) -> list[str]:
    return [word.text for word in read_text_layer(file.characters(page)).words]


# What is drawn and where the words are


def ink(file: PdfFile, page: int) -> np.ndarray:
    return np.asarray(file.render(page, dpi=144).convert("L")) < 128


def assert_words_cover_ink(found: tuple[Word, ...], dark: np.ndarray) -> None:
    """Every word's box has ink, and no ink is outside all boxes (a pixel and a half aside)."""
    height, width = dark.shape
    left_over = dark.copy()
    for word in found:
        left, top, right, bottom = np.array(word.box) * [width, height, width, height]
        area = slice(max(0, int(top - 1.5)), int(bottom + 2.5)), slice(max(0, int(left - 1.5)), int(right + 2.5))
        assert dark[area].any(), word
        left_over[area] = False
    assert not left_over.any(), np.argwhere(left_over)[:5]


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("crop", [None, (50, 340, 500, 740), (-30, -40, 700, 800)])
def test_word_boxes_lie_on_the_ink_of_turned_and_cropped_pages(
    tmp_path: Path, rotation: int, crop: tuple[int, int, int, int] | None
) -> None:
    path = draw_pdf(tmp_path / "a.pdf", lines(SENTENCES, left=100, top=700, size=12))

    def change(page) -> None:
        page.set_rotation(rotation)
        if crop:
            page.set_mediabox(-30, -40, 700, 800)
            page.set_cropbox(*crop)

    file = PdfFile(change_pages(path, change), timeout=60)
    layer = read_text_layer(file.characters(0))
    # PDFium takes lines that run downwards for one and orders them otherwise.
    assert sorted(word.text for word in layer.words) == sorted(" ".join(SENTENCES).split())
    assert layer.outside == 0
    assert_words_cover_ink(layer.words, ink(file, 0))
    file.close()


def test_a_landscape_page_that_is_turned_to_be_upright_reads_in_order(tmp_path: Path) -> None:
    def draw(canvas) -> None:
        canvas.translate(612, 0)
        canvas.rotate(90)
        lines(SENTENCES, left=100, top=500)(canvas)

    path = change_pages(draw_pdf(tmp_path / "a.pdf", draw), lambda page: page.set_rotation(90))
    file = PdfFile(path, timeout=60)
    layer = read_text_layer(file.characters(0))
    assert file.render(0, dpi=72).size == (792, 612)
    assert [word.text for word in layer.words] == " ".join(SENTENCES).split()
    first, last = layer.words[0].box, layer.words[-1].box
    assert first[0] == pytest.approx(100 / 792, abs=0.005)
    assert first[1] < last[1]
    assert_words_cover_ink(layer.words, ink(file, 0))
    file.close()


def test_slanted_text_keeps_its_words_whole(tmp_path: Path) -> None:
    def draw(canvas) -> None:
        canvas.translate(200, 200)
        canvas.rotate(60)
        canvas.setFont("Helvetica", 20)
        canvas.drawString(0, 0, "growing skyward")

    file = PdfFile(draw_pdf(tmp_path / "a.pdf", draw), timeout=60)
    layer = read_text_layer(file.characters(0))
    assert [word.text for word in layer.words] == ["growing", "skyward"]
    assert_words_cover_ink(layer.words, ink(file, 0))
    file.close()


def test_words_outside_the_page_are_left_out_and_counted_and_others_clipped(tmp_path: Path) -> None:
    texts = together_at((-300, 400, "nowhere"), (-20, 300, "partlyoutside"), (100, 200, "inside"))
    file = PdfFile(draw_pdf(tmp_path / "a.pdf", texts), timeout=60)
    layer = read_text_layer(file.characters(0))
    assert [word.text for word in layer.words] == ["partlyoutside", "inside"]
    assert layer.words[0].box[0] == 0
    assert layer.outside == 1
    file.close()


def together_at(*places: tuple[float, float, str]):
    def draw(canvas) -> None:
        for left, bottom, text in places:
            canvas.drawString(left, bottom, text)

    return draw


def test_what_was_filled_into_a_form_is_text(tmp_path: Path) -> None:
    def draw(canvas) -> None:
        canvas.drawString(100, 700, "Surname")
        canvas.acroForm.textfield(name="surname", value="Lovelace", x=100, y=600, width=200, height=20)

    file = PdfFile(draw_pdf(tmp_path / "a.pdf", draw), timeout=60)
    before = ink(file, 0)
    assert words(file, 0) == ["Surname", "Lovelace"]
    assert words(file, 0) == ["Surname", "Lovelace"]
    assert (ink(file, 0) == before).all()
    file.close()


def test_pages_are_drawn_in_rgb_at_the_resolution_asked_for(tmp_path: Path) -> None:
    def draw(canvas) -> None:
        canvas.setFillColorRGB(1, 0, 0)
        canvas.rect(0, 0, 72, 144, stroke=0, fill=1)

    # 101 pixels at 72 dpi make rows of 303 bytes, which PDFium pads to 304.
    file = PdfFile(draw_pdf(tmp_path / "a.pdf", draw, size=(101, 144)), timeout=60)
    small, large = file.render(0, dpi=72), file.render(0, dpi=144)
    assert (small.mode, small.size, large.size) == ("RGB", (101, 144), (202, 288))
    for image in (small, large):
        assert image.getpixel((image.width // 2, image.height // 2)) == (255, 0, 0)
        assert image.getpixel((image.width - 2, image.height - 2)) == (255, 255, 255)
    file.close()


def test_a_huge_page_is_drawn_smaller_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pdf, "MAX_PIXELS", 500_000)
    side = 200 * 72
    file = PdfFile(draw_pdf(tmp_path / "wall.pdf", lines(["x"]), size=(side, side // 2)), timeout=60)
    with caplog.at_level(logging.WARNING):
        image = file.render(0, dpi=144)
    assert 490_000 < image.width * image.height < 505_000
    assert image.width == 2 * image.height
    assert "wall.pdf, page 1 of 1: drawn at 5 instead of 144 dpi" in caplog.text
    file.close()


# Files that cannot be read


def test_encrypted_pdfs_are_told_apart_by_whether_they_need_a_password(tmp_path: Path) -> None:
    for_all = pdfencrypt.StandardEncryption("", ownerPassword="owner", canPrint=0)
    file = PdfFile(draw_pdf(tmp_path / "open.pdf", lines(["readable"]), encrypt=for_all), timeout=60)
    assert words(file, 0) == ["readable"]
    file.close()
    closed = draw_pdf(tmp_path / "closed.pdf", lines(["secret"]), encrypt=pdfencrypt.StandardEncryption("user"))
    with pytest.raises(DocumentError, match="closed.pdf: the PDF is encrypted and needs a password"):
        PdfFile(closed, timeout=60)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_a_truncated_pdf_is_called_truncated(tmp_path: Path, share: float, caplog: pytest.LogCaptureFixture) -> None:
    path = write_pdf(tmp_path / "a.pdf", 5)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(DocumentError, match="a.pdf: the PDF is truncated"):
        PdfFile(path, timeout=60)


def test_a_pdf_that_opens_without_its_end_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_pdf(tmp_path / "a.pdf", 5)
    path.write_bytes(path.read_bytes().rstrip().removesuffix(b"%%EOF"))
    with caplog.at_level(logging.WARNING):
        file = PdfFile(path, timeout=60)
    assert file.page_count == 5
    assert "it may be truncated" in caplog.text
    file.close()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "the file is empty"),
        (b"plain text", "not a PDF"),
        (b"%PDF-1.7\n" + 300 * b"rubbish " + b"\n%%EOF", "the PDF is damaged"),
    ],
)
def test_files_that_are_no_pdf_are_told_apart(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.pdf").write_bytes(content)
    with pytest.raises(DocumentError, match=message) as caught:
        PdfFile(tmp_path / "a.pdf", timeout=60)
    assert "\n" not in str(caught.value)


def test_a_pdf_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="the PDF has no pages"):
        PdfFile(write_pdf(tmp_path / "a.pdf", 0), timeout=60)


def test_a_damaged_page_leaves_the_others_readable(tmp_path: Path) -> None:
    path = draw_pdf(tmp_path / "a.pdf", lines(["first"]), lines(["second"]), pageCompression=0)
    content = path.read_bytes()
    second_page = content.rindex(b"/Type /Page ") if b"/Type /Page " in content else content.rindex(b"/Type /Page\n")
    path.write_bytes(content[:second_page] + content[second_page:].replace(b"/Type /Page", b"/Type /Pxxx", 1))
    file = PdfFile(path, timeout=60)
    assert words(file, 0) == ["first"]
    with pytest.raises(DocumentError, match="a.pdf, page 2 of 2: cannot be read"):
        file.characters(1)
    assert words(file, 0) == ["first"]
    file.close()


def test_several_files_that_are_no_images_are_no_document(tmp_path: Path) -> None:
    files = tuple(write_pdf(tmp_path / name, 1) for name in ("a.pdf", "b.pdf"))
    with pytest.raises(DocumentError, match="2 files that are not all images"):
        DocumentReader(Document("two", files), ocr=NoOcr())
    with pytest.raises(DocumentError, match="no files"):
        DocumentReader(Document("none", ()), ocr=NoOcr())
