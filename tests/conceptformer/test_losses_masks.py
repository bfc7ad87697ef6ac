"""Candidates that do not exist for a row, and rows without a concept."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from conceptformer.errors import ConceptFormerError
from conceptformer.losses import (
    concept_kl,
    info_nce,
    query_concept_matching,
    ranking_distribution,
)
from tests.conceptformer import plain_losses as plain

ROWS, CANDIDATES, WIDTH = 3, 5, 7
NONE_EXCLUDED = torch.zeros(ROWS, CANDIDATES, dtype=torch.bool)
ONE_ABSENT = torch.tensor([True, False, True])


def made(seed: int) -> dict[str, torch.Tensor]:
    """Queries, concepts, pages and the pages' concepts, ready for gradients."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"query": ROWS, "concept": ROWS, "page": CANDIDATES, "candidate_concept": CANDIDATES}
    return {
        name: functional.normalize(torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64)).requires_grad_()
        for name, rows in sizes.items()
    }


def made_masks(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Excluded candidates, never a row's positive, and which rows and candidates have a concept."""
    generator = torch.Generator().manual_seed(seed)
    excluded = torch.rand(ROWS, CANDIDATES, generator=generator) < 0.4
    excluded[torch.arange(ROWS), torch.arange(ROWS)] = False
    candidate_has_concept = torch.rand(CANDIDATES, generator=generator) < 0.6
    return excluded, candidate_has_concept[:ROWS], candidate_has_concept


LOSSES = {
    "info_nce": lambda x, **options: info_nce(x["query"], x["page"], **options),
    "concept_kl": lambda x, **options: concept_kl(x["query"], x["concept"], x["page"], **options),
    "concept_kl, reverse": lambda x, **options: concept_kl(
        x["query"], x["concept"], x["page"], reverse=True, **options
    ),
    "query_concept_matching": lambda x, **options: query_concept_matching(
        x["query"], x["candidate_concept"], x["page"], **options
    ),
    "query_concept_matching, reverse": lambda x, **options: query_concept_matching(
        x["query"], x["candidate_concept"], x["page"], reverse=True, **options
    ),
}


def gradients(loss: torch.Tensor, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    found = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)
    return {name: value for name, value in zip(tensors, found, strict=True) if value is not None}


def test_masked_distribution_worked_by_hand():
    # Without the middle page: equal cosines with the two others, so 1/2 each.
    query, page = torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0], [0.6, 0.8], [1.0, 0.0]])
    excluded = torch.tensor([[False, True, False]])
    probability = ranking_distribution(query, page, temperature=0.01, excluded=excluded)
    assert probability.tolist() == [[0.5, 0.0, 0.5]]
    assert info_nce(query, page, temperature=0.01, excluded=excluded).item() == pytest.approx(math.log(2))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.booleans())
