"""The reader: text layer or OCR page by page, a cache that survives damage, fingerprints of all that counts."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.visar.benchmark_files import write_pdf
from visar.documents import DocumentReader, NoOcr, find_document
from visar.documents.text_cache import CachedText, TextCache
from visar.errors import DocumentError
from visar.records import Document, PageText, Word

pytest.importorskip("reportlab", reason="reportlab draws the documents")
from tests.visar.made_documents import SENTENCES, draw_pdf, lines, picture, together, typed_page  # noqa: E402

STAMP = "Case 2:18-cv-12857 Filed 09/13/18 Page 1 of 16"


class Announcing:
    """An engine that finds one word at the foot of each page, and counts its pages."""

    name = "announcing"

    def __init__(self, text: str = "recognised") -> None:
        self.text = text
        self.pages = 0

    def fingerprint(self) -> dict[str, str]:
        return {"ocr": self.name, "text": self.text}

    def read(self, image: Image.Image) -> tuple[Word, ...]:
        self.pages += 1
        return (Word(self.text, (0.1, 0.9, 0.3, 0.95)),)


def texts(page: PageText) -> list[str]:
    return [word.text for word in page.words]


@pytest.fixture
def mixed(tmp_path: Path) -> Document:
    """A page of text, a stamped scan, a scan, a blank page."""
    scan = picture(typed_page(SENTENCES), (0, 0, 612, 792))
    stamp = lines([STAMP], left=100, top=760, size=9)
    return find_document(draw_pdf(tmp_path / "mixed.pdf", lines(SENTENCES), together(scan, stamp), scan, lines([])))


# Where the text comes from


def test_each_page_takes_its_text_layer_or_ocr(mixed: Document) -> None:
    engine = Announcing()
    with DocumentReader(mixed, ocr=engine) as reader:
        pages = [reader.text(page) for page in range(reader.page_count)]
    assert [page.source for page in pages] == ["text layer", "announcing", "announcing", "announcing"]
    assert texts(pages[0]) == " ".join(SENTENCES).split()
    assert texts(pages[1]) == [*STAMP.split(), "recognised"]
    assert texts(pages[2]) == ["recognised"]
    assert pages[3].words == ()
    assert engine.pages == 2  # a page of one colour has nothing to recognise


def test_without_ocr_stamps_stay_and_scans_are_without_words(mixed: Document) -> None:
    with DocumentReader(mixed, ocr=NoOcr()) as reader:
        pages = [reader.text(page) for page in range(4)]
    assert [page.source for page in pages] == ["text layer", "text layer", "none", "none"]
    assert texts(pages[1]) == STAMP.split()
    assert pages[2].words == pages[3].words == ()


def test_ocr_adds_nothing_where_the_text_layer_stands(tmp_path: Path) -> None:
    scan = picture(typed_page(SENTENCES), (0, 0, 612, 792))
    footer = lines(["footer"], left=100, top=792 * 0.07, size=20)  # where the engine finds its word
    document = find_document(draw_pdf(tmp_path / "a.pdf", together(scan, footer)))
    with DocumentReader(document, ocr=Announcing()) as reader:
        assert reader.text(0) == PageText(reader.text(0).words, "text layer")
        assert texts(reader.text(0)) == ["footer"]


def test_images_are_pages_that_are_recognised(tmp_path: Path) -> None:
    for name in ("2.png", "10.png"):
        typed_page([name], size=(300, int(name[:-4]) * 10 + 100)).save(tmp_path / name)
    with DocumentReader(find_document(tmp_path), ocr=Announcing()) as reader:
        assert reader.page_count == 2
        assert [reader.image(page).size for page in (0, 1)] == [(300, 120), (300, 200)]
        assert reader.text(1) == PageText((Word("recognised", (0.1, 0.9, 0.3, 0.95)),), "announcing")


def test_real_scans_are_read_by_rapidocr(shared_data: Path) -> None:
    pytest.importorskip("rapidocr", reason="the ocr extra is not installed")
    from visar.documents import RapidOcr

    path = shared_data / "mmlongbench" / "documents" / "reportq32015-151009093138-lva1-app6891_95.pdf"
    with DocumentReader(find_document(path), ocr=RapidOcr(threads=1)) as reader:
        page = reader.text(3)
    assert page.source == "rapidocr"
    found = " ".join(texts(page))
    assert "TABLE OF CONTENT" in found
    assert found.index("Global mobile market") < found.index("Vietnam mobile market") < found.index("Appota news")


@pytest.mark.parametrize("page", [-1, 4, 100])
def test_pages_outside_the_document_are_refused(mixed: Document, page: int) -> None:
    with DocumentReader(mixed, ocr=NoOcr()) as reader:
        for read in (reader.text, reader.image):
            with pytest.raises(DocumentError, match=rf"no page {page}; the document has 4, numbered from 0"):
                read(page)


def test_words_outside_the_page_are_told_once_for_the_document(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = together(lines(["inside"]), lines(["far outside"], left=-500))
    document = find_document(draw_pdf(tmp_path / "a.pdf", page, lines(["inside"]), page))
    for _ in range(2):  # the second time from the cache
        caplog.clear()
        with DocumentReader(document, ocr=NoOcr(), text_cache=tmp_path) as reader:
            for number in (0, 1, 2, 0):
                assert texts(reader.text(number)) == ["inside"]
        reader.close()
        warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert warned == ["a.pdf: words outside the visible page were left out (4, on 2 of its pages)"]


def test_an_impossible_resolution_is_refused(mixed: Document) -> None:
    with pytest.raises(DocumentError, match="dpi must be above 0, got 0"):
        DocumentReader(mixed, dpi=0, ocr=NoOcr())


def test_a_missing_image_is_refused_when_the_reader_opens(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        DocumentReader(Document("x", (tmp_path / "gone.png",)), ocr=NoOcr())


# The cache


def test_cached_text_is_equal_and_needs_no_second_reading(mixed: Document, tmp_path: Path) -> None:
    engine = Announcing()
    runs = []
    for _ in range(2):
        with DocumentReader(mixed, ocr=engine, text_cache=tmp_path / "cache") as reader:
            runs.append([reader.text(page) for page in range(4)])
    assert runs[0] == runs[1]
    assert engine.pages == 2


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX systems")
def test_cached_text_is_there_even_if_the_page_can_no_longer_be_read(mixed: Document, tmp_path: Path) -> None:
    with DocumentReader(mixed, ocr=NoOcr(), text_cache=tmp_path / "cache") as reader:
        first = reader.text(0)
        os.kill(reader._pdf._worker.process.pid, signal.SIGKILL)
        assert reader.text(0) == first
        with pytest.raises(DocumentError, match="mixed.pdf, page 2 of 4"):
            reader.text(1)
        assert reader.text(2).source == "none"


def test_another_engine_or_resolution_or_content_has_a_cache_of_its_own(mixed: Document, tmp_path: Path) -> None:
    def read(document: Document, engine: Announcing, dpi: float) -> int:
        with DocumentReader(document, ocr=engine, dpi=dpi, text_cache=tmp_path / "cache") as reader:
            reader.text(2)
        return engine.pages

    engine = Announcing()
    assert read(mixed, engine, 144) == 1
    assert read(mixed, Announcing("other"), 144) == 1
    assert read(mixed, engine, 100) == 2
    assert read(mixed, engine, 144) == 2
    path = mixed.files[0]
    path.write_bytes(path.read_bytes() + b"\n")
    assert read(mixed, engine, 144) == 3
    moved = shutil.copy(path, tmp_path / "moved.pdf")
    assert read(find_document(moved), engine, 144) == 3


def cut(content: str) -> str:
    return content[: len(content) // 2]


def changed(**values: object) -> Callable[[str], str]:
    return lambda content: json.dumps({**json.loads(content), **values})


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: "",
        cut,
        lambda content: "[]",
        lambda content: '"text"',
        changed(words=[["x", 0.1, 0.2, 0.3]]),
        changed(words=[["x", 0.1, 0.2, 0.3, 1.5]]),
        changed(words=[["x", 0.5, 0.2, 0.3, 0.9]]),
        changed(words=[["x", float("nan"), 0.2, 0.3, 0.9]]),
        changed(words=[[7, 0.1, 0.2, 0.3, 0.9]]),
        changed(words=[[]]),
        changed(words=None),
        changed(source=None),
        changed(words_outside="many"),
        changed(key={"content": "of another document"}),
    ],
)
def test_a_damaged_entry_is_read_again_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[str], str]
) -> None:
    cache = TextCache(tmp_path, {"content": "abc"})
    good = CachedText(PageText((Word("caf\u00e9 \U0001d400", (0.0, 0.25, 0.5, 1.0)),), "text layer"), 3)
    cache.save(7, good)
    assert cache.load(7) == good
    assert cache.load(8) is None
    cache.path(7).write_text(damage(cache.path(7).read_text()))
    assert "damaged" not in caplog.text
    with caplog.at_level(logging.WARNING):
        assert cache.load(7) is None
    assert "page-00007.json: damaged cache entry" in caplog.text
    cache.save(7, good)
    assert cache.load(7) == good


def test_bytes_that_are_no_text_are_damage_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = TextCache(tmp_path, {})
    cache.path(0).parent.mkdir()
    cache.path(0).write_bytes(b"\xff\xfe\x00")
    assert cache.load(0) is None
    assert "damaged cache entry" in caplog.text


def test_a_cache_that_cannot_be_written_costs_a_warning_and_not_the_text(
    mixed: Document, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with DocumentReader(mixed, ocr=NoOcr(), text_cache=tmp_path / "cache") as reader:
        assert texts(reader.text(0)) == " ".join(SENTENCES).split()
    assert "the text of page 0 (0-based) is not kept" in caplog.text


# Fingerprints


def test_content_decides_the_content_fingerprint_and_names_do_not(tmp_path: Path) -> None:
    one, two = typed_page(["one"]), typed_page(["two"])
    for folder, pages in {"a": (one, two), "b": (one, two), "c": (two, one)}.items():
        (tmp_path / folder).mkdir()
        for number, page in enumerate(pages):
            page.save(tmp_path / folder / f"{folder}{number}.png")

    def fingerprint(path: Path) -> str:
        with DocumentReader(find_document(path), ocr=NoOcr()) as reader:
            return reader.content_fingerprint()

    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    assert len({fingerprint(tmp_path / name) for name in ("a", "c", "a/a0.png", "a/a1.png")}) == 4


def test_fingerprints_of_image_and_text_hold_what_decides_them(tmp_path: Path) -> None:
    document = find_document(write_pdf(tmp_path / "a.pdf", 1))

    def fingerprints(dpi: float, engine: Announcing) -> tuple[dict[str, str], dict[str, str]]:
        with DocumentReader(document, dpi=dpi, ocr=engine) as reader:
            return reader.image_fingerprint(), reader.text_fingerprint()

    image, text = fingerprints(144, Announcing())
    assert image.items() <= text.items()
    assert {"pypdfium2", "dpi", "ocr", "text rules"} <= text.keys()
    assert fingerprints(144.0, Announcing()) == (image, text)
    assert fingerprints(144, Announcing("other"))[0] == image
    assert fingerprints(144, Announcing("other"))[1] != text
    assert fingerprints(72, Announcing())[0] != image
