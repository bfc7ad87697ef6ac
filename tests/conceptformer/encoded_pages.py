"""What tests look at when pages have been encoded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from conceptformer.data.images import open_image
from conceptformer.records import Page
from conceptformer.retrieval.encoding import Encoded
from tests.conceptformer.colour_pages import ColourRetriever


def made(encoded: Encoded) -> dict[str, np.ndarray]:
    return {page: vector for block in encoded.vectors.blocks() for page, vector in zip(*block, strict=True)}


def directly(pages: Sequence[Page]) -> dict[str, np.ndarray]:
    """One page at a time, nothing stored."""
    return {page.page_id: ColourRetriever().encode_pages([open_image(page.image)])[0] for page in pages}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for page_id, vector in expected.items():
        assert found[page_id].dtype == np.float32
        np.testing.assert_array_equal(found[page_id], vector, err_msg=page_id)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def shards(encoded: Encoded) -> list[Path]:
    return sorted(encoded.vectors.path.glob("shard-*"))
