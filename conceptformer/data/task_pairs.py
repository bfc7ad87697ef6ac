"""Training pairs from what retrievers are measured on: own documents, or any corpus with queries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conceptformer.data.json_rows import Refusals
from conceptformer.data.page_files import CopiedPage, PageFiles, copy_pages, corpus_stamp
from conceptformer.data.pair_files import write_pair_files
from conceptformer.data.parquet_pages import ParquetImage
from conceptformer.records import OnProgress, RetrievalTask, TrainingExample

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
    stored = {page.image.path for page in needed if isinstance(page.image, ParquetImage)}
    page_files = PageFiles(out / IMAGES, corpus_stamp(sorted(stored)), cache=cache)
    copied = copy_pages(needed, page_files, refusals, on_progress)
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
        copied=sum(out / IMAGES in Path(one.page.image).parents for one in copied.values()),
        refused=(*task.refused, *refused),
    )


def _example(query_id: str, text: str, copied: CopiedPage, relevant: frozenset[str]) -> TrainingExample:
    others = tuple(sorted(relevant - {copied.page.page_id}))
    return TrainingExample(query_id, text, copied.page, copied.size, other_positives=others)
