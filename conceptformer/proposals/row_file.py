"""A JSONL file that grows row by row and outlives kills, full disks and a second process."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conceptformer.data.file_locks import lies_at, lock
from visar.tensor_files import StoreError, warn

_CHUNK = 1 << 16
# Rows are on their way to the disk when they are appended, whatever happens to the process. What a power cut may cost
# is the work of so many seconds.
_SYNC_SECONDS = 2.0


class RowFile:
    """Appends rows, one write each. Opening it makes the file, locks it, and mends a last line that a kill cut short.

    A lock belongs to the process, so none is left behind by a kill. Closing it removes the file again if it was made
    here and no row has come.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            StoreError: The file cannot be made or written, holds something else, or another process is writing it.
        """
        self.path = path
        self._unsynced = False
        self._synced_at = time.monotonic()
        self._file, self._own = _opened(path)
        try:
            self._mend()
        except BaseException:
            os.close(self._file)
            raise

    def append(self, row: Mapping[str, Any]) -> None:
        """Add one row, whole or not at all.

        Raises:
            StoreError: The disk is full or refuses the row; the rows before it are kept.
        """
        # Half characters, which a model may send as JSON's escapes, cannot stand in UTF-8 but as escapes.
        line = f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n".encode(errors="backslashreplace")
        before = os.fstat(self._file).st_size
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # what is left of the row is removed when the file is next opened
                os.ftruncate(self._file, before)
            raise self._refused(error) from error
        self._unsynced = True

    @property
    def sync_is_due(self) -> bool:
        """Whether there are rows to bring to the disk and that was last done some seconds ago."""
        return self._unsynced and time.monotonic() - self._synced_at >= _SYNC_SECONDS

    def sync(self) -> None:
        """Wait until all rows are on the disk.

        Raises:
            StoreError: The disk refuses them.
        """
        if self._unsynced:
            self._unsynced = False
            self._synced_at = time.monotonic()
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._refused(error) from error

    def close(self) -> None:
        """Bring the rows to the disk and let others write the file, if there are any; else remove it.

        Raises:
            StoreError: The disk refuses them.
        """
        try:
            self.sync()
            if self._own and os.fstat(self._file).st_size == 0 and lies_at(self.path, self._file):
                # As long as it is locked, nobody else has a row in it. It is a file without a use and no fault of the
                # run if it stays.
                with contextlib.suppress(OSError):
                    self.path.unlink()
        finally:
            os.close(self._file)

    def __enter__(self) -> RowFile:
        return self

    def __exit__(self, *_reason: object) -> None:
        self.close()

    def _mend(self) -> None:
        """End the last line if it is a whole row, and remove it otherwise."""
        size = os.fstat(self._file).st_size
        tail, start = b"", size
        while start > 0 and b"\n" not in tail:
            end, start = start, max(0, start - _CHUNK)
            os.lseek(self._file, start, os.SEEK_SET)
            tail = os.read(self._file, end - start) + tail
        tail = tail[tail.rfind(b"\n") + 1 :]
        if not tail:
            return
        try:
            if _is_object(tail):
                os.write(self._file, b"\n")
                return
            with self.path.open("rb") as file:
                first = file.readline()
            if not (_is_object(first) or (first == tail and tail[:1] in (b"{", b"\0"))):
                # Somebody else's: nothing may be taken off it. A power cut makes NULs of a row.
                raise StoreError(f"{self.path}: holds something else than rows of JSON; choose another file")
            os.ftruncate(self._file, size - len(tail))
        except OSError as error:
            raise self._refused(error) from error
        warn(f"{self.path}: the last row was cut short by a kill or a full disk; removed, to be made anew")

    def _refused(self, error: OSError) -> StoreError:
        return StoreError(
            f"{self.path}: cannot be written ({error.strerror}); make room there, then run the same command again: "
            "the rows so far are kept"
        )


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _opened(path: Path) -> tuple[int, bool]:
    """The file, open and locked, and whether it is ours to remove: made here, and locked."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                file, made = os.open(path, flags | os.O_EXCL, 0o666), True
            except FileExistsError:
                file, made = os.open(path, flags, 0o666), False
        except OSError as error:
            raise StoreError(f"{path}: cannot be written ({error.strerror}); choose another file") from error
        try:
            locked = lock(file, path, wait=False)
            if locked is False:
                raise StoreError(
                    f"{path}: another process is writing this file; wait for its end, or choose another file"
                )
            if locked is None or lies_at(path, file):
                return file, made and locked is not None
        except BaseException:
            os.close(file)
            raise
        # Between opening and locking it, the process that had it removed it as empty: rows in it would be lost.
        os.close(file)
