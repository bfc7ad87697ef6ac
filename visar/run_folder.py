"""The folder of one evaluation run: rows that outlive a kill, and the files that people open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from visar.tensor_files import StoreError, remove_leftovers, write_atomically

Row = Mapping[str, Any]


class RunFolder:
    """Writes ``per_query.jsonl`` row by row and everything else at once.

    While a run is on, each row is appended and flushed as soon as it is made, so that a kill costs the row in the
    making. The end of the run puts the rows of this run, and only those, in the benchmark's order.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows = path / "per_query.jsonl"
        self._open: BinaryIO | None = None
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{path}: cannot be made ({error.strerror}); choose another output folder") from error
        remove_leftovers(path)

    def known_rows(self) -> dict[str, Row]:
        """Rows of earlier runs by their key. A line that a kill cut short, within a character even, is no row.

        Raises:
            StoreError: The file is there and cannot be read.
        """
        rows: dict[str, Row] = {}
        # Bytes, since text has more line ends (U+2028 and others) than JSON Lines, and questions may hold them.
        for line in self._content().split(b"\n"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("key"), str):
                rows[row["key"]] = row
        return rows

    def append(self, row: Row) -> None:
        """Add one row now.

        Raises:
            StoreError: The disk is full or the file cannot be written.
        """
        rest = memoryview(_line(row))
        try:
            if self._open is None:
                content = self._content()
                # Without a buffer, which would keep what did not fit and fail once more when the process ends.
                self._open = self._rows.open("ab", buffering=0)
                if content and not content.endswith(b"\n"):
                    # A kill left half a row: the next one must not be glued to it and lost too.
                    self._open.write(b"\n")
            while rest:
                rest = rest[self._open.write(rest) :]
        except OSError as error:
            self._close()  # What was written may end within a row: the next one begins with a look at that.
            raise StoreError(
                f"{self._rows}: cannot be written ({error.strerror}); make room there, then run again: "
                "the rows so far are kept"
            ) from error

    def finish(self, rows: Iterable[Row]) -> None:
        """Replace the rows by those of the finished run.

        Raises:
            StoreError: The disk is full or the folder cannot be written; the rows stay as they were appended.
        """
        self._close()
        write_atomically(self._rows, b"".join(map(_line, rows)))

    def write(self, name: str, text: str) -> Path:
        """Write one file of the folder, all or nothing.

        Raises:
            StoreError: The disk is full or the folder cannot be written.
        """
        write_atomically(self.path / name, text.encode(errors="backslashreplace"))
        return self.path / name

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _content(self) -> bytes:
        try:
            return self._rows.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"{self._rows}: cannot be read ({error.strerror}); remove it or mend it") from error


def _line(row: Row) -> bytes:
    """The row as one line. Names of files that are no text come as JSON's escapes and are read back as they were."""
    return f"{json.dumps(row, ensure_ascii=False)}\n".encode(errors="backslashreplace")
