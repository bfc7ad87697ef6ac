"""Fixed top-k of the late-interaction ranking: what adaptive selectors are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from visar.errors import VisarError
from visar.late_interaction import PackedPages
from visar.selection import Selection
from visar.selectors.ranking import Cutoff, late_interaction_selection


def fixed_k(page_count: int, k: int) -> Cutoff:
    """The first ``k`` pages, or all where the document has fewer."""
    if page_count < k:
        return Cutoff(page_count, "document_shorter_than_k")
    return Cutoff(k, "fixed_k")


@dataclass(frozen=True)
class FixedK:
    """Late interaction with a fixed number of pages (Eq. 1; ColPali, M3DocRAG).

    Attributes:
        k: Pages to read, at least 1.
    """

    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise VisarError(f"FixedK: k is {self.k!r}; expected a whole number of at least 1")

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        """Choose pages as :class:`~visar.selectors.protocol.PageSelector` describes."""
        return late_interaction_selection(query, pages, lambda ranking: fixed_k(len(ranking.order), self.k))
