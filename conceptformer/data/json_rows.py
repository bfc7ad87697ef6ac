"""JSONL data files: rows with their places in the file, and a list of what is left out of them and why."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.data.line_files import placed_lines
from conceptformer.data.one_line import one_line
from conceptformer.errors import DataError
from conceptformer.records import EvidenceBox, Page
from conceptformer.regions import RelativeFrame, frame_named, valid_boxes
from visar.tensor_files import write_atomically

_LOGGER = logging.getLogger(__name__)
_LISTED = 3
_SHOWN = 60


@dataclass(frozen=True)
class JsonRow:
    """An object of a JSONL file.

    Attributes:
        place: File name and line, for messages.
    """

    place: str
    values: Mapping[str, object]

    def text(self, key: str) -> str:
        """The text under ``key``, as it stands there.

        Raises:
            DataError: It is no text, or nothing but white space.
        """
        return _checked_text(self.values[key], key)

    def texts(self, key: str) -> tuple[str, ...]:
        """The list of texts under ``key``; empty where the key is missing.

        Raises:
            DataError: It is something else, or one of the texts is empty.
        """
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise DataError(f"{key} is {shown(value)}; expected a list of texts")
        return tuple(_checked_text(item, key) for item in value)


class KnownPairs:
    """The pairs of a query and a page that a file holds so far, to find what contradicts them."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], str] = {}
        self._queries: dict[str, tuple[str, str]] = {}
        self._pages: dict[str, tuple[Path, str]] = {}

    def add(self, place: str, query_id: str, query: str, page_id: str, image: Path) -> None:
        """Take note of a pair.

        Args:
            place: File name and line, for messages.

        Raises:
            DataError: The pair is there already, or the query has another text or the page another image; then it is
                not taken note of.
        """
        twin = self._pairs.get((query_id, page_id))
        text, asked = self._queries.get(query_id, (query, place))
        file, seen = self._pages.get(page_id, (image, place))
        if twin is not None:
            raise DataError(f"the same query and page as {twin}")
        if text != query:
            raise DataError(f"another text of this query than in {asked}")
        if file != image:
            raise DataError(f"another image of this page than in {seen}")
        self._pairs[query_id, page_id] = place
        self._queries[query_id], self._pages[page_id] = (text, asked), (file, seen)


class Refusals:
    """Collects what is left out of data files, one line each, and says in the end whether that is an error."""

    def __init__(self, source: Path, *, skip: bool) -> None:
        """
        Args:
            source: File or folder, for messages.
            skip: Whether what is refused may be left out. It is an error otherwise.
        """
        self._source = source
        self._skip = skip
        self._lines: list[str] = []
        self._clipped: list[str] = []

    def refuse(self, place: str, reason: object) -> None:
        """List a row or a box as left out."""
        self._lines.append(one_line(f"{place}: {reason}"))

    def usable_boxes(
        self, place: str, row: JsonRow, boxes: object, labels: Sequence[str] | None, image_size: tuple[int, int]
    ) -> tuple[EvidenceBox, ...]:
        """The usable boxes of a page. Each of the others is listed as left out, and those that are clipped are counted.

        Args:
            row: Holds "frame" and "input_size".
            boxes: What the row says to be the boxes of the page.

        Raises:
            BoxError: The frame is not stated or cannot be right, or boxes and labels do not match.
            DataError: There is no list of boxes.
        """
        if not isinstance(boxes, list):
            raise DataError(f"boxes are {shown(boxes)}; expected a list of [x1, y1, x2, y2]")
        # Without boxes a frame need not be stated, and any will do.
        frame = frame_named(row.values.get("frame"), row.values.get("input_size")) if boxes else RelativeFrame()
        checked = valid_boxes(boxes, labels, frame, image_size)
        for line in checked.dropped:
            self.refuse(place, line)
        self._clipped += (one_line(f"{place}: {line}") for line in checked.clipped)
        return checked.boxes

    def result(self, used: int, what: str) -> tuple[str, ...]:
        """All lines. That boxes were clipped is logged.

        Args:
            used: How many rows can be used.
            what: What they are, e.g. "training pairs".

        Raises:
            DataError: Something was refused and may not be left out, or nothing can be used.
        """
        if self._clipped:
            count, first = len(self._clipped), self._clipped[0]
            _LOGGER.warning("%s: boxes clipped to their pages: %d, the first: %s", self._source, count, first)
        hidden = len(self._lines) - _LISTED
        faults = "; ".join(self._lines[:_LISTED]) + (f"; and {hidden:,} more" if hidden > 0 else "")
        if self._lines and not self._skip:
            raise DataError(
                f"{self._source}: rows or boxes that cannot be used: {len(self._lines):,}: {faults}; "
                "correct them, or skip_bad_rows=true, which leaves them out and lists them"
            )
        if not used:
            raise DataError(
                f"{self._source}: expected {what}, found none{' that can be used: ' * bool(faults)}{faults}"
            )
        return tuple(self._lines)


