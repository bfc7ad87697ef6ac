"""Gaussian mixture: split the late-interaction scores into two groups and read the higher one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from visar.late_interaction import PackedPages
from visar.selection import Selection
from visar.selectors.ranking import Cutoff, cutoff_without_contrast, late_interaction_selection, min_max


def higher_component(scores: np.ndarray) -> Cutoff:
    """Cut below the lowest page of the component with the higher mean (the idea of ViDoRAG, arXiv 2502.18017).

    Two Gaussians are fitted to the scores, min-max normalised so that their scale does not matter. Where one Gaussian
    is much wider than the other it also claims pages on the far side of it. Hence two clarifications: only pages
    above the lower mean count as the higher component's, and a page ranked above one of them is read too.
    The best page is always read. Two pages give nothing to fit: one is read.

    Args:
        scores: [N] in descending order.
    """
    undecided = cutoff_without_contrast(scores)
    if undecided is not None:
        return undecided
    if len(scores) < 3:
        return Cutoff(1, "too_few_pages")
    # scikit-learn takes over a second to import, which runs without this selector should not pay.
    from sklearn.mixture import GaussianMixture as Mixture

    points = min_max(scores)[:, None]
    fitted = Mixture(n_components=2, random_state=0).fit(points)
    means = fitted.means_[:, 0]
    higher = (fitted.predict(points) == np.argmax(means)) & (points[:, 0] > means.min())
    higher[0] = True  # the fit does not promise that the higher component claims any page
    return Cutoff(1 + int(np.flatnonzero(higher)[-1]), "higher_component")


@dataclass(frozen=True)
class GaussianMixture:
    """Reads the pages of the higher of two Gaussian components of the score. Not in the ViSAR paper."""

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        """Choose pages as :class:`~visar.selectors.protocol.PageSelector` describes."""
        return late_interaction_selection(query, pages, lambda ranking: higher_component(ranking.scores))
