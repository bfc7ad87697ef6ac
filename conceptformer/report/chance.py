"""What retrieval metrics are worth when nothing has been learnt: their expectation over all orders of the corpus."""

from __future__ import annotations

import math
from collections.abc import Iterable

from conceptformer.errors import DataError
from conceptformer.retrieval.evaluation import METRICS, RANKS


def chance_levels(pages: int, relevant: Iterable[int]) -> dict[str, float]:
    """Expected mean recall@10, nDCG@10 and MRR@10 of rankings that are shuffled.

    With N pages, of which R answer a query, the page at a rank is relevant with probability R / N, and it is the first
    relevant one with probability (N - R) / N * (N - R - 1) / (N - 1) * ... * R / (N - rank + 1).

    Args:
        pages: N.
        relevant: R of each query.

    Raises:
        DataError: No query, or an R that is not from 1 to N.
    """
    counts = list(relevant)
    wrong = [count for count in counts if not 1 <= count <= pages]
    if wrong or not counts:
        found = f"{wrong[0]} for a query" if wrong else "no query"
        raise DataError(f"chance level: expected 1 to {pages} relevant pages for each query, got {found}")
    of = {count: _levels(pages, count) for count in set(counts)}
    return {name: sum(of[count][i] for count in counts) / len(counts) for i, name in enumerate(METRICS)}


def _levels(pages: int, relevant: int) -> tuple[float, float, float]:
    """In the order of METRICS, for one query."""
    seen = min(RANKS, pages)
    discounts = [1 / math.log2(rank + 1) for rank in range(1, seen + 1)]
    ndcg = relevant / pages * sum(discounts) / sum(discounts[:relevant])
    reciprocal_rank, none_yet = 0.0, 1.0
    for rank in range(1, seen + 1):
        left = pages - rank + 1
        reciprocal_rank += none_yet * relevant / left / rank
        none_yet *= (left - relevant) / left
    return seen / pages, ndcg, reciprocal_rank
