"""Precision, extreme cosines, batches of one, and input that makes no sense."""

from __future__ import annotations

import math

import pytest
import torch

from conceptformer.errors import ConceptFormerError
from conceptformer.losses import concept_kl, info_nce, query_concept_matching, ranking_distribution
from tests.conceptformer.test_losses import batch, unit_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bfloat16_autocast_changes_nothing(dtype):
    query, concept, page, candidate_concept = (x.to(dtype) for x in batch(8))
    functions = (
        lambda: ranking_distribution(query, page, temperature=0.01),
        lambda: info_nce(query, page, temperature=0.01),
        lambda: concept_kl(query, concept, page, temperature=0.01),
        lambda: query_concept_matching(query, candidate_concept, page, temperature=0.01),
    )
    for function in functions:
        plainly = function()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            # The product by itself is rounded here: what is tested would fail without the care taken.
            assert (page.float() @ page.float().T).dtype == torch.bfloat16
            cast = function()
        assert plainly.dtype == cast.dtype == torch.float32
        assert torch.equal(plainly, cast)


def test_opposite_directions_at_the_papers_temperature_stay_finite():
    # Logits from -100 to 100: probabilities down to e^-200, which float32 rounds to 0.
    page = torch.eye(3)
    query, concept = page[:1].clone().requires_grad_(), (-page[:1]).requires_grad_()
    for reverse in (False, True):
        loss = concept_kl(query, concept, page, temperature=0.01, reverse=reverse)
        (gradient,) = torch.autograd.grad(loss, concept)
        assert 90 < loss.item() < 210
        assert gradient.isfinite().all()
    loss = info_nce(concept, page, temperature=0.01)
    assert loss.item() == pytest.approx(100 + math.log(2), rel=1e-5)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, concept))


def test_a_single_pair_has_loss_zero_and_finite_gradients():
    query, concept = unit_rows(1, 7, seed=1, requires_grad=True), unit_rows(1, 7, seed=2, requires_grad=True)
    page = unit_rows(1, 7, seed=3, requires_grad=True)
    loss = info_nce(query, page, temperature=0.01) + concept_kl(query, concept, page, temperature=0.01)
    loss.backward()
    assert loss.item() == 0
    assert not any(x.grad.any() for x in (query, concept, page))


def test_losses_can_be_counted_on_the_meta_device():
    query, concept, page = (torch.zeros(4, 7, device="meta", requires_grad=True) for _ in range(3))
    excluded = torch.zeros(4, 4, dtype=torch.bool, device="meta")
    loss = info_nce(query, page, temperature=0.1, excluded=excluded)
    loss = loss + concept_kl(query, concept, page, temperature=0.1, excluded=excluded)
    loss.backward()
    assert concept.grad.shape == (4, 7)


BAD_INPUT = {
    "a temperature of zero": (lambda q, p: info_nce(q, p, temperature=0), "temperature is 0"),
    "a temperature that is no number": (lambda q, p: info_nce(q, p, temperature=math.nan), "temperature is nan"),
    "another width": (lambda q, p: info_nce(q, p[:, :6], temperature=1), r"\(3, 7\) and \(5, 6\)"),
    "no candidates": (lambda q, p: ranking_distribution(q, p[:0], temperature=1), "N at least 1"),
    "no rows": (lambda q, p: info_nce(q[:0], p, temperature=1), "batch without rows"),
    "more queries than pages": (lambda q, p: info_nce(p, q, temperature=1), "5 queries but 3 pages"),
    "a positive outside": (
        lambda q, p: info_nce(q, p, temperature=1, positive=torch.tensor([0, 1, 5])),
        "outside the 5 candidates",
    ),
    "a positive too few": (
        lambda q, p: info_nce(q, p, temperature=1, positive=torch.tensor([0, 1])),
        r"expected \[3\] int64",
    ),
    "concepts of other rows": (lambda q, p: concept_kl(q, p, p, temperature=1), "expected equal shapes"),
    "concepts of other candidates": (
        lambda q, p: query_concept_matching(q, q, p, temperature=1),
        "expected equal shapes",
    ),
    "an unknown reduction": (lambda q, p: info_nce(q, p, temperature=1, reduction="sum"), "reduction is 'sum'"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_line(case):
    call, message = BAD_INPUT[case]
    query, _, page, _ = batch(9)
    with pytest.raises(ConceptFormerError, match=message) as caught:
        call(query, page)
    assert "\n" not in str(caught.value)


NONE_EXCLUDED = torch.zeros(3, 5, dtype=torch.bool)
HAS_CONCEPT = torch.tensor([True, False, True])
BAD_MASKS = {
    "a row without candidates": (
        {"excluded": torch.tensor([[False] * 5, [True] * 5, [False] * 5])},
        "every candidate of a row is excluded",
    ),
    "excluded of another shape": ({"excluded": NONE_EXCLUDED.T}, r"expected \[3, 5\] bool"),
    "excluded of floats": ({"excluded": NONE_EXCLUDED.float()}, r"expected \[3, 5\] bool"),
    "has_concept of integers": ({"has_concept": HAS_CONCEPT.long()}, r"has_concept is torch.int64"),
    "has_concept of another length": ({"has_concept": HAS_CONCEPT[:2]}, r"expected \[3\] bool"),
}


@pytest.mark.parametrize("case", BAD_MASKS)
def test_bad_masks_are_refused_in_one_line(case):
    masks, message = BAD_MASKS[case]
    query, concept, page, candidate_concept = batch(9)
    with pytest.raises(ConceptFormerError, match=message):
        concept_kl(query, concept, page, temperature=0.1, **masks)
    with pytest.raises(ConceptFormerError, match=message) as caught:
        query_concept_matching(query, candidate_concept, page, temperature=0.1, **masks)
    assert "\n" not in str(caught.value)
