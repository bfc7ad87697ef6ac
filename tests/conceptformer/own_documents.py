"""A folder of own documents, and what it holds, to be read as a benchmark."""

from __future__ import annotations

from pathlib import Path

from conceptformer.benchmarks import DocumentFolder
from tests.conceptformer.row_files import save_page
from tests.visar.made_documents import draw_pdf, lines

PAGES = [
    "a.png", "b.jpg", "scans/page_2.png", "scans/page_10.png",
    "reports/2020.pdf#1", "reports/2020.pdf#2", "reports/2020.pdf#3",
]  # fmt: skip
"""Ids of their pages, in the order of the corpus."""


def make_documents(folder: Path) -> Path:
    """A PDF of three pages below a folder, two images at the top, a folder of two page images."""
    (folder / "reports").mkdir(parents=True)
    draw_pdf(folder / "reports" / "2020.pdf", *(lines([f"page {number}"] * 5) for number in range(3)), size=(144, 216))
    save_page(folder / "a.png", (30, 40), "red")
    save_page(folder / "b.jpg", (50, 40), "blue")
    save_page(folder / "scans" / "page_10.png", (20, 20), "green")
    save_page(folder / "scans" / "page_2.png", (20, 21), "white")
    save_page(folder / ".hidden" / "c.png")
    (folder / "notes.docx").write_bytes(b"PK")
    return folder


def benchmark(documents: Path | None, **changes: object) -> DocumentFolder:
    """The benchmark of these documents."""
    settings = {
        "documents": documents,
        "queries": None,
        "drawn": None if documents is None else documents.parent / "drawn",
        "dpi": 72,
        "skip_bad_rows": False,
    }
    return DocumentFolder(**(settings | changes))


def write_queries(documents: Path, text: str) -> Path:
    """A table beside the documents."""
    path = documents / "queries.csv"
    path.write_text(text, encoding="utf-8")
    return path
