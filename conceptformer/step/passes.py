"""The passes through the language model: queries, pages, and pages with concepts.

A page sequence and a concept sequence begin with the same tokens, and causal attention gives these the same states in
both. :class:`SharedPrefix` therefore computes them once, as one sequence with two endings that do not see each other;
:class:`SeparatePasses` is the plain form with a pass for each, for attention kernels that take no mask of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from conceptformer.backbones.protocol import Backbone, PageInput, TokenGrid
from conceptformer.pooling import l2_normalise, last_state
from conceptformer.step.batch import CONCEPT_SUFFIX, PAGE_SUFFIX, TrainingBatch
from conceptformer.step.batches import pad


class Passes(Protocol):
    """Runs pages and concepts through the language model."""

    def states(
        self,
        backbone: Backbone,
        batch: TrainingBatch,
        images: Sequence[torch.Tensor],
        slot_embeddings: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Last hidden states.

        Args:
            images: For each page its projected visual tokens [len(grid), D].
            slot_embeddings: [slots of the batch, D] that replace the input embeddings of the concept tokens, or None.

        Returns:
            Of the pages' EOS [B, D], and over the concept suffixes [B, C, D] (zeros where a row has none).
        """


class SharedPrefix:
    """One sequence per page: the prefix once, then the page suffix, then the concept suffix."""

    def states(
        self,
        backbone: Backbone,
        batch: TrainingBatch,
        images: Sequence[torch.Tensor],
        slot_embeddings: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :class:`Passes`."""
        concept_index = _concept_index(batch)
        embeddings = _input_embeddings(backbone, batch.joint_ids, images)
        if slot_embeddings is not None and len(slot_embeddings):
            rows, columns = batch.slots.nonzero(as_tuple=True)
            places = (rows, concept_index[rows, columns])
            embeddings = embeddings.index_put(places, slot_embeddings.to(embeddings.dtype))
        # Without any concept plain causal attention will do, for which there are faster kernels.
        mask = tree_mask(batch.segments) if concept_index.shape[1] else None
        hidden = backbone.hidden_states(embeddings, joint_positions(backbone, batch), mask)
        page = last_state(hidden, batch.prefix_lengths + batch.suffix_lengths)
        concept = hidden.gather(1, concept_index[..., None].expand(-1, -1, hidden.shape[-1]))
        return page, concept.masked_fill(_beyond(batch)[..., None], 0)


class SeparatePasses:
    """A pass for the pages and another for the concepts; both may use the images computed once.

    A batch without any concept skips the second pass: not for FSDP or ZeRO-3, where processes must run alike.
    """

    def states(
        self,
        backbone: Backbone,
        batch: TrainingBatch,
        images: Sequence[torch.Tensor],
        slot_embeddings: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :class:`Passes`."""
        page = self.page_states(backbone, batch, images)
        if not batch.slots.shape[1]:
            return page, page.new_zeros(len(batch), 0, page.shape[-1])
        return page, self.concept_states(backbone, batch, images, slot_embeddings)

    def page_states(self, backbone: Backbone, batch: TrainingBatch, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """States of the pages' EOS [B, D]."""
        lengths = batch.prefix_lengths + batch.suffix_lengths
        width = int(lengths.max())
        embeddings = _input_embeddings(backbone, batch.joint_ids[:, :width], images)
        positions = joint_positions(backbone, batch)[..., :width]
        return last_state(backbone.hidden_states(embeddings, positions, None), lengths)

    def concept_states(
        self,
        backbone: Backbone,
        batch: TrainingBatch,
        images: Sequence[torch.Tensor],
        slot_embeddings: torch.Tensor | None,
    ) -> torch.Tensor:
        """States over the concept suffixes [B, C, D]."""
        # The rows without their page suffix; what then lies beyond the end repeats the row's last token.
        width = int((batch.prefix_lengths + batch.concept_lengths).max())
        taken = torch.arange(width, device=batch.joint_ids.device).expand(len(batch), -1)
        taken = taken + batch.suffix_lengths[:, None] * (taken >= batch.prefix_lengths[:, None])
        taken = taken.clamp(max=batch.joint_ids.shape[1] - 1)
        embeddings = _input_embeddings(backbone, batch.joint_ids.gather(1, taken), images)
        columns = _concept_index(batch) - batch.suffix_lengths[:, None]
        if slot_embeddings is not None and len(slot_embeddings):
            rows, slots = batch.slots.nonzero(as_tuple=True)
            embeddings = embeddings.index_put((rows, columns[rows, slots]), slot_embeddings.to(embeddings.dtype))
        positions = joint_positions(backbone, batch).gather(2, taken.expand(backbone.position_axes, -1, -1))
        hidden = backbone.hidden_states(embeddings, positions, None)
        columns = columns.clamp(min=0, max=width - 1)
        concept = hidden.gather(1, columns[..., None].expand(-1, -1, hidden.shape[-1]))
        return concept.masked_fill(_beyond(batch)[..., None], 0)


def embed_images(backbone: Backbone, pixels: torch.Tensor, grids: Sequence[TokenGrid]) -> list[torch.Tensor]:
    """The vision tower over all pages at once; for each page its visual tokens [len(grid), D]."""
    return list(backbone.embed_images(pixels, grids).split([len(grid) for grid in grids]))


def embed_texts(backbone: Backbone, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Texts to embeddings: the state of the last token.

    Args:
        ids: [B, Q], padded on the right.
        lengths: [B]. A row of length 0 gets the state of its first padding, for callers that do not look at it.

    Returns:
        [B, D] float32, L2-normalised.
    """
    if ids.shape[1] == 0:
        return torch.zeros(len(ids), backbone.hidden_size, device=ids.device)
    positions = torch.arange(ids.shape[1], device=ids.device).expand(backbone.position_axes, *ids.shape)
    hidden = backbone.hidden_states(backbone.embed_tokens(ids), positions, None)
    return l2_normalise(last_state(hidden, lengths.clamp(min=1)))


def embed_queries(backbone: Backbone, queries: Sequence[Sequence[int]]) -> torch.Tensor:
    """Queries, as lists of token ids, to [B, D] float32, L2-normalised."""
    # Padding is never looked at: any id will do that is no image's.
    ids, lengths = pad(queries, queries[0][-1])
    device = _device(backbone)
    return embed_texts(backbone, ids.to(device), lengths.to(device))


def embed_pages(backbone: Backbone, pages: Sequence[PageInput]) -> torch.Tensor:
    """Pages to [B, D] float32, L2-normalised: the page sequence alone, as at inference."""
    device = _device(backbone)
    grids = [page.grid for page in pages]
    images = embed_images(backbone, torch.cat([page.pixels for page in pages]).to(device), grids)
    suffix = backbone.inputs.page_suffix_ids()
    prefixes = [backbone.inputs.prefix_ids(grid) for grid in grids]
    ids, lengths = pad([[*prefix, *suffix] for prefix in prefixes], suffix[-1])
    positions = _empty_positions(backbone, ids)
    for row, (prefix, grid) in enumerate(zip(prefixes, grids, strict=True)):
        _fill_positions(backbone, positions[:, row], prefix, grid, (len(suffix),))
    embeddings = _input_embeddings(backbone, ids.to(device), images)
    hidden = backbone.hidden_states(embeddings, positions.to(device), None)
    return l2_normalise(last_state(hidden, lengths.to(device)))


def tree_mask(segments: torch.Tensor) -> torch.Tensor:
    """Who may see whom in rows with two endings.

    Args:
        segments: [B, L].

    Returns:
        [B, 1, L, L], True where a token may see another: causal, but no concept suffix sees the page suffix before it.
    """
    length = segments.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    hidden = (segments == CONCEPT_SUFFIX)[:, :, None] & (segments == PAGE_SUFFIX)[:, None, :]
    return (causal & ~hidden)[:, None]


def joint_positions(backbone: Backbone, batch: TrainingBatch) -> torch.Tensor:
    """[axes, B, L]: both endings count on from the prefix, as if the other was not there."""
    # On the CPU, where the ids can be read without waiting for an accelerator once per row.
    ids, lengths = batch.joint_ids.cpu(), torch.stack((batch.prefix_lengths, batch.suffix_lengths)).cpu().tolist()
    concepts = batch.concept_lengths.cpu().tolist()
    positions = _empty_positions(backbone, ids)
    for row, grid in enumerate(batch.grids):
        prefix = ids[row, : lengths[0][row]].tolist()
        _fill_positions(backbone, positions[:, row], prefix, grid, (lengths[1][row], concepts[row]))
    return positions.to(batch.joint_ids.device)


def _fill_positions(
    backbone: Backbone, target: torch.Tensor, prefix: Sequence[int], grid: TokenGrid, endings: Sequence[int]
) -> None:
    """Write the positions of one row [axes, L]: the prefix, then endings of these lengths, all beginning alike."""
    start = len(prefix)
    target[:, :start], following = backbone.prefix_positions(prefix, grid)
    for length in endings:
        target[:, start : start + length] = torch.arange(following, following + length)
        start += length


def _empty_positions(backbone: Backbone, ids: torch.Tensor) -> torch.Tensor:
    return torch.zeros(backbone.position_axes, *ids.shape, dtype=torch.long)


def _input_embeddings(backbone: Backbone, ids: torch.Tensor, images: Sequence[torch.Tensor]) -> torch.Tensor:
    """Embedded tokens [B, L, D] with the visual tokens in their places."""
    embeddings = backbone.embed_tokens(ids)
    mask = backbone.image_mask(ids)
    features = torch.cat(list(images)).to(embeddings.dtype)
    return embeddings.masked_scatter(mask[..., None], features)


def _concept_index(batch: TrainingBatch) -> torch.Tensor:
    """[B, C]: where in its row each token of the concept suffix stands; within the row beyond the suffix' end too."""
    width = batch.slots.shape[1]
    start = (batch.prefix_lengths + batch.suffix_lengths)[:, None]
    index = start + torch.arange(width, device=start.device)
    return index.clamp(max=batch.joint_ids.shape[1] - 1)


def _beyond(batch: TrainingBatch) -> torch.Tensor:
    """[B, C]: True beyond the end of a row's concept suffix."""
    columns = torch.arange(batch.slots.shape[1], device=batch.slots.device)
    return columns >= batch.concept_lengths[:, None]


def _device(backbone: Backbone) -> torch.device:
    return next(backbone.model.parameters()).device
