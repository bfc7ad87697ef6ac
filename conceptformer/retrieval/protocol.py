"""What the evaluation needs of a retriever: vectors of queries and pages, or rankings that it makes in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from PIL import Image

from conceptformer.records import RetrievalTask
from conceptformer.retrieval.filling import Encoding, OnStage
from conceptformer.retrieval.search import Ranking


class PageRetriever(Protocol):
    """Queries and pages as points of one space: the higher their inner product, the better they match.

    Attributes:
        name: How tables and run files call it.
    """

    name: str

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Vectors [len(queries), D] float32 of query texts, taken byte for byte as they are."""

    def encode_pages(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Vectors [len(images), D] float32 of RGB page images.

        Raises:
            DataError: An image cannot be a page, e.g. because of its shape.
        """

    def fingerprint(self) -> str:
        """Changes with everything that changes a vector: weights, prompts, pixel budget, precision, code version."""


@dataclass(frozen=True)
class Found:
    """What was found for the queries of a task.

    Attributes:
        rankings: By query id; one for each query.
        left_out: Why a page could not be searched, by page id.
    """

    rankings: Mapping[str, Ranking]
    left_out: Mapping[str, str]


@runtime_checkable
class PageRanker(Protocol):
    """Finds pages in whatever way, e.g. by the words on them.

    Attributes:
        name: How tables and run files call it.
    """

    name: str

    def rank(self, task: RetrievalTask, encoding: Encoding, *, depth: int, on_stage: OnStage) -> Found | None:
        """The best pages for each query.

        Args:
            task: Checked by :func:`~conceptformer.retrieval.evaluation.check_task`.
            encoding: Where to keep what takes long to make, and which of several processes this one is.
            depth: Pages for each query; fewer only where no more were found.
            on_stage: Told what is gone through, and how far it is.

        Returns:
            None in all processes but that of rank 0: the others only help.

        Raises:
            DataError: A page cannot be read and may not be skipped, or none can.
            StoreError: The disk is full or the cache cannot be used.
        """

    def fingerprint(self) -> str:
        """Changes with everything that changes a ranking: models, prompts, settings, code version."""
