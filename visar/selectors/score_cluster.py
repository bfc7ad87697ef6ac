"""Score-Cluster: cluster the ranked scores and cut at the widest border between clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from visar.late_interaction import PackedPages
from visar.selection import Selection
from visar.selectors.ranking import Cutoff, cutoff_without_contrast, late_interaction_selection, min_max


def best_labelling(distance: np.ndarray) -> np.ndarray | None:
    """HDBSCAN labels [N] of best silhouette over all minimum cluster sizes, or None where it never finds clusters.

    Points are (distance, rank) with ranks 1 .. N. The sizes 2 .. N - 1 are meant; those above N / 2 are not tried,
    since two clusters of such a size do not fit into N points and HDBSCAN then calls every point noise. Noise (label
    -1) is treated as one more group, in the silhouette too: leaving it out would favour labellings that keep two tight
    clusters and give up all the rest. The smallest size wins among equals.

    Args:
        distance: [N] min-max normalised distances to the question, ascending.
    """
    # scikit-learn takes over a second to import, which runs without this selector should not pay.
    from scipy.spatial.distance import pdist, squareform
    from sklearn.cluster import HDBSCAN
    from sklearn.metrics import silhouette_score

    points = np.column_stack([distance, np.arange(1, len(distance) + 1)])
    between_points = squareform(pdist(points))
    best, best_silhouette = None, -np.inf
    for size in range(2, len(points) // 2 + 1):
        labels = HDBSCAN(min_cluster_size=size, copy=True).fit_predict(points)
        if np.all(labels == labels[0]):
            continue
        silhouette = silhouette_score(between_points, labels, metric="precomputed")
        if silhouette > best_silhouette:
            best, best_silhouette = labels, silhouette
    return best


def score_cluster(scores: np.ndarray, *, rank_penalty: bool) -> Cutoff:
    """Cut at the cluster border with the largest jump in distance; the first of equal jumps wins.

    From "Cluster-based Adaptive Retrieval" (arXiv 2511.14769), as the ViSAR paper adapts it. A border lies between two
    consecutive pages of different labels. Without any clusters (always so for N <= 3), every pair of consecutive pages
    counts as a border and no rank is added, which is the Largest-Gap rule.

    Args:
        scores: [N] in descending order.
        rank_penalty: Add rank / N to each jump, which puts early cuts at a disadvantage: the original form. The ViSAR
            authors left it out because it gave too many pages.
    """
    undecided = cutoff_without_contrast(scores)
    if undecided is not None:
        return undecided
    distance = 1 - min_max(scores)
    jump = np.diff(distance)
    labels = best_labelling(distance)
    if labels is None:
        return Cutoff(1 + int(np.argmax(jump)), "no_clusters")
    border = np.flatnonzero(labels[1:] != labels[:-1])
    height = jump[border]
    if rank_penalty:
        height = height + (border + 1) / len(scores)
    return Cutoff(1 + int(border[np.argmax(height)]), "cluster_border")


@dataclass(frozen=True)
class ScoreCluster:
    """Reads the pages before the widest border between clusters of late-interaction scores.

    Attributes:
        rank_penalty: True for the original form, False for the ViSAR authors' one (see :func:`score_cluster`).
    """

    rank_penalty: bool

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        """Choose pages as :class:`~visar.selectors.protocol.PageSelector` describes."""
        return late_interaction_selection(
            query, pages, lambda ranking: score_cluster(ranking.scores, rank_penalty=self.rank_penalty)
        )
