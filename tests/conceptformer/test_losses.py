from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from conceptformer.losses import concept_kl, info_nce, query_concept_matching, ranking_distribution
from tests.conceptformer import plain_losses as plain

# Unit vectors whose cosines with the two pages differ by temperature * log 3, so that probabilities are 3/4 and 1/4.
TEMPERATURE = 0.5
PAGE = torch.eye(2, dtype=torch.float64)


def unit_with_odds(odds: float) -> list[float]:
    """(a, b) with a - b = TEMPERATURE * log(odds) and a^2 + b^2 = 1."""
    gap = TEMPERATURE * math.log(odds)
    b = (-gap + math.sqrt(2 - gap * gap)) / 2
    return [b + gap, b]


QUERY = torch.tensor([unit_with_odds(3)], dtype=torch.float64)  # P = 3/4, 1/4
CONCEPT = torch.tensor([unit_with_odds(1)], dtype=torch.float64)  # P = 1/2, 1/2


def unit_rows(*shape: int, seed: int, requires_grad: bool = False) -> torch.Tensor:
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return functional.normalize(rows, dim=-1).requires_grad_(requires_grad)


def batch(seed: int, requires_grad: bool = False):
    """Three queries and concepts over five pages and their concepts, seven numbers each."""
    return [unit_rows(rows, 7, seed=seed * 4 + i, requires_grad=requires_grad) for i, rows in enumerate((3, 3, 5, 5))]


ALL = [list(range(5))] * 3


def test_ranking_distribution_worked_by_hand():
    # exp(gap / temperature) = 3, so 3 / (3 + 1) and 1 / (3 + 1).
    probability = ranking_distribution(QUERY, PAGE, temperature=TEMPERATURE)
    assert torch.allclose(probability, torch.tensor([[0.75, 0.25]], dtype=torch.float64))


def test_info_nce_worked_by_hand():
    # Positive 0: -log 3/4; positive 1: -log 1/4; their mean.
    query = QUERY.expand(2, -1)
    losses = info_nce(query, PAGE, temperature=TEMPERATURE, reduction="none")
    assert torch.allclose(losses, torch.tensor([math.log(4 / 3), math.log(4)], dtype=torch.float64))
    mean = info_nce(query, PAGE, temperature=TEMPERATURE)
    assert mean.item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)


@pytest.mark.parametrize(
    "reverse, expected",
    [
        (False, 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)),
        (True, 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)),
    ],
)
def test_concept_kl_worked_by_hand(reverse, expected):
    loss = concept_kl(QUERY, CONCEPT, PAGE, temperature=TEMPERATURE, reverse=reverse)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    "reverse, expected",
    [
        (False, 0.75 * math.log(0.75 / 0.25) + 0.25 * math.log(0.25 / 0.75)),
        (True, 0.25 * math.log(0.25 / 0.75) + 0.75 * math.log(0.75 / 0.25)),
    ],
)
def test_query_concept_matching_worked_by_hand(reverse, expected):
    # The concepts are the two pages swapped: P = 3/4, 1/4 is matched by 1/4, 3/4.
    loss = query_concept_matching(QUERY, PAGE.flip(0), PAGE, temperature=TEMPERATURE, reverse=reverse)
    assert loss.item() == pytest.approx(expected)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.07, 1.0]), st.booleans())
def test_all_losses_equal_slow_loops(seed, temperature, reverse):
    query, concept, page, candidate_concept = batch(seed)
    allowed, positives = ALL, [4, 0, 2]
    options = {"temperature": temperature}
    pairs = [
        (
            ranking_distribution(query, page, **options),
            plain.ranking_distribution(query.tolist(), page.tolist(), temperature, allowed),
        ),
        (
            info_nce(query, page, positive=torch.tensor(positives), reduction="none", **options),
            plain.info_nce(query.tolist(), page.tolist(), temperature, positives, allowed),
        ),
        (
            concept_kl(query, concept, page, reverse=reverse, reduction="none", **options),
            plain.concept_kl(
                query.tolist(), concept.tolist(), page.tolist(), temperature, allowed, [True] * 3, reverse
            ),
        ),
        (
            query_concept_matching(query, candidate_concept, page, reverse=reverse, reduction="none", **options),
            plain.query_concept_matching(
                *(x.tolist() for x in (query, candidate_concept, page)),
                temperature,
                allowed,
                [True] * 3,
                [True] * 5,
                reverse,
            ),
        ),
    ]
    for computed, expected in pairs:
        torch.testing.assert_close(computed, torch.tensor(expected, dtype=torch.float64), rtol=1e-8, atol=1e-10)


def test_info_nce_and_its_gradients_equal_torchs_cross_entropy():
    query, _, page, _ = batch(1, requires_grad=True)
    positive = torch.tensor([4, 0, 2])
    ours = info_nce(query, page, temperature=0.05, positive=positive)
    theirs = functional.cross_entropy(query @ page.T / 0.05, positive)
    torch.testing.assert_close(ours, theirs)
    for own, other in zip(
        torch.autograd.grad(ours, (query, page)), torch.autograd.grad(theirs, (query, page)), strict=True
    ):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize("reverse", [False, True])
