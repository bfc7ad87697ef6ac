"""Score threshold: read every page whose normalised late-interaction score is high enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from visar.errors import VisarError
from visar.late_interaction import PackedPages
from visar.selection import Selection
from visar.selectors.ranking import Cutoff, cutoff_without_contrast, late_interaction_selection, min_max


def above_threshold(scores: np.ndarray, *, threshold: float) -> Cutoff:
    """Number of pages whose score, min-max normalised over the document's pages, reaches ``threshold``.

    Args:
        scores: [N] in descending order.
        threshold: 0 .. 1. The best page has 1 and is always read; 0 reads all pages.
    """
    undecided = cutoff_without_contrast(scores)
    if undecided is not None:
        return undecided
    return Cutoff(int(np.count_nonzero(min_max(scores) >= threshold)), "score_threshold")


@dataclass(frozen=True)
class ScoreThreshold:
    """Reads the pages that reach a share of the span between the worst and the best score. Not in the ViSAR paper.

    Attributes:
        threshold: That share, 0 .. 1.
    """

    threshold: float

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise VisarError(f"ScoreThreshold: threshold is {self.threshold}; expected a number from 0 to 1")

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        """Choose pages as :class:`~visar.selectors.protocol.PageSelector` describes."""
        return late_interaction_selection(
            query, pages, lambda ranking: above_threshold(ranking.scores, threshold=self.threshold)
        )
