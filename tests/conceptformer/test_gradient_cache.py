"""Chunk by chunk, the gradients are those of one graph over the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager

import pytest
import torch

from conceptformer.adapters import LowRankAdaptation
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.concepts.proxies import NoConcepts, TextConcepts
from conceptformer.step.batch import TrainingBatch
from conceptformer.step.gradient_cache import cached_backward
from conceptformer.step.model import Embeddings, TrainingModel
from conceptformer.step.objective import LossTerms, Marks, Objective, QueryConceptMatching, RankingAlignment
from conceptformer.step.passes import SharedPrefix
from tests.conceptformer.step_cases import LATENT, assert_close_gradients
from tests.conceptformer.step_examples import batch_of, mixed, without_boxes
from tests.conceptformer.tiny_models import tiny_backbone

ROWS = 5
OBJECTIVE = Objective(0.05, 0.7, RankingAlignment(), mask_false_negatives=False)
# Of the five rows the second and the last have no concept: some chunks hold none.
SIZES = {"1": [1] * 5, "2": [2, 2, 1], "3": [3, 2], "whole": [5], "unequal": [1, 3, 1]}


@pytest.fixture(scope="module")
def plain():
    return TrainingModel(tiny_backbone(), LATENT, SharedPrefix(), projection=True).train()


@pytest.fixture(scope="module")
def dropped():
    """With dropout, and adapters that are no longer zero."""
    backbone = tiny_backbone()
    LowRankAdaptation(rank=2, alpha=4, dropout=0.3).attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    generator = torch.Generator().manual_seed(5)
    for name, parameter in backbone.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1, generator=generator)
    return TrainingModel(backbone, LATENT, SharedPrefix(), projection=True).train()


def chunks_of(model: TrainingModel, sizes: Sequence[int], examples=None) -> list[TrainingBatch]:
    examples = examples or mixed()
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    return [
        batch_of(examples[start : start + size], model.backbone.inputs, model.concepts)
        for start, size in zip(starts, sizes, strict=True)
    ]


def joined(chunks: Sequence[TrainingBatch]) -> Marks:
    others = torch.empty(sum(map(len, chunks)), 0, dtype=torch.int64)
    return Marks(
        torch.cat([chunk.has_concept for chunk in chunks]), torch.cat([chunk.page_keys for chunk in chunks]), others
    )


def gradients(model: TrainingModel) -> dict[str, torch.Tensor | None]:
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def cached(model: TrainingModel, chunks: Sequence[TrainingBatch], objective: Objective = OBJECTIVE, scale: float = 1):
    """Terms and gradients, with the random state of a seed."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(11)
    terms = cached_backward(
        chunks, model, lambda own: objective(own, joined(chunks)), lambda loss: (scale * loss).backward()
    )
    return terms, gradients(model)


