"""Latent concepts (Eq. 11-13): a run of equal ``<|lcon|>`` tokens after page and query, longer with more evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from conceptformer import regions
from conceptformer.backbones.protocol import InputProcessor, TokenGrid
from conceptformer.concepts.protocol import ConceptInput, ConceptMaterial
from conceptformer.errors import TrainingError
from conceptformer.pooling import last_state, mean_of
from conceptformer.records import TrainingExample
from conceptformer.step.batch import TrainingBatch


class ConceptLength(Protocol):
    """How many concept tokens an example gets."""

    def slots(self, patch_index: Sequence[int]) -> int:
        """T, given the visual tokens under the boxes."""


@dataclass(frozen=True)
class DynamicLength:
    """One concept token for each visual token under a box (Eq. 10)."""

    def slots(self, patch_index: Sequence[int]) -> int:
        """Their number."""
        return len(patch_index)


@dataclass(frozen=True)
class FixedLength:
    """The same number for all examples that have boxes (Figure 3b).

    Raises:
        TrainingError: The number is no whole number of at least 1. (The paper writes 0 for lengths that follow the
            boxes; here it would leave no sample with a concept.)
    """

    length: int

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or self.length < 1:
            raise TrainingError(
                f"fixed concept length: expected a whole number of at least 1, got {self.length!r}; for lengths that "
                "follow the boxes choose DynamicLength"
            )

    def slots(self, patch_index: Sequence[int]) -> int:
        """The constant, or 0 without boxes."""
        return self.length if len(patch_index) else 0


class SlotInput(Protocol):
    """What stands at the place of a concept token when the language model begins."""

    def embeddings(self, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """See :meth:`~conceptformer.concepts.protocol.ConceptSource.slot_embeddings`."""


@dataclass(frozen=True)
class TokenSlots:
    """The learned embedding of ``<|lcon|>`` (the paper)."""

    def embeddings(self, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> None:
        """None: the table's own row."""


@dataclass(frozen=True)
class VisualSlots:
    """The image features of the boxed visual tokens, detached (what the authors released for Qwen2.5-VL)."""

    def embeddings(self, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """The features in the order of the slots, row after row."""
        return torch.cat([image[index] for image, index in zip(images, batch.patch_index, strict=True)]).detach()


class ConceptPooling(Protocol):
    """States of a concept sequence to one vector."""

    def pool(self, states: torch.Tensor, batch: TrainingBatch) -> torch.Tensor:
        """[B, C, D] states over the concept suffixes to [B, D]."""


@dataclass(frozen=True)
class MeanPooling:
    """Mean over the ``<|lcon|>`` states (Eq. 13)."""

    def pool(self, states: torch.Tensor, batch: TrainingBatch) -> torch.Tensor:
        """See :class:`ConceptPooling`."""
        return mean_of(states, batch.slots)


@dataclass(frozen=True)
class EndState:
    """The state at ``<|lcon_end|>``, the last token (Table 2, 'w/o Mean Pooling')."""

    def pool(self, states: torch.Tensor, batch: TrainingBatch) -> torch.Tensor:
        """See :class:`ConceptPooling`."""
        if not states.shape[1]:
            return states.new_zeros(len(states), states.shape[-1])
        return last_state(states, batch.concept_lengths.clamp(min=1))


@dataclass(frozen=True)
class LatentConcepts:
    """The paper's concepts.

    Attributes:
        length: :class:`DynamicLength` or :class:`FixedLength`.
        slot_input: :class:`TokenSlots` or, with a dynamic length, :class:`VisualSlots`.
        pooling: :class:`MeanPooling` or :class:`EndState`.
        union: Count a visual token under several boxes once; the paper counts it as often as it is covered.
    """

    length: ConceptLength
    slot_input: SlotInput
    pooling: ConceptPooling
    union: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.slot_input, VisualSlots) and not isinstance(self.length, DynamicLength):
            raise ValueError("visual slots hold one boxed token each; expected a dynamic length, got a fixed one")

    def prepare(self, example: TrainingExample, grid: TokenGrid, inputs: InputProcessor) -> ConceptInput:
        """A suffix with T slots; nothing without boxes."""
        patch_index = regions.concept_tokens(example.boxes, grid, union=self.union).tolist()
        slots = self.length.slots(patch_index)
        if slots == 0:
            return ConceptInput()
        suffix_ids = inputs.concept_suffix_ids(example.query, slots)
        # <|lcon_end|> is the last token, the slots stand before it.
        return ConceptInput(True, suffix_ids, len(suffix_ids) - 1 - slots, slots, patch_index)

    def slot_embeddings(self, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """See :class:`~conceptformer.concepts.protocol.ConceptSource`."""
        return self.slot_input.embeddings(batch, images)

    def embed(self, batch: TrainingBatch, material: ConceptMaterial) -> torch.Tensor:
        """See :class:`~conceptformer.concepts.protocol.ConceptSource`."""
        return self.pooling.pool(material.states, batch)

    def describe(self) -> dict[str, object]:
        """See :class:`~conceptformer.concepts.protocol.ConceptSource`."""
        return {
            "source": "latent",
            "length": repr(self.length),
            "slot_input": repr(self.slot_input),
            "pooling": repr(self.pooling),
            "union": self.union,
        }
