"""Query-conditioned similarity of pages (ViSAR, Eq. 10 and 11), exact, without the dense product.

Three facts make it cheap and change nothing:

1. Weights are >= 0, so with x_j = w_j v_j Eq. 10 is S_j(p -> p') = max_j' <x_j, x_j'>. One product of weighted
   patches serves both directions, and patches of weight 0 (about 3 in 4) only ever give 0: they are left out.
2. |<x_j, x_j'>| <= w_j w_j'. Once T patches of a page are known to reach at least t on a target page, a patch with
   w_j max w' <= t cannot enter the mean over the T largest, and a target patch with w_j w_j' <= t cannot be the best
   match of one that does. With the patches of a page sorted by weight, what remains is a corner of the product.
3. Products are made tile by tile, small enough that both maxima are taken while the tile is in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from visar.late_interaction import PackedPages
from visar.weights import min_max

DEFAULT_BLOCK_SIZE = 1536
"""Rows and columns of a tile, 9 MB in float32: the best of 512 to 3,072 on two cores with 1.25 MB of L2 each."""


@dataclass(frozen=True)
class ActivePages:
    """Pages with at least one patch of positive weight, their active patches sorted by falling weight.

    Attributes:
        pages: Packed numbers of the A active pages.
        patches: A matrices [a_p, D] of weighted patches w_j v_j.
        weights: A vectors [a_p], falling.
        averaged: How many patches Eq. 11 averages over on each page: T, or n_p where the page has fewer.
    """

    pages: tuple[int, ...]
    patches: tuple[torch.Tensor, ...]
    weights: tuple[torch.Tensor, ...]
    averaged: tuple[int, ...]


def active_pages(
    pages: PackedPages,
    weight: torch.Tensor,
    *,
    top_patches: int,
    patches_per_page: int | None = None,
    max_pages: int | None = None,
) -> ActivePages:
    """Collect what can contribute to Eq. 10.

    Args:
        weight: [sum n_p] normalised patch weights in [0, 1].
        top_patches: T of Eq. 11.
        patches_per_page: Keep only the heaviest patches of each page (j of the approximation).
        max_pages: Keep only the pages with the heaviest patch (p of the approximation).
    """
    peaks = torch.stack([weight[s:e].amax() for s, e in zip(pages.starts, pages.starts[1:])])  # noqa: B905
    chosen = (peaks > 0).nonzero().flatten()
    if max_pages is not None and len(chosen) > max_pages:
        heaviest = peaks[chosen].argsort(descending=True, stable=True)[:max_pages]
        chosen = chosen[heaviest].sort().values
    numbers = chosen.tolist()
    patches, weights, averaged = [], [], []
    for number in numbers:
        start, end = pages.starts[number], pages.starts[number + 1]
        sorted_weight, rows = weight[start:end].sort(descending=True)
        count = int((sorted_weight > 0).sum())
        if patches_per_page is not None:
            count = min(count, patches_per_page)
        patches.append(pages.vectors[start + rows[:count]] * sorted_weight[:count, None])
        weights.append(sorted_weight[:count])
        averaged.append(min(top_patches, end - start))
    return ActivePages(tuple(numbers), tuple(patches), tuple(weights), tuple(averaged))


def page_similarity(
    active: ActivePages, page_count: int, *, top_patches: int, block_size: int = DEFAULT_BLOCK_SIZE
) -> torch.Tensor:
    """Sim(p, p') of Eq. 11, min-max normalised over the whole matrix.

    Args:
        page_count: N; inactive pages have zero rows and columns.
        top_patches: T.
        block_size: Rows and columns of the largest product in memory. A page with more active patches is not split.

    Returns:
        [N, N], in general not symmetric.
    """
    raw = active_similarity(active, top_patches=top_patches, block_size=block_size)
    similarity = raw.new_zeros(page_count, page_count)
    index = torch.tensor(active.pages, device=raw.device)
    similarity[index[:, None], index[None, :]] = raw
    return min_max(similarity)


def active_similarity(active: ActivePages, *, top_patches: int, block_size: int = DEFAULT_BLOCK_SIZE) -> torch.Tensor:
    """Eq. 10 and 11 on the active pages, before normalisation. Returns [A, A].

    A best match below zero counts as zero, as it does on every page that has a patch of weight 0.
    """
    # Pages of one group are padded to its largest: sorted by size, they waste little.
    order = sorted(range(len(active.pages)), key=lambda position: -len(active.weights[position]))
    by_size = ActivePages(*(tuple(field[position] for position in order) for field in vars(active).values()))
    groups = _groups([len(weights) for weights in by_size.weights], block_size)
    needed = _needed(by_size, top_patches, block_size)
    starts = [group.start for group in groups]
    extent = np.maximum.reduceat(np.maximum.reduceat(needed, starts, axis=0), starts, axis=1).tolist()
    stacks = [_stack(by_size.patches[group]) for group in groups]
    sums = by_size.patches[0].new_zeros(len(order), len(order))
    for first, sources in enumerate(groups):
        for second in range(first, len(groups)):
            targets = groups[second]
            left, right = stacks[first][:, : extent[first][second]], stacks[second][:, : extent[second][first]]
            product = left.flatten(0, 1) @ right.flatten(0, 1).T
            product = product.view(*left.shape[:2], *right.shape[:2])
            sums[sources, targets] = _sum_of_largest(product.amax(dim=3).transpose(1, 2), top_patches)
            if first != second:
                sums[targets, sources] = _sum_of_largest(product.amax(dim=1), top_patches).T
    averaged = torch.tensor(by_size.averaged, device=sums.device, dtype=sums.dtype)
    back = torch.tensor(order, device=sums.device).argsort()
    return (sums / averaged[:, None]).sqrt()[back][:, back]


def _groups(sizes: list[int], block_size: int) -> list[slice]:
    """Cut pages, largest first, into runs whose padded patches fill at most ``block_size`` rows."""
    groups: list[slice] = []
    start = 0
    while start < len(sizes):
        end = min(len(sizes), start + max(1, block_size // sizes[start]))
        groups.append(slice(start, end))
        start = end
    return groups


def _stack(matrices: Sequence[torch.Tensor]) -> torch.Tensor:
    """[a_p, D] matrices as one [G, max a_p, D]; rows of zeros at the end stand for patches of weight 0."""
    return torch.nn.utils.rnn.pad_sequence(list(matrices), batch_first=True)


def _sum_of_largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """Sum of the ``count`` largest of the last dimension, negative ones as zero: [A, B, L] -> [A, B]."""
    if values.shape[-1] > count:
        values = values.topk(count, dim=-1, sorted=False).values
    return values.clamp_min(0).sum(dim=-1)


def _needed(active: ActivePages, top_patches: int, block_size: int) -> np.ndarray:
    """How many patches, heaviest first, of page p can matter to p -> p' or p' -> p: [A, A] integers.

    The T heaviest patches of every page against those of every other page give lower bounds of their best matches.
    The least of them is a bound t below the T-th largest, and the least of bound / w_j is the weight below which a
    target patch can neither improve one of these T nor lift another patch of the page above t. A page with fewer than T
    active patches keeps them all, since t does not exceed the bound of any of them.
    """
    heads = _stack([patches[:top_patches] for patches in active.patches])
    head_weights = _stack([weights[:top_patches] for weights in active.weights])
    count, width, _ = heads.shape
    threshold = heads.new_empty(count, count)
    ratio = heads.new_empty(count, count)
    step = max(1, block_size // width)
    blocks = [slice(start, start + step) for start in range(0, count, step)]
    for first, sources in enumerate(blocks):
        for targets in blocks[first:]:
            product = heads[sources].flatten(0, 1) @ heads[targets].flatten(0, 1).T
            product = product.view(-1, width, len(heads[targets]), width)
            threshold[sources, targets], ratio[sources, targets] = _bounds(product.amax(dim=3), head_weights[sources])
            if targets != sources:
                backward = product.amax(dim=1).permute(1, 2, 0)
                threshold[targets, sources], ratio[targets, sources] = _bounds(backward, head_weights[targets])
    peaks = torch.stack([weights[0] for weights in active.weights])
    rows = torch.stack([(w[:, None] * peaks > _below(t)).sum(0) for w, t in zip(active.weights, threshold)])  # noqa: B905
    columns = torch.stack([(w[:, None] > _below(r)).sum(0) for w, r in zip(active.weights, ratio.T)]).T  # noqa: B905
    # At least one: products of denormal weights round to nothing, and an empty tile has no maximum.
    return torch.maximum(rows, columns.T).clamp_min(1).cpu().numpy()


def _bounds(best: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Least best match, and least best match over weight, of the heads of A sources on B targets.

    Args:
        best: [A, H, B].
        weights: [A, H]; heads of weight 0 are padding.
    """
    best = best.clamp_min(0)
    # 0 / 0 of a padding row must not become the least ratio.
    relative = (best / weights[:, :, None]).nan_to_num(nan=float("inf"))
    return best.amin(dim=1), relative.amin(dim=1)


def _below(bound: torch.Tensor) -> torch.Tensor:
    """A little less than a bound, so that rounding never cuts what exact arithmetic would keep."""
    return bound * (1 - 1e-5)
