"""Exact search: the pages with the highest inner products, in an order that only the vectors and the corpus decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from conceptformer.errors import DataError

# Scores held at once: 32 MB in float64, and as much again for the keys that are sorted.
_SCORES_AT_ONCE = 1 << 22
_LOW_BITS = (1 << 32) - 1
_ALL_BUT_SIGN = 0x7FFFFFFF


class PageBlock(NamedTuple):
    """Part of a corpus: ids, and vectors [len(page_ids), D] float32."""

    page_ids: Sequence[str]
    vectors: np.ndarray


@dataclass(frozen=True)
class Ranking:
    """Pages found for one query, best first.

    Attributes:
        page_ids: Distinct.
        scores: Inner products, one for each page; never increasing.
    """

    page_ids: tuple[str, ...]
    scores: tuple[float, ...]


def search(
    query_ids: Sequence[str], query_vectors: np.ndarray, blocks: Iterable[PageBlock], *, depth: int
) -> list[Ranking]:
    """The ``depth`` best pages of each query.

    Inner products are summed in float64 and rounded to float32, so that neither the size of the blocks nor the
    machine's kernels decide between close pages, and equal vectors have equal scores. Pages of equal score stand in
    corpus order. One block and a bounded number of scores are in memory at a time.

    Args:
        query_ids: Names of the queries, for messages.
        query_vectors: [len(query_ids), D] float32.
        blocks: The corpus, part after part.

    Returns:
        One ranking for each query, shorter than ``depth`` only where the corpus is.

    Raises:
        DataError: Vectors hold NaN or Inf, do not fit together or are so long that their products overflow; there is
            no page; ``depth`` is below 1.
    """
    if depth < 1:
        raise DataError(f"search: depth is {depth}; expected a whole number of at least 1")
    queries = checked_vectors(query_vectors, query_ids, "query")
    page_ids: list[str] = []
    best = torch.empty(len(queries), 0, dtype=torch.int64)
    for block in blocks:
        pages = checked_vectors(block.vectors, block.page_ids, "page")
        if pages.shape[1] != queries.shape[1]:
            raise DataError(
                f"page '{block.page_ids[0]}': its vector has {pages.shape[1]} dimensions and those of the queries have "
                f"{queries.shape[1]}; encode both with one retriever"
            )
        best = _with_pages(best, queries.double(), pages, first=len(page_ids), depth=depth)
        page_ids += block.page_ids
    if not page_ids:
        raise DataError("search: the corpus has no page; expected at least one")
    scores, positions = _read_keys(best)
    return [
        Ranking(tuple(page_ids[position] for position in row), tuple(values))
        for row, values in zip(positions.tolist(), scores.tolist(), strict=True)
    ]


def checked_vectors(vectors: np.ndarray, ids: Sequence[str], kind: str) -> torch.Tensor:
    """Vectors as a float32 tensor [len(ids), D].

    Args:
        kind: What the ids name, for messages.

    Raises:
        DataError: Another shape, or NaN or Inf in a vector.
    """
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(ids) or vectors.shape[1] == 0:
        raise DataError(f"{kind} vectors: expected shape [{len(ids)}, D], got {list(vectors.shape)}")
    broken = ~np.isfinite(vectors).all(axis=1)
    if broken.any():
        first = ids[int(broken.argmax())]
        raise DataError(
            f"{kind} '{first}': its vector holds NaN or Inf, as do {int(broken.sum()) - 1} others of {len(ids)}; "
            "the weights are damaged or too large for the retriever's precision"
        )
    return torch.from_numpy(vectors)


def _with_pages(
    best: torch.Tensor, queries: torch.Tensor, pages: torch.Tensor, *, first: int, depth: int
) -> torch.Tensor:
    """The keys of the ``depth`` best pages so far, [Q, depth] in falling order, after looking at further pages."""
    for part in pages.split(max(1, _SCORES_AT_ONCE // max(1, len(queries)))):
        scores = (queries @ part.double().T).float()
        if not torch.isfinite(scores).all():
            raise DataError("search: inner products are too large for float32; expected vectors of length 1")
        keys = torch.cat([best, _keys(scores, first)], dim=1)
        best = keys.topk(min(depth, keys.shape[1]), dim=1).values
        first += len(part)
    return best


def _keys(scores: torch.Tensor, first: int) -> torch.Tensor:
    """Whole numbers [Q, n] in the order of the scores and, where these are equal, of falling position in the corpus.

    ``topk`` leaves the order of equal values open; no two of these are equal.
    """
    # Adding 0 makes -0 and 0 one number.
    bits = (scores + 0.0).view(torch.int32)
    # The bits of a float count up with its size; for negative ones, whose sign bit is set, they must count down.
    ordered = bits ^ ((bits >> 31) & _ALL_BUT_SIGN)
    positions = torch.arange(first, first + scores.shape[1])
    return (ordered.long() << 32) + (_LOW_BITS - positions)


def _read_keys(keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores and positions [Q, n] out of keys."""
    ordered = (keys >> 32).int()
    scores = (ordered ^ ((ordered >> 31) & _ALL_BUT_SIGN)).view(torch.float32)
    return scores, _LOW_BITS - (keys & _LOW_BITS)
