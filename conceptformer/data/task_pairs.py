"""Training pairs from what retrievers are measured on: own documents, or any corpus with queries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conceptformer.data.json_rows import Refusals
from conceptformer.data.page_files import CopiedPage, PageFiles, copy_pages, corpus_stamp
from conceptformer.data.pair_files import write_pair_files
from conceptformer.data.parquet_pages import ParquetImage
from conceptformer.records import RetrievalTask, TrainingExample

IMAGES = "images"


def write_task_pairs(
    task: RetrievalTask,
    out: Path,
    *,
    skip_bad_rows: bool,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Write a pair for each query and each page that answers it (:func:`conceptformer.data.pair_files.write_pair_files`).

    Pages that are no files of their own are copied to ``images/``.

    Args:
        skip_bad_rows: Leave pages that cannot be read out and list them; they are an error otherwise.
        on_progress: Called with (done, all) of the pages that have been copied.

    Returns:
        The number of pairs, and a line for each page that was left out, those of the task included.

    Raises:
        DataError: A page cannot be read and may not be skipped, or none is left.
        StoreError: The folder cannot be written.
    """
    refusals = Refusals(out, skip=skip_bad_rows)
    answering = set().union(*task.relevant.values())
    needed = [page for page in task.pages if page.page_id in answering]
    stored = {page.image.path for page in needed if isinstance(page.image, ParquetImage)}
    page_files = PageFiles(out / IMAGES, corpus_stamp(sorted(stored)))
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
    return len(examples), (*task.refused, *refused)


def _example(query_id: str, text: str, copied: CopiedPage, relevant: frozenset[str]) -> TrainingExample:
    others = tuple(sorted(relevant - {copied.page.page_id}))
    return TrainingExample(query_id, text, copied.page, copied.size, other_positives=others)
