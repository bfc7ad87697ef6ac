"""What every encoder offers. Encoders hold settings only and load weights at first use, so they can be pickled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from PIL import Image

from visar.records import PageEmbedding, PageText, QueryEmbedding

# Raise it when the same page or question gets other vectors or boxes from this package's own rules: windows, markers,
# where patches lie, position ids. It is part of the fingerprint, so that stored embeddings are then made anew.
RULES_VERSION = "1"


@dataclass(frozen=True)
class PageContent:
    """What an encoder sees of a page: its image, its text, or both, as :attr:`Encoder.needs` asks."""

    image: Image.Image | None = None
    text: PageText | None = None


@runtime_checkable
class Encoder(Protocol):
    """Turns questions and pages into multi-vector embeddings of one space.

    Attributes:
        needs: ``"text"`` or ``"image"``: which half of :class:`PageContent` must be filled.
    """

    needs: str

    def fingerprint(self) -> dict[str, str]:
        """Everything about the encoder that changes its embeddings (class, model, revision or checksum, settings,
        :data:`RULES_VERSION`, versions of the libraries that compute them). Part of the key of stored embeddings."""
        ...

    def encode_query(self, text: str) -> QueryEmbedding:
        """Embed one question. Vectors are float32 and L2-normalised."""
        ...

    def encode_pages(self, pages: Sequence[PageContent]) -> list[PageEmbedding]:
        """Embed pages. Vectors are float32 and L2-normalised. A page without any content still gets a vector."""
        ...
