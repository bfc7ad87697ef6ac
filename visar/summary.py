"""From the rows of a run to its figures: means with clustered intervals, times, and paired tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from visar.evaluation import Row
from visar.significance import (
    Resampling,
    holm,
    paired_permutation_test,
    weighted_f1_of_means,
    weighted_mean,
    weighted_median,
)

SET_METRICS = ("recall", "precision", "f1")
RANKING_TESTED = ("recall@5", "recall@10", "ndcg@5", "ndcg@10", "mrr@10")


def summarise(rows: Sequence[Row], baseline: str, resampling: Resampling) -> dict[str, Any]:
    """Figures of each selector, and tests of each against the baseline.

    Args:
        rows: One for each question and selector.
        baseline: Name of the selector to compare with; no tests where it did not run.

    Returns:
        ``{"selectors": {name: ...}, "tests": [...]}``, ready for JSON. Retrieval figures are over the questions that
        have evidence pages; k and times are over all questions.
    """
    by_selector: dict[str, list[Row]] = {}
    for row in rows:
        by_selector.setdefault(row["selector"], []).append(row)
    selectors = {
        name: {
            "at_k": _at_k(own, resampling),
            "ranking": _ranking(own, resampling),
            "seconds": _seconds(own),
            "reasons": dict(Counter(row["reason"] for row in own).most_common()),
        }
        for name, own in by_selector.items()
    }
    return {"selectors": selectors, "tests": _tests(by_selector, baseline, resampling)}


def _with_evidence(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["evidence_pages"]]


def _documents(rows: Sequence[Row]) -> list[str]:
    return [row["document_id"] for row in rows]


def _at_k(rows: Sequence[Row], resampling: Resampling) -> dict[str, Any]:
    chosen = [row["k"] for row in rows]
    figures = {
        "mean_k": resampling.estimate(chosen, _documents(rows), weighted_mean),
        "median_k": resampling.estimate(chosen, _documents(rows), weighted_median),
    }
    judged = _with_evidence(rows)
    if not judged:
        return figures
    for name in SET_METRICS:
        figures[name] = resampling.estimate([row[name] for row in judged], _documents(judged), weighted_mean)
    pairs = [(row["recall"], row["precision"]) for row in judged]
    figures["f1_of_means"] = resampling.estimate(pairs, _documents(judged), weighted_f1_of_means)
    return figures


def _ranking(rows: Sequence[Row], resampling: Resampling) -> dict[str, Any]:
    judged = _with_evidence(rows)
    names = judged[0]["ranking"] if judged else ()
    return {
        name: resampling.estimate([row["ranking"][name] for row in judged], _documents(judged), weighted_mean)
        for name in names
    }


def _seconds(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Median and 95th percentile of each stage, over the questions that ran it, and of their sum."""
    samples: dict[str, list[float]] = {"total": [sum(row["seconds"].values()) for row in rows]}
    for row in rows:
        for stage, seconds in row["seconds"].items():
            samples.setdefault(stage, []).append(seconds)
    return {
        stage: {"median": float(np.median(times)), "p95": float(np.quantile(times, 0.95))}
        for stage, times in samples.items()
    }


def _tests(by_selector: Mapping[str, list[Row]], baseline: str, resampling: Resampling) -> list[dict[str, Any]]:
    """Every selector against the baseline, all p-values of the run corrected together (Holm).

    Ranking is compared only where the two rank differently at all: most selectors cut the same ranking.
    """
    reference = {row["question_id"]: row for row in _with_evidence(by_selector.get(baseline, []))}
    tests: list[dict[str, Any]] = []
    for name, rows in by_selector.items():
        pairs = [
            (row, reference[row["question_id"]]) for row in _with_evidence(rows) if row["question_id"] in reference
        ]
        if name == baseline or not pairs:
            continue
        values = {metric: [own[metric] - other[metric] for own, other in pairs] for metric in SET_METRICS}
        if any(own["order"] != other["order"] for own, other in pairs):
            for metric in RANKING_TESTED:
                values[metric] = [own["ranking"][metric] - other["ranking"][metric] for own, other in pairs]
        for metric, differences in values.items():
            documents = [own["document_id"] for own, _ in pairs]
            p = paired_permutation_test(differences, documents, samples=resampling.samples, seed=resampling.seed)
            tests.append(
                {
                    "selector": name,
                    "baseline": baseline,
                    "metric": metric,
                    "difference": float(np.mean(differences)),
                    "p": p,
                }
            )
    for test, adjusted in zip(tests, holm([test["p"] for test in tests]), strict=True):
        test["p_holm"] = adjusted
    return tests
