"""Figures of a run from its rows: over which questions, in which units, and against what."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from visar.errors import VisarError
from visar.evaluation import ranking_metrics
from visar.metrics import set_metrics
from visar.significance import Resampling
from visar.summary import RANKING_TESTED, summarise

QUICK = Resampling(samples=200, seed=0)


def row(
    question: int,
    selector: str,
    order: Sequence[int],
    k: int,
    evidence: Sequence[int],
    document: str = "d1",
    **more: Any,
) -> dict[str, Any]:
    figures: dict[str, Any] = dict.fromkeys(("recall", "precision", "f1", "ranking"))
    if evidence:
        figures = set_metrics(order[:k], evidence)._asdict() | {"ranking": ranking_metrics(order, evidence)}
    return {
        "question_id": f"q{question}",
        "document_id": document,
        "selector": selector,
        "order": list(order),
        "k": k,
        "evidence_pages": list(evidence),
        "reason": "fixed_k",
        "seconds": {"late_interaction": 0.25},
        **figures,
        **more,
    }


UP, DOWN = [0, 1, 2, 3], [3, 2, 1, 0]


def values(figures: dict[str, Any]) -> dict[str, float]:
    return {name: figure["value"] for name, figure in figures.items()}


def test_figures_by_hand():
    rows = [
        row(1, "s", UP, 2, [0, 3]),  # recall 1/2, precision 1/2, F1 1/2
        row(2, "s", UP, 1, [0, 1], "d2"),  # recall 1/2, precision 1, F1 2/3
        row(3, "s", UP, 4, [1], "d2", reason="least_cost"),  # recall 1, precision 1/4, F1 2/5
        row(4, "s", UP, 3, [], "d2"),
    ]
    of = summarise(rows, "none", QUICK)["selectors"]["s"]
    recall, precision = (1 / 2 + 1 / 2 + 1) / 3, (1 / 2 + 1 + 1 / 4) / 3
    assert values(of["at_k"]) == pytest.approx(
        {
            "mean_k": 10 / 4,  # the question without evidence counts here, and only here
            "median_k": 5 / 2,
            "recall": recall,
            "precision": precision,
            "f1": (1 / 2 + 2 / 3 + 2 / 5) / 3,
            "f1_of_means": 2 * recall * precision / (recall + precision),
        }
    )
    assert of["ranking"]["mrr@5"]["value"] == pytest.approx((1 + 1 + 1 / 2) / 3)
    assert of["ranking"]["recall@10"]["value"] == 1
    assert of["reasons"] == {"fixed_k": 3, "least_cost": 1}
    assert list(of["reasons"]) == ["fixed_k", "least_cost"]


def test_questions_without_evidence_alone_leave_k_and_times():
    of = summarise([row(1, "s", UP, 2, []), row(2, "s", UP, 4, [], "d2")], "s", QUICK)["selectors"]["s"]
    assert set(of["at_k"]) == {"mean_k", "median_k"}
    assert of["ranking"] == {}
    assert of["at_k"]["mean_k"]["value"] == 3


def test_intervals_resample_documents_and_not_questions():
    # 40 questions on two documents: resampling questions would give about [0.35, 0.65].
    rows = [row(n, "s", UP, 1, [0] if n < 20 else [1], "d1" if n < 20 else "d2") for n in range(40)]
    recall = summarise(rows, "none", QUICK)["selectors"]["s"]["at_k"]["recall"]
    assert recall == {"value": 0.5, "low": 0, "high": 1}


def test_one_document_has_no_interval():
    rows = [row(n, "s", UP, 1, [n]) for n in range(3)]
    figure = summarise(rows, "none", QUICK)["selectors"]["s"]["at_k"]["recall"]
    assert figure == {"value": pytest.approx(1 / 3), "low": None, "high": None}


def test_times_are_over_the_questions_that_ran_the_stage():
    rows = [
        row(1, "s", UP, 1, [0], seconds={"late_interaction": 1.0, "similarity": 4.0}),
        row(2, "s", UP, 1, [0], seconds={"late_interaction": 2.0}),
        row(3, "s", UP, 1, [], seconds={"late_interaction": 6.0, "similarity": 2.0}),
    ]
    seconds = summarise(rows, "none", QUICK)["selectors"]["s"]["seconds"]
    assert {stage: figure["median"] for stage, figure in seconds.items()} == {
        "total": 5.0,
        "late_interaction": 2.0,
        "similarity": 3.0,
    }
    assert seconds["total"]["p95"] == pytest.approx(np.percentile([5.0, 2.0, 8.0], 95))
    assert seconds["similarity"]["p95"] == pytest.approx(np.percentile([4.0, 2.0], 95))


def five_documents(order: Sequence[int], k: int, name: str) -> list[dict[str, Any]]:
    return [row(n, name, order, k, [0], f"d{n}") for n in range(5)]


def test_paired_tests_by_hand():
    rows = [*five_documents(UP, 4, "base"), *five_documents(UP, 2, "short"), *five_documents(DOWN, 4, "turned")]
    rows.append(row(9, "base", UP, 4, []))
    tests = summarise(rows, "base", QUICK)["tests"]
    by_name = {(test["selector"], test["metric"]): test for test in tests}
    # The same ranking cut earlier is not compared as a ranking.
    assert {metric for selector, metric in by_name if selector == "short"} == {"recall", "precision", "f1"}
    assert {metric for selector, metric in by_name if selector == "turned"} == {
        "recall",
        "precision",
        "f1",
        *RANKING_TESTED,
    }
    short = by_name["short", "precision"]
    assert short["difference"] == pytest.approx(1 / 2 - 1 / 4)
    # All five documents differ in one direction: 2 of 32 sign patterns are as large.
    assert short["p"] == 2 / 32
    assert by_name["short", "recall"]["p"] == 1
    turned = by_name["turned", "mrr@10"]
    assert turned["difference"] == pytest.approx(1 / 4 - 1)
    assert all(test["baseline"] == "base" for test in tests)


def test_holm_corrects_all_tests_of_the_run_together():
    rows = [*five_documents(UP, 4, "base"), *five_documents(UP, 2, "short"), *five_documents(DOWN, 2, "turned")]
    tests = summarise(rows, "base", QUICK)["tests"]
    assert len(tests) == 3 + 3 + len(RANKING_TESTED)
    expected = multipletests([test["p"] for test in tests], method="holm")[1]
    assert [test["p_holm"] for test in tests] == pytest.approx(list(expected))
    assert min(test["p_holm"] for test in tests) > min(test["p"] for test in tests)


def test_documents_are_the_units_of_the_tests():
    # Ten questions, all better, on one document: that is one observation.
    rows = [row(n, name, UP, k, [0]) for name, k in (("base", 4), ("short", 1)) for n in range(10)]
    assert {test["p"] for test in summarise(rows, "base", QUICK)["tests"]} == {1.0}


def test_questions_are_paired_by_their_id():
    base = [row(n, "base", UP, 1, [n], f"d{n}") for n in range(4)]
    other = [row(n, "other", UP, 1, [n], f"d{n}") for n in (3, 0, 2, 1)]
    tests = summarise([*base, *other], "base", QUICK)["tests"]
    assert {test["difference"] for test in tests} == {0}
    assert {test["p"] for test in tests} == {1}
    lonely = [row(7, "other", UP, 1, [0], "d7")]
    assert summarise([*base, *lonely], "base", QUICK)["tests"] == []


def test_without_the_baseline_there_are_no_tests():
    assert summarise(five_documents(UP, 1, "s"), "base", QUICK)["tests"] == []
    assert summarise(five_documents(UP, 1, "s"), "s", QUICK)["tests"] == []


def test_figures_are_reproducible_and_ready_for_json():
    rows = [row(n, name, UP, k, [n % 3], f"d{n % 5}") for name, k in (("base", 3), ("s", 1)) for n in range(20)]
    first = summarise(rows, "base", QUICK)
    assert json.loads(json.dumps(first, allow_nan=False)) == first == summarise(rows, "base", QUICK)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 0, "seed": 0}, "resampling.samples: expected a whole number of at least 1, got 0"),
        ({"samples": "many", "seed": 0}, "resampling.samples: .* got 'many'"),
        ({"samples": 2.5, "seed": 0}, "resampling.samples: .* got 2.5"),
        ({"samples": 10, "seed": -1}, "resampling.seed: expected a whole number of at least 0, got -1"),
    ],
)
def test_settings_are_checked_before_a_run_and_not_after(settings, message):
    with pytest.raises(VisarError, match=message):
        Resampling(**settings)
