"""One training step's forward: queries, pages and concepts of a batch, with the vision tower run once per page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from conceptformer.backbones.protocol import Backbone
from conceptformer.concepts.protocol import ConceptMaterial, ConceptSource
from conceptformer.pooling import l2_normalise
from conceptformer.step.batch import TrainingBatch
from conceptformer.step.passes import Passes, embed_images, embed_texts


@dataclass(frozen=True)
class Embeddings:
    """The three embeddings of a batch, each [B, D] float32 and L2-normalised.

    Attributes:
        concept: Rows without a concept hold anything.
    """

    query: torch.Tensor
    page: torch.Tensor
    concept: torch.Tensor


class TrainingModel(nn.Module):
    """Backbone, concepts and passes as the one module that the trainer wraps.

    Args:
        projection: Multiply the pooled concept by a D x D matrix that begins as the identity and is trained; not used
            at inference. The paper has none, the authors' release does.
    """

    def __init__(self, backbone: Backbone, concepts: ConceptSource, passes: Passes, projection: bool = False) -> None:
        super().__init__()
        self.backbone = backbone
        self.network = backbone.model
        self.concepts = concepts
        self.passes = passes
        self.projection = nn.Linear(backbone.hidden_size, backbone.hidden_size, bias=False) if projection else None
        if self.projection is not None:
            nn.init.eye_(self.projection.weight)

    def forward(self, batch: TrainingBatch) -> Embeddings:
        """Embed queries, pages and concepts of a batch."""
        query = embed_texts(self.backbone, batch.query_ids, batch.query_lengths)
        images = embed_images(self.backbone, batch.pixels, batch.grids)
        slots = self.concepts.slot_embeddings(batch, images)
        page, states = self.passes.states(self.backbone, batch, images, slots)
        texts = embed_texts(self.backbone, batch.text_ids, batch.text_lengths)
        concept = self.concepts.embed(batch, ConceptMaterial(states, images, texts))
        if self.projection is not None:
            concept = self.projection(concept.to(self.projection.weight.dtype))
        return Embeddings(query, l2_normalise(page), l2_normalise(concept))

    def activation_checkpointing_enable(self, **settings: Any) -> None:
        """Keep only the layers' inputs and compute the rest again on the way back (called by the trainer)."""
        self.network.activation_checkpointing_enable(**settings)
        # Checkpointing without reentry does not need them, and behind them even a frozen vision tower gets gradients.
        self.network.disable_input_require_grads()

    def trained_tensors(self) -> dict[str, torch.Tensor]:
        """The parameters that are trained, by name."""
        return {name: value for name, value in self.named_parameters() if value.requires_grad}
