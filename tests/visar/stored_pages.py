"""Pages and a key that are the same in every process that the tests of the store start."""

from __future__ import annotations

import math

import torch

from visar.records import PageEmbedding
from visar.store import EmbeddingKey

FACTS = {
    "document": "sha256 of the file",
    "encoder": {"class": "Hashed", "width": "7"},
    "needs": "text",
    "reading": {"ocr": "none"},
}
KEY = EmbeddingKey.of(**FACTS)


def page(number: int, rows: int = 5, width: int = 7) -> PageEmbedding:
    """Unit vectors drawn from ``number``; the first row has no place on the page."""
    generator = torch.Generator().manual_seed(number)
    vectors = torch.nn.functional.normalize(torch.randn(rows, width, generator=generator), dim=1)
    boxes = torch.rand(rows, 4, generator=generator)
    boxes[0] = math.nan
    return PageEmbedding(vectors, boxes)
