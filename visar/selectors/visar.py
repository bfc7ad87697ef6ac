"""ViSAR as a page selector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from visar.algorithm import VisarSettings, select_pages
from visar.late_interaction import PackedPages
from visar.selection import Selection


@dataclass(frozen=True)
class Visar(VisarSettings):
    """The paper's method, exact or, with ``patches_per_page``, ``max_pages`` and ``search_limit``, approximate."""

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        """Choose pages as :class:`~visar.selectors.protocol.PageSelector` describes."""
        return select_pages(query, pages, **asdict(self))
