"""The terms of the loss, what they count, and whom they teach."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from conceptformer.losses import concept_kl, false_negatives, info_nce, page_key, query_concept_matching
from conceptformer.pooling import l2_normalise
from conceptformer.step.model import Embeddings
from conceptformer.step.objective import Marks, Objective, QueryConceptMatching, RankingAlignment
from tests.conceptformer import plain_losses

ROWS, WIDTH = 7, 5
TEMPERATURE, WEIGHT = 0.1, 0.3
HAS_CONCEPT = torch.tensor([True, False, True, True, False, True, True])
# The first and the fourth row have one page; the third query has two more answers, one of them in the batch.
PAGES = ("a", "b", "c", "a", "d", "e", "f")
OTHERS = torch.full((ROWS, 2), -1)
OTHERS[2] = torch.tensor([page_key("e"), page_key("elsewhere")])
EXCLUDED = [(0, 3), (3, 0), (2, 5)]


def made(seed: int = 0) -> Embeddings:
    generator = torch.Generator().manual_seed(seed)
    return Embeddings(*(torch.randn(ROWS, WIDTH, generator=generator).requires_grad_() for _ in range(3)))


def normalised(embeddings: Embeddings) -> Embeddings:
    return Embeddings(*map(l2_normalise, (embeddings.query, embeddings.page, embeddings.concept)))


def marks(has_concept: torch.Tensor = HAS_CONCEPT) -> Marks:
    return Marks(has_concept, torch.tensor([page_key(page) for page in PAGES]), OTHERS)


def objective(alignment=None, *, weight: float = WEIGHT, mask: bool = False) -> Objective:
    return Objective(TEMPERATURE, weight, alignment or RankingAlignment(), mask_false_negatives=mask)


def excluded() -> torch.Tensor:
    found = torch.zeros(ROWS, ROWS, dtype=torch.bool)
    for query, page in EXCLUDED:
        found[query, page] = True
    return found


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_terms_are_the_pure_losses(mask, reverse):
    own = normalised(made())
    terms = objective(RankingAlignment(reverse), mask=mask)(own, marks())
    options = {"temperature": TEMPERATURE, "excluded": excluded() if mask else None}
    contrast = info_nce(own.query, own.page, **options)
    alignment = concept_kl(own.query, own.concept, own.page, has_concept=HAS_CONCEPT, reverse=reverse, **options)
    torch.testing.assert_close(terms.info_nce, contrast.detach())
    torch.testing.assert_close(terms.alignment, alignment.detach())
    torch.testing.assert_close(terms.total, contrast + WEIGHT * alignment)
    assert not terms.info_nce.requires_grad and not terms.alignment.requires_grad


@pytest.mark.parametrize("mask", [False, True])
def test_query_concept_matching_is_the_pure_loss(mask):
    own = normalised(made())
    terms = objective(QueryConceptMatching(), mask=mask)(own, marks())
    alignment = query_concept_matching(
        own.query,
        own.concept,
        own.page,
        temperature=TEMPERATURE,
        has_concept=HAS_CONCEPT,
        candidate_has_concept=HAS_CONCEPT,
        excluded=excluded() if mask else None,
    )
    torch.testing.assert_close(terms.alignment, alignment.detach())
    torch.testing.assert_close(terms.total, terms.info_nce + WEIGHT * alignment)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("alignment", [RankingAlignment(), RankingAlignment(reverse=True), QueryConceptMatching()])
def test_the_terms_are_those_of_slow_loops(mask, alignment):
    own = normalised(made(3))
    terms = objective(alignment, mask=mask)(own, marks())
    allowed = [[j for j in range(ROWS) if not (mask and (i, j) in EXCLUDED)] for i in range(ROWS)]
    query, page, concept = (part.tolist() for part in (own.query, own.page, own.concept))
    present = HAS_CONCEPT.tolist()
    contrast = plain_losses.info_nce(query, page, TEMPERATURE, range(ROWS), allowed)
    if isinstance(alignment, RankingAlignment):
        losses = plain_losses.concept_kl(query, concept, page, TEMPERATURE, allowed, present, alignment.reverse)
    else:
        losses = plain_losses.query_concept_matching(
            query, concept, page, TEMPERATURE, allowed, present, present, False
        )
    assert terms.info_nce.item() == pytest.approx(sum(contrast) / ROWS, rel=1e-5)
    assert terms.alignment.item() == pytest.approx(sum(losses) / sum(present), rel=1e-5)
    assert terms.total.item() == pytest.approx(sum(contrast) / ROWS + WEIGHT * sum(losses) / sum(present), rel=1e-5)


def test_two_pairs_by_hand():
    """Queries and pages at right angles, concepts at the other query's place."""
    square = torch.eye(2)
    terms = Objective(1.0, 0.5, RankingAlignment(), mask_false_negatives=False)(
        Embeddings(square, square, square.flip(0)),
        Marks(torch.tensor([True, True]), torch.tensor([1, 2]), torch.empty(2, 0, dtype=torch.int64)),
    )
    # P = softmax(1, 0) = (0.7310586, 0.2689414), and KL(P || reversed P) = (0.7310586 - 0.2689414) * 1.
    assert terms.info_nce.item() == pytest.approx(0.3132617, abs=1e-6)
    assert terms.alignment.item() == pytest.approx(0.4621172, abs=1e-6)
    assert terms.total.item() == pytest.approx(0.3132617 + 0.5 * 0.4621172, abs=1e-6)


