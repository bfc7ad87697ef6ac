"""Corpora of images in the layout of MTEB and BEIR: tables of pages, queries and judgments in a folder.

Each table is one file or several: ``corpus``, ``queries`` (or ``query``) and ``qrels``, as ``NAME.jsonl``,
``NAME-*.parquet``, ``NAME/SPLIT-*.parquet``, ``NAME/SPLIT.tsv`` and the like. Columns: an id and ``image`` for pages,
an id and a text for queries, and the two ids with a score for judgments, under the names that MTEB, BEIR and ViDoRe
use. The images of a JSONL corpus are files that it names, relative to itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.benchmarks.corpora import Numbered, distinct_pages, parquet_pages
from conceptformer.benchmarks.judgments import Judgment, judged_task, query_texts, relevant_pages
from conceptformer.benchmarks.protocol import OnProgress
from conceptformer.data.folder import HubData, data_folder
from conceptformer.data.images import read_image_facts
from conceptformer.data.json_rows import JsonRow, Refusals, image_path, shown
from conceptformer.data.table_files import TABLE_SUFFIXES, cell_text, identifier, read_table
from conceptformer.errors import DataError
from conceptformer.records import Page, RetrievalTask

_PAGE_IDS = ("corpus-id", "corpus_id", "id", "_id", "doc_id")
_QUERIES = {"query_id": ("query-id", "query_id", "id", "_id"), "query": ("query", "text")}
_QRELS = {"query_id": ("query-id", "query_id"), "page_id": ("corpus-id", "corpus_id"), "score": ("score",)}
_NEEDS = "corpus, queries and qrels"


@dataclass(frozen=True)
class MtebCorpus:
    """A corpus with its queries and judgments; a score above 0 means that the page answers.

    Attributes:
        root: The user's folder; None to download.
        hub: Where to download it from.
        split: Which files to take where a table has several splits, e.g. "test".
        skip_bad_rows: Leave rows that make no sense out and list them; they are an error otherwise.
    """

    root: Path | str | None
    hub: HubData
    split: str
    skip_bad_rows: bool

    def load(self, on_progress: OnProgress | None = None) -> RetrievalTask:
        """See :meth:`conceptformer.benchmarks.Benchmark.load`; of pages in Parquet files only the ids are read.

        Raises:
            DataError: Besides, a table is missing, or has several splits and none of that name.
            MissingExtraError: pyarrow, or huggingface_hub for a download, is not installed.
        """
        folder = data_folder(self.root, self.hub, setting="benchmark", needs=_NEEDS)
        refusals = Refusals(folder, skip=self.skip_bad_rows)
        tables = [read_table(path, _QUERIES, {}) for path in self._files(folder, "queries", "query")]
        queries = query_texts([row for rows in tables for row in rows], refusals)
        tables = [read_table(path, _QRELS, {}) for path in self._files(folder, "qrels")]
        judgments = _judgments([row for rows in tables for row in rows], refusals)
        files = self._files(folder, "corpus")
        if files[0].suffix == ".parquet":
            pages = parquet_pages(files, _PAGE_IDS, refusals, on_progress)
        else:
            pages = _pages_of_tables(files, refusals, on_progress)
        relevant = relevant_pages(judgments, queries, refusals)
        return judged_task(folder.resolve().name, queries, relevant, pages, refusals)

    def _files(self, folder: Path, *names: str) -> list[Path]:
        """The files of a table: those of the split, or all where there is one split only."""
        found = [
            path
            for name in names
            for path in (*sorted(folder.glob(f"{name}*")), *sorted(folder.glob(f"{name}/*")))
            if path.suffix in TABLE_SUFFIXES and path.is_file()
        ]
        if not found:
            raise DataError(f"{folder}: has no table {names[0]}; expected {_NEEDS} as Parquet, JSONL or TSV files")
        splits = {_split(path, names): None for path in found}
        if len(splits) > 1 and self.split not in splits:
            held = ", ".join(split or "without a name" for split in splits)
            raise DataError(f"{folder}: {names[0]} has the splits {held}; choose one: benchmark.split=NAME")
        files = [path for path in found if len(splits) == 1 or _split(path, names) == self.split]
        kinds = {path.suffix for path in files}
        if len(kinds) > 1:
            raise DataError(
                f"{folder}: {names[0]} has files of the kinds {', '.join(sorted(kinds))}; expected one kind"
            )
        return files


def _split(path: Path, table: Sequence[str]) -> str:
    """The split in a file's name: "test" of test-00000-of-00002.parquet, none of corpus-00000-of-00002.parquet."""
    name = re.sub(r"(-\d+-of-\d+)?(-[0-9a-f]{16})?$", "", path.stem)
    return "" if name in table else name.removeprefix(f"{table[0]}-")


def _judgments(rows: Sequence[JsonRow], refusals: Refusals) -> list[Judgment]:
    judgments = []
    for row in rows:
        try:
            score = float(str(row.values.get("score")))
            judgments.append(Judgment(row.place, identifier(row, "query_id"), identifier(row, "page_id"), score))
        except ValueError:
            refusals.refuse(row.place, f"the score is {shown(row.values.get('score'))}; expected a number")
        except DataError as error:
            refusals.refuse(row.place, error)
    return judgments


def _pages_of_tables(files: Sequence[Path], refusals: Refusals, on_progress: OnProgress | None) -> tuple[Page, ...]:
    """Pages whose images are files. Of the images the headers are read."""
    named: list[tuple[JsonRow, Path]] = []
    for path in files:
        for row in read_table(path, {"page_id": _PAGE_IDS, "image": ("image",)}, {}):
            try:
                named.append((row, image_path(cell_text(row, "image"), path.parent)))
            except DataError as error:
                refusals.refuse(row.place, error)
    facts = read_image_facts(list(dict.fromkeys(image for _, image in named)), on_progress)
    numbered: list[Numbered] = []
    for row, image in named:
        found = facts[image]
        if isinstance(found, DataError):
            refusals.refuse(row.place, found)
        else:
            numbered.append((row, image))
    return distinct_pages(numbered, refusals)