def in_one_graph(model: TrainingModel, chunks: Sequence[TrainingBatch], objective: Objective = OBJECTIVE):
    """The same chunks, embedded under the same seed, and one backward pass."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(11)
    parts = [model(chunk) for chunk in chunks]
    own = Embeddings(*(torch.cat([getattr(part, name) for part in parts]) for name in ("query", "page", "concept")))
    terms = objective(own, joined(chunks))
    terms.total.backward()
    return terms, gradients(model)


def assert_equal_terms(found: LossTerms, expected: LossTerms, tolerance: float) -> None:
    for name in ("total", "info_nce", "alignment"):
        assert abs(getattr(found, name) - getattr(expected, name)) <= tolerance, name
    assert (found.masked_pairs, found.without_concept) == (expected.masked_pairs, expected.without_concept)
    assert not found.total.requires_grad


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_gradients_are_those_of_the_whole_batch_at_once(plain, sizes):
    expected_terms, expected = in_one_graph(plain, chunks_of(plain, [ROWS]))
    terms, found = cached(plain, chunks_of(plain, sizes))
    assert_equal_terms(terms, expected_terms, 1e-5)
    assert expected["projection.weight"].norm() > 0.01
    assert_close_gradients(found, expected, 1e-5)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_dropout_is_drawn_alike_both_times(dropped, sizes):
    chunks = chunks_of(dropped, sizes)
    expected_terms, expected = in_one_graph(dropped, chunks)
    state = torch.get_rng_state()
    terms, found = cached(dropped, chunks)
    assert_equal_terms(terms, expected_terms, 1e-6)
    assert_close_gradients(found, expected, 1e-5)
    # Nor is anything else drawn: what comes next is the same.
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_matters_here(dropped):
    """Else the test above could not fail."""
    chunks = chunks_of(dropped, [2, 2, 1])
    first, _ = cached(dropped, chunks)
    dropped.eval()
    second, _ = cached(dropped, chunks)
    dropped.train()
    assert abs(first.total - second.total) > 1e-3


def test_dropout_is_drawn_alike_with_gradient_checkpointing(dropped):
    chunks = chunks_of(dropped, [2, 2, 1])
    _, expected = in_one_graph(dropped, chunks)
    dropped.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    try:
        _, found = cached(dropped, chunks)
    finally:
        dropped.network.activation_checkpointing_disable()
    assert_close_gradients(found, expected, 1e-5)


@pytest.mark.parametrize(
    ("concepts", "examples", "objective"),
    [
        (LATENT, mixed, Objective(0.05, 0.7, QueryConceptMatching(), False)),
        (LATENT, lambda: without_boxes(mixed()), OBJECTIVE),
        (LATENT, mixed, Objective(0.05, 0, RankingAlignment(), False)),
        (TextConcepts(), mixed, OBJECTIVE),
        (NoConcepts(), mixed, OBJECTIVE),
    ],
    ids=["query-concept matching", "no concept at all", "concept weight 0", "text", "none"],
)
def test_every_variant_has_exact_gradients(plain, concepts, examples, objective):
    model = TrainingModel(plain.backbone, concepts, SharedPrefix()).train()
    _, expected = in_one_graph(model, chunks_of(model, [ROWS], examples()), objective)
    _, found = cached(model, chunks_of(model, [2, 2, 1], examples()), objective)
    assert_close_gradients(found, expected, 1e-5)


def test_every_parameter_takes_part_though_no_loss_looks_at_the_concept(plain):
    """Wrappers that exchange gradients wait for each."""
    _, found = cached(plain, chunks_of(plain, [2, 3]), Objective(0.05, 0, RankingAlignment(), False))
    assert all(gradient is not None for gradient in found.values())
    assert not found["projection.weight"].any()


def test_gradients_are_added_and_scaled_where_they_are_passed_on(plain):
    chunks = chunks_of(plain, [3, 2])
    terms, once = cached(plain, chunks)
    halved_terms, halved = cached(plain, chunks, scale=0.5)
    assert torch.equal(halved_terms.total, terms.total)
    assert_close_gradients(halved, {name: gradient / 2 for name, gradient in once.items()}, 1e-6)
    once = {name: gradient.clone() for name, gradient in once.items()}
    cached_backward(chunks, plain, lambda own: OBJECTIVE(own, joined(chunks)), torch.Tensor.backward)
    added = {name: 1.5 * gradient for name, gradient in once.items()}
    assert_close_gradients(gradients(plain), added, 1e-6)


def test_gradients_are_exchanged_once_and_the_model_sees_every_chunk_twice(plain):
    chunks = chunks_of(plain, [2, 2, 1])
    events = []

    def embed(chunk: TrainingBatch) -> Embeddings:
        events.append((len(chunk), torch.is_grad_enabled()))
        return plain(chunk)

    @contextmanager
    def without_sync():
        events.append("hold")
        yield
        events.append("release")

    def backward(loss: torch.Tensor) -> None:
        events.append("backward")
        loss.backward()

    cached_backward(chunks, embed, lambda own: OBJECTIVE(own, joined(chunks)), backward, without_sync)
    held = ["hold", (2, True), "backward", "release"]
    assert events == [(2, False), (2, False), (1, False), *held, *held, (1, True), "backward"]


def test_a_loss_that_raises_leaves_no_gradient(plain):
    plain.zero_grad(set_to_none=True)

    def refuse(own: Embeddings) -> LossTerms:
        raise ArithmeticError("not finite")

    with pytest.raises(ArithmeticError):
        cached_backward(chunks_of(plain, [3, 2]), plain, refuse, torch.Tensor.backward)
    assert all(gradient is None for gradient in gradients(plain).values())
