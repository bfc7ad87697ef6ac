"""ViSAR from embeddings to chosen pages (Algorithm S1), with a defined outcome for every document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch

from visar import late_interaction, weights
from visar.adaptive_k import choose_k, cost_curve
from visar.errors import VisarError
from visar.late_interaction import PackedPages, Vectors, rank_pages
from visar.selection import Selection
from visar.similarity import DEFAULT_BLOCK_SIZE, active_pages, page_similarity
from visar.stopwatch import Stopwatch

KRange = Literal["active", "authors"]

SPARSITY_LEVEL = 0.01
"""A page whose self-similarity is at most this counts as empty of the query (the authors' measure of sparsity)."""


@dataclass(frozen=True)
class VisarSettings:
    """The method's constants; :func:`select_pages` describes each.

    Raises:
        VisarError: A setting is out of range.
    """

    top_patches: int = 50
    leakage_weight: float = 1e5
    patches_per_page: int | None = None
    max_pages: int | None = None
    search_limit: int | None = None
    k_range: KRange = "active"
    block_size: int = DEFAULT_BLOCK_SIZE

    def __post_init__(self) -> None:
        for name in ("top_patches", "patches_per_page", "max_pages", "search_limit", "block_size"):
            value = getattr(self, name)
            optional = name not in ("top_patches", "block_size")
            if value is None and optional:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise VisarError(f"{name}: expected a whole number of at least 1, got {value!r}")
        if isinstance(self.leakage_weight, (bool, str)) or not 0 < self.leakage_weight < math.inf:
            raise VisarError(f"leakage_weight: expected a finite number above 0, got {self.leakage_weight!r}")
        if self.k_range not in get_args(KRange):
            raise VisarError(f"k_range: expected one of {list(get_args(KRange))}, got {self.k_range!r}")


@dataclass(frozen=True)
class _PageScores:
    """What is known about the pages before k is chosen; all in packed order.

    Attributes:
        late_interaction: [N] Eq. 1.
        similarity: [N, N] Eq. 11 on the CPU, or None where the method does not apply.
        active_pages: Number of pages in the matrix.
        fallback: The rule that replaces the method where ``similarity`` is None.
        warnings: Sentences for the caller.
    """

    late_interaction: torch.Tensor
    similarity: torch.Tensor | None = None
    active_pages: int = 0
    fallback: str = ""
    warnings: tuple[str, ...] = ()


def select_pages(
    query: Vectors,
    pages: Sequence[Vectors] | PackedPages,
    *,
    top_patches: int = 50,
    leakage_weight: float = 1e5,
    patches_per_page: int | None = None,
    max_pages: int | None = None,
    search_limit: int | None = None,
    k_range: KRange = "active",
    block_size: int = DEFAULT_BLOCK_SIZE,
    leave_out_broken: bool = False,
) -> Selection:
    """Choose how many pages of a document a question needs, and which (ViSAR, Algorithm S1).

    Args:
        query: [m, D] token embeddings of the question; torch or numpy, any float type, any device.
        pages: N matrices [n_p, D] of the same width; n_p may differ. Pack them once with :meth:`PackedPages.pack`
            where several questions go to one document.
        top_patches: T of Eq. 11.
        leakage_weight: gamma of Eq. 14.
        patches_per_page: Approximation: heaviest patches kept of each page (the paper's j, 450).
        max_pages: Approximation: pages with the heaviest patch that are kept (the paper's p, 75).
        search_limit: Approximation: largest k (the paper's s, 10).
        k_range: ``"active"`` searches k up to the number of active pages, and up to all pages of a document of three;
            ``"authors"`` stops one page before the active ones and before the last of the document, as the published
            numbers were made.
        block_size: Rows of the largest product in memory.
        leave_out_broken: Leave out pages that hold NaN or Inf, with a warning, instead of raising. Packed pages have
            made this choice already.

    Returns:
        The selection. ``reason`` names the rule that decided k; documents whose pages the method cannot tell apart
        (one or two pages, equal pages) fall back to the late-interaction ranking and say so.

    Raises:
        EmbeddingError: Malformed or non-finite embeddings.
        VisarError: A setting out of range.
    """
    settings = VisarSettings(
        top_patches, leakage_weight, patches_per_page, max_pages, search_limit, k_range, block_size
    )
    if not isinstance(pages, PackedPages):
        pages = PackedPages.pack(pages, leave_out_broken=leave_out_broken)
    unit_query = late_interaction.as_unit_vectors(query, "query")
    late_interaction.check_same_space(unit_query, pages)
    watch = Stopwatch(unit_query.device)
    scores = _score(unit_query, pages, settings, watch)
    if scores.similarity is None:
        k, cost, sparsity = _fallback_k(scores.fallback, settings), torch.zeros(0), None
        ranking, reason = scores.late_interaction, scores.fallback
        if ranking.max() - ranking.min() <= weights.ROUNDING:  # page order, not the chance of rounding
            ranking = ranking.mean().expand(len(pages))
    else:
        ranking = scores.similarity.diagonal()
        sparsity = (ranking <= SPARSITY_LEVEL).double().mean().item()
        k, reason, cost = _adapt(scores, rank_pages(ranking), settings)
    watch.lap("adaptive_k")
    return Selection(
        order=[pages.numbers[index] for index in rank_pages(ranking)],
        scores=pages.by_page_number(ranking),
        k=k,
        reason=reason,
        late_interaction=pages.by_page_number(scores.late_interaction),
        similarity=_by_page_numbers(scores.similarity, pages),
        cost=cost,
        sparsity=sparsity,
        warnings=(*scores.warnings, *pages.left_out_warnings),
        seconds=watch.seconds,
    )


def _score(query: torch.Tensor, pages: PackedPages, settings: VisarSettings, watch: Stopwatch) -> _PageScores:
    """Stages 1 to 3: activations, weights, page similarities."""
    cosine = late_interaction.query_patch_cosine(query, pages)
    activation = late_interaction.activation(cosine, pages.starts)
    known = _PageScores(activation.sum(dim=1))
    watch.lap("late_interaction")
    if len(pages) == 1:
        return replace(known, fallback="one_page", warnings=("there is one page only, so nothing was compared",))
    if len(pages) == 2:
        note = "two pages are too few to compare by their spread: they are ranked by late interaction"
        return replace(known, fallback="two_pages", warnings=(note,))
    informative = weights.informative_tokens(activation)
    dropped = int((~informative).sum())
    if dropped:
        note = f"{dropped} of {len(query)} question tokens match no page and were left out"
        known = replace(known, warnings=(note,))
    if dropped == len(query):
        return replace(known, fallback="no_informative_token")
    scaled = weights.scaled_activation(activation[:, informative])
    if not scaled.any():
        note = "all pages match the question alike, so the ranking is arbitrary"
        return replace(known, fallback="pages_alike", warnings=(*known.warnings, note))
    active = active_pages(
        pages,
        patch_weights(cosine[informative], pages.starts, scaled),
        top_patches=settings.top_patches,
        patches_per_page=settings.patches_per_page,
        max_pages=settings.max_pages,
    )
    watch.lap("weights")
    if not active.pages:
        note = "no patch of any page stands out for the question"
        return replace(known, fallback="no_active_page", warnings=(*known.warnings, note))
    similarity = page_similarity(active, len(pages), top_patches=settings.top_patches, block_size=settings.block_size)
    watch.lap("similarity")
    return replace(known, similarity=similarity.cpu(), active_pages=len(active.pages))


def patch_weights(cosine: torch.Tensor, starts: Sequence[int], scaled: torch.Tensor) -> torch.Tensor:
    """Normalised patch weights [sum n_p] from cosines [m, sum n_p] and scaled activations [N, m] (Eq. 5 to 9)."""
    token_weight = weights.contrast(weights.token_weight(scaled))
    page_weight = weights.contrast(weights.page_weight(scaled), epsilon=0.0)
    gain = weights.token_page_gain(scaled, token_weight, page_weight)
    return weights.min_max(weights.patch_weight(weights.patch_relevance(cosine, starts, gain)))


def _fallback_k(rule: str, settings: VisarSettings) -> int:
    """Two pages cannot be compared by their spread, and reading both costs little; the authors' range ends at one."""
    both = rule == "two_pages" and settings.k_range == "active" and settings.search_limit != 1
    return 2 if both else 1


def _adapt(scores: _PageScores, order: list[int], settings: VisarSettings) -> tuple[int, str, torch.Tensor]:
    """Stage 4: k, the rule that decided it, and J(1) .. J(K)."""
    longest, limit = scores.active_pages, settings.search_limit
    if len(order) == 3 and settings.k_range == "active":
        longest = 3  # of three pages one is never active: its normalised weight is 0
    if limit is not None:
        longest = min(longest, limit + 3)  # the transition rule looks beyond the limit
    if settings.k_range == "authors":
        longest = min(longest, len(order) - 1) - 1
    cost = cost_curve(scores.similarity, order, settings.leakage_weight, max(longest, 1))
    if scores.active_pages == 1 or longest <= 1:
        return 1, "one_active_page" if scores.active_pages == 1 else "no_choice", cost[:1]
    k, extended = choose_k(cost)
    if limit is not None and k > limit:
        return limit, "search_limit", cost
    return k, "sharp_transition" if extended else "least_cost", cost


def _by_page_numbers(similarity: torch.Tensor | None, pages: PackedPages) -> torch.Tensor:
    """[N, N] in packed order as a matrix over the document's pages on the CPU; left-out pages get zeros."""
    if similarity is None:
        return torch.zeros(0, 0)
    placed = torch.zeros(pages.document_length, pages.document_length)
    numbers = torch.tensor(pages.numbers)
    placed[numbers[:, None], numbers[None, :]] = similarity
    return placed
