"""Oracle: the best k that late interaction allows, read off the evidence. An upper bound, never a way to retrieve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from visar.errors import DatasetError, EmbeddingError
from visar.late_interaction import PackedPages
from visar.selection import Selection
from visar.selectors.ranking import Cutoff, late_interaction_selection


def smallest_k_with_all(order: Sequence[int], evidence_pages: Sequence[int]) -> Cutoff:
    """The smallest k whose first k pages of ``order`` hold all evidence pages; 1 where there are none."""
    if len(evidence_pages) == 0:
        return Cutoff(1, "no_evidence")
    rank = {page: rank for rank, page in enumerate(order, start=1)}
    return Cutoff(max(rank[page] for page in evidence_pages), "all_evidence")


def check_evidence(pages: PackedPages, evidence_pages: Sequence[int]) -> None:
    """Raise unless every evidence page can be found.

    Raises:
        DatasetError: A page number outside the document.
        EmbeddingError: A page that was left out for broken embeddings.
    """
    outside = [page for page in evidence_pages if not 0 <= page < pages.document_length]
    if outside:
        raise DatasetError(
            f"Oracle: evidence pages {outside} (0-based) are outside the document of {pages.document_length} pages; "
            "correct the question's evidence pages"
        )
    left_out = sorted(set(evidence_pages) - set(pages.numbers))
    if left_out:
        raise EmbeddingError(
            f"Oracle: evidence pages {left_out} (0-based) were left out because their embeddings hold NaN or Inf, so "
            "no k reaches them; encode them again or leave the question out"
        )


@dataclass(frozen=True)
class Oracle:
    """Reads the smallest top-k of the same encoder's late-interaction ranking that holds all evidence pages."""

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        """Choose pages as :class:`~visar.selectors.protocol.PageSelector` describes.

        Raises:
            DatasetError: An evidence page is outside the document.
            EmbeddingError: An evidence page was left out for broken embeddings.
        """
        check_evidence(pages, evidence_pages)
        return late_interaction_selection(
            query, pages, lambda ranking: smallest_k_with_all(ranking.order, evidence_pages)
        )
