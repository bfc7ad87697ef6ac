"""Rows of box files that the tests write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conceptformer.box_files.rows import BoxFile, read_box_file
from tests.conceptformer.row_files import save_page, write_lines

SIDE = 280
"""Of pages in pixels: 10 x 10 cells of 28 pixels for Qwen2.5-VL, which it does not resize."""


def box_row(number: int, boxes: list[Any], **changes: Any) -> dict[str, Any]:
    """A good row on the page ``p<number>``; a change to None takes the key away."""
    row = {
        "format": "evidence-boxes/1",
        "query_id": f"q{number}",
        "query": f"Which ferry is number {number}?",
        "page_id": f"p{number}",
        "image": f"pages/{number}.png",
        "boxes": boxes,
        "labels": [f"label {place}" for place in range(len(boxes))],
        "frame": "absolute",
        "image_size": [SIDE, SIDE],
        "input_size": [SIDE, SIDE],
        "model": "a-model",
        "prompt_version": "1",
    }
    return {key: value for key, value in (row | changes).items() if value is not None}


def write_boxes(folder: Path, *rows: dict[str, Any] | bytes, name: str = "boxes.jsonl") -> Path:
    """A file of rows, and the pages that they name."""
    for row in rows:
        if isinstance(row, dict) and not (folder / row["image"]).exists():
            save_page(folder / row["image"], (SIDE, SIDE))
    return write_lines(folder / name, *rows)


def read_rows(folder: Path, *rows: dict[str, Any] | bytes) -> BoxFile:
    """What is found in such a file."""
    return read_box_file(write_boxes(folder, *rows))
