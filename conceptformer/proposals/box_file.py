"""The box file that a run of proposals makes.

The schema of a row is the file :data:`SCHEMA` beside this module;
:func:`conceptformer.data.training_files.read_training_rows` reads the rows as training pairs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from conceptformer.data.json_rows import JsonRow, Refusals, read_json_rows, shown
from conceptformer.errors import DataError
from visar.tensor_files import StoreError

FORMAT = "evidence-boxes/1"
SCHEMA = Path(__file__).with_name("evidence-boxes.schema.json")

NEEDED_KEYS = (
    "format", "query_id", "query", "page_id", "image", "boxes", "labels", "frame", "image_size", "input_size", "model",
    "prompt_version",
)  # fmt: skip
LOST_KEYS = ("clipped", "dropped")
POSSIBLE_KEYS = ("other_positives", *LOST_KEYS)

COMPANIONS = ("failed", "raw")
"""Names of the files beside a box file, see :func:`companion`."""

PairKey: TypeAlias = tuple[str, str]
"""(query id, page id)"""


class NothingRefused(Refusals):
    """For files of this program, in which each row is whole."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, skip=False)
        self._folder = path.parent

    def refuse(self, place: str, reason: object) -> None:
        """
        Raises:
            DataError: Always; it says what is wrong with the row.
        """
        raise DataError(f"{self._folder / place}: {reason}; this program did not write it so: correct or remove it")


def companion(path: Path, name: str) -> Path:
    """``BOXES.NAME.jsonl`` beside ``BOXES.jsonl``."""
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.{name}.jsonl")


def lost_boxes(*, clipped: int, dropped: int) -> dict[str, int]:
    """What a row says of boxes that are not in it as they were stated; nothing where all are.

    Args:
        clipped: Boxes that were cut off at the edge of their page.
        dropped: Boxes that could not be used.
    """
    return {name: count for name, count in zip(LOST_KEYS, (clipped, dropped), strict=True) if count}


def remove_file(path: Path, reason: str) -> None:
    """Remove a file of an earlier run, if there is one, that a user would take for one of this run.

    Args:
        reason: Why there is nothing to be written, for the message.

    Raises:
        StoreError: It cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path}: cannot be removed ({error.strerror}); remove it: {reason}") from error


def read_done(path: Path) -> dict[PairKey, JsonRow]:
    """The rows of a box file by their pair.

    Raises:
        DataError: The file cannot be read, holds something else, or a pair twice.
    """
    done: dict[PairKey, JsonRow] = {}
    for row in read_json_rows(path, NEEDED_KEYS, POSSIBLE_KEYS, NothingRefused(path)):
        if row.values["format"] != FORMAT:
            found = shown(row.values["format"])
            raise DataError(f"{row.place}: its format is {found}; this version writes {FORMAT}: choose another out=")
        key = (row.text("query_id"), row.text("page_id"))
        if key in done:
            raise DataError(f"{row.place}: the same query and page as {done[key].place}; remove one of the two rows")
        done[key] = row
    return done
