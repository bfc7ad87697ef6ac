"""Retrieval metrics from ordered page ids and the set of relevant ids; never from raw scores.

All values are fractions from 0 to 1. Gains are binary. Metrics at k are those of trec_eval: precision divides by k even
where the ranking is shorter. Questions without evidence have no ranking metrics: the caller leaves them out, and
every function here raises :class:`~visar.errors.VisarError` on an empty ``relevant``, a repeated id and k < 1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

from visar.errors import VisarError


class SetMetrics(NamedTuple):
    """Quality of a set of chosen pages."""

    recall: float
    precision: float
    f1: float


def _hits(order: Collection[Hashable], relevant: Collection[Hashable]) -> list[bool]:
    """For each id of ``order``, whether it is relevant; checks what all metrics need."""
    if len(relevant) == 0:
        raise VisarError("metrics: no relevant ids; leave questions without evidence out of retrieval metrics")
    for name, ids in (("order", order), ("relevant", relevant)):
        if len(set(ids)) != len(ids):
            raise VisarError(f"metrics: an id occurs twice in {name}: {list(ids)}; expected distinct ids")
    wanted = set(relevant)
    return [identifier in wanted for identifier in order]


def _hits_within(order: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> list[bool]:
    """:func:`_hits` of the first ``k`` ids."""
    if k < 1:
        raise VisarError(f"metrics: k is {k}; expected a whole number of at least 1")
    return _hits(order, relevant)[:k]


def _harmonic_mean(recall: float, precision: float) -> float:
    """F1; 0 where both are 0."""
    total = recall + precision
    return 2 * recall * precision / total if total > 0 else 0.0


def _discounted_gain(hits: Sequence[bool]) -> float:
    """Sum of 1 / log2(rank + 1) over the hits."""
    return sum(1 / math.log2(rank + 1) for rank, hit in enumerate(hits, start=1) if hit)


def recall_at(order: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float:
    """Share of the relevant ids among the first k."""
    return sum(_hits_within(order, relevant, k)) / len(relevant)


def precision_at(order: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float:
    """Share of relevant ids among k places; places beyond the end of the ranking count as misses."""
    return sum(_hits_within(order, relevant, k)) / k


def f1_at(order: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float:
    """Harmonic mean of :func:`recall_at` and :func:`precision_at`."""
    return _harmonic_mean(recall_at(order, relevant, k), precision_at(order, relevant, k))


def ndcg_at(order: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float:
    """nDCG as usual (trec_eval's ndcg_cut): the ideal ranking puts all relevant ids first."""
    hits = _hits_within(order, relevant, k)
    return _discounted_gain(hits) / _discounted_gain([True] * min(k, len(relevant)))


def ndcg_retrieved_at(order: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float:
    """nDCG as in the ViSAR authors' evaluation: the ideal ranking puts first only those relevant ids that are among the
    first k. Evidence that was missed costs nothing, so it is never below :func:`ndcg_at`; use it only to compare with
    their tables. 0 where nothing was found."""
    hits = _hits_within(order, relevant, k)
    return _discounted_gain(hits) / _discounted_gain([True] * sum(hits)) if any(hits) else 0.0


def hit_at(order: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float:
    """1 if any relevant id is among the first k, else 0 (trec_eval's success)."""
    return float(any(_hits_within(order, relevant, k)))


def reciprocal_rank_at(order: Sequence[Hashable], relevant: Collection[Hashable], k: int) -> float:
    """1 / rank of the first relevant id among the first k; 0 if there is none. Its mean over questions is MRR@k."""
    hits = _hits_within(order, relevant, k)
    return 1 / (1 + hits.index(True)) if any(hits) else 0.0


def set_metrics(chosen: Collection[Hashable], relevant: Collection[Hashable]) -> SetMetrics:
    """Recall, precision and F1 of the pages that were chosen, e.g. at k*. Precision divides by the number chosen."""
    if len(chosen) == 0:
        raise VisarError("metrics: nothing was chosen; expected at least one id")
    found = sum(_hits(chosen, relevant))
    recall, precision = found / len(relevant), found / len(chosen)
    return SetMetrics(recall, precision, _harmonic_mean(recall, precision))


def f1_of_means(mean_recall: float, mean_precision: float) -> float:
    """F1@k* as in the ViSAR paper's Table 1: the harmonic mean of the two means over questions, not the mean of the
    questions' F1. In the unit of its arguments."""
    return _harmonic_mean(mean_recall, mean_precision)
