"""``table.html``: retrievers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conceptformer.report.comparison_table import FigureTable
from conceptformer.report.page import render
from visar.report.page import write_page


def write_retriever_page(path: Path, tables: Sequence[FigureTable], told: str, lines: Sequence[str]) -> None:
    """Write one self-contained HTML file (no script, no outside request), atomically.

    Args:
        told: What the figures are.
        lines: What a reader has to know of the data.

    Raises:
        StoreError: The file cannot be written.
    """
    shown = [table for table in tables if table.rows]
    write_page(path, render("retrievers", tables=shown, lines=lines, explanation=told))