def test_concept_kl_and_its_gradients_equal_torchs_kl_div(reverse):
    query, concept, page, _ = batch(2, requires_grad=True)
    ours = concept_kl(query, concept, page, temperature=0.05, reverse=reverse)
    teacher = (query.detach() @ page.detach().T / 0.05).log_softmax(dim=1)
    student = (concept @ page.T / 0.05).log_softmax(dim=1)
    # torch's kl_div(input, target) is KL(target || input).
    pair = (teacher, student) if reverse else (student, teacher)
    theirs = functional.kl_div(*pair, log_target=True, reduction="batchmean")
    torch.testing.assert_close(ours, theirs)
    for own, other in zip(
        torch.autograd.grad(ours, (concept, page)), torch.autograd.grad(theirs, (concept, page)), strict=True
    ):
        torch.testing.assert_close(own, other)


def test_query_concept_matching_and_its_gradients_equal_torchs_kl_div():
    query, _, page, candidate_concept = batch(3, requires_grad=True)
    ours = query_concept_matching(query, candidate_concept, page, temperature=0.05)
    teacher = (query @ page.T / 0.05).log_softmax(dim=1).detach()
    student = (query @ candidate_concept.T / 0.05).log_softmax(dim=1)
    theirs = functional.kl_div(student, teacher, log_target=True, reduction="batchmean")
    torch.testing.assert_close(ours, theirs)
    wanted = (query, candidate_concept)
    for own, other in zip(torch.autograd.grad(ours, wanted), torch.autograd.grad(theirs, wanted), strict=True):
        torch.testing.assert_close(own, other)


def test_gradients_equal_finite_differences():
    query, concept, page, candidate_concept = batch(4, requires_grad=True)
    fixed_query, fixed_page = query.detach(), page.detach()
    gradcheck = torch.autograd.gradcheck
    assert gradcheck(lambda q, p: ranking_distribution(q, p, temperature=0.3), (query, page))
    assert gradcheck(lambda q, p: info_nce(q, p, temperature=0.3), (query, page))
    for reverse in (False, True):
        # The concept's gradient. The pages' is not that of the value, whose teacher depends on the pages as well.
        assert gradcheck(
            lambda c, r=reverse: concept_kl(fixed_query, c, fixed_page, temperature=0.3, reverse=r), concept
        )
        assert gradcheck(
            lambda c, r=reverse: query_concept_matching(fixed_query, c, fixed_page, temperature=0.3, reverse=r),
            candidate_concept,
        )


def test_the_teacher_gives_no_gradient():
    query, concept, page, candidate_concept = batch(5, requires_grad=True)
    loss = concept_kl(query, concept, page, temperature=0.1)
    from_query, from_concept, from_page = torch.autograd.grad(loss, (query, concept, page), allow_unused=True)
    assert from_query is None
    assert from_concept.abs().min() > 0
    assert from_page.abs().min() > 0
    loss = query_concept_matching(query, candidate_concept, page, temperature=0.1)
    wanted = (query, candidate_concept, page)
    from_query, from_candidates, from_page = torch.autograd.grad(loss, wanted, allow_unused=True)
    assert from_query.abs().min() > 0
    assert from_candidates.abs().min() > 0
    assert from_page is None


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_distributions_sum_to_one_and_follow_a_permutation_of_the_candidates(seed):
    query, _, page, _ = batch(seed)
    probability = ranking_distribution(query, page, temperature=0.01)
    torch.testing.assert_close(probability.sum(dim=1), torch.ones(3, dtype=torch.float64))
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(ranking_distribution(query, page[order], temperature=0.01), probability[:, order])


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.booleans())
def test_losses_do_not_depend_on_the_order_of_the_candidates(seed, reverse):
    query, concept, page, candidate_concept = batch(seed)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    options = {"temperature": 0.05}
    torch.testing.assert_close(
        info_nce(query, page[order], positive=order.argsort()[:3], **options), info_nce(query, page, **options)
    )
    options["reverse"] = reverse
    torch.testing.assert_close(
        concept_kl(query, concept, page[order], **options), concept_kl(query, concept, page, **options)
    )
    torch.testing.assert_close(
        query_concept_matching(query, candidate_concept[order], page[order], **options),
        query_concept_matching(query, candidate_concept, page, **options),
    )


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.booleans())
def test_concept_kl_is_positive_and_zero_where_the_distributions_are_equal(seed, reverse):
    query, concept, page, _ = batch(seed)
    losses = concept_kl(query, concept, page, temperature=0.1, reverse=reverse, reduction="none")
    assert (losses > 1e-6).all()
    equal = concept_kl(query, query.clone(), page, temperature=0.1, reverse=reverse, reduction="none")
    assert equal.abs().max() < 1e-12


def test_a_concept_that_ranks_as_its_query_does_is_at_the_minimum():
    query, _, page, _ = batch(6)
    concept = query.clone().requires_grad_()
    concept_kl(query, concept, page, temperature=0.01).backward()
    assert concept.grad.abs().max() < 1e-10


def test_the_mean_is_that_of_the_rows():
    query, concept, page, candidate_concept = batch(7)
    for function, tensors in (
        (info_nce, (query, page)),
        (concept_kl, (query, concept, page)),
        (query_concept_matching, (query, candidate_concept, page)),
    ):
        rows = function(*tensors, temperature=0.1, reduction="none")
        assert rows.shape == (3,)
        torch.testing.assert_close(function(*tensors, temperature=0.1), rows.mean())
