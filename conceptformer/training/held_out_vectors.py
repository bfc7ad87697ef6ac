"""All vectors of a retrieval task in memory, for sets as small as those that a run is looked at with on the way."""

from __future__ import annotations

import numpy as np

from conceptformer.data.images import open_image
from conceptformer.records import OnProgress, RetrievalTask
from conceptformer.retrieval.evaluation import check_task
from conceptformer.retrieval.protocol import PageRetriever
from conceptformer.retrieval.search import PageBlock

# Images that are open at the same time.
_PAGES_AT_ONCE = 32


def held_out_vectors(
    task: RetrievalTask,
    retriever: PageRetriever,
    on_progress: OnProgress = lambda done, total: None,
) -> tuple[np.ndarray, PageBlock]:
    """Encode the queries and the pages.

    Args:
        on_progress: Called with (pages encoded, all pages).

    Returns:
        [queries, D] in the task's order, and the pages.

    Raises:
        DataError: The task contradicts itself, or a page cannot be read.
    """
    check_task(task)
    parts = []
    for start in range(0, len(task.pages), _PAGES_AT_ONCE):
        part = task.pages[start : start + _PAGES_AT_ONCE]
        parts.append(retriever.encode_pages([open_image(page.image) for page in part]))
        on_progress(start + len(part), len(task.pages))
    queries = retriever.encode_queries(list(task.queries.values()))
    return queries, PageBlock([page.page_id for page in task.pages], np.concatenate(parts))