def read_json_rows(path: Path, needed: Sequence[str], possible: Sequence[str], refusals: Refusals) -> list[JsonRow]:
    """The rows of a JSONL file that are objects with the right keys; others are refused. Blank lines are no rows.

    Args:
        needed: Keys that every row must have.
        possible: Keys that a row may have besides.

    Raises:
        DataError: The file is missing or cannot be read.
    """
    rows = []
    for place, line in placed_lines(path, f"one JSON object per line with {', '.join(needed)}"):
        try:
            values = json.loads(line.decode(), object_pairs_hook=_without_repeats)
            _check_keys(values, needed, possible)
        except DataError as error:
            refusals.refuse(place, error)
        except (ValueError, RecursionError) as error:  # neither UTF-8 nor JSON
            refusals.refuse(place, f"expected a JSON object in UTF-8 ({error})")
        else:
            rows.append(JsonRow(place, values))
    return rows


def write_json_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """A JSONL file, there complete or not at all.

    Raises:
        StoreError: It cannot be written.
    """
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def corners(box: EvidenceBox) -> list[float]:
    """A box as files hold it, in the frame "relative"."""
    return [box.left, box.top, box.right, box.bottom]


def image_reference(page: Page, folder: Path) -> str:
    """How a file in ``folder`` names the image of a page.

    Raises:
        DataError: The image is no file of its own.
    """
    if not isinstance(page.image, Path):
        raise DataError(f"page {shown(page.page_id)}: its image is no file of its own; write it to one first")
    return Path(os.path.relpath(page.image, folder)).as_posix()


def image_path(reference: str, folder: Path) -> Path:
    """The file that a file in ``folder`` names; equal for equal places, however they are written."""
    return Path(os.path.normpath(folder / reference))


def shown(value: object) -> str:
    """A value for a message, cut to a part of a line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON. Python's reader would take the last of equal keys and say nothing."""
    values = dict(pairs)
    if len(values) != len(pairs):
        keys = [key for key, _ in pairs]
        raise DataError(f"the key {shown(next(key for key in keys if keys.count(key) > 1))} stands there twice")
    return values


def _check_keys(values: object, needed: Sequence[str], possible: Sequence[str]) -> None:
    if not isinstance(values, dict):
        raise DataError(f"{shown(values)}; expected a JSON object")
    missing = [key for key in needed if key not in values]
    unknown = [key for key in values if key not in needed and key not in possible]
    if missing or unknown:
        faults = [
            f"{what} {', '.join(map(shown, keys))}" for what, keys in (("no", missing), ("unknown", unknown)) if keys
        ]
        raise DataError(f"keys: {'; '.join(faults)}; expected {', '.join(needed)}, and possibly {', '.join(possible)}")


def _checked_text(value: object, key: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{key} is {shown(value)}; expected a text")
    if not value.strip():
        raise DataError(f"{key} is {shown(value)}; expected a text that is not empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = ascii(value[error.start])
        raise DataError(f"{key} holds {half}, half of a character (a surrogate without its other)") from error
    return value
