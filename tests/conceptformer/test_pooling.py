from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from conceptformer.errors import ConceptFormerError
from conceptformer.pooling import l2_normalise, last_state, mean_of

# [2, 3, 2]: two sequences of three states.
STATES = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[-1.0, 0.0], [7.0, 8.0], [9.0, 9.0]]])


def test_last_state_worked_by_hand():
    assert last_state(STATES, torch.tensor([3, 1])).tolist() == [[5, 6], [-1, 0]]


def test_last_state_gives_its_gradient_to_that_token_alone():
    states = STATES.clone().requires_grad_()
    last_state(states, torch.tensor([2, 3])).sum().backward()
    touched = torch.zeros(2, 3, dtype=torch.bool)
    touched[0, 1] = touched[1, 2] = True
    assert torch.equal(states.grad.any(dim=-1), touched)


@pytest.mark.parametrize("lengths", [[0, 3], [3, 4], [-1, 1]])
def test_last_state_refuses_lengths_outside_the_sequence(lengths):
    with pytest.raises(ConceptFormerError, match="expected each from 1 to 3"):
        last_state(STATES, torch.tensor(lengths))


@pytest.mark.parametrize("lengths", [torch.tensor([1]), torch.tensor([1.0, 2.0]), torch.tensor([[1], [2]])])
def test_last_state_refuses_lengths_of_another_kind(lengths):
    with pytest.raises(ConceptFormerError, match=r"expected \[2\] int64"):
        last_state(STATES, lengths)


def test_mean_of_worked_by_hand():
    # ((1, 2) + (5, 6)) / 2, and the one state (7, 8).
    mask = torch.tensor([[True, False, True], [False, True, False]])
    assert mean_of(STATES, mask).tolist() == [[3, 4], [7, 8]]


def test_mean_of_equals_a_loop_in_float64():
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(3, 11, 5, generator=generator, dtype=torch.float64)
    mask = torch.rand(3, 11, generator=generator) < 0.5
    for row in range(3):
        chosen = [states[row, place] for place in range(11) if mask[row, place]]
        torch.testing.assert_close(mean_of(states, mask)[row], sum(chosen) / len(chosen))


def test_states_outside_the_mask_have_no_influence_and_no_gradient():
    mask = torch.tensor([[True, False, True], [False, True, False]])
    states = STATES.masked_fill(~mask[:, :, None], math.nan).requires_grad_()
    mean = mean_of(states, mask)
    mean.sum().backward()
    assert torch.equal(mean, mean_of(STATES, mask))
    assert states.grad.tolist() == [[[0.5] * 2, [0] * 2, [0.5] * 2], [[0] * 2, [1] * 2, [0] * 2]]


def test_the_mean_of_nothing_is_zero_with_finite_gradients_after_normalising():
    states = STATES.clone().requires_grad_()
    mask = torch.tensor([[False, False, False], [True, True, False]])
    embedding = l2_normalise(mean_of(states, mask))
    (embedding * torch.tensor([3.0, -2.0])).sum().backward()
    assert embedding[0].tolist() == [0, 0]
    assert not states.grad[0].any()
    assert states.grad[1, :2].any(dim=-1).all()


def test_the_mean_of_many_bfloat16_states_is_added_up_in_float32():
    # 1001 is no bfloat16 number; the nearest is 1000.
    states = torch.ones(1, 1001, 1, dtype=torch.bfloat16)
    mean = mean_of(states, torch.ones(1, 1001, dtype=torch.bool))
    assert mean.dtype == torch.float32
    assert mean.item() == 1


@pytest.mark.parametrize("mask", [torch.ones(2, 3), torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 3, 1) > 0])
def test_mean_of_refuses_masks_of_another_kind(mask):
    with pytest.raises(ConceptFormerError, match=r"expected \[2, 3\] bool"):
        mean_of(STATES, mask)


def test_l2_normalise_worked_by_hand():
    torch.testing.assert_close(l2_normalise(torch.tensor([[3.0, -4.0]])), torch.tensor([[0.6, -0.8]]))


def test_l2_normalise_and_its_gradient_equal_torchs():
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    torch.testing.assert_close(l2_normalise(x), functional.normalize(x))
    (ours,) = torch.autograd.grad((l2_normalise(x) * weight).sum(), x)
    (theirs,) = torch.autograd.grad((functional.normalize(x) * weight).sum(), x)
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradcheck(l2_normalise, x)


@pytest.mark.parametrize("scale", [1e-38, 1e-25, 1e25, 1e37])
def test_very_small_and_very_large_vectors_get_length_one(scale):
    x = (torch.tensor([[3.0, -4.0]]) * scale).requires_grad_()
    torch.testing.assert_close(l2_normalise(x), torch.tensor([[0.6, -0.8]]))


def test_a_zero_vector_stays_zero_with_a_finite_gradient():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    embedding = l2_normalise(x)
    embedding.sum().backward()
    assert embedding[0].tolist() == [0, 0]
    assert x.grad.isfinite().all()
    assert x.grad.abs().max() <= 1


@pytest.mark.parametrize("dtype, expected", [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_all_results_are_at_least_float32_under_autocast_too(dtype, expected):
    states, mask = STATES.to(dtype), torch.ones(2, 3, dtype=torch.bool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [last_state(states, torch.tensor([3, 1])), mean_of(states, mask), l2_normalise(states)]
    assert [result.dtype for result in results] == [expected] * 3
    lengths = torch.linalg.vector_norm(results[2].double(), dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths), rtol=1e-6, atol=1e-6)


def test_pooling_can_be_counted_on_the_meta_device():
    states = torch.zeros(2, 3, 5, device="meta")
    assert last_state(states, torch.zeros(2, dtype=torch.int64, device="meta")).shape == (2, 5)
    assert l2_normalise(mean_of(states, torch.zeros(2, 3, dtype=torch.bool, device="meta"))).shape == (2, 5)
