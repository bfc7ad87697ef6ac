"""Trains and evaluates single-vector page retrievers guided by evidence boxes (ConceptFormer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conceptformer import regions
from conceptformer.losses import concept_kl, info_nce, query_concept_matching, ranking_distribution
from visar import __version__

if TYPE_CHECKING:
    from conceptformer.retriever import ConceptFormer

__all__ = [
    "ConceptFormer",
    "__version__",
    "concept_kl",
    "info_nce",
    "query_concept_matching",
    "ranking_distribution",
    "regions",
]


def __getattr__(name: str) -> Any:
    """The retriever loads transformers, which the formulas do not need."""
    if name == "ConceptFormer":
        from conceptformer.retriever import ConceptFormer

        return ConceptFormer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
