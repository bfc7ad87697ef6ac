"""Retrieval metrics: worked by hand, equal to trec_eval, and within their bounds."""

import math

import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import given
from hypothesis import strategies as st

from visar.errors import VisarError
from visar.late_interaction import rank_pages
from visar.metrics import (
    f1_at,
    f1_of_means,
    hit_at,
    ndcg_at,
    ndcg_retrieved_at,
    precision_at,
    recall_at,
    reciprocal_rank_at,
    set_metrics,
)

AT_K = [recall_at, precision_at, f1_at, ndcg_at, ndcg_retrieved_at, hit_at, reciprocal_rank_at]
TREC_NAME = {recall_at: "recall", precision_at: "P", ndcg_at: "ndcg_cut", hit_at: "success"}


def test_worked_by_hand_with_two_of_three_relevant_pages_found():
    order, relevant = [7, 2, 9, 4, 1], {2, 4, 8}  # hits at ranks 2 and 4
    assert recall_at(order, relevant, 5) == pytest.approx(2 / 3)
    assert precision_at(order, relevant, 5) == pytest.approx(2 / 5)
    assert f1_at(order, relevant, 5) == pytest.approx(1 / 2)
    assert hit_at(order, relevant, 1) == 0
    assert hit_at(order, relevant, 2) == 1
    assert reciprocal_rank_at(order, relevant, 1) == 0
    assert reciprocal_rank_at(order, relevant, 5) == pytest.approx(1 / 2)
    gain = 0.6309298 + 0.4306766  # 1 / log2(3) + 1 / log2(5)
    assert ndcg_at(order, relevant, 5) == pytest.approx(gain / 2.1309298)  # ideal: ranks 1, 2, 3
    assert ndcg_retrieved_at(order, relevant, 5) == pytest.approx(gain / 1.6309298)  # ideal: ranks 1, 2


def test_missed_evidence_costs_nothing_in_the_authors_ndcg():
    order, relevant = [3, 0, 1], {3, 8, 9}
    assert ndcg_retrieved_at(order, relevant, 3) == 1
    assert ndcg_at(order, relevant, 3) < 0.5
    assert ndcg_retrieved_at([0, 1], {8}, 2) == 0


def test_ideal_ranking_is_cut_at_k():
    assert ndcg_at([0, 1, 2, 3], {0, 1, 2, 3}, 2) == 1


def test_precision_counts_places_beyond_a_short_ranking_as_misses():
    assert precision_at([0, 1], {0, 1}, 10) == pytest.approx(0.2)
    assert recall_at([0, 1], {0, 1}, 10) == 1


def test_set_metrics_worked_by_hand_and_perfect_and_empty_handed():
    assert set_metrics([4, 2, 0], {2, 9}) == pytest.approx((1 / 2, 1 / 3, 2 / 5))
    assert set_metrics([9, 2], {2, 9}) == (1, 1, 1)
    assert set_metrics([1], {2}) == (0, 0, 0)


@pytest.mark.parametrize(
    ("recall", "precision", "f1"),
    [(100.0, 67.30, 80.45), (85.57, 29.51, 43.89), (81.12, 45.13, 58.00), (73.57, 46.11, 56.69), (83.99, 17.47, 28.92)],
)
def test_f1_of_means_gives_the_published_f1(recall, precision, f1):
    assert f1_of_means(recall, precision) == pytest.approx(f1, abs=0.02)  # Table 1 of the ViSAR paper, in percent


def test_f1_of_means_is_zero_where_both_are_zero():
    assert f1_of_means(0.0, 0.0) == 0


def scores_of_kind(kind, generator, pages):
    return {
        "mixed signs": lambda: generator.normal(size=pages),
        "all negative": lambda: -generator.random(pages) - 1,
        "ties and zeros": lambda: generator.integers(-2, 3, size=pages).astype(float),
    }[kind]()


