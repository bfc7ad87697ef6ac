"""The late-interaction ranking, and how a rule that cuts it becomes a selection. Each selector adds only its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from visar.late_interaction import PackedPages, as_unit_vectors, late_interaction_scores, rank_pages
from visar.selection import Selection
from visar.stopwatch import Stopwatch

# Scores are float32 sums of cosines: those of equal pages may differ by rounding, at most by about this share.
ROUNDING = 1e-6


@dataclass(frozen=True)
class Ranking:
    """What a rule sees.

    Attributes:
        order: 0-based page numbers of the document, best first; pages left out for broken embeddings are not in it.
        scores: [len(order)] float64, late-interaction scores in that order, descending.
    """

    order: list[int]
    scores: np.ndarray


@dataclass(frozen=True)
class Cutoff:
    """What a rule answers.

    Attributes:
        k: Number of pages to read from the top of the ranking, 1 <= k <= number of ranked pages.
        reason: Short name of the rule that decided.
        warnings: What the caller should know, one sentence each.
    """

    k: int
    reason: str
    warnings: tuple[str, ...] = ()


def min_max(scores: np.ndarray) -> np.ndarray:
    """Bring scores [N] to 0 .. 1 over the pages. They must not all be equal (see :func:`cutoff_without_contrast`)."""
    lowest, highest = scores.min(), scores.max()
    return (scores - lowest) / (highest - lowest)


def are_alike(scores: np.ndarray) -> bool:
    """Whether scores [N] differ by rounding at most."""
    return bool(np.ptp(scores) <= ROUNDING * np.abs(scores).max())


def cutoff_without_contrast(scores: np.ndarray) -> Cutoff | None:
    """The answer where scores [N] cannot tell pages apart, or None where a rule can be applied.

    One page is read as it is. Equal scores (up to rounding) give no ground to read more than one page.
    """
    if len(scores) == 1:
        return Cutoff(1, "one_page")
    if are_alike(scores):
        return Cutoff(1, "pages_alike", ("all pages match the question alike, so the ranking is arbitrary",))
    return None


def late_interaction_selection(
    query: torch.Tensor, pages: PackedPages, choose_k: Callable[[Ranking], Cutoff]
) -> Selection:
    """Rank by late interaction (Eq. 1), let ``choose_k`` cut the ranking, and time both.

    Args:
        query: [m, D] token embeddings of the question; rows are brought to length 1 here.
        pages: The document's pages, packed.
        choose_k: The rule.

    Raises:
        EmbeddingError: ``query`` is malformed or does not fit ``pages``.
    """
    watch = Stopwatch(pages.vectors.device)
    packed_scores = late_interaction_scores(as_unit_vectors(query, "query"), pages).cpu()
    # Equal pages differ by rounding only: page order, not chance.
    alike = are_alike(packed_scores.double().numpy())
    by_rank = list(range(len(packed_scores))) if alike else rank_pages(packed_scores)
    ranking = Ranking([pages.numbers[index] for index in by_rank], packed_scores[by_rank].double().numpy())
    watch.lap("late_interaction")
    cutoff = choose_k(ranking)
    watch.lap("choose_k")
    scores = pages.by_page_number(packed_scores)
    return Selection(
        order=ranking.order,
        scores=scores,
        k=cutoff.k,
        reason=cutoff.reason,
        late_interaction=scores,
        warnings=cutoff.warnings + pages.left_out_warnings,
        seconds=watch.seconds,
    )