def test_masked_losses_equal_slow_loops_over_what_is_left(seed, reverse):
    x = made(seed)
    excluded, has_concept, candidate_has_concept = made_masks(seed)
    allowed = [[j for j in range(CANDIDATES) if not row[j]] for row in excluded.tolist()]
    options = {"temperature": 0.1, "excluded": excluded, "reduction": "none"}
    lists = {name: tensor.tolist() for name, tensor in x.items()}
    contrast = plain.info_nce(lists["query"], lists["page"], 0.1, range(ROWS), allowed)
    alignment = plain.concept_kl(
        lists["query"], lists["concept"], lists["page"], 0.1, allowed, has_concept.tolist(), reverse
    )
    matching = plain.query_concept_matching(
        lists["query"],
        lists["candidate_concept"],
        lists["page"],
        0.1,
        allowed,
        has_concept.tolist(),
        candidate_has_concept.tolist(),
        reverse,
    )
    options_of_kl = options | {"has_concept": has_concept, "reverse": reverse}
    ours = [
        info_nce(x["query"], x["page"], **options),
        concept_kl(x["query"], x["concept"], x["page"], **options_of_kl),
        query_concept_matching(
            x["query"],
            x["candidate_concept"],
            x["page"],
            candidate_has_concept=candidate_has_concept,
            **options_of_kl,
        ),
    ]
    for computed, expected in zip(ours, (contrast, alignment, matching), strict=True):
        torch.testing.assert_close(computed, torch.tensor(expected, dtype=torch.float64), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_excluded_pairs_have_no_influence_and_no_gradient(name):
    x = made(1)
    excluded = NONE_EXCLUDED.clone()
    excluded[:, 4] = True
    loss = LOSSES[name](x, temperature=0.1, excluded=excluded)
    of_candidates = [gradient for gradient in gradients(loss, x).values() if len(gradient) == CANDIDATES]
    assert len(of_candidates) == 1
    assert of_candidates[0].any(dim=1).tolist() == [True, True, True, True, False]
    shorter = {key: value[:4] if len(value) == CANDIDATES else value for key, value in x.items()}
    torch.testing.assert_close(loss, LOSSES[name](shorter, temperature=0.1))


@pytest.mark.parametrize("name", LOSSES)
def test_a_row_with_nothing_left_but_its_positive_has_loss_zero_and_no_gradient(name):
    x = made(2)
    excluded = ~torch.eye(ROWS, CANDIDATES, dtype=torch.bool)
    loss = LOSSES[name](x, temperature=0.01, excluded=excluded)
    found = gradients(loss, x)
    assert loss.item() == 0
    assert found and not any(gradient.any() for gradient in found.values())


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from(sorted(LOSSES)))
def test_gradients_are_finite_under_any_mask_at_the_papers_temperature(seed, name):
    x = {key: value.detach().float().requires_grad_() for key, value in made(seed).items()}
    excluded, _, _ = made_masks(seed)
    loss = LOSSES[name](x, temperature=0.01, excluded=excluded)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in gradients(loss, x).values())


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_without_a_concept_may_hold_anything(reverse):
    x = made(3)
    options = {"temperature": 0.1, "reverse": reverse}
    present = ONE_ABSENT.nonzero()[:, 0]
    expected = concept_kl(x["query"][present], x["concept"][present], x["page"], **options)
    wanted = gradients(expected, {"concept": x["concept"], "page": x["page"]})
    for anything in (math.nan, math.inf, 0.0, 1e30):
        concept = x["concept"].detach().clone()
        concept[1] = anything
        concept.requires_grad_()
        loss = concept_kl(x["query"], concept, x["page"], has_concept=ONE_ABSENT, **options)
        torch.testing.assert_close(loss, expected)
        found = gradients(loss, {"concept": concept, "page": x["page"]})
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, wanted[name])
        assert not found["concept"][1].any()
        rows = concept_kl(x["query"], concept, x["page"], has_concept=ONE_ABSENT, reduction="none", **options)
        assert rows[1] == 0
        torch.testing.assert_close(rows.sum() / 2, expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_candidates_without_a_concept_do_not_exist_for_query_concept_matching(reverse):
    x = made(4)
    options = {"temperature": 0.1, "reverse": reverse}
    present = torch.tensor([0, 2, 4])
    expected = query_concept_matching(
        x["query"][[0, 2]], x["candidate_concept"][present], x["page"][present], **options
    )
    wanted = gradients(expected, {"query": x["query"], "candidate_concept": x["candidate_concept"]})
    concept = x["candidate_concept"].detach().clone()
    concept[[1, 3]] = math.nan
    concept.requires_grad_()
    candidate_has_concept = torch.tensor([True, False, True, False, True])
    loss = query_concept_matching(
        x["query"],
        concept,
        x["page"],
        has_concept=ONE_ABSENT,
        candidate_has_concept=candidate_has_concept,
        **options,
    )
    torch.testing.assert_close(loss, expected)
    for name, gradient in gradients(loss, {"query": x["query"], "candidate_concept": concept}).items():
        torch.testing.assert_close(gradient, wanted[name])


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "info_nce"])
def test_no_concept_at_all_gives_zero_that_still_has_a_graph(name):
    x = made(5)
    nobody = {"has_concept": torch.zeros(ROWS, dtype=torch.bool)}
    needed = {"concept", "page"}
    if "matching" in name:
        nobody["candidate_has_concept"] = torch.zeros(CANDIDATES, dtype=torch.bool)
        needed = {"query", "candidate_concept"}
    for reduction in ("mean", "none"):
        loss = LOSSES[name](x, temperature=0.01, reduction=reduction, **nobody).sum()
        found = gradients(loss, x)
        assert loss.item() == 0
        assert set(found) == needed
        assert not any(gradient.any() for gradient in found.values())


def test_a_positive_that_is_excluded_is_an_error():
    x = made(6)
    excluded = NONE_EXCLUDED.clone()
    excluded[1, 3] = True
    options = {"temperature": 0.1, "excluded": excluded}
    assert info_nce(x["query"], x["page"], **options).isfinite()
    with pytest.raises(ConceptFormerError, match="own positive is excluded"):
        info_nce(x["query"], x["page"], positive=torch.tensor([0, 3, 2]), **options)


def test_matching_refuses_a_row_with_a_concept_whose_candidates_have_none():
    nobody = torch.zeros(CANDIDATES, dtype=torch.bool)
    with pytest.raises(ConceptFormerError, match="every candidate of a row is excluded"):
        LOSSES["query_concept_matching"](made(8), temperature=0.1, candidate_has_concept=nobody)