@pytest.mark.parametrize("kind", ["mixed signs", "all negative", "ties and zeros"])
def test_equals_trec_eval_on_random_rankings(kind):
    generator = np.random.default_rng(7)
    for pages in (1, 3, 11, 40):
        for _ in range(10):
            order = rank_pages(torch.from_numpy(scores_of_kind(kind, generator, pages)))
            relevant = set(generator.choice(pages + 2, size=generator.integers(1, pages + 1), replace=False).tolist())
            evaluator = pytrec_eval.RelevanceEvaluator(
                {"q": {f"p{page}": 1 for page in relevant}},
                {f"{name}.1,5,10" for name in TREC_NAME.values()} | {"recip_rank"},
            )
            # trec_eval breaks ties by id, so it gets the order as falling scores, through zero.
            run = {f"p{page}": float(len(order) // 2 - rank) for rank, page in enumerate(order)}
            expected = evaluator.evaluate({"q": run})["q"]
            for k in (1, 5, 10):
                for metric, name in TREC_NAME.items():
                    assert metric(order, relevant, k) == pytest.approx(expected[f"{name}_{k}"]), (name, k)
            assert reciprocal_rank_at(order, relevant, len(order)) == pytest.approx(expected["recip_rank"])


def test_distinct_zero_and_negative_scores_rank_as_in_trec_eval():
    scores = [-0.5, 0.0, -2.0, 0.25, -0.25]
    evaluator = pytrec_eval.RelevanceEvaluator({"q": {"p2": 1, "p0": 1}}, {"ndcg_cut.5", "recip_rank"})
    expected = evaluator.evaluate({"q": {f"p{page}": score for page, score in enumerate(scores)}})["q"]
    order = rank_pages(torch.tensor(scores))
    assert ndcg_at(order, {0, 2}, 5) == pytest.approx(expected["ndcg_cut_5"])
    assert reciprocal_rank_at(order, {0, 2}, 5) == pytest.approx(expected["recip_rank"])


rankings = st.integers(1, 12).flatmap(
    lambda pages: st.tuples(
        st.permutations(range(pages)), st.sets(st.integers(0, pages + 2), min_size=1), st.integers(1, 14)
    )
)


@given(rankings)
def test_every_metric_stays_between_zero_and_one_and_recall_never_falls_with_k(case):
    order, relevant, k = case
    for metric in AT_K:
        assert 0 <= metric(order, relevant, k) <= 1 + 1e-12, metric
    assert recall_at(order, relevant, k) <= recall_at(order, relevant, k + 1)
    assert hit_at(order, relevant, k) <= hit_at(order, relevant, k + 1)
    assert ndcg_at(order, relevant, k) <= ndcg_retrieved_at(order, relevant, k) + 1e-12


@given(rankings, st.randoms(use_true_random=False))
def test_what_stands_below_k_does_not_matter(case, random):
    order, relevant, k = case
    below = list(order[k:])
    random.shuffle(below)
    for metric in AT_K:
        assert metric([*order[:k], *below], relevant, k) == metric(order, relevant, k), metric


@given(rankings)
def test_f1_at_k_is_the_f1_of_the_first_k_as_a_set(case):
    order, relevant, k = case
    k = min(k, len(order))
    recall, precision, f1 = set_metrics(order[:k], relevant)
    assert (recall_at(order, relevant, k), precision_at(order, relevant, k)) == (recall, precision)
    assert math.isclose(f1_at(order, relevant, k), f1)


@pytest.mark.parametrize("metric", AT_K)
@pytest.mark.parametrize(
    ("order", "relevant", "k", "message"),
    [
        ([1, 2], set(), 5, "no relevant ids"),
        ([1, 1], {1}, 5, "occurs twice in order"),
        ([1, 2], [3, 3], 5, "occurs twice in relevant"),
        ([1, 2], {1}, 0, "k is 0"),
    ],
)
def test_meaningless_input_is_refused_in_one_line(metric, order, relevant, k, message):
    with pytest.raises(VisarError, match=message) as raised:
        metric(order, relevant, k)
    assert "\n" not in str(raised.value)


def test_empty_choice_is_refused():
    with pytest.raises(VisarError, match="nothing was chosen"):
        set_metrics([], {1})
