"""What every page selector offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch

from visar.late_interaction import PackedPages
from visar.selection import Selection


@runtime_checkable
class PageSelector(Protocol):
    """Ranks the pages of one document for one question and decides how many to read."""

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        """Choose pages.

        Args:
            query: [m, D] token embeddings of the question.
            pages: The document's pages, packed.
            evidence_pages: 0-based evidence pages. Only :class:`~visar.selectors.Oracle` looks at them.
        """
        ...
