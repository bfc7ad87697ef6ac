"""The concepts that the paper compares its own with (Table 2), and none at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from conceptformer import regions
from conceptformer.backbones.protocol import InputProcessor, TokenGrid
from conceptformer.concepts.protocol import ConceptInput, ConceptMaterial
from conceptformer.records import TrainingExample
from conceptformer.step.batch import TrainingBatch


@dataclass(frozen=True)
class TextConcepts:
    """The labels of the evidence boxes, encoded as a query ('ConceptFormer (Text)'); none without a label."""

    def prepare(self, example: TrainingExample, grid: TokenGrid, inputs: InputProcessor) -> ConceptInput:
        """The labels, one a line.

        Without a label the text is a lone EOS that no loss looks at: where a model is spread over processes, each must
        call it as often as the others, and a batch may hold no label at all.
        """
        labels = [box.label for box in example.boxes if box.label.strip()]
        if not labels:
            return ConceptInput(text_ids=inputs.page_suffix_ids()[-1:])
        return ConceptInput(exists=True, text_ids=inputs.query_ids("\n".join(labels)))

    def slot_embeddings(self, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> None:
        """None: there are no slots."""

    def embed(self, batch: TrainingBatch, material: ConceptMaterial) -> torch.Tensor:
        """The texts' own embeddings."""
        return material.texts

    def describe(self) -> dict[str, object]:
        """See :class:`~conceptformer.concepts.protocol.ConceptSource`."""
        return {"source": "text"}


@dataclass(frozen=True)
class VisionConcepts:
    """The mean of the projected image features under the boxes ('ConceptFormer (Vision)')."""

    def prepare(self, example: TrainingExample, grid: TokenGrid, inputs: InputProcessor) -> ConceptInput:
        """The visual tokens under the boxes."""
        patch_index = regions.concept_tokens(example.boxes, grid).tolist()
        return ConceptInput(exists=bool(patch_index), patch_index=patch_index)

    def slot_embeddings(self, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> None:
        """None: there are no slots."""

    def embed(self, batch: TrainingBatch, material: ConceptMaterial) -> torch.Tensor:
        """See :class:`~conceptformer.concepts.protocol.ConceptSource`."""
        rows = []
        for image, index in zip(material.images, batch.patch_index, strict=True):
            rows.append(image[index].float().mean(dim=0) if len(index) else torch.zeros_like(image[0]).float())
        return torch.stack(rows)

    def describe(self) -> dict[str, object]:
        """See :class:`~conceptformer.concepts.protocol.ConceptSource`."""
        return {"source": "vision"}


@dataclass(frozen=True)
class NoConcepts:
    """InfoNCE alone ('w/o KL Loss'): no concept sequence is computed."""

    def prepare(self, example: TrainingExample, grid: TokenGrid, inputs: InputProcessor) -> ConceptInput:
        """Nothing."""
        return ConceptInput()

    def slot_embeddings(self, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> None:
        """None: there are no slots."""

    def embed(self, batch: TrainingBatch, material: ConceptMaterial) -> torch.Tensor:
        """Zeros, which no loss looks at."""
        return material.images[0].new_zeros(len(batch), material.images[0].shape[-1], dtype=torch.float32)

    def describe(self) -> dict[str, object]:
        """See :class:`~conceptformer.concepts.protocol.ConceptSource`."""
        return {"source": "none"}
