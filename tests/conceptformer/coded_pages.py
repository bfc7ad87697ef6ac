"""Pages whose shades are the bytes of their text, an engine that really reads them, and corpora of such pages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from conceptformer.records import Page, RetrievalTask
from tests.conceptformer.colour_pages import png
from visar.errors import DocumentError
from visar.records import Word

_WIDTH = 16
_SOMEWHERE = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class CodedReader:
    """Reads such pages.

    Attributes:
        log: File that gets a line, the text, for each page read.
        seconds: Slept for each page, so that there is time to be killed.
        refuses: A word on which the engine cannot be run.
        version: Part of the fingerprint.
    """

    log: Path | None = None
    seconds: float = 0.0
    refuses: str | None = None
    version: str = "1"
    name: str = "coded"

    def fingerprint(self) -> dict[str, str]:
        return {"ocr": self.name, "version": self.version}

    def read(self, image: Image.Image) -> tuple[Word, ...]:
        time.sleep(self.seconds)
        shades = np.asarray(image.convert("L")).reshape(-1)
        text = bytes(shades[2:]).rstrip(b"\0").decode()
        words = text.split()
        if self.refuses in words:
            raise DocumentError(f"the engine does not take '{self.refuses}'")
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{text}\n")
        return tuple(Word(word, _SOMEWHERE) for word in words)


def coded(text: str) -> bytes:
    """A PNG; an empty text makes a blank page."""
    data = b"\1\2" + text.encode() if text else b""
    shades = np.zeros(-(-max(1, len(data)) // _WIDTH) * _WIDTH, np.uint8)
    shades[: len(data)] = np.frombuffer(data, np.uint8)
    return png(Image.fromarray(shades.reshape(-1, _WIDTH)))


def coded_page(page_id: str, text: str) -> Page:
    return Page(page_id, coded(text))


def coded_task(
    texts: Mapping[str, str],
    queries: Mapping[str, str],
    relevant: Mapping[str, Sequence[str]],
    folder: Path | None = None,
) -> RetrievalTask:
    """A task over pages of these texts, by page id; with a folder they are files in it."""
    pages = [coded_page(page_id, text) for page_id, text in texts.items()]
    if folder is not None:
        folder.mkdir(parents=True)
        for number, page in enumerate(pages):
            (folder / f"{number}.png").write_bytes(page.image)
            pages[number] = Page(page.page_id, folder / f"{number}.png")
    answers = {query: frozenset(ids) for query, ids in relevant.items()}
    return RetrievalTask("coded", queries, tuple(pages), answers)
