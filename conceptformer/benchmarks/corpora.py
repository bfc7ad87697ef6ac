"""The pages of a corpus in Parquet files, by their ids; their images stay where they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from conceptformer.data.json_rows import JsonRow, Refusals, shown
from conceptformer.data.parquet_pages import parquet_columns, stored_rows
from conceptformer.data.table_files import chosen_columns, identifier
from conceptformer.errors import DataError
from conceptformer.records import ImageSource, OnProgress, Page

Numbered = tuple[JsonRow, ImageSource]
"""A row with a ``page_id``, and the image of the page."""


def parquet_pages(
    files: Sequence[Path], id_names: Sequence[str], refusals: Refusals, on_progress: OnProgress | None
) -> tuple[Page, ...]:
    """The pages of corpus files, in the order of the files.

    Args:
        id_names: What the column of page ids may be called.
        on_progress: Called with (done, all) after each file.

    Raises:
        DataError: A file cannot be read, or has no such column or no images.
        MissingExtraError: pyarrow is not installed.
    """
    numbered: list[Numbered] = []
    for done, path in enumerate(files, start=1):
        column = chosen_columns(path, parquet_columns(path), {"page_id": id_names}, {})["page_id"]
        numbered += (
            (JsonRow(row.place, {"page_id": row.values[column]}), row.image)
            for row in stored_rows(path, [column], "image")
        )
        if on_progress is not None:
            on_progress(done, len(files))
    return distinct_pages(numbered, refusals)


def distinct_pages(numbered: Iterable[Numbered], refusals: Refusals) -> tuple[Page, ...]:
    """The pages of rows with usable ids; a row whose id an earlier one has is refused."""
    pages: dict[str, Page] = {}
    places: dict[str, str] = {}
    for row, image in numbered:
        try:
            page_id = identifier(row, "page_id")
            if page_id in pages:
                raise DataError(f"the same page id {shown(page_id)} as in {places[page_id]}")
        except DataError as error:
            refusals.refuse(row.place, error)
            continue
        pages[page_id], places[page_id] = Page(page_id, image), row.place
    return tuple(pages.values())
