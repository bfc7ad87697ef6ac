"""Where the concept of a query and its page comes from: latent tokens (the paper's method) or one of its rivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from conceptformer.backbones.protocol import InputProcessor, TokenGrid
from conceptformer.records import TrainingExample
from conceptformer.step.batch import TrainingBatch


@dataclass(frozen=True)
class ConceptInput:
    """What the model needs to make the concept of one example; nothing of it where the example has no concept.

    Attributes:
        exists: Whether the example takes part in the alignment.
        suffix_ids: Tokens after the image in the concept sequence.
        first_slot, slots: Where in the suffix the ``<|lcon|>`` tokens stand, and their number T.
        patch_index: Visual tokens under the boxes, overlap counted twice.
        text_ids: A text that is encoded as a query.
    """

    exists: bool = False
    suffix_ids: Sequence[int] = field(default=())
    first_slot: int = 0
    slots: int = 0
    patch_index: Sequence[int] = field(default=())
    text_ids: Sequence[int] = field(default=())


@dataclass(frozen=True)
class ConceptMaterial:
    """What the passes over a batch computed.

    Attributes:
        states: [B, C, D], last hidden states over the concept suffixes.
        images: For each page its projected visual tokens [len(grid), D].
        texts: [B, D], the embeddings of ``text_ids``; an empty row's is anything.
    """

    states: torch.Tensor
    images: Sequence[torch.Tensor]
    texts: torch.Tensor


class ConceptSource(Protocol):
    """Makes concept inputs in the data loader, and concept embeddings in the model."""

    def prepare(self, example: TrainingExample, grid: TokenGrid, inputs: InputProcessor) -> ConceptInput:
        """What the concept of this example needs."""

    def slot_embeddings(self, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """[number of slots in the batch, D] input embeddings that replace those of ``<|lcon|>``; None to keep them."""

    def embed(self, batch: TrainingBatch, material: ConceptMaterial) -> torch.Tensor:
        """[B, D] concepts, not normalised; rows without one hold anything."""

    def describe(self) -> dict[str, object]:
        """The settings, as the manifest holds them (JSON values)."""
