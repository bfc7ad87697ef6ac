"""Rankings by the inner products of vectors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conceptformer.errors import DataError
from conceptformer.records import RetrievalTask
from conceptformer.retrieval.encoding import encode_pages, encode_queries
from conceptformer.retrieval.filling import Encoded, Encoding, OnStage
from conceptformer.retrieval.protocol import Found, PageRetriever
from conceptformer.retrieval.search import search


@dataclass(frozen=True)
class VectorSearch:
    """Encodes queries and page images and searches: a :class:`~conceptformer.retrieval.protocol.PageRanker`."""

    retriever: PageRetriever

    @property
    def name(self) -> str:
        """The retriever's."""
        return self.retriever.name

    def rank(self, task: RetrievalTask, encoding: Encoding, *, depth: int, on_stage: OnStage) -> Found | None:
        """See :meth:`conceptformer.retrieval.protocol.PageRanker.rank`."""
        pages = encode_pages(task.pages, self.retriever, encoding, on_stage("pages"))
        queries = encode_queries(task.queries, self.retriever, encoding, on_stage("queries"))
        return rank_encoded(task, queries, pages, depth=depth) if encoding.place.rank == 0 else None

    def fingerprint(self) -> str:
        """The retriever's."""
        return self.retriever.fingerprint()


def rank_encoded(task: RetrievalTask, queries: Encoded, pages: Encoded, *, depth: int) -> Found:
    """Search with vectors that are complete.

    Raises:
        DataError: No page could be read, or the vectors cannot be searched.
        StoreError: They cannot be read.
    """
    refuse_unreadable(task, pages.left_out)
    blocks = list(queries.vectors.blocks())
    query_ids = [query_id for block in blocks for query_id in block.page_ids]
    vectors = np.concatenate([block.vectors for block in blocks])
    rankings = search(query_ids, vectors, pages.vectors.blocks(), depth=depth)
    return Found(dict(zip(query_ids, rankings, strict=True)), pages.left_out)


def refuse_unreadable(task: RetrievalTask, left_out: Mapping[str, str]) -> None:
    """Stop where there is no page left to search.

    Raises:
        DataError: Every page was left out.
    """
    if len(left_out) == len(task.pages):
        page_id, reason = next(iter(left_out.items()))
        raise DataError(
            f"{task.name}: none of its {len(task.pages)} pages could be read; the first, '{page_id}': {reason}"
        )
