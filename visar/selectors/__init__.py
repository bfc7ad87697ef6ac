"""Page selectors: each ranks a document's pages for a question and decides how many to read."""

from visar.selectors.fixed import FixedK
from visar.selectors.gaussian_mixture import GaussianMixture
from visar.selectors.largest_gap import LargestGap
from visar.selectors.oracle import Oracle
from visar.selectors.protocol import PageSelector
from visar.selectors.score_cluster import ScoreCluster
from visar.selectors.score_threshold import ScoreThreshold
from visar.selectors.visar import Visar

__all__ = [
    "FixedK",
    "GaussianMixture",
    "LargestGap",
    "Oracle",
    "PageSelector",
    "ScoreCluster",
    "ScoreThreshold",
    "Visar",
]
