"""What the tests of drawn pages share."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageChops

from conceptformer.drawn import DrawnPages


def opened(data: bytes) -> Image.Image:
    """The picture in a file's content."""
    return Image.open(BytesIO(data)).convert("RGB")


def differing(page: Image.Image, other: Image.Image) -> Image.Image:
    """1-channel image, above 0 where any channel differs."""
    red, green, blue = ImageChops.difference(page, other).split()
    return ImageChops.lighter(ImageChops.lighter(red, green), blue)


def small_drawing(folder: Path, **settings) -> DrawnPages:
    """A drawing that takes a fraction of a second."""
    few = {"pages": 60, "held_out_pages": 20, "queries_per_page": 2, "variants": 1, "colours": 5, "words": 20}
    return DrawnPages(folder, **{**few, **settings})


def rows(path: Path) -> list[dict]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