def test_pages_that_answer_too_are_counted_and_are_no_negatives():
    own = normalised(made())
    without, masked = objective()(own, marks()), objective(mask=True)(own, marks())
    assert (without.masked_pairs, masked.masked_pairs) == (0, len(EXCLUDED))
    positive = torch.arange(ROWS)
    assert torch.equal(false_negatives(marks().page_keys, positive, OTHERS), excluded())
    assert masked.info_nce < without.info_nce


def test_samples_without_a_concept_are_counted():
    assert objective()(normalised(made()), marks()).without_concept == 2
    assert objective(weight=0)(normalised(made()), marks()).without_concept == 2


def gradients(total: torch.Tensor, leaves: Embeddings) -> dict[str, torch.Tensor | None]:
    names = ("query", "page", "concept")
    found = torch.autograd.grad(total, [getattr(leaves, name) for name in names], allow_unused=True, retain_graph=True)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("alignment", [RankingAlignment(), QueryConceptMatching()])
def test_a_concept_weight_of_zero_is_info_nce_alone(alignment):
    leaves = made()
    own = normalised(leaves)
    terms = objective(alignment, weight=0)(own, marks())
    assert terms.alignment == 0
    assert torch.equal(terms.total, terms.info_nce)
    found = gradients(terms.total, leaves)
    expected = gradients(info_nce(own.query, own.page, temperature=TEMPERATURE), leaves)
    # Zeros and not nothing: processes that exchange gradients wait for those of every parameter.
    assert found["concept"] is not None and not found["concept"].any()
    for name in ("query", "page"):
        torch.testing.assert_close(found[name], expected[name])


@pytest.mark.parametrize("reverse", [False, True])
def test_ranking_alignment_teaches_concepts_and_pages_and_leaves_the_teacher_alone(reverse):
    leaves = made()
    terms = objective(RankingAlignment(reverse))(normalised(leaves), marks())
    contrast = objective(weight=0)(normalised(leaves), marks())
    found = gradients(terms.total, leaves)
    alone = gradients(contrast.total, leaves)
    # Without the term of InfoNCE nothing is left for the queries.
    torch.testing.assert_close(found["query"], alone["query"], rtol=0, atol=1e-7)
    assert (found["page"] - alone["page"]).norm() > 0.01
    assert (found["concept"].norm(dim=1) > 0).tolist() == HAS_CONCEPT.tolist()


def test_the_gradient_of_pages_comes_from_the_student_alone():
    """By the derivative of Eq. 16 with fixed P(. | q): pages get (P(d | c) - P(d | q)) c / temperature."""
    leaves = normalised(made())
    leaves = Embeddings(*(part.detach().requires_grad_() for part in (leaves.query, leaves.page, leaves.concept)))
    terms = objective()(leaves, marks())
    contrast = objective(weight=0)(leaves, marks())
    found = gradients(terms.total, leaves)["page"] - gradients(contrast.total, leaves)["page"]
    with torch.no_grad():
        student = (leaves.concept @ leaves.page.T / TEMPERATURE).softmax(dim=1)
        teacher = (leaves.query @ leaves.page.T / TEMPERATURE).softmax(dim=1)
        weights = (student - teacher)[HAS_CONCEPT]
        expected = WEIGHT / 5 / TEMPERATURE * weights.T @ leaves.concept[HAS_CONCEPT]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_query_concept_matching_teaches_queries_and_concepts_and_no_page():
    leaves = made()
    terms = objective(QueryConceptMatching())(normalised(leaves), marks())
    contrast = objective(weight=0)(normalised(leaves), marks())
    found = gradients(terms.total, leaves)
    alone = gradients(contrast.total, leaves)
    torch.testing.assert_close(found["page"], alone["page"], rtol=0, atol=1e-7)
    changed = (found["query"] - alone["query"]).norm(dim=1) > 1e-4
    assert changed.tolist() == HAS_CONCEPT.tolist()
    assert (found["concept"].norm(dim=1) > 0).tolist() == HAS_CONCEPT.tolist()


@pytest.mark.parametrize("alignment", [RankingAlignment(), RankingAlignment(reverse=True), QueryConceptMatching()])
def test_rows_without_a_concept_may_hold_nan(alignment):
    leaves = made()
    own = normalised(leaves)
    spoilt = replace(own, concept=own.concept.masked_fill(~HAS_CONCEPT[:, None], float("nan")))
    clean, dirty = (objective(alignment)(one, marks()) for one in (own, spoilt))
    assert torch.equal(clean.total, dirty.total)
    assert torch.equal(clean.alignment, dirty.alignment)
    expected, found = gradients(clean.total, leaves), gradients(dirty.total, leaves)
    for name in ("query", "page"):
        assert torch.equal(found[name], expected[name])
    assert torch.equal(found["concept"][HAS_CONCEPT], expected["concept"][HAS_CONCEPT])


@pytest.mark.parametrize("alignment", [RankingAlignment(), QueryConceptMatching()])
def test_no_concept_in_the_whole_batch_leaves_info_nce(alignment):
    leaves = made()
    terms = objective(alignment)(normalised(leaves), marks(torch.zeros(ROWS, dtype=torch.bool)))
    assert (terms.alignment, terms.without_concept) == (0, ROWS)
    assert torch.equal(terms.total, terms.info_nce)
    found = gradients(terms.total, leaves)
    # The graph stays, for processes that wait for each other; it passes nothing on.
    assert not found["concept"].any()
    alone = gradients(objective(weight=0)(normalised(leaves), marks()).total, leaves)
    torch.testing.assert_close(found["query"], alone["query"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": 0}, "temperature: expected a number above 0, got 0"),
        ({"temperature": float("nan")}, "temperature"),
        ({"concept_weight": -0.1}, "concept_weight: expected a number of at least 0, got -0.1"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        replace(objective(), **settings)
