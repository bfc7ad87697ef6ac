"""From a retrieval task and a retriever to a row of results for each query and to means with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conceptformer.errors import DataError
from conceptformer.records import RetrievalTask
from conceptformer.retrieval.filling import Encoding, OnStage
from conceptformer.retrieval.protocol import PageRanker, PageRetriever
from conceptformer.retrieval.search import PageBlock, Ranking, search
from conceptformer.retrieval.vector_search import VectorSearch
from visar.metrics import ndcg_at, recall_at, reciprocal_rank_at
from visar.significance import Resampling

Row = dict[str, Any]

RANKS = 10
METRICS = ("recall_at_10", "ndcg_at_10", "mrr_at_10")


@dataclass(frozen=True)
class Evaluation:
    """What a retriever found for the queries of a task.

    Attributes:
        rankings: By query id, in the task's order.
        rows: One for each query: ``query_id``, ``query``, ``relevant`` ids, ``ranking`` and ``scores`` of the first ten
            pages, and the query's three metrics.
        means: For each of :data:`METRICS` its mean over queries and a 95 % interval as ``value``, ``low`` and ``high``.
        left_out: Why a page could not be searched, by page id. Where it was relevant it counts as missed.
    """

    rankings: Mapping[str, Ranking]
    rows: Sequence[Row]
    means: Mapping[str, Mapping[str, float | None]]
    left_out: Mapping[str, str]


def query_metrics(order: Sequence[str], relevant: frozenset[str]) -> dict[str, float]:
    """Recall@10, nDCG@10 and MRR@10 of one query, as trec_eval counts them.

    Args:
        order: Page ids, best first.

    Raises:
        VisarError: No relevant page, or an id comes twice.
    """
    measures = (recall_at, ndcg_at, reciprocal_rank_at)
    return {name: measure(order, relevant, RANKS) for name, measure in zip(METRICS, measures, strict=True)}


def retrieval_metrics(
    query_vectors: np.ndarray,
    page_vectors: np.ndarray,
    query_ids: Sequence[str],
    page_ids: Sequence[str],
    relevant: Mapping[str, frozenset[str]],
) -> dict[str, float]:
    """Mean recall@10, nDCG@10 and MRR@10 over queries, from vectors in memory.

    Args:
        query_vectors: [len(query_ids), D] float32.
        page_vectors: [len(page_ids), D] float32, in corpus order, which decides between equal scores.
        relevant: Ids of the pages that answer a query, by query id.

    Raises:
        DataError: No query or page, shapes that do not fit, NaN or Inf.
    """
    if not query_ids:
        raise DataError("retrieval metrics: expected at least one query, got none")
    rankings = search(query_ids, query_vectors, [PageBlock(page_ids, page_vectors)], depth=RANKS)
    rows = [query_metrics(one.page_ids, relevant[query_id]) for query_id, one in zip(query_ids, rankings, strict=True)]
    return {name: float(np.mean([row[name] for row in rows])) for name in METRICS}


def evaluate_retrieval(
    task: RetrievalTask,
    retriever: PageRetriever | PageRanker,
    encoding: Encoding,
    *,
    depth: int,
    resampling: Resampling,
    on_progress: OnStage = lambda what: lambda done, total: None,
) -> Evaluation | None:
    """Rank the pages for each query, and measure.

    Args:
        retriever: Gives vectors to search with, or rankings.
        encoding: Where vectors and texts are kept, and which of several processes this one is.
        depth: Pages kept for each query, at least ten.
        on_progress: Called with what is gone through, such as "queries" and "pages", gives what is called with the
            number of them done, and of all.

    Returns:
        None in all processes but that of rank 0: the others only help.

    Raises:
        DataError: The task is empty or contradicts itself, a page cannot be read, a vector holds NaN or Inf.
        StoreError: The disk is full or the cache cannot be used.
    """
    if depth < RANKS:
        raise DataError(f"depth: expected a whole number of at least {RANKS}, got {depth}")
    check_task(task)
    ranker = retriever if isinstance(retriever, PageRanker) else VectorSearch(retriever)
    found = ranker.rank(task, encoding, depth=depth, on_stage=on_progress)
    return None if found is None else measure(task, found.rankings, resampling, left_out=found.left_out)


def measure(
    task: RetrievalTask,
    rankings: Mapping[str, Ranking],
    resampling: Resampling,
    *,
    left_out: Mapping[str, str] | None = None,
) -> Evaluation:
    """Rows and means of rankings, whatever made them.

    Args:
        rankings: One for each query of the task. Where fewer than ten pages were found, the places behind them count as
            misses.
    """
    rows = [_row(task, query_id, rankings[query_id]) for query_id in task.queries]
    groups = query_groups(task.relevant)
    clusters = [groups[query_id] for query_id in task.queries]
    means = {name: resampling.estimate([row[name] for row in rows], clusters) for name in METRICS}
    return Evaluation({query_id: rankings[query_id] for query_id in task.queries}, rows, means, left_out or {})


def query_groups(relevant: Mapping[str, frozenset[str]]) -> dict[str, int]:
    """A number for each query, alike for queries that share a relevant page, at first or second hand.

    Queries about one page succeed and fail together, so what is resampled are these groups.
    """
    group_of_page: dict[str, str] = {}
    above: dict[str, str] = {query_id: query_id for query_id in relevant}

    def top(query_id: str) -> str:
        while above[query_id] != query_id:
            above[query_id] = query_id = above[above[query_id]]
        return query_id

    for query_id, page_ids in relevant.items():
        for page_id in page_ids:
            above[top(query_id)] = top(group_of_page.setdefault(page_id, query_id))
    numbers: dict[str, int] = {}
    return {query_id: numbers.setdefault(top(query_id), len(numbers)) for query_id in relevant}


def check_task(task: RetrievalTask) -> None:
    """Refuse a task that cannot be measured.

    Raises:
        DataError: No page or query, an id or query that is empty or comes twice, a query without a relevant page or
            with one that is not in the corpus.
    """
    page_ids = {page.page_id for page in task.pages}
    if not task.pages or not task.queries:
        missing = "page" if not task.pages else "query"
        raise DataError(f"{task.name}: has no {missing}; expected at least one")
    if len(page_ids) != len(task.pages):
        raise DataError(
            f"{task.name}: {len(task.pages)} pages have {len(page_ids)} different ids; expected one for each"
        )
    if "" in page_ids or "" in task.queries:
        raise DataError(f"{task.name}: an id is empty; expected at least one character")
    for query_id, text in task.queries.items():
        if not text.strip():
            raise DataError(f"{task.name}: query '{query_id}' is empty; expected a text")
        relevant = task.relevant.get(query_id, frozenset())
        if not relevant:
            raise DataError(f"{task.name}: query '{query_id}' has no relevant page; expected at least one")
        if absent := sorted(relevant - page_ids):
            raise DataError(f"{task.name}: query '{query_id}': its relevant page '{absent[0]}' is not in the corpus")
    if extra := sorted(set(task.relevant) - set(task.queries)):
        raise DataError(f"{task.name}: relevant pages are given for '{extra[0]}', which is not among the queries")


def _row(task: RetrievalTask, query_id: str, ranking: Ranking) -> Row:
    relevant = task.relevant[query_id]
    return {
        "query_id": query_id,
        "query": task.queries[query_id],
        "relevant": sorted(relevant),
        "ranking": list(ranking.page_ids[:RANKS]),
        "scores": list(ranking.scores[:RANKS]),
        **query_metrics(ranking.page_ids, relevant),
    }
