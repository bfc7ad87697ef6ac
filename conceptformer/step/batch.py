"""A batch of training pairs as tensors, and how pages and concepts share its rows.

A row is ``prefix | page suffix | concept suffix | padding``; the prefix holds the page image. Rows without a concept
have no concept suffix.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from conceptformer.backbones.protocol import TokenGrid

PREFIX, PAGE_SUFFIX, CONCEPT_SUFFIX, PADDING = range(4)
"""Segments of a row."""


@dataclass(frozen=True)
class TrainingBatch:
    """B examples, padded on the right.

    Attributes:
        pairs: (query id, page id) of each row, for messages.
        query_ids, query_lengths: [B, Q] and [B].
        pixels, grids: All pages' patches one after the other, and the pages' grids.
        joint_ids, segments: [B, L]: token ids, and which part of the row each belongs to.
        prefix_lengths, suffix_lengths, concept_lengths: [B], of the three parts of a row.
        slots: [B, C] over the concept suffix (C its greatest length): True at ``<|lcon|>``.
        patch_index: For each row, the visual token of each slot, or of the boxes; may be empty.
        text_ids, text_lengths: [B, X] and [B]: a text that stands for the concept; X may be 0.
        has_concept: [B].
        page_keys, other_keys: [B], and [B, K] padded with -1: pages by number, alike in all processes.
    """

    pairs: tuple[tuple[str, str], ...]
    query_ids: torch.Tensor
    query_lengths: torch.Tensor
    pixels: torch.Tensor
    grids: tuple[TokenGrid, ...]
    joint_ids: torch.Tensor
    segments: torch.Tensor
    prefix_lengths: torch.Tensor
    suffix_lengths: torch.Tensor
    concept_lengths: torch.Tensor
    slots: torch.Tensor
    patch_index: tuple[torch.Tensor, ...]
    text_ids: torch.Tensor
    text_lengths: torch.Tensor
    has_concept: torch.Tensor
    page_keys: torch.Tensor
    other_keys: torch.Tensor

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def tokens(self) -> int:
        """Tokens of the language model that are no padding, those of the query pass included."""
        return int((self.segments != PADDING).sum() + self.query_lengths.sum() + self.text_lengths.sum())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> TrainingBatch:
        """The batch on another device."""

        def moved(value: object) -> object:
            if isinstance(value, torch.Tensor):
                return value.to(device, non_blocking=non_blocking)
            if isinstance(value, tuple) and value and isinstance(value[0], torch.Tensor):
                return tuple(map(moved, value))
            return value

        fields = dataclasses.fields(self)
        return dataclasses.replace(self, **{field.name: moved(getattr(self, field.name)) for field in fields})
