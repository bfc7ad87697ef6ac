"""Held-out queries to look at, chosen by how they fared and by nothing else, and what was found for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conceptformer.records import OnProgress, RetrievalTask
from conceptformer.retrieval.evaluation import RANKS
from conceptformer.retrieval.protocol import PageRetriever
from conceptformer.retrieval.search import Ranking, search
from conceptformer.training.held_out_vectors import held_out_vectors

SHOWN_PAGES = 5


@dataclass(frozen=True)
class FoundPage:
    """A page in the ranking of a query.

    Attributes:
        rank: 1 for the first.
        score: Inner product with the query.
        relevant: Whether it answers the query.
    """

    page_id: str
    rank: int
    score: float
    relevant: bool


@dataclass(frozen=True)
class RetrievalExample:
    """One query.

    Attributes:
        found: The first :data:`SHOWN_PAGES` pages, and after them the best relevant one where it is none of these.
        rank: Of the best relevant page.
    """

    query_id: str
    query: str
    found: tuple[FoundPage, ...]
    rank: int


@dataclass(frozen=True)
class ExampleGroup:
    """Queries that fared alike.

    Attributes:
        title: How they fared.
        queries: Their number in the task.
        examples: The first of them in the task's order.
    """

    title: str
    queries: int
    examples: tuple[RetrievalExample, ...]


def retrieval_examples(
    task: RetrievalTask,
    retriever: PageRetriever,
    count: int,
    on_progress: OnProgress = lambda done, total: None,
) -> tuple[ExampleGroup, ...]:
    """Search with all queries, and show the first few of those whose page came first, near the top, and not there.

    Args:
        count: Examples of each group, at most.
        on_progress: Called with (pages encoded, all pages).

    Raises:
        DataError: The task contradicts itself, a page cannot be read, or a vector is not finite.
    """
    query_ids = list(task.queries)
    vectors, block = held_out_vectors(task, retriever, on_progress)
    rankings = search(query_ids, vectors, [block], depth=RANKS)
    ranks = [_rank(one, task.relevant[query_id]) for query_id, one in zip(query_ids, rankings, strict=True)]
    groups = (
        ("A relevant page comes first", [place for place, rank in enumerate(ranks) if rank == 1]),
        (f"Second to {RANKS}th", [place for place, rank in enumerate(ranks) if rank is not None and rank > 1]),
        (f"Not among the first {RANKS}", [place for place, rank in enumerate(ranks) if rank is None]),
    )
    # Where a page stands far down is worth the whole ranking for these few queries only.
    wanted = [place for _, places in groups for place in places[:count]]
    whole = search([query_ids[place] for place in wanted], vectors[wanted], [block], depth=len(task.pages))
    examples = {place: _example(task, query_ids[place], one) for place, one in zip(wanted, whole, strict=True)}
    return tuple(
        ExampleGroup(title, len(places), tuple(examples[place] for place in places[:count])) for title, places in groups
    )


def _rank(ranking: Ranking, relevant: frozenset[str]) -> int | None:
    """Of the first relevant page; None where the ranking has none."""
    return next((rank for rank, page_id in enumerate(ranking.page_ids, start=1) if page_id in relevant), None)


def _example(task: RetrievalTask, query_id: str, ranking: Ranking) -> RetrievalExample:
    relevant = task.relevant[query_id]
    best = _rank(ranking, relevant) or len(ranking.page_ids)
    ranks: Sequence[int] = range(1, 1 + min(SHOWN_PAGES, len(ranking.page_ids)))
    if best not in ranks:
        ranks = [*ranks, best]
    found = tuple(
        FoundPage(ranking.page_ids[rank - 1], rank, ranking.scores[rank - 1], ranking.page_ids[rank - 1] in relevant)
        for rank in ranks
    )
    return RetrievalExample(query_id, task.queries[query_id], found, best)
