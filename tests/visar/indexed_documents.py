"""Documents to be encoded, and what a test can see of the encoding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.visar.hashed_encoder import HashedWords
from visar.documents import NoOcr
from visar.indexing import IndexReport, index_documents
from visar.records import Document
from visar.store import EmbeddingStore

canvas = pytest.importorskip("reportlab.pdfgen.canvas", reason="reportlab draws the documents")


def pdf(path: Path, pages: Sequence[str]) -> Document:
    """A PDF with one line of text on each page; equal texts give equal files."""
    drawing = canvas.Canvas(str(path), pagesize=(300, 200), invariant=True)
    for text in pages:
        drawing.drawString(20, 100, text)
        drawing.showPage()
    drawing.save()
    return Document(path.stem, (path,))


def words(name: str, pages: int) -> list[str]:
    """Texts long enough to count as a text layer, no two alike; the first word tells document and page."""
    return [f"{name}{page} is the text of page number {page} in this document" for page in range(pages)]


def index(documents: Sequence[Document], encoder: HashedWords, root: Path, **options: object) -> IndexReport:
    settings = {"dpi": 50, "ocr": NoOcr(), "text_cache": None, "batch_pages": 2, **options}
    return index_documents(documents, encoder, EmbeddingStore(root), **settings)


def encoded(encoder: HashedWords) -> list[str]:
    """First words of the pages encoded so far."""
    return sorted(line.split()[1] for line in calls(encoder))


def processes_used(encoder: HashedWords) -> set[int]:
    return {int(line.split()[0]) for line in calls(encoder)}


def calls(encoder: HashedWords) -> list[str]:
    return encoder.calls.read_text().splitlines() if encoder.calls.exists() else []


def stored_bytes(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def is_alive(process: int) -> bool:
    """Whether a process runs; a dead child of this one whose end nobody asked about does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
