"""Variants of a method trained with several seeds each: what was measured, and what the differences are worth."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from conceptformer.errors import TrainingError
from conceptformer.retrieval.evaluation import METRICS
from visar.significance import holm, paired_permutation_test

CHECKPOINTS = ("last", "best")
"""Of each run: the last one, which no result had a say in, and the one that did best on the held-out queries."""

QueryMetrics = Mapping[str, Mapping[str, float]]
"""The metrics of each query, by its id and their names."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class ComparisonPlan:
    """What is trained.

    Attributes:
        variants: Names; the first is what the others are compared with.
        seeds: Each variant is trained with each of them.

    Raises:
        TrainingError: Fewer than two variants, no seed, repeated ones, or a name that cannot be a folder's.
    """

    variants: tuple[str, ...]
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, values, least in (("variants", self.variants, 2), ("seeds", self.seeds, 1)):
            if len(values) < least or len(set(values)) != len(values):
                raise TrainingError(
                    f"compare.{name}: expected at least {least}, each once, got {list(values)}; change the list"
                )
        for name in self.variants:
            if not _NAME.fullmatch(name):
                raise TrainingError(
                    f"compare.variants: {name!r} cannot name a folder; expected letters, digits, '_', '.' and '-'"
                )

    def folder_name(self, variant: str, seed: int) -> str:
        """Of a run's folder within that of the comparison."""
        return f"{variant}-seed{seed}"


@dataclass(frozen=True)
class CheckpointResult:
    """What a checkpoint found for the held-out queries.

    Attributes:
        step: Training steps that it had seen.
    """

    step: int
    queries: QueryMetrics

    def mean(self, metric: str) -> float:
        """Over queries."""
        return sum(values[metric] for values in self.queries.values()) / len(self.queries)


@dataclass(frozen=True)
class RunResult:
    """One finished run.

    Attributes:
        checkpoints: By the names in :data:`CHECKPOINTS`.
        history: Held-out nDCG@10 by step, as measured on the way.
    """

    variant: str
    seed: int
    checkpoints: Mapping[str, CheckpointResult]
    history: Mapping[int, float]


@dataclass(frozen=True)
class Difference:
    """A variant minus the first one, in one metric of one checkpoint.

    Attributes:
        by_seed: Difference of the means over queries, in the order of the seeds.
        mean: Of these.
        p_queries: Paired permutation test over queries, those of all seeds together and alike queries with each other:
            whether these trained models differ on such queries. It says nothing about other seeds.
        p_holm: The same after Holm's correction for all differences of the comparison.
        p_seeds: Paired permutation test over seeds: whether training again would give a difference. With n seeds it
            cannot be below 2 / 2^n.
    """

    variant: str
    checkpoint: str
    metric: str
    by_seed: tuple[float, ...]
    mean: float
    p_queries: float
    p_holm: float
    p_seeds: float


@dataclass(frozen=True)
class Comparison:
    """Runs, complete for each seed in ``seeds``.

    Attributes:
        plan: What is to be trained in the end.
        seeds: Those of the plan that all variants have been trained with.
        query_count, page_count: Of the held-out set.
        runs: By (variant, seed).
        differences: Of each variant but the first, by checkpoint and metric.
    """

    plan: ComparisonPlan
    seeds: tuple[int, ...]
    query_count: int
    page_count: int
    runs: Mapping[tuple[str, int], RunResult]
    differences: tuple[Difference, ...]

    def values(self, variant: str, checkpoint: str, metric: str) -> tuple[float, ...]:
        """Means over queries, seed by seed."""
        return tuple(self.runs[variant, seed].checkpoints[checkpoint].mean(metric) for seed in self.seeds)

    @property
    def complete(self) -> bool:
        """Whether all seeds of the plan are there."""
        return self.seeds == self.plan.seeds


def smallest_seed_p(seeds: int) -> float:
    """The least p-value that a two-sided paired permutation test over so many seeds can give."""
    return 2 / 2**seeds


def compare(
    plan: ComparisonPlan, runs: Mapping[tuple[str, int], RunResult], groups: Mapping[str, int], page_count: int
) -> Comparison:
    """Compare the runs of all seeds that are complete.

    Args:
        runs: By (variant, seed); at least one seed has all variants.
        groups: A number for each query, alike for queries that succeed and fail together, see
            :func:`~conceptformer.retrieval.evaluation.query_groups`.

    Raises:
        TrainingError: Runs were measured on different queries.
    """
    seeds = tuple(seed for seed in plan.seeds if all((variant, seed) in runs for variant in plan.variants))
    kept = {key: runs[key] for key in product(plan.variants, seeds)}
    for (variant, seed), run in kept.items():
        for result in run.checkpoints.values():
            if result.queries.keys() != groups.keys():
                raise TrainingError(f"{variant}, seed {seed}: measured on other queries than the rest; measure it anew")
    chosen = list(product(plan.variants[1:], CHECKPOINTS, METRICS))
    found = [_difference(plan, kept, seeds, groups, *choice) for choice in chosen]
    adjusted = holm([p_queries for _, p_queries, _ in found])
    differences = tuple(
        Difference(*choice, by_seed, sum(by_seed) / len(by_seed), p_queries, p_holm, p_seeds)
        for choice, (by_seed, p_queries, p_seeds), p_holm in zip(chosen, found, adjusted, strict=True)
    )
    return Comparison(plan, seeds, len(groups), page_count, kept, differences)


def _difference(
    plan: ComparisonPlan,
    runs: Mapping[tuple[str, int], RunResult],
    seeds: Sequence[int],
    groups: Mapping[str, int],
    variant: str,
    checkpoint: str,
    metric: str,
) -> tuple[tuple[float, ...], float, float]:
    """Differences by seed, p over queries, p over seeds."""
    values: list[float] = []
    by_seed: list[float] = []
    for seed in seeds:
        mine, theirs = (runs[name, seed].checkpoints[checkpoint].queries for name in (variant, plan.variants[0]))
        own = [mine[query_id][metric] - theirs[query_id][metric] for query_id in groups]
        values += own
        by_seed.append(math.fsum(own) / len(own))
    p_queries = paired_permutation_test(values, list(groups.values()) * len(seeds))
    return tuple(by_seed), p_queries, paired_permutation_test(by_seed, seeds)
