from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.visar import plain_method as plain
from visar import weights

# Two pages and two tokens. Means (0.4, 0.5), standard deviations (0.2, 0.1) * sqrt(2).
ACTIVATION = torch.tensor([[0.6, 0.4], [0.2, 0.6]])


def test_scaled_activation_worked_by_hand():
    # Relative activations (1.5, 0.8), (0.5, 1.2); relative spreads 0.2 / 0.15 and 0.1 / 0.15.
    expected = torch.tensor([[1.5 * 4 / 3, 0.8 * 2 / 3], [0.5 * 4 / 3, 1.2 * 2 / 3]])
    assert torch.allclose(weights.scaled_activation(ACTIVATION), expected)


def test_token_weight_worked_by_hand():
    scaled = torch.tensor([[2.0, 0.5], [1.0, 0.5]])
    assert torch.allclose(weights.token_weight(scaled), torch.tensor([math.log(2 / 4), math.log(2 / 2)]))


def test_page_weight_worked_by_hand():
    # Mean activations (1, 2). Page 0: pairs 4/1, 2*1/2, 2*1/2, 1/4, so (4 + 1)/2 + (1 + 0.25)/2; page 1: pairs
    # 0, 0, 0, 9/4, so 0 + 2.25/2.
    scaled = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    assert torch.allclose(weights.page_weight(scaled), torch.tensor([3.125, 1.125]), atol=1e-5)


def test_patch_relevance_and_weight_worked_by_hand():
    cosine = torch.tensor([[1.0, 0.5, 0.2], [0.0, 0.8, -0.4]])
    gain = torch.tensor([[4.0, 1.0], [0.0, 0.25]])
    relevance = weights.patch_relevance(cosine, (0, 2, 3), gain)
    # Page 0: max(4, 0), max(2, 0.8); page 1: max(0, -0.1).
    assert torch.allclose(relevance, torch.tensor([4.0, 2.0, 0.0]))
    assert torch.allclose(weights.patch_weight(relevance), torch.tensor([2.0, 0.0, 0.0]))


def test_gain_is_squared_and_takes_its_three_factors():
    gain = weights.token_page_gain(torch.tensor([[2.0]]), torch.tensor([0.5]), torch.tensor([3.0]))
    assert gain.item() == 9.0


def test_min_max_of_equal_values_is_zero_with_and_without_epsilon():
    assert weights.min_max(torch.full((3,), 7.0), epsilon=0.0).tolist() == [0, 0, 0]
    assert weights.min_max(torch.full((3,), 7.0)).tolist() == [0, 0, 0]
    assert weights.min_max(torch.tensor([1.0, 3.0]), epsilon=0.0).tolist() == [0, 1]


def test_tokens_whose_mean_activation_is_not_positive_are_not_informative():
    activation = torch.tensor([[0.5, -0.5, 0.3, -0.2], [0.5, 0.5, -0.1, -0.2]])
    assert weights.informative_tokens(activation).tolist() == [True, False, True, False]


def test_equal_pages_have_no_scaled_activation_in_spite_of_rounding():
    activation = torch.full((4, 3), 0.7) + torch.rand(4, 3) * 1e-7
    assert not weights.scaled_activation(activation).any()


@given(st.integers(0, 10_000))
def test_all_weights_equal_slow_loops(seed):
    generator = np.random.default_rng(seed)
    activation = generator.uniform(0.05, 1, size=(5, 3))
    scaled = weights.scaled_activation(torch.from_numpy(activation))
    np.testing.assert_allclose(scaled, plain.scaled_activation(activation), rtol=1e-9)
    np.testing.assert_allclose(weights.token_weight(scaled), plain.token_weight(scaled.numpy()), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights.page_weight(scaled), plain.page_weight(scaled.numpy()), rtol=1e-9)


@given(st.integers(0, 10_000))
def test_argument_of_the_logarithm_is_positive_even_with_negative_activations(seed):
    activation = torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, size=(7, 5)))
    informative = weights.informative_tokens(activation)
    if informative.any():
        scaled = weights.scaled_activation(activation[:, informative])
        assert torch.isfinite(weights.token_weight(scaled)).all()


@given(st.integers(0, 10_000), st.permutations(range(5)))
def test_order_of_pages_does_not_matter_to_any_weight(seed, order):
    activation = torch.from_numpy(np.random.default_rng(seed).uniform(0.05, 1, size=(5, 3)))
    scaled, moved = weights.scaled_activation(activation), weights.scaled_activation(activation[list(order)])
    assert torch.allclose(weights.token_weight(scaled), weights.token_weight(moved))
    assert torch.allclose(weights.page_weight(scaled)[list(order)], weights.page_weight(moved))
