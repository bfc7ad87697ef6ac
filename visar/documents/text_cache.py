"""The text of pages on disk, one JSON file each, so that OCR runs once per page."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from visar.records import PageText, Word
from visar.tensor_files import StoreError, canonical_json, write_atomically

logger = logging.getLogger(__name__)

DIGEST_LENGTH = 32


@dataclass(frozen=True)
class CachedText:
    """A page's text and how many of its words stand outside the page and were left out."""

    text: PageText
    words_outside: int


class TextCache:
    """The pages of one document, read in one way.

    Args:
        folder: Common folder of all documents' text; made if missing.
        key: Everything that decides the text: content of the document, OCR engine, versions. Another key, another file.
    """

    def __init__(self, folder: Path, key: Mapping[str, str]) -> None:
        self._key = dict(key)
        digest = hashlib.sha256(canonical_json(self._key).encode()).hexdigest()
        self._folder = folder / digest[:DIGEST_LENGTH]

    def path(self, page: int) -> Path:
        """Where the text of a 0-based page is kept."""
        return self._folder / f"page-{page:05d}.json"

    def load(self, page: int) -> CachedText | None:
        """The text, or None where there is none. A damaged file counts as none, with a warning."""
        path = self.path(page)
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            if entry["key"] != self._key:
                raise ValueError("it belongs to another document or setting")
            words = tuple(_word(item) for item in entry["words"])
            source, words_outside = entry["source"], entry["words_outside"]
            if not isinstance(source, str) or not isinstance(words_outside, int):
                raise ValueError("source or words_outside is of a wrong type")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s: damaged cache entry (%s); the page is read again", path, error)
            return None
        return CachedText(PageText(words, source), words_outside)

    def save(self, page: int, cached: CachedText) -> None:
        """Write the text whole or not at all. Where that fails (disk full), warn: only the time to read is lost."""
        entry = {
            "key": self._key,
            "source": cached.text.source,
            "words_outside": cached.words_outside,
            "words": [[word.text, *word.box] for word in cached.text.words],
        }
        try:
            write_atomically(self.path(page), json.dumps(entry).encode())
        except StoreError as error:
            logger.warning("the text of page %d (0-based) is not kept and must be read again: %s", page, error)


def _word(item: list[object]) -> Word:
    text, *box = item
    if not isinstance(text, str) or len(box) != 4:
        raise ValueError(f"a word is a text and four numbers, not {item!r:.80}")
    left, top, right, bottom = (float(side) for side in box)
    if not (0 <= left <= right <= 1 and 0 <= top <= bottom <= 1):
        raise ValueError(f"box {box} is none on the page")
    return Word(text, (left, top, right, bottom))
