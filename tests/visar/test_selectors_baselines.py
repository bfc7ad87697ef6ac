"""Baseline page selectors: each rule by hand and against a slow form, the edges, and what all of them share."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from sklearn.cluster import HDBSCAN
from sklearn.metrics import silhouette_score

from visar.errors import VisarError
from visar.late_interaction import PackedPages
from visar.selectors import (
    FixedK,
    GaussianMixture,
    LargestGap,
    Oracle,
    PageSelector,
    ScoreCluster,
    ScoreThreshold,
)
from visar.selectors.fixed import fixed_k
from visar.selectors.gaussian_mixture import higher_component
from visar.selectors.largest_gap import largest_gap
from visar.selectors.score_cluster import score_cluster
from visar.selectors.score_threshold import above_threshold

CONFIGS = Path(__file__).parents[2] / "configs" / "visar" / "selector"
BASELINES = {
    "late_interaction_10": FixedK(k=10),
    "largest_gap": LargestGap(),
    "score_cluster": ScoreCluster(rank_penalty=False),
    "score_cluster_original": ScoreCluster(rank_penalty=True),
    "score_threshold": ScoreThreshold(threshold=0.5),
    "gaussian_mixture": GaussianMixture(),
    "oracle": Oracle(),
}
RULES = {
    "largest_gap": largest_gap,
    "score_cluster": lambda scores: score_cluster(scores, rank_penalty=False),
    "score_cluster_original": lambda scores: score_cluster(scores, rank_penalty=True),
    "score_threshold": lambda scores: above_threshold(scores, threshold=0.5),
    "gaussian_mixture": higher_component,
}

QUERY = torch.tensor([[1.0, 0.0]])


def pages_scoring(*scores):
    """One-patch pages whose late-interaction score with QUERY is the given cosine."""
    return PackedPages.pack([torch.tensor([[score, (1 - score**2) ** 0.5]]) for score in scores])


def falling(values):
    return np.sort(np.asarray(values, dtype=float))[::-1]


# What all of them share.


@pytest.mark.parametrize("name", BASELINES)
def test_the_config_builds_the_selector_and_it_keeps_the_protocol(name):
    selector = instantiate(OmegaConf.load(CONFIGS / f"{name}.yaml"))
    assert selector == BASELINES[name]
    assert isinstance(selector, PageSelector)


@pytest.mark.parametrize("name", BASELINES)
def test_ranks_by_late_interaction_as_a_slow_loop_does(name):
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(5, 7, generator=generator)
    raw = [torch.randn(length, 7, generator=generator) for length in (2, 11, 3, 13, 1)]
    slow = []
    for page in raw:
        score = 0.0
        for token in query.double():
            score += max(float(token @ patch / (token.norm() * patch.norm())) for patch in page.double())
        slow.append(score)
    selection = BASELINES[name].select(query, PackedPages.pack(raw))
    assert selection.late_interaction.tolist() == pytest.approx(slow, abs=1e-5)
    assert selection.scores.tolist() == selection.late_interaction.tolist()
    assert selection.order == sorted(range(5), key=lambda page: -slow[page])
    assert selection.pages == selection.order[: selection.k]
    assert set(selection.seconds) == {"late_interaction", "choose_k"}
    assert selection.warnings == ()


@pytest.mark.parametrize("name", BASELINES)
def test_pages_left_out_for_broken_embeddings_are_named_and_never_chosen(name):
    raw = [torch.tensor([[score, (1 - score**2) ** 0.5]]) for score in (0.2, 0.9, 0.7, 0.1, 0.8)]
    raw[1] = torch.tensor([[float("nan"), 0.0]])
    selection = BASELINES[name].select(QUERY, PackedPages.pack(raw, leave_out_broken=True))
    assert selection.order == [4, 2, 0, 3]
    assert selection.scores.tolist() == pytest.approx([0.2, -np.inf, 0.7, 0.1, 0.8])
    assert any("[1]" in warning for warning in selection.warnings)


@pytest.mark.parametrize("name", BASELINES)
def test_one_page_is_read(name):
    selection = BASELINES[name].select(QUERY, pages_scoring(0.3), evidence_pages=(0,))
    assert (selection.order, selection.k, selection.warnings) == ([0], 1, ())


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("score", [0.4, 0.0, -0.7])
def test_equal_pages_give_one_page_in_page_order_and_a_warning(name, score):
    selection = BASELINES[name].select(QUERY, pages_scoring(*[score] * 6))
    assert (selection.order, selection.k, selection.reason) == ([0, 1, 2, 3, 4, 5], 1, "pages_alike")
    assert "arbitrary" in selection.warnings[0]


@pytest.mark.parametrize("name", RULES)
def test_differences_within_float32_rounding_count_as_equal(name):
    assert RULES[name](falling([12.0, 12.000001, 12.000002, 12.0])).reason == "pages_alike"
    assert RULES[name](falling([12.0, 12.01, 12.02, 12.0])).reason != "pages_alike"


@pytest.mark.parametrize("name", RULES)
def test_two_pages_give_one(name):
    assert RULES[name](np.array([0.9, 0.1])).k == 1


@pytest.mark.parametrize("name", RULES)
def test_three_pages_give_one_or_two_where_two_stand_apart(name):
    assert RULES[name](np.array([0.9, 0.2, 0.1])).k == 1
    assert RULES[name](np.array([0.9, 0.8, 0.1])).k == 2


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=14), st.sampled_from(sorted(RULES)))
@settings(max_examples=60)
def test_k_stays_within_the_document(values, name):
    assert 1 <= RULES[name](falling(values)).k <= len(values)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=14), st.sampled_from(sorted(RULES)))
@settings(max_examples=60)
def test_neither_shift_nor_scale_of_the_scores_matters(values, name):
    assume(max(values) > min(values))
    scores = falling(values)
    # Powers of two and whole numbers keep the arithmetic exact, ties included.
    assert RULES[name](8 * scores + 64).k == RULES[name](scores).k


@given(st.permutations([0.05, 0.1, 0.13, 0.2, 0.31, 0.5, 0.6, 0.77, 0.9]), st.sampled_from(sorted(RULES)))
@settings(max_examples=30)
def test_the_order_of_the_pages_does_not_change_which_are_chosen(shuffled, name):
    selection = BASELINES[name].select(QUERY, pages_scoring(*shuffled))
    chosen = sorted(shuffled[page] for page in selection.pages)
    assert chosen == sorted(shuffled)[-selection.k :]
    assert selection.k == BASELINES[name].select(QUERY, pages_scoring(*sorted(shuffled))).k


# Fixed k.


def test_fixed_k_reads_k_pages_or_says_that_there_are_fewer():
    assert (fixed_k(12, 10).k, fixed_k(12, 10).reason) == (10, "fixed_k")
    assert (fixed_k(10, 10).k, fixed_k(10, 10).reason) == (10, "fixed_k")
    assert (fixed_k(3, 10).k, fixed_k(3, 10).reason) == (3, "document_shorter_than_k")


# Largest-Gap.


def test_largest_gap_worked_by_hand():
    assert largest_gap(np.array([0.9, 0.8, 0.4, 0.3])).k == 2
    assert largest_gap(np.array([0.9, 0.2, 0.15, 0.1])).k == 1
    assert largest_gap(np.array([0.9, 0.88, 0.85, 0.1])).k == 3


def test_the_first_of_equal_gaps_wins():
    assert largest_gap(np.array([4.0, 3.0, 2.0, 1.0])).k == 1


# Score-Cluster.


def slow_score_cluster(scores, rank_penalty):
    """Every minimum cluster size, silhouette from the points themselves, borders one by one."""
    count = len(scores)
    distance = [1 - (score - min(scores)) / (max(scores) - min(scores)) for score in scores]
    points = np.array([[distance[place], place + 1] for place in range(count)])
    best, best_labels = -2.0, None
    for size in range(2, count):
        labels = HDBSCAN(min_cluster_size=size, copy=True).fit_predict(points)
        if size > count / 2:
            assert set(labels) == {-1}, "two clusters of more than half the points"
        if len(set(labels)) > 1:
            value = silhouette_score(points, labels)
            if value > best + 1e-12:
                best, best_labels = value, labels
    best_height, k = -1.0, 0
    for place in range(1, count):
        if best_labels is None or best_labels[place] != best_labels[place - 1]:
            height = distance[place] - distance[place - 1]
            if rank_penalty and best_labels is not None:
                height += place / count
            if height > best_height:
                best_height, k = height, place
    return k


def test_score_cluster_worked_by_hand():
    two_groups = np.array([1, 0.99, 0.98, 0.97, 0.2, 0.19, 0.18, 0.17])
    assert score_cluster(two_groups, rank_penalty=False).k == 4
    # Clusters of exactly half the pages are the largest that can be found.
    assert score_cluster(np.array([1, 0.9, 0.1, 0]), rank_penalty=False).reason == "cluster_border"
    # Three groups end at ranks 4 and 8; the jumps are 0.44 and 0.38, with rank / N 0.77 and 1.05.
    three_groups = np.array([1, 0.98, 0.96, 0.94, 0.5, 0.48, 0.46, 0.44, 0.06, 0.04, 0.02, 0])
    assert score_cluster(three_groups, rank_penalty=False).k == 4
    assert score_cluster(three_groups, rank_penalty=True).k == 8
    assert score_cluster(three_groups, rank_penalty=True).reason == "cluster_border"


@pytest.mark.parametrize("rank_penalty", [False, True])
@pytest.mark.parametrize("count", [4, 5, 7, 11, 20, 31])
def test_score_cluster_equals_the_slow_form_over_all_minimum_cluster_sizes(count, rank_penalty):
    generator = np.random.default_rng(count)
    for _ in range(3):
        scores = falling(generator.gamma(1.5, size=count))
        assert score_cluster(scores, rank_penalty=rank_penalty).k == slow_score_cluster(scores, rank_penalty)


@pytest.mark.parametrize("rank_penalty", [False, True])
def test_without_clusters_score_cluster_is_largest_gap(rank_penalty):
    scores = np.array([0.9, 0.7, 0.1])
    cutoff = score_cluster(scores, rank_penalty=rank_penalty)
    assert (cutoff.k, cutoff.reason) == (largest_gap(scores).k, "no_clusters")


# Score threshold.


def test_score_threshold_worked_by_hand():
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0])  # normalised: 1, 0.75, 0.5, 0.25, 0
    assert [above_threshold(scores, threshold=level).k for level in (0.0, 0.25, 0.5, 0.6, 1.0)] == [5, 4, 3, 2, 1]


# Gaussian mixture.


def test_gaussian_mixture_reads_a_group_that_stands_apart():
    scores = np.concatenate([np.linspace(0.95, 0.85, 5), np.linspace(0.3, 0.1, 20)])
    assert (higher_component(scores).k, higher_component(scores).reason) == (5, "higher_component")


def test_a_wide_higher_component_does_not_take_the_bottom_of_the_ranking():
    # The last page is nearer to the wide component by likelihood although it has the lowest score.
    scores = np.concatenate([np.linspace(1, 0.3, 8), np.linspace(0.21, 0.20, 12), [0]])
    assert higher_component(scores).k == 8


def test_a_page_ranked_above_the_higher_component_is_read_too():
    # The two best pages lie so far above the narrow higher component that the wide lower one claims them.
    scores = np.concatenate([[1.0, 0.817], np.linspace(0.773, 0.763, 16), np.linspace(0.549, 0, 11)])
    assert higher_component(scores).k == 18


def test_gaussian_mixture_gives_the_same_answer_again():
    scores = falling(np.random.default_rng(0).gamma(2, size=60))
    assert len({higher_component(scores).k for _ in range(3)}) == 1


# Settings.


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FixedK(k=0), "k is 0"),
        (lambda: ScoreThreshold(threshold=1.5), "threshold is 1.5"),
        (lambda: ScoreThreshold(threshold=float("nan")), "threshold is nan"),
    ],
)
def test_a_setting_out_of_range_is_refused(build, message):
    with pytest.raises(VisarError, match=message):
        build()
