"""Bootstrap, permutation test and Holm's correction against other libraries and slow loops."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from visar.errors import VisarError
from visar.metrics import f1_of_means
from visar.significance import (
    bootstrap_interval,
    holm,
    paired_permutation_test,
    weighted_f1_of_means,
    weighted_mean,
    weighted_median,
)


def questions(documents, seed):
    """Values and document ids of 1 to 5 questions for each document, in mixed order."""
    generator = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(documents), generator.integers(1, 6, size=documents))
    generator.shuffle(clusters)
    values = generator.normal(size=len(clusters)) + generator.normal(size=documents)[clusters]
    return values, [f"document {cluster}" for cluster in clusters]


@pytest.mark.parametrize("weights", [[1, 1, 1, 1], [0, 2, 1, 0], [3, 0, 0, 1], [0, 0, 0, 2], [2, 1, 2, 2]])
def test_weighted_statistics_are_those_of_the_repeated_values(weights):
    values = np.array([4.0, -1.0, 2.5, 2.0])
    repeated = np.repeat(values, weights)
    assert weighted_mean(values, np.array([weights])) == pytest.approx([repeated.mean()])
    assert weighted_median(values, np.array([weights])) == pytest.approx([np.median(repeated)])
    pairs = np.abs(np.column_stack([values, values[::-1]]))
    expected = f1_of_means(*np.repeat(pairs, weights, axis=0).mean(axis=0))
    assert weighted_f1_of_means(pairs, np.array([weights])) == pytest.approx([expected])


@pytest.mark.parametrize("slow", [np.mean, np.median])
def test_interval_equals_a_slow_loop_over_resampled_documents(slow):
    values, clusters = questions(7, seed=3)
    names = list(dict.fromkeys(clusters))
    draws = np.random.default_rng(11).multinomial(7, [1 / 7] * 7, size=1200)
    statistics = []
    for draw in draws:
        resample = []
        for name, times in zip(names, draw, strict=True):
            for _ in range(times):
                resample += [value for value, cluster in zip(values, clusters, strict=True) if cluster == name]
        statistics.append(slow(resample))
    fast = {np.mean: weighted_mean, np.median: weighted_median}[slow]
    interval = bootstrap_interval(values, clusters, statistic=fast, samples=1200, level=0.9, seed=11)
    assert interval == pytest.approx(np.percentile(statistics, [5, 95]))


def test_interval_of_single_questions_agrees_with_scipy():
    values = np.random.default_rng(5).gamma(2, size=60)
    ours = bootstrap_interval(values, range(60), samples=20_000)
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile", rng=1)
    assert ours == pytest.approx(tuple(theirs.confidence_interval), abs=0.02 * values.std())


def test_interval_of_f1_of_means_agrees_with_scipy():
    pairs = np.random.default_rng(6).random((50, 2))
    ours = bootstrap_interval(pairs, range(50), statistic=weighted_f1_of_means, samples=10_000)
    theirs = scipy.stats.bootstrap(
        tuple(pairs.T),
        lambda recall, precision: f1_of_means(recall.mean(), precision.mean()),
        paired=True,
        vectorized=False,
        n_resamples=10_000,
        method="percentile",
        rng=1,
    )
    assert ours == pytest.approx(tuple(theirs.confidence_interval), abs=0.005)


def test_one_document_has_no_interval():
    assert bootstrap_interval([0.0, 1.0, 0.5], ["a", "a", "a"]) is None


def test_asking_every_question_twice_narrows_nothing():
    values, clusters = questions(9, seed=1)
    once = bootstrap_interval(values, clusters)
    twice = bootstrap_interval([*values, *values], [*clusters, *clusters])
    assert twice == pytest.approx(once)
    assert once.low < values.mean() < once.high
    unclustered = bootstrap_interval([*values, *values], range(2 * len(values)))
    assert unclustered.high - unclustered.low < 0.8 * (once.high - once.low)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.integers(0, 100))
@settings(max_examples=30)
def test_interval_lies_within_the_values_and_grows_with_the_level(values, seed):
    narrow = bootstrap_interval(values, range(len(values)), samples=300, level=0.5, seed=seed)
    wide = bootstrap_interval(values, range(len(values)), samples=300, level=0.99, seed=seed)
    assert min(values) - 1e-9 <= wide.low <= narrow.low <= narrow.high <= wide.high <= max(values) + 1e-9


def slow_sign_flip(differences, clusters):
    names = sorted(set(clusters))
    means = []
    for signs in itertools.product([1, -1], repeat=len(names)):
        sign = dict(zip(names, signs, strict=True))
        means.append(np.mean([sign[name] * value for name, value in zip(clusters, differences, strict=True)]))
    return np.mean([abs(mean) >= abs(np.mean(differences)) - 1e-12 for mean in means])


def test_sign_flip_worked_by_hand():
    # Document sums 3 and 1: |sum| of the four patterns is 4, 2, 2, 4, and two of them reach 4.
    assert paired_permutation_test([1.0, 2.0, 1.0], ["a", "a", "b"]) == 0.5


@pytest.mark.parametrize("seed", range(5))
def test_exact_test_equals_a_slow_enumeration_over_documents(seed):
    differences, clusters = questions(8, seed)
    assert paired_permutation_test(differences, clusters) == pytest.approx(slow_sign_flip(differences, clusters))


@pytest.mark.parametrize("rounded", [False, True])
def test_exact_test_of_single_questions_agrees_with_scipy(rounded):
    differences = np.random.default_rng(2).normal(0.4, 1, size=12)
    if rounded:  # ties between patterns, and zeros
        differences = np.round(differences)
    theirs = scipy.stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", vectorized=False, n_resamples=np.inf
    )
    assert paired_permutation_test(differences, range(12)) == pytest.approx(theirs.pvalue)


def test_sampled_test_agrees_with_scipy_beyond_the_exact_limit():
    differences = np.random.default_rng(4).normal(0.3, 1, size=16)
    theirs = scipy.stats.permutation_test(
        (differences,),
        lambda values, axis: values.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    ours = paired_permutation_test(differences, range(16), samples=40_000)
    assert ours == pytest.approx(theirs.pvalue, abs=0.01)


def test_sampled_test_never_gives_zero():
    assert paired_permutation_test([1.0] * 60, range(60), samples=999) == pytest.approx(1 / 1000)


def test_equal_methods_give_one_and_so_do_differences_that_cancel_within_documents():
    assert paired_permutation_test([0.0] * 20, range(20)) == 1
    assert paired_permutation_test([0.1, 0.2, -0.3, 0.0], ["a", "a", "a", "b"]) == 1


@given(st.lists(st.tuples(st.floats(-3, 3), st.integers(0, 5)), min_size=1, max_size=20))
@settings(max_examples=50)
def test_p_value_ignores_which_method_comes_first_and_the_unit(rows):
    differences, clusters = np.array([row[0] for row in rows]), [row[1] for row in rows]
    p = paired_permutation_test(differences, clusters)
    assert 0 < p <= 1
    assert paired_permutation_test(-differences, clusters) == p
    assert paired_permutation_test(differences * 4, clusters) == p


def test_holm_worked_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.01, 0.05, 1.0]), min_size=1, max_size=12))
@settings(max_examples=15)  # statsmodels takes 0.15 s a call
def test_holm_agrees_with_statsmodels(p_values):
    assert holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bootstrap_interval([], []), "0 values"),
        (lambda: bootstrap_interval([1.0], ["a", "b"]), "1 values and 2 document ids"),
        (lambda: bootstrap_interval([1.0, float("nan")], ["a", "b"]), "NaN or Inf"),
        (lambda: bootstrap_interval([1.0, 2.0], ["a", "b"], level=95), "level is 95"),
        (lambda: bootstrap_interval([1.0, 2.0], ["a", "b"], samples=0), "samples is 0"),
        (lambda: paired_permutation_test([1.0, float("inf")], ["a", "b"]), "NaN or Inf"),
        (lambda: paired_permutation_test([1.0], []), "1 values and 0 document ids"),
        (lambda: holm([0.5, 1.5]), "no p-values"),
        (lambda: holm([float("nan")]), "no p-values"),
    ],
)
def test_meaningless_input_is_refused_in_one_line(call, message):
    with pytest.raises(VisarError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)
