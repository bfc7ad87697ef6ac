"""Floating-point operations of a training step, counted in the model's own code on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from conceptformer.backbones.protocol import Backbone
from conceptformer.plan.meta_step import (
    GpuOperations,
    concept_states,
    joint_states,
    page_features,
    page_pixels,
    page_states,
    prepared,
    text_states,
)
from conceptformer.plan.pair_tokens import PairTokens


@dataclass(frozen=True)
class PartFlops:
    """Operations of one part of a step, for one pair; a multiply and an add are two.

    Attributes:
        forward: On the way forth.
        backward: On the way back, what checkpointing computes again in it.
    """

    forward: int
    backward: int

    @property
    def total(self) -> int:
        """Both ways."""
        return self.forward + self.backward


@dataclass(frozen=True)
class StepFlops:
    """Operations of a step per pair, in three forms of it.

    Attributes:
        vision: The vision tower on one page.
        query, page, concept: Passes through the language model alone, each with the whole of its sequence.
        joint: Page and concept as one sequence with a common prefix.
        text: The pass of a text that stands for the concept.
    """

    vision: PartFlops
    query: PartFlops
    page: PartFlops
    concept: PartFlops
    joint: PartFlops
    text: PartFlops

    @property
    def info_nce(self) -> int:
        """Training without concepts: query and page."""
        return self.vision.total + self.query.total + self.page.total

    @property
    def shared(self) -> int:
        """Query, page and concept with the vision tower and the prefix once."""
        return self.vision.total + self.query.total + self.joint.total + self.text.total

    @property
    def separate(self) -> int:
        """Query, page and concept in passes of their own, the vision tower in each that needs it."""
        return 2 * self.vision.total + self.query.total + self.page.total + self.concept.total + self.text.total

    def of_run(self, *, shared: bool, cached: bool) -> int:
        """What training spends on a pair: in the shared form, or with separate passes over image features in common.

        ``cached`` runs everything forth once more, without a graph, for gradient caching.
        """
        endings = (self.joint,) if shared else (self.page, self.concept)
        parts = (self.vision, self.query, self.text, *endings)
        return sum(part.total + cached * part.forward for part in parts)

    @property
    def over_info_nce(self) -> float:
        """What concepts cost: shared form over InfoNCE alone."""
        return self.shared / self.info_nce

    @property
    def saved(self) -> float:
        """What sharing brings: separate passes over shared form."""
        return self.separate / self.shared


_NOTHING = PartFlops(0, 0)


def step_flops(
    backbone: Backbone,
    tokens: PairTokens,
    *,
    checkpointing: bool = True,
    precision: torch.dtype = torch.bfloat16,
) -> StepFlops:
    """Count the matrix products of a step, with the vision tower's and the attention's.

    Every part is run once, forth and back, on meta tensors: vision windows, LoRA, frozen weights (which cost no
    gradient of their own) and recomputation are as in training. Attention is counted in full, also where a kernel may
    skip what causality hides (a few percent at these lengths, alike in all forms). Element-wise work is not counted.

    Args:
        backbone: On the meta device, with its adaptation attached.
        tokens: Lengths of the pair.
        checkpointing: Layers are computed again on the way back.

    Raises:
        TrainingError: The model lies elsewhere, or none of it is trained.
    """
    with prepared(backbone, checkpointing=checkpointing, precision=precision):

        def count(run: Callable[[], torch.Tensor]) -> PartFlops:
            return _count(run, precision)

        pixels = page_pixels(backbone, tokens)
        trained = []

        def vision_pass() -> torch.Tensor:
            features = page_features(backbone, pixels)
            trained.append(features.requires_grad)
            return features

        vision = count(vision_pass)
        features = torch.empty(tokens.visual, backbone.hidden_size, device="meta", requires_grad=trained[0])
        has_concept = tokens.concept_suffix > 0
        page = count(lambda: page_states(backbone, 1, tokens, features))
        parts = StepFlops(
            vision=vision,
            query=count(lambda: text_states(backbone, 1, tokens.query)),
            page=page,
            concept=count(lambda: concept_states(backbone, 1, tokens, features)) if has_concept else _NOTHING,
            joint=count(lambda: joint_states(backbone, 1, tokens, features)) if has_concept else page,
            text=count(lambda: text_states(backbone, 1, tokens.text)) if tokens.text else _NOTHING,
        )
        backbone.model.zero_grad()
    return parts


class _Products(TorchDispatchMode):
    """Counts by torch's own formulas, without the record of modules that makes torch's own counter slow."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=result)
        return result


def _count(run: Callable[[], torch.Tensor], precision: torch.dtype) -> PartFlops:
    with _Products() as products:
        with GpuOperations(precision):
            result = run().float().sum()
        forward = products.total
        if result.requires_grad:
            result.backward()
    return PartFlops(forward, products.total - forward)
