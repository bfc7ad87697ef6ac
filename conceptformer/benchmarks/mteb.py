"""Corpora of images in the layout of MTEB and BEIR: tables of pages, queries and judgments in a folder.

Columns: an id and ``image`` for pages, an id and a text for queries, and the two ids with a score for judgments, under
the names that MTEB, BEIR and ViDoRe use. The images of a JSONL corpus are files that it names, relative to itself. How
the files are called: :mod:`conceptformer.benchmarks.corpus_tables`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.benchmarks.corpora import Numbered, distinct_pages, parquet_pages
from conceptformer.benchmarks.corpus_tables import NEEDS, find_tables
from conceptformer.benchmarks.judgments import Judgment, finite_score, judged_task, query_texts, relevant_pages
from conceptformer.data.folder import HubData, data_folder
from conceptformer.data.images import read_image_facts
from conceptformer.data.json_rows import JsonRow, Refusals, image_path, shown
from conceptformer.data.table_files import cell_text, identifier, read_table
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, Page, RetrievalTask

_PAGE_IDS = ("corpus-id", "corpus_id", "id", "_id", "doc_id")
_QUERIES = {"query_id": ("query-id", "query_id", "id", "_id"), "query": ("query", "text")}
_QRELS = {"query_id": ("query-id", "query_id"), "page_id": ("corpus-id", "corpus_id"), "score": ("score",)}


@dataclass(frozen=True)
class MtebCorpus:
    """A corpus with its queries and judgments; a score above 0 means that the page answers.

    Queries that no page answers are left out and counted in a warning: queries may be listed for all splits together,
    and judgments for each.

    Attributes:
        root: The user's folder; None to download.
        hub: Where to download it from.
        split: Which files to take where a table has several splits, e.g. "test".
        skip_bad_rows: Leave rows that make no sense out and list them; they are an error otherwise.
        config: Which tables to take where there are several of a kind, e.g. "en" for ``en-corpus/`` or ``corpus-en/``;
            None where there is one of each.
    """

    root: Path | str | None
    hub: HubData
    split: str
    skip_bad_rows: bool
    config: str | None = None

    def load(self, on_progress: OnProgress | None = None) -> RetrievalTask:
        """See :meth:`conceptformer.benchmarks.Benchmark.load`; of pages in Parquet files only the ids are read.

        Raises:
            DataError: Besides, a table is missing, or has several splits or configs and none of that name.
            MissingExtraError: pyarrow, or huggingface_hub for a download, is not installed.
        """
        folder = data_folder(self.root, self.hub, setting="benchmark", needs=NEEDS)
        tables = find_tables(folder, config=self.config, split=self.split)
        refusals = Refusals(folder, skip=self.skip_bad_rows)
        queries = query_texts([row for path in tables["queries"] for row in read_table(path, _QUERIES, {})], refusals)
        judgments = _judgments([row for path in tables["qrels"] for row in read_table(path, _QRELS, {})], refusals)
        files = tables["corpus"]
        if files[0].suffix == ".parquet":
            pages = parquet_pages(files, _PAGE_IDS, refusals, on_progress)
        else:
            pages = _pages_of_tables(files, refusals, on_progress)
        relevant = relevant_pages(judgments, queries, refusals)
        name = folder.resolve().name if self.config is None else f"{folder.resolve().name}-{self.config}"
        answered = _answered(folder, queries, relevant, {judgment.query_id for judgment in judgments})
        return judged_task(name, answered, relevant, pages, refusals)


def _answered(
    folder: Path, queries: Mapping[str, str], relevant: Mapping[str, tuple[str, ...]], judged: set[str]
) -> dict[str, str]:
    """The queries that some page answers."""
    others = [query_id for query_id in queries if query_id not in relevant]
    if others:
        without = sum(query_id not in judged for query_id in others)
        warnings.warn(
            f"{folder}: queries left out, since no page answers them: {len(others):,} of {len(queries):,}; "
            f"{without:,} have no judgment here, {len(others) - without:,} none above 0",
            stacklevel=3,
        )
    return {query_id: text for query_id, text in queries.items() if query_id in relevant}


def _judgments(rows: Sequence[JsonRow], refusals: Refusals) -> list[Judgment]:
    judgments = []
    for row in rows:
        try:
            score = finite_score(str(row.values.get("score")))
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
