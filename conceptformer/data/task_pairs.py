"""Training pairs, or a held-out folder, from own documents or any corpus with queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conceptformer.data.json_rows import Refusals, shown
from conceptformer.data.page_files import CopiedPage, PageFiles, copy_pages, corpus_stamp
from conceptformer.data.pair_files import write_pair_files
from conceptformer.data.parquet_pages import ParquetImage
from conceptformer.data.retrieval_files import write_retrieval_folder
from conceptformer.records import OnProgress, Page, RetrievalTask, TrainingExample

IMAGES = "images"


@dataclass(frozen=True)
class WrittenPairs:
    """What was written.

    Attributes:
        pairs: Rows of each file.
        queries, pages: That are in them, each counted once.
        copied: Of the pages, those whose images lie in ``images/``; the others stay where they were.
        refused: A line for each row and page that was left out, those of the task included.
    """

    pairs: int
    queries: int
    pages: int
    copied: int
    refused: tuple[str, ...]


@dataclass(frozen=True)
class WrittenHeldOut:
    """What was written.

    Attributes:
        task: As it can be read again.
        copied: Of its pages, those whose images lie in ``images/``; the others stay where they were.
    """

    task: RetrievalTask
    copied: int


def write_task_pairs(
    task: RetrievalTask,
    out: Path,
    *,
    cache: Path,
    skip_bad_rows: bool,
    on_progress: OnProgress | None = None,
) -> WrittenPairs:
    """Write a pair for each query and each page that answers it.

    Pages that are no files of their own, or files in the cache, are copied to ``images/``; for the other files see
    :func:`conceptformer.data.pair_files.write_pair_files`.

    Args:
        cache: Where pages are drawn, in folders named by what they are drawn from.
        skip_bad_rows: Leave pages that cannot be read out and list them; they are an error otherwise.
        on_progress: Called with (done, all) of the pages that answer a query.

    Raises:
        DataError: A page cannot be read and may not be skipped, or none is left.
        StoreError: The folder cannot be written.
    """
    refusals = Refusals(out, skip=skip_bad_rows)
    answering = set().union(*task.relevant.values())
    needed = [page for page in task.pages if page.page_id in answering]
    copied = _copied_pages(needed, out, cache, refusals, on_progress)
    place = {page.page_id: number for number, page in enumerate(needed)}
    examples = [
        _example(query_id, text, copied[page_id], task.relevant[query_id])
        for query_id, text in task.queries.items()
        for page_id in sorted(task.relevant[query_id], key=place.__getitem__)
        if page_id in copied
    ]
    refused = refusals.result(len(examples), "training pairs")
    write_pair_files(out, examples)
    return WrittenPairs(
        pairs=len(examples),
        queries=len({example.query_id for example in examples}),
        pages=len(copied),
        copied=_number_in(out, [one.page for one in copied.values()]),
        refused=(*task.refused, *refused),
    )


def write_held_out(
    task: RetrievalTask,
    out: Path,
    *,
    cache: Path,
    skip_bad_rows: bool,
    on_progress: OnProgress | None = None,
) -> WrittenHeldOut:
    """Write queries and all pages, whether they answer one or not, as a folder of held-out queries.

    Which images are copied is told at :func:`write_task_pairs`; for the other files see
    :mod:`conceptformer.data.retrieval_files`.

    Args:
        cache: See :func:`write_task_pairs`.
        skip_bad_rows: Leave pages that cannot be read out, and queries that they answer, and list them; they are an
            error otherwise.
        on_progress: Called with (done, all) of the pages.

    Raises:
        DataError: A page cannot be read and may not be skipped, or no query is left.
        StoreError: The folder cannot be written.
    """
    refusals = Refusals(out, skip=skip_bad_rows)
    copied = _copied_pages(task.pages, out, cache, refusals, on_progress)
    queries = {}
    for query_id, text in task.queries.items():
        absent = sorted(task.relevant[query_id] - copied.keys())
        if absent:
            refusals.refuse(f"query {shown(query_id)}", f"its page {shown(absent[0])} cannot be read")
        else:
            queries[query_id] = text
    refused = refusals.result(len(queries), "queries")
    pages = tuple(copied[page.page_id].page for page in task.pages if page.page_id in copied)
    held_out = replace(
        task,
        queries=queries,
        pages=pages,
        relevant={query_id: task.relevant[query_id] for query_id in queries},
        boxes={pair: boxes for pair, boxes in task.boxes.items() if pair[0] in queries},
        refused=(*task.refused, *refused),
    )
    write_retrieval_folder(out, held_out)
    return WrittenHeldOut(held_out, _number_in(out, pages))


def _copied_pages(
    pages: Sequence[Page], out: Path, cache: Path, refusals: Refusals, on_progress: OnProgress | None
) -> dict[str, CopiedPage]:
    stored = {page.image.path for page in pages if isinstance(page.image, ParquetImage)}
    page_files = PageFiles(out / IMAGES, corpus_stamp(sorted(stored)), cache=cache)
    return copy_pages(pages, page_files, refusals, on_progress)


def _number_in(out: Path, pages: Sequence[Page]) -> int:
    return sum(out / IMAGES in Path(page.image).parents for page in pages)


def _example(query_id: str, text: str, copied: CopiedPage, relevant: frozenset[str]) -> TrainingExample:
    others = tuple(sorted(relevant - {copied.page.page_id}))
    return TrainingExample(query_id, text, copied.page, copied.size, other_positives=others)
