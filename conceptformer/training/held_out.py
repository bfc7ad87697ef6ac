"""Retrieval on held-out queries with a model that is being trained, shared out over the training processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from conceptformer.backbones.protocol import Backbone
from conceptformer.data.images import image_size
from conceptformer.errors import DataError
from conceptformer.records import RetrievalTask
from conceptformer.retrieval.evaluation import retrieval_metrics
from conceptformer.retriever import ConceptFormer
from conceptformer.step.gather import all_gather_with_gradient


class HeldOutEvaluation:
    """Called by the trainer in every process.

    Args:
        batch_pages: Pages encoded at once.
        rank, world: Which of how many processes this is.

    Raises:
        DataError: The model cannot take an image of some page's shape. Better now than after hours of training.
    """

    def __init__(self, task: RetrievalTask, backbone: Backbone, *, batch_pages: int, rank: int, world: int) -> None:
        for page in task.pages:
            try:
                backbone.inputs.grid_of(image_size(page.image))
            except DataError as error:
                raise DataError(f"held-out page {page.page_id}: {error}") from error
        self._task = task
        self._retriever = ConceptFormer(backbone, fingerprint="in training")
        self._backbone = backbone
        self._batch_pages = batch_pages
        self._rank = rank
        self._world = world

    def __call__(self) -> dict[str, float]:
        """Mean recall@10, nDCG@10 and MRR@10, alike in all processes.

        Raises:
            DataError: A page cannot be read, or an embedding is not finite.
        """
        task = self._task
        pages = self._shared(len(task.pages), self._encode_pages)
        queries = self._shared(len(task.queries), self._encode_queries)
        page_ids = [page.page_id for page in task.pages]
        return retrieval_metrics(queries, pages, list(task.queries), page_ids, task.relevant)

    def _shared(self, count: int, encode: Callable[[Sequence[int]], np.ndarray]) -> np.ndarray:
        """Vectors of all items in their order, each made by one process."""
        share = math.ceil(count / self._world)
        # Equally many for each process, some twice: a sharded model waits in every batch for all processes.
        items = [min(self._rank * share + place, count - 1) for place in range(share)]
        vectors = encode(items)
        if self._world == 1:
            return vectors
        device = next(self._backbone.model.parameters()).device
        with torch.no_grad():
            return all_gather_with_gradient(torch.from_numpy(vectors).to(device)).cpu().numpy()[:count]

    def _encode_pages(self, items: Sequence[int]) -> np.ndarray:
        return self._retriever.encode_pages([self._task.pages[item].image for item in items], self._batch_pages)

    def _encode_queries(self, items: Sequence[int]) -> np.ndarray:
        texts = list(self._task.queries.values())
        return self._retriever.encode_queries([texts[item] for item in items])
