"""Tables of queries and judgments in Parquet, JSON Lines, CSV or TSV files, under one set of column names."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conceptformer.data.json_rows import JsonRow, Refusals, shown
from conceptformer.data.parquet_pages import parquet_columns, parquet_table
from conceptformer.errors import DataError
from visar.errors import DatasetError

Columns = Mapping[str, Sequence[str]]
"""For each of our names what files may call the column, the likeliest first."""

TABLE_SUFFIXES = (".parquet", ".jsonl", ".csv", ".tsv")
_IN_QUOTES = "put text with commas in quotes (or with whatever divides the cells)"


def read_table(
    path: Path,
    needed: Columns,
    possible: Columns,
    unused: Collection[str] | None = None,
    refusals: Refusals | None = None,
) -> list[JsonRow]:
    """The rows of a table. Cells that are missing or blank are left out of their row.

    Args:
        needed: Columns that the table must have.
        possible: Columns that it may have.
        unused: What else it may have and nobody needs: a warning names any other column. None for whatever it has.
        refusals: Gets rows that have other cells than the header, or are no JSON objects. None for an error.

    Raises:
        DataError: The file is missing, of another kind, broken, or lacks a column.
        MissingExtraError: pyarrow is needed and not installed.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        names = chosen_columns(path, parquet_columns(path), needed, possible, unused)
        rows = parquet_table(path, list(names.values()))
        places = (f"{path.name}:{number}" for number in itertools.count(1))
    elif suffix in TABLE_SUFFIXES:
        found, placed = _text_rows(path, needed, refusals)
        names = chosen_columns(path, found, needed, possible, unused)
        rows = [values for _, values in placed]
        places = (place for place, _ in placed)
    else:
        raise DataError(f"{path}: of the kind '{suffix}'; expected {', '.join(TABLE_SUFFIXES)}")
    return [
        JsonRow(place, {ours: row[theirs] for ours, theirs in names.items() if row.get(theirs) not in (None, "")})
        for place, row in zip(places, rows, strict=False)
    ]


def chosen_columns(
    path: Path, found: Sequence[str], needed: Columns, possible: Columns, unused: Collection[str] | None = None
) -> dict[str, str]:
    """What the file calls each of our columns; possible ones that it lacks are left out.

    Args:
        unused: See :func:`read_table`.

    Raises:
        DataError: A needed one is missing.
    """
    names: dict[str, str] = {}
    for ours, theirs in {**needed, **possible}.items():
        name = next((name for name in theirs if name in found and name not in names.values()), None)
        if name is not None:
            names[ours] = name
    missing = [" or ".join(map(repr, theirs)) for ours, theirs in needed.items() if ours not in names]
    if missing:
        held = ", ".join(map(shown, found)) or "none"
        raise DataError(f"{path}: has no column {', none '.join(missing)}; found {held}")
    other = [name for name in found if unused is not None and name not in (*names.values(), *unused)]
    if other:
        known = ", ".join(name for theirs in (*needed.values(), *possible.values()) for name in theirs)
        warnings.warn(f"{path}: columns not used: {', '.join(map(shown, other))}; known are {known}", stacklevel=3)
    return names


def identifier(row: JsonRow, key: str) -> str:
    """An id, a text or a whole number, as a text.

    Raises:
        DataError: It is missing or something else.
    """
    value = row.values.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return cell_text(row, key)


def cell_text(row: JsonRow, key: str) -> str:
    """A text as it stands in its cell.

    Raises:
        DataError: It is missing, no text, or nothing but white space.
    """
    if row.values.get(key) is None:
        raise DataError(f"there is no {key} in this row; expected a text")
    return row.text(key)


def _text_rows(
    path: Path, needed: Columns, refusals: Refusals | None
) -> tuple[list[str], list[tuple[str, Mapping[str, Any]]]]:
    """Columns, and rows with their places."""
    from visar.benchmarks.question_files import read_csv, read_json_lines

    try:
        if path.suffix.lower() == ".jsonl":
            rows, advice = read_json_lines(path), ""
            found = list(dict.fromkeys(name for row in rows for name in row.fields))
            if all(row.problem for row in rows):  # which columns there would be, nothing says
                found = [theirs[0] for theirs in needed.values()]
        else:
            (found, rows), advice = _first(path, needed, read_csv), f"; {_IN_QUOTES}"
    except DatasetError as error:
        raise DataError(str(error)) from error
    broken = [(row.place, f"{row.problem}{advice}") for row in rows if row.problem]
    if broken and refusals is None:
        raise DataError(f"{path}: rows that cannot be read: {len(broken)}, the first: {': '.join(broken[0])}")
    for place, problem in broken:
        refusals.refuse(f"{path.name}, {place}", problem)
    return found, [(f"{path.name}, {row.place}", row.fields) for row in rows if not row.problem]


def _first(path: Path, needed: Columns, read: Any) -> Any:
    """What the file gives under the first set of names that its header has, which also shows what divides its cells."""
    errors: list[DatasetError] = []
    for names in itertools.product(*needed.values()):
        try:
            return read(path, names)
        except DatasetError as error:
            errors.append(error)
    raise errors[0]


def one_table(folder: Path, names: Iterable[str]) -> Path | None:
    """The first of these files that the folder has."""
    return next((folder / name for name in names if (folder / name).is_file()), None)
