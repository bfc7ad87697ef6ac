"""Small real files that the tests of the benchmark loaders are made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import pypdfium2
from PIL import Image

SHARED = Path(__file__).parents[2].parent / "shared"


def write_pdf(path: Path, pages: int) -> Path:
    """A PDF with blank pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = pypdfium2.PdfDocument.new()
    for _ in range(pages):
        document.new_page(120, 160)
    document.save(path)
    document.close()
    return path


def write_image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (12, 16), "white").save(path)
    return path


def write_json(path: Path, rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return path


def write_json_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
