from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.visar import plain_method as plain
from visar.adaptive_k import choose_k, cost_curve


def test_cost_worked_by_hand():
    similarity = torch.tensor([[0.6, 0.3], [0.1, 0.4]])
    # k = 1: 0.6 * (0.6 - 10 * 0.3); k = 2, no other pages: 0.6 * (0.6 + 0.3) / 2 + 0.4 * (0.1 + 0.4) / 2.
    cost = cost_curve(similarity, [0, 1], leakage_weight=10, longest=2)
    np.testing.assert_allclose(cost, [-1.44, 0.27 + 0.1], atol=1e-6)


@given(seed=st.integers(0, 10_000), pages=st.sampled_from([2, 3, 7, 11]), gamma=st.sampled_from([1.0, 1e5]))
def test_cumulative_sums_equal_slow_loops_for_every_k(seed, pages, gamma):
    similarity = np.random.default_rng(seed).random((pages, pages))
    order = np.argsort(-similarity.diagonal()).tolist()
    for longest in (1, pages - 1, pages):
        cost = cost_curve(torch.from_numpy(similarity), order, gamma, longest)
        np.testing.assert_allclose(cost, plain.cost(similarity, order, gamma, longest), rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 10_000), order=st.permutations(range(5)))
def test_numbering_of_pages_does_not_matter(seed, order):
    similarity = torch.from_numpy(np.random.default_rng(seed).random((5, 5)))
    moved = similarity[list(order)][:, list(order)]
    ranking, again = similarity.diagonal().argsort(descending=True), moved.diagonal().argsort(descending=True)
    first, second = (
        cost_curve(matrix, ranks.tolist(), 1e5, 5) for matrix, ranks in ((similarity, ranking), (moved, again))
    )
    assert torch.allclose(first, second)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([3.0], (1, False)),
        ([1.0, 2.0, 3.0], (1, False)),  # the rule is not tried at k = 1
        ([5.0, 1.0, 9.0], (3, True)),  # beyond 8 > before 4
        ([9.0, 1.0, 5.0], (2, False)),
        ([5.0, 1.0, 5.0], (2, False)),  # equal steps add nothing
        ([9.0, 9.0, 1.0], (3, False)),  # the curve does not reach far enough
        ([2.0, 2.0, 2.0], (1, False)),  # ties go to the smaller k
        # k = 5: n = round(ln 5) = 2. Beyond 1 -> 4 -> 4 (3 in all), before 3 -> 2 -> 1 (2 in all).
        ([9.0, 9.0, 3.0, 2.0, 1.0, 4.0, 4.0], (6, True)),
    ],
)
def test_choice_of_k_worked_by_hand(curve, expected):
    assert choose_k(torch.tensor(curve)) == expected


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=25))
def test_choice_equals_the_written_rule_and_ignores_scale(values):
    curve = torch.tensor(values, dtype=torch.float64)
    k, _ = choose_k(curve)
    assert k == plain.choose_k(values)
    assert k == choose_k(curve * 1e5 - 7)[0]
    assert 1 <= k <= len(values)
