"""Pages of coloured stripes, queries that name colours, and a retriever that really finds the one by the other."""

from __future__ import annotations

import io
import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from conceptformer.errors import DataError
from conceptformer.records import Page, RetrievalTask
from conceptformer.retrieval.encoding import Encoding, Place

COLOURS = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "red": (220, 20, 20),
    "green": (20, 200, 20),
    "blue": (20, 20, 220),
    "yellow": (230, 230, 20),
    "violet": (150, 20, 200),
}
_OTHER_WORDS = 4


@dataclass(frozen=True)
class ColourRetriever:
    """Shares of colours on a page, against colours named in a query; other words fall into a few further places.

    Attributes:
        log: File that gets a line for each page and query encoded.
        seconds: Slept for each page, so that there is time to be killed.
        weight: Of other words.
    """

    log: Path | str | None = None
    seconds: float = 0.0
    weight: float = 0.1
    name: str = "colours"

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(queries), len(COLOURS) + _OTHER_WORDS), np.float32)
        for vector, query in zip(vectors, queries, strict=True):
            for word in query.split():
                place = list(COLOURS).index(word) if word in COLOURS else -1 - zlib.crc32(word.encode()) % _OTHER_WORDS
                vector[place] += 1.0 if word in COLOURS else self.weight
        self._note(queries)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def encode_pages(self, images: Sequence[Image.Image]) -> np.ndarray:
        for image in images:
            if image.width < 3:
                raise DataError(f"an image of {image.width} x {image.height} pixels is too narrow; expected 3 or more")
        vectors = np.stack([self._shares(image) for image in images])
        time.sleep(self.seconds * len(images))
        self._note([f"{zlib.crc32(image.tobytes())}" for image in images])
        return vectors

    def fingerprint(self) -> str:
        return json.dumps(["colours 1", sorted(COLOURS.items()), self.weight])

    def _shares(self, image: Image.Image) -> np.ndarray:
        pixels = np.asarray(image, np.float32).reshape(-1, 1, 3)
        nearest = np.square(pixels - np.array(list(COLOURS.values()), np.float32)).sum(axis=2).argmin(axis=1)
        shares = np.bincount(nearest, minlength=len(COLOURS) + _OTHER_WORDS).astype(np.float32)
        return shares / np.linalg.norm(shares)

    def _note(self, lines: Sequence[str]) -> None:
        if self.log is not None:
            with Path(self.log).open("a") as file:
                file.write("".join(f"{line}\n" for line in lines))


def draw(number: int, width: int = 12) -> tuple[Image.Image, list[str]]:
    """A page of three stripes, two of them of its own colours, and their names; 42 pages before they repeat."""
    names = list(COLOURS)
    first, second = names[number % 7], names[(number // 7 + 1 + number) % 7]
    image = Image.new("RGB", (width, 21), COLOURS[first])
    image.paste(COLOURS[second], (0, 0, width, 9))
    image.paste(COLOURS["white"], (0, 20, width, 21))
    # A mark that makes the bytes of every page its own without any weight.
    image.putpixel((0, 20), (255, 255, 254 - number % 200))
    return image, [first, second]


def make_pages(folder: Path, count: int) -> list[Page]:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        draw(number)[0].save(folder / f"{number}.png")
    return [Page(f"page {number}", folder / f"{number}.png") for number in range(count)]


def in_memory(pages: Sequence[Page]) -> list[Page]:
    return [Page(page.page_id, page.image.read_bytes()) for page in pages]


def make_task(folder: Path, count: int) -> RetrievalTask:
    """Every third page is asked for, by its colours; the query of each seventh page also has the next as an answer."""
    pages = make_pages(folder, count)
    asked = range(0, count, 3)
    queries = {f"q{number}": f"Instruct: find\\nQuery: {' '.join(draw(number)[1])}" for number in asked}
    relevant = {
        f"q{number}": frozenset(
            {f"page {number}", f"page {(number + 1) % count}"} if number % 7 == 0 else {f"page {number}"}
        )
        for number in asked
    }
    return RetrievalTask("colours", queries, tuple(pages), relevant)


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def encoding(cache: Path, **changes: object) -> Encoding:
    settings = {
        "shard_items": 5,
        "batch_pages": 2,
        "batch_queries": 3,
        "skip_bad_pages": False,
        "patience_seconds": 60.0,
        "place": Place(),
    }
    return Encoding(cache, **{**settings, **changes})


def silent(done: int, total: int) -> None:
    """A progress that nobody looks at."""
