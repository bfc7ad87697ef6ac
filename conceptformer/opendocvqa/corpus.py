"""The pages of OpenDocVQA-Corpus: which of them are wanted, and how many each data set has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.data.folder import HubData, data_folder
from conceptformer.data.json_rows import JsonRow, Refusals
from conceptformer.data.parquet_pages import parquet_columns, stored_rows
from conceptformer.data.table_files import chosen_columns, identifier
from conceptformer.errors import DataError
from conceptformer.opendocvqa.queries import matching_files
from conceptformer.records import OnProgress, Page

_NEEDED, _POSSIBLE = {"page_id": ("doc_id",)}, {"name": ("dataset_name",)}


@dataclass(frozen=True)
class Corpus:
    """Parquet files with doc_id, image and dataset_name.

    Attributes:
        root: The user's folder; None to download.
        files: Glob patterns of the files in the folder; the first that matches any counts.
        hub: Where to download it from.
    """

    root: Path | str | None
    files: Sequence[str]
    hub: HubData

    def paths(self) -> list[Path]:
        """The files.

        Raises:
            DataError: There are none, or they cannot be downloaded.
            MissingExtraError: huggingface_hub is needed and not installed.
        """
        folder = data_folder(self.root, self.hub, setting="corpus", needs=" or ".join(self.files))
        return matching_files(folder, self.files, "corpus")


@dataclass(frozen=True)
class WantedPages:
    """What a corpus has of the pages that were asked for.

    Attributes:
        pages: By id, in the order of the corpus.
        counts: Pages of the whole corpus by data set.
        repeated: Rows whose id an earlier row has; the first is used.
    """

    pages: Mapping[str, Page]
    counts: Mapping[str, int]
    repeated: int


def find_pages(
    files: Sequence[Path], wanted: Collection[str], refusals: Refusals, on_progress: OnProgress | None = None
) -> WantedPages:
    """Look for pages by their ids. No image is read.

    Args:
        refusals: Gets rows without an id.
        on_progress: Called with (done, all) after each file.

    Raises:
        DataError: A file cannot be read, or lacks a column.
        MissingExtraError: pyarrow is not installed.
    """
    pages: dict[str, Page] = {}
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    repeated = 0
    for done, path in enumerate(files, start=1):
        names = chosen_columns(path, parquet_columns(path), _NEEDED, _POSSIBLE)
        for row in stored_rows(path, list(names.values()), "image"):
            values = {ours: row.values[theirs] for ours, theirs in names.items()}
            try:
                page_id = identifier(JsonRow(row.place, values), "page_id")
            except DataError as error:
                refusals.refuse(row.place, error)
                continue
            if page_id in seen:
                repeated += 1
                continue
            seen.add(page_id)
            counts[values.get("name") or page_id.split("/", 1)[0]] += 1
            if page_id in wanted:
                pages[page_id] = Page(page_id, row.image)
        if on_progress is not None:
            on_progress(done, len(files))
    return WantedPages(pages, dict(counts), repeated)
