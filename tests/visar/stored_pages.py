"""Pages and a key that are the same in every process that the tests of the store start."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

from visar.records import PageEmbedding
from visar.store import EmbeddingKey, EmbeddingStore

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


def filled(root: Path, pages: int = 3) -> EmbeddingStore:
    store = EmbeddingStore(root)
    for number in range(pages):
        store.write_page(KEY, number, page(number))
    return store


def assert_equal_pages(actual: list[PageEmbedding], expected: list[PageEmbedding]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert one.vectors.dtype == torch.float16
        assert torch.equal(one.vectors, other.vectors.to(torch.float16))
        torch.testing.assert_close(one.boxes, other.boxes, rtol=0, atol=0, equal_nan=True)


def files(store: EmbeddingStore) -> list[str]:
    return sorted(os.listdir(store.folder(KEY)))
