"""Largest-Gap: cut the late-interaction ranking where the score falls most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from visar.late_interaction import PackedPages
from visar.selection import Selection
from visar.selectors.ranking import Cutoff, cutoff_without_contrast, late_interaction_selection


def largest_gap(scores: np.ndarray) -> Cutoff:
    """k* = 1 + argmax of the gaps between consecutive scores; the first of equal gaps wins.

    From "No Tuning, No Iteration, Just Adaptive-k" (EMNLP 2025), as the ViSAR paper adapts it.

    Args:
        scores: [N] in descending order.
    """
    undecided = cutoff_without_contrast(scores)
    if undecided is not None:
        return undecided
    return Cutoff(1 + int(np.argmax(scores[:-1] - scores[1:])), "largest_gap")


@dataclass(frozen=True)
class LargestGap:
    """Reads the pages before the largest fall of the late-interaction score. At most N - 1 of N pages."""

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        """Choose pages as :class:`~visar.selectors.protocol.PageSelector` describes."""
        return late_interaction_selection(query, pages, lambda ranking: largest_gap(ranking.scores))
