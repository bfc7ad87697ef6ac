"""Queries of OpenDocVQA with the pages that answer them, and which of its sources each comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from conceptformer.data.folder import HubData, data_folder
from conceptformer.data.json_rows import JsonRow, Refusals, shown
from conceptformer.data.table_files import Columns, cell_text, identifier, read_table
from conceptformer.errors import DataError
from conceptformer.records import EvidenceBox

SOURCES = ("docvqa", "infovqa", "visualmrc", "openwikitable", "dude", "mhdocvqa")
"""What the training set is made of, in the order of Table 4."""


_TELLING_ID = re.compile(r"(\w+)-(?:train|dev|val|test)_")


@dataclass(frozen=True)
class Evidence:
    """Boxes as a file states them.

    Attributes:
        row: Holds their frame and the size of the image that absolute numbers refer to.
        image_size: (width, height) of the page that they lie on, where that is said instead of the page.
        description: One text for all boxes together.
    """

    row: JsonRow
    boxes: object
    labels: Sequence[str] | None
    image_size: tuple[float, float] | None = None
    description: str | None = None

    def described(self, boxes: Sequence[EvidenceBox]) -> tuple[EvidenceBox, ...]:
        """Those boxes that can be used; the first bears the description."""
        if self.description is None or not boxes:
            return tuple(boxes)
        return replace(boxes[0], label=self.description), *boxes[1:]


@dataclass(frozen=True)
class TrainingQuery:
    """A query and the pages that answer it.

    Attributes:
        place: File and row, for messages.
        source: One of :data:`SOURCES`, or another data set.
        evidence: On one of the pages; None where none is known.
    """

    place: str
    query_id: str
    text: str
    page_ids: tuple[str, ...]
    source: str
    evidence: Evidence | None = None


class QuerySource(Protocol):
    """Reads queries."""

    def read(self, refusals: Refusals) -> list[TrainingQuery]:
        """All queries in the order of the files.

        Args:
            refusals: Gets the rows that make no sense.

        Raises:
            DataError: Files are missing, cannot be read, or lack a column.
            MissingExtraError: pyarrow, or huggingface_hub for a download, is not installed.
        """


@dataclass(frozen=True)
class OpenDocVqaQueries:
    """The queries that NTT-hil-insight/OpenDocVQA holds: query_id, query, relevant_doc_ids, dataset_names.

    Attributes:
        root: The user's folder; None to download.
        files: Glob patterns of the Parquet files in the folder.
        hub: Where to download it from.
    """

    root: Path | str | None
    files: Sequence[str]
    hub: HubData

    def read(self, refusals: Refusals) -> list[TrainingQuery]:
        """See :class:`QuerySource`."""
        needed = {"query_id": ("query_id",), "query": ("query",), "page_ids": ("relevant_doc_ids",)}
        possible = {"names": ("dataset_names", "dataset_name")}
        rows = query_rows(self.root, self.files, self.hub, needed, possible, ("answers",))
        queries = []
        for row in rows:
            try:
                queries.append(training_query(row))
            except DataError as error:
                refusals.refuse(row.place, error)
        return queries


def query_rows(
    root: Path | str | None,
    files: Sequence[str],
    hub: HubData,
    needed: Columns,
    possible: Columns,
    unused: Sequence[str],
) -> list[JsonRow]:
    """The rows of all tables of queries that the patterns find.

    Args:
        needed, possible, unused: See :func:`conceptformer.data.table_files.read_table`.

    Raises:
        DataError: There are none, or a table is broken or lacks a column.
    """
    folder = data_folder(root, hub, setting="queries", needs=" or ".join(files))
    found = matching_files(folder, files, "queries")
    return [row for path in found for row in read_table(path, needed, possible, unused)]


def matching_files(folder: Path, patterns: Sequence[str], setting: str) -> list[Path]:
    """The files of the first pattern that matches any, in order of their names.

    Raises:
        DataError: None matches.
    """
    for pattern in patterns:
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if found:
            return found
    raise DataError(f"{setting}: {folder} has no {' and no '.join(patterns)}; set {setting}.files=[PATTERN]")


def training_query(row: JsonRow, evidence: Evidence | None = None) -> TrainingQuery:
    """A query from a row with ``query_id``, ``query``, ``page_ids`` and perhaps ``names``, a list or one in JSON.

    Raises:
        DataError: An entry makes no sense, or there is no page.
    """
    query_id, text = identifier(row, "query_id"), cell_text(row, "query")
    values = {**row.values, **{key: from_json(row, key) for key in ("page_ids", "names")}}
    page_ids = tuple(dict.fromkeys(JsonRow(row.place, values).texts("page_ids")))
    if not page_ids:
        raise DataError("no page is relevant; expected at least one id in relevant_doc_ids")
    names = values["names"]
    names = [names] if isinstance(names, str) else JsonRow(row.place, values).texts("names")
    return TrainingQuery(row.place, query_id, text, page_ids, source_of(query_id, page_ids, names), evidence)


def source_of(query_id: str, page_ids: Sequence[str], names: Sequence[str]) -> str:
    """The data set that a query was taken from.

    Its id says so where it begins with the data set and the split ("dude-train_17"). Otherwise the data set of its
    pages is meant, but for queries with several pages: those are MHDocVQA's, which asks about pages of the others.
    """
    if (told := _TELLING_ID.match(query_id)) is not None:
        return told[1]
    if len(page_ids) > 1 or len(names) > 1:
        return "mhdocvqa"
    return names[0] if names else page_ids[0].split("/", 1)[0]


def from_json(row: JsonRow, key: str) -> object:
    """What a cell holds: a list as it is, a text that looks like one in JSON read, nothing as an empty list.

    Raises:
        DataError: It begins like a list and is no JSON.
    """
    value = row.values.get(key, [])
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise DataError(f"{key} is {shown(value)}; expected a list in JSON") from error
