"""What a model for text embeddings offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class TextEmbedder(Protocol):
    """Questions and texts as points of one space. Weights are loaded at first use."""

    def load(self) -> None:
        """Load the weights now, so that what is wrong with them is known before pages are read.

        Raises:
            VisarError: They cannot be had, are incomplete or of another kind than was said; or a package is missing.
        """

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """[len(texts), D] float32, L2-normalised, each text behind the model's prompt for queries.

        Raises:
            VisarError: As :meth:`load`, or the GPU ran out of memory.
        """

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """The same for the texts of pages, which may be empty."""

    def too_long(self, texts: Sequence[str], *, queries: bool) -> int:
        """How many texts, be they queries or of pages, are longer than what the model reads of them."""

    def fingerprint(self) -> dict[str, str]:
        """Changes with everything that changes a vector.

        Raises:
            VisarError: The weights cannot be told from others.
        """
