"""Retrievers on the same benchmarks: their means, and what the differences are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conceptformer.errors import DataError
from conceptformer.retrieval.evaluation import query_groups
from conceptformer.retrieval.finished_runs import FinishedRun
from visar.significance import Resampling, holm, paired_permutation_test

COMPARED_METRICS = ("ndcg_at_10", "recall_at_10")
"""Those that the paper reports, the main one first."""


@dataclass(frozen=True)
class Difference:
    """The reference minus another retriever, in one metric on one benchmark.

    Attributes:
        value: Difference of the means over queries.
        p: Paired permutation test over queries, those about one page counting as one (see
            :func:`~conceptformer.retrieval.evaluation.query_groups`).
        p_holm: The same after Holm's correction for all differences of the comparison.
    """

    benchmark: str
    other: str
    metric: str
    value: float
    p: float
    p_holm: float


@dataclass(frozen=True)
class RetrieverComparison:
    """Runs side by side.

    Attributes:
        benchmarks, retrievers: Names, in the order of the tables.
        runs: By (retriever, benchmark); not every retriever has run on every benchmark.
        reference: The retriever that the others are compared with.
        differences: On the benchmarks that the reference and another both have.
    """

    benchmarks: tuple[str, ...]
    retrievers: tuple[str, ...]
    runs: Mapping[tuple[str, str], FinishedRun]
    reference: str
    differences: tuple[Difference, ...]

    def average(self, retriever: str, metric: str) -> float | None:
        """Mean over all benchmarks, each counting once (paper, Sec. 4.1); None where one was not run."""
        runs = [self.runs.get((retriever, benchmark)) for benchmark in self.benchmarks]
        means = [run.mean(metric) for run in runs if run is not None]
        return sum(means) / len(means) if len(means) == len(runs) else None


def compare_retrievers(
    runs: Sequence[FinishedRun], *, order: Sequence[str], reference: str | None, resampling: Resampling
) -> RetrieverComparison:
    """Put runs side by side and test the differences.

    Args:
        order: Benchmarks that stand first, in this order; others follow by name.
        reference: A retriever's label, its name where no other has it. None for the one with the best average, among
            those that ran on the most benchmarks.
        resampling: Of the permutation test.

    Raises:
        DataError: Runs of one benchmark have different queries, answers or corpora; a retriever has two different runs
            of one benchmark; no retriever is called ``reference``.
    """
    found = {run.benchmark for run in runs}
    benchmarks = (*(name for name in order if name in found), *sorted(found - set(order)))
    for benchmark in benchmarks:
        _check_same_data([run for run in runs if run.benchmark == benchmark])
    by_retriever = _labelled(runs)
    placed = {(label, run.benchmark): run for label, own in by_retriever.items() for run in own}
    labels = tuple(by_retriever)
    if reference is None:
        reference = max(labels, key=lambda label: _standing(by_retriever[label]))
    if reference not in labels:
        raise DataError(f"reference: no retriever is called '{reference}'; expected one of {', '.join(labels)}")
    differences = _differences(placed, benchmarks, labels, reference, resampling)
    return RetrieverComparison(benchmarks, labels, placed, reference, differences)


def _standing(runs: Sequence[FinishedRun]) -> tuple[int, float]:
    return len(runs), sum(run.mean(COMPARED_METRICS[0]) for run in runs) / len(runs)


def _labelled(runs: Sequence[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Runs by a label of their retriever: its name, and where another one has that too, the folder of its first run."""
    by_identity: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        own = by_identity.setdefault((run.retriever, run.fingerprint), [])
        same = next((other for other in own if other.benchmark == run.benchmark), None)
        if same is None:
            own.append(run)
        elif same.queries != run.queries:
            raise DataError(
                f"{same.folder} and {run.folder}: different results of {run.retriever} on {run.benchmark}; remove the "
                "older one"
            )
    firsts = [own[0] for own in by_identity.values()]
    forms = [
        [run.retriever for run in firsts],
        [f"{run.retriever} ({run.folder.name})" for run in firsts],
        [f"{run.retriever} ({run.folder})" for run in firsts],
    ]
    return {
        next(form[place] for form in forms if form.count(form[place]) == 1): own
        for place, own in enumerate(by_identity.values())
    }


def _check_same_data(runs: Sequence[FinishedRun]) -> None:
    """Refuse runs of one benchmark's name with different data, as far as they have written down what theirs were."""
    for what, told_by in (
        ("queries", lambda run: run.queries.keys()),
        ("relevant pages", lambda run: run.relevant),
        ("numbers of pages", lambda run: run.pages),
        ("page images or texts", lambda run: run.data),
    ):
        first, *others = [run for run in runs if told_by(run) is not None] or [None]
        for run in others:
            if told_by(run) != told_by(first):
                raise DataError(
                    f"{first.folder} and {run.folder}: both are of a benchmark called {run.benchmark}, with different "
                    f"{what}; compare runs of the same data: choose their folder, runs=FOLDER, or remove the others"
                )


def _differences(
    runs: Mapping[tuple[str, str], FinishedRun],
    benchmarks: Sequence[str],
    labels: Sequence[str],
    reference: str,
    resampling: Resampling,
) -> tuple[Difference, ...]:
    found: list[tuple[str, str, str, float, float]] = []
    for benchmark in benchmarks:
        mine = runs.get((reference, benchmark))
        if mine is None:
            continue
        groups = query_groups(mine.relevant)
        for other in labels:
            theirs = runs.get((other, benchmark))
            if other == reference or theirs is None:
                continue
            for metric in COMPARED_METRICS:
                values = [mine.queries[query][metric] - theirs.queries[query][metric] for query in groups]
                p = paired_permutation_test(
                    values, list(groups.values()), samples=resampling.samples, seed=resampling.seed
                )
                found.append((benchmark, other, metric, sum(values) / len(values), p))
    adjusted = holm([p for *_, p in found])
    return tuple(Difference(*one, p_holm) for one, p_holm in zip(found, adjusted, strict=True))
