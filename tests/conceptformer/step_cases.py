"""Variants of the method, each beside its plain form, and the comparison of the two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concepts.latent import (
    DynamicLength,
    EndState,
    FixedLength,
    LatentConcepts,
    MeanPooling,
    TokenSlots,
    VisualSlots,
)
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.concepts.proxies import NoConcepts, TextConcepts, VisionConcepts
from conceptformer.records import TrainingExample
from conceptformer.step.batch import TrainingBatch
from conceptformer.step.model import TrainingModel
from conceptformer.step.objective import LossTerms, Marks, Objective, RankingAlignment
from conceptformer.step.passes import Passes, SeparatePasses, SharedPrefix
from tests.conceptformer import plain_step
from tests.conceptformer.step_examples import batch_of, mixed, without_boxes

PASSES = (SharedPrefix(), SeparatePasses())
TEMPERATURE, WEIGHT = 0.05, 0.7
LATENT = LatentConcepts(DynamicLength(), TokenSlots(), MeanPooling())


@dataclass(frozen=True)
class Case:
    concepts: ConceptSource
    plain: plain_step.ConceptOf
    examples: Callable[[], Sequence[TrainingExample]] = mixed
    projection: bool = False


CASES = {
    "dynamic length": Case(LATENT, plain_step.latent()),
    "visual slots": Case(LatentConcepts(DynamicLength(), VisualSlots(), MeanPooling()), plain_step.latent(visual=True)),
    "visual slots, union": Case(
        LatentConcepts(DynamicLength(), VisualSlots(), MeanPooling(), union=True),
        plain_step.latent(visual=True, union=True),
    ),
    "end state": Case(LatentConcepts(DynamicLength(), TokenSlots(), EndState()), plain_step.latent(end_state=True)),
    "fixed length": Case(LatentConcepts(FixedLength(7), TokenSlots(), MeanPooling()), plain_step.latent(fixed=7)),
    "projection": Case(LATENT, plain_step.latent(), projection=True),
    "text": Case(TextConcepts(), plain_step.text),
    "vision": Case(VisionConcepts(), plain_step.vision),
    "none": Case(NoConcepts(), plain_step.nothing),
    "all without boxes": Case(LATENT, plain_step.latent(), lambda: without_boxes(mixed())),
    "all without boxes, end state and visual slots": Case(
        LatentConcepts(DynamicLength(), VisualSlots(), EndState()),
        plain_step.latent(visual=True, end_state=True),
        lambda: without_boxes(mixed()),
    ),
    "all without labels": Case(TextConcepts(), plain_step.text, lambda: without_boxes(mixed())),
    "one pair without boxes": Case(LATENT, plain_step.latent(), lambda: mixed()[1:2]),
}


def gradients(model: TrainingModel, loss: torch.Tensor) -> dict[str, torch.Tensor | None]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def model_of(backbone: Qwen2_5_VL, case: Case, passes: Passes) -> TrainingModel:
    """Equal parameters at each call."""
    model = TrainingModel(backbone, case.concepts, passes, case.projection)
    if model.projection is not None:
        torch.nn.init.normal_(model.projection.weight, std=0.1, generator=torch.Generator().manual_seed(3))
    return model


def models_of(backbone: Qwen2_5_VL, case: Case) -> list[TrainingModel]:
    """With each way through the passes."""
    return [model_of(backbone, case, passes) for passes in PASSES]


def step(model: TrainingModel, batch: TrainingBatch) -> LossTerms:
    objective = Objective(TEMPERATURE, WEIGHT, RankingAlignment(), mask_false_negatives=False)
    return objective(model(batch), Marks(batch.has_concept, batch.page_keys, batch.other_keys))


def assert_like_the_plain_form(models: Sequence[TrainingModel], case: Case) -> None:
    """Losses to 1e-5, gradients of every parameter to 1e-4 of their size, of models with the same parameters."""
    examples = case.examples()
    projection = None if models[0].projection is None else models[0].projection.weight
    contrast, alignment = plain_step.losses(
        *plain_step.embeddings(models[0].backbone, examples, case.plain, projection), TEMPERATURE
    )
    expected = gradients(models[0], contrast + WEIGHT * alignment)
    for model in models:
        terms = step(model, batch_of(examples, model.backbone.inputs, model.concepts))
        assert abs(terms.info_nce - contrast) < 1e-5
        assert abs(terms.alignment - alignment) < 1e-5
        assert abs(terms.total - contrast - WEIGHT * alignment) < 1e-5
        assert_close_gradients(gradients(model, terms.total), expected, 1e-4)


def assert_close_gradients(
    found: dict[str, torch.Tensor | None], expected: dict[str, torch.Tensor | None], relative: float
) -> None:
    """Norm of the difference over the norm, each parameter for itself."""
    for name, value in expected.items():
        # A parameter out of reach has none, or zeros where a graph was kept.
        if value is None or found[name] is None:
            assert not any(one is not None and one.any() for one in (value, found[name])), name
            continue
        assert (found[name] - value).norm() <= relative * value.norm(), name
