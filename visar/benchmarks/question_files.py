"""Question files on disk -> rows. A file that cannot be parsed is an error; rows are judged by the loaders."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from visar.benchmarks.admission import Row
from visar.errors import DatasetError, MissingExtraError

_DELIMITERS = (",", ";", "\t", "|")


def read_json(path: Path) -> list[Row]:
    """Rows of a JSON file that holds a list of objects.

    Raises:
        DatasetError: The file is missing, not UTF-8, not JSON (with line and column), or holds something else.
    """
    try:
        content = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise DatasetError(
            f"{path} is not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}; expected a list of "
            "questions (files with one object per line are named .jsonl)"
        ) from error
    except RecursionError as error:
        raise DatasetError(f"{path} is nested too deeply, expected a list of questions") from error
    except ValueError as error:  # a number of more than 4,300 digits
        raise DatasetError(f"{path} is not JSON that can be read: {error}; expected a list of questions") from error
    if not isinstance(content, list):
        raise DatasetError(f"{path} holds {type(content).__name__} at its top level, expected a list of questions")
    return [_object_row(f"row {number}", item) for number, item in enumerate(content, start=1)]


def read_json_lines(path: Path) -> list[Row]:
    """Rows of a file with one JSON object per line; blank lines are skipped.

    Raises:
        DatasetError: The file is missing, not UTF-8, or one of its lines is not JSON.
    """
    rows = []
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of more than 4,300 digits
            raise DatasetError(f"{path} is not valid JSON at line {number}: {error}; expected an object") from error
        rows.append(_object_row(f"line {number}", item))
    return rows


def read_parquet(path: Path) -> list[Row]:
    """Rows of a Parquet file.

    Raises:
        DatasetError: The file cannot be read.
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "api", f"reading {path.name}") from error
    try:
        items = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DatasetError(f"{path} cannot be read as Parquet: {' '.join(str(error).split())}") from error
    return [Row(f"row {number}", item) for number, item in enumerate(items, start=1)]


def read_csv(path: Path, required: Sequence[str]) -> tuple[list[str], list[Row]]:
    """Columns and rows of a CSV file.

    The delimiter (comma, semicolon, tab or bar) is the one that splits the header into the required columns, which
    is surer than a guess from the frequency of characters: question text is full of commas. A byte order mark,
    quoted line breaks and blank rows, all of which spreadsheets write, are fine. Column names are compared without
    case and surrounding blanks.

    Args:
        path: The file, UTF-8, or UTF-16 with a byte order mark.
        required: Lower-case names of the columns that must be there.

    Returns:
        The column names in lower case, and the rows; blank cells are ``""``.

    Raises:
        DatasetError: The file is missing, in another encoding, empty, or broken (with line), or a column is missing
            or stands twice.
    """
    text = _read_text(path)
    columns, delimiter = _header(path, text, required)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[Row] = []
    line = 1
    try:
        for number, cells in enumerate(reader):
            place, line = f"line {line}", reader.line_num + 1
            if number == 0 or not any(cell.strip() for cell in cells):
                continue
            if len(cells) == len(columns):
                rows.append(Row(place, dict(zip(columns, cells, strict=True))))
            else:
                rows.append(Row(place, {}, f"{len(cells)} cells, expected {len(columns)} as in the header"))
    except csv.Error as error:
        raise DatasetError(
            f"{path} is broken at line {reader.line_num}: {error}; expected quoted cells to be closed"
        ) from error
    return columns, rows


def require_columns(path: Path, found: Sequence[str], required: Sequence[str]) -> None:
    """Check that a question file has the columns that a loader needs.

    Raises:
        DatasetError: One is missing; the message lists what was found.
    """
    missing = [name for name in required if name not in found]
    if missing:
        raise DatasetError(
            f"{path} has no column {_listed(missing)}; found the columns {_listed(found) or 'none'}, "
            f"expected at least {_listed(required)}"
        )


@contextlib.contextmanager
def looking_into(folder: Path) -> Iterator[None]:
    """What the file system refuses in the block, such as a folder that may not be read, is one error for people.

    Raises:
        DatasetError: It refused.
    """
    try:
        yield
    except OSError as error:
        refused = error.filename or folder
        raise DatasetError(f"{refused}: {error.strerror}; expected a benchmark's folder that can be read") from error


def _header(path: Path, text: str, required: Sequence[str]) -> tuple[list[str], str]:
    readings: dict[str, list[str]] = {",": []}
    for delimiter in _DELIMITERS:
        with contextlib.suppress(csv.Error):
            cells = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
            readings[delimiter] = [cell.strip().lower() for cell in cells]
    # For the message, the reading with the most columns is the likeliest one.
    fitting = [delimiter for delimiter, cells in readings.items() if set(required) <= set(cells)]
    delimiter = fitting[0] if fitting else max(readings, key=lambda key: len(readings[key]))
    columns = readings[delimiter]
    if not any(columns):
        raise DatasetError(f"{path} is empty, expected a header with the columns {_listed(required)}")
    require_columns(path, columns, required)
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    if repeated:
        raise DatasetError(f"{path} has the column {_listed(repeated)} more than once, expected distinct names")
    return columns, delimiter


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}), expected a file with questions") from error
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path} is not {error.encoding} text at byte {error.start}; save it again as UTF-8 "
            "(in spreadsheets: 'CSV UTF-8')"
        ) from error


def _object_row(place: str, item: object) -> Row:
    if isinstance(item, dict):
        return Row(place, item)
    return Row(place, {}, f"holds {type(item).__name__}, expected an object with named fields")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
