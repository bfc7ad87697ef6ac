"""Data files that the tests of their readers write: page images, and rows as JSON lines."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image


def save_page(path: Path, size: tuple[int, int] = (40, 60), colour: str = "white") -> Path:
    """A page image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def write_lines(path: Path, *rows: Mapping[str, Any] | bytes) -> Path:
    """A JSONL file; bytes are written as the line they are."""
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def training_row(**changes: Any) -> dict[str, Any]:
    """A good row of a training file; a change to None takes the key away."""
    row = {
        "query_id": "q1",
        "query": "Which year?",
        "page_id": "p1",
        "image": "p1.png",
        "boxes": [[4, 6, 20, 30]],
        "frame": "absolute",
    }
    return {key: value for key, value in (row | changes).items() if value is not None}


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file: length, kind, data, checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_size(width: int, height: int) -> bytes:
    """A grey PNG that states a size and holds no pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", b"") + png_chunk(b"IEND", b"")
