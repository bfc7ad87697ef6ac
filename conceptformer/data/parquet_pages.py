"""Page images inside Parquet files: found by their ids, read one after the other with a few of them in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conceptformer.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# A scanned map takes 4 MB. Larger steps are not faster: the time goes into reading and unpacking.
_ROWS_AT_ONCE = 16
# Without a buffer a whole row group is read before its first row is given, and some writers make one group of a file.
_READ_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class ParquetImage:
    """The image in a cell of a Parquet file (a :class:`conceptformer.records.StoredImage`).

    Attributes:
        column: Holds the bytes of image files, or structs with such ``bytes``.
        row_group, row: The row group, and the row within it, from 0.
    """

    path: Path
    column: str
    row_group: int
    row: int

    def read_bytes(self) -> bytes:
        """The content of the image's own file.

        Images that are asked for in the order of their file are read once. For one that lies before the last one, its
        row group is read again from the start.

        Raises:
            DataError: The file is gone, damaged or another one than it was, or the cell is empty.
        """
        return _reader.read(self)

    def __str__(self) -> str:
        return f"{self.path} (row group {self.row_group}, row {self.row})"


@dataclass(frozen=True)
class StoredRow:
    """A row of a corpus.

    Attributes:
        place: File and row, counted from 1, for messages.
        values: The cells that were asked for, by column.
    """

    place: str
    values: Mapping[str, Any]
    image: ParquetImage


def stored_rows(path: Path, columns: Sequence[str], image_column: str) -> Iterator[StoredRow]:
    """The rows of a corpus file, in its order. No image is read.

    Args:
        columns: What to read besides, at least one; the file must have them.

    Raises:
        DataError: The file cannot be read, or has no such column of images.
        MissingExtraError: pyarrow is not installed.
    """
    with _opened(path) as file:
        _image_leaf(path, file, image_column)
        before = 0
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=list(columns), use_threads=False).to_pylist()
            for row, values in enumerate(rows):
                image = ParquetImage(path, image_column, group, row)
                yield StoredRow(f"{path.name}:{before + row + 1}", values, image)
            before += len(rows)


def parquet_columns(path: Path) -> list[str]:
    """The names of a file's columns.

    Raises:
        DataError: The file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    with _opened(path) as file:
        return list(file.schema_arrow.names)


def parquet_table(path: Path, columns: Sequence[str]) -> list[dict[str, Any]]:
    """All rows of a small file, with some of its columns.

    Raises:
        DataError: The file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    with _opened(path) as file:
        return file.read(columns=list(columns), use_threads=False).to_pylist()


def row_count(path: Path) -> int:
    """How many rows a file says it has.

    Raises:
        DataError: The file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    with _opened(path) as file:
        return file.metadata.num_rows


class _Reader:
    """Reads a row group forwards, some rows at a time, and keeps the last ones. There is one for the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._place: tuple[Path, str, int] | None = None
        self._rows: Iterator[pa.Array] = iter(())
        self._first = 0
        self._values: pa.Array | list[pa.Scalar] = []

    def read(self, image: ParquetImage) -> bytes:
        """The bytes of an image. Threads take turns."""
        with self._lock:
            try:
                content = self._value(image)
            except BaseException:  # what half a step has left must not be taken for the whole of it
                self._go_to(None)
                raise
        if content is None:
            raise DataError(f"{image}: the cell is empty; expected an image, its bytes within the file")
        return content

    def _value(self, image: ParquetImage) -> bytes | None:
        place = (image.path, image.column, image.row_group)
        if place != self._place or image.row < self._first:
            self._go_to(place)
        while image.row >= self._first + len(self._values):
            self._first += len(self._values)
            self._values = []  # given back before more is read
            self._values = next(self._rows, [])
            if not len(self._values):
                raise DataError(f"{image}: there is no such row any more; the file was changed: run again")
        return self._values[image.row - self._first].as_py()

    def _go_to(self, place: tuple[Path, str, int] | None) -> None:
        self._place, self._first, self._values = place, 0, []
        self._rows = iter(()) if place is None else _images(*place)


def _images(path: Path, column: str, group: int) -> Iterator[pa.Array]:
    """The bytes of a row group's images, some rows at a time."""
    with _opened(path) as file:
        if group >= file.num_row_groups:
            raise DataError(f"{path}: there is no row group {group} any more; the file was changed: run again")
        leaf = _image_leaf(path, file, column)
        # Threads would each hold a part of the file of their own, and do not outlive a fork.
        batches = file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=[leaf], use_threads=False)
        for batch in batches:
            cells = batch.column(0)
            yield cells if leaf == column else cells.field("bytes")


def _image_leaf(path: Path, file: pq.ParquetFile, column: str) -> str:
    """What of the image column is to be read: the column itself, or the bytes in its structs."""
    import pyarrow.types as types

    schema = file.schema_arrow
    if column not in schema.names:
        raise DataError(f"{path}: has no column '{column}'; found {', '.join(schema.names)}: expected images")
    kind, leaf = schema.field(column).type, column
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        kind, leaf = kind.field("bytes").type, f"{column}.bytes"
    if not (types.is_binary(kind) or types.is_large_binary(kind)):
        raise DataError(f"{path}: its column '{column}' holds {kind}; expected the bytes of image files")
    return leaf


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """An open file; what pyarrow raises in the block becomes a DataError."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "api", "reading Parquet files") from error
    # Looked up here: a file may still be open when the interpreter ends and takes modules apart.
    errors = (pyarrow.ArrowException, OSError)
    try:
        with pyarrow.parquet.ParquetFile(path, buffer_size=_READ_AT_ONCE, pre_buffer=False) as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; expected a Parquet file") from error
    except errors as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: cannot be read as Parquet ({reason:.200}); get another copy: it may be incomplete"
        ) from error


_reader = _Reader()


def _start_anew() -> None:
    global _reader
    _reader = _Reader()


if hasattr(os, "register_at_fork"):
    # A child must not wait for a lock that a thread of its parent holds, nor share the parent's place in a file.
    os.register_at_fork(after_in_child=_start_anew)
