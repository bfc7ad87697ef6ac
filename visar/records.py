"""What passes between the stages: frozen records without behaviour of their own.

Page numbers are 0-based everywhere inside the package. A page's *label* is the number that a person reads on it.
Boxes are (left, top, right, bottom) as fractions of the page's width and height, origin at the top left.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Document:
    """One document: a PDF, or images that are its pages in order.

    Attributes:
        id: The name under which questions refer to it.
        files: A single PDF, or one image file per page in page order.
        first_label: Label of page 0. It differs from 1 where the document is a slice of a longer one.
    """

    id: str
    files: tuple[Path, ...]
    first_label: int = 1

    def label(self, page: int) -> int:
        """The number that a person reads for the 0-based ``page``."""
        return page + self.first_label


@dataclass(frozen=True)
class Question:
    """One question about one document.

    Attributes:
        evidence_pages: 0-based pages that hold the answer, ascending and distinct; empty where the document has none.
        answer: Reference answer, where the benchmark has one.
    """

    id: str
    document_id: str
    text: str
    evidence_pages: tuple[int, ...] = ()
    answer: str | None = None


@dataclass(frozen=True)
class QuestionSet:
    """A benchmark in memory.

    Attributes:
        refused: One line for each row that was left out, with the reason. Never silent, never clamped.
    """

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Word:
    """One word on a page and where it stands."""

    text: str
    box: Box


@dataclass(frozen=True)
class PageText:
    """The words of a page in reading order.

    Attributes:
        source: Where the words come from: ``"text layer"``, the name of an OCR engine, or ``"none"`` when the page
            has no text layer and no OCR ran.
    """

    words: tuple[Word, ...]
    source: str


@dataclass(frozen=True)
class PageEmbedding:
    """Multi-vector embedding of a page.

    Attributes:
        vectors: [n, D] token or patch embeddings.
        boxes: [n, 4] where each vector looks on the page; NaN rows for vectors without a place (prompt tokens).
    """

    vectors: torch.Tensor
    boxes: torch.Tensor


@dataclass(frozen=True)
class QueryEmbedding:
    """Multi-vector embedding of a question.

    Attributes:
        vectors: [m, D].
        tokens: The m token strings, for display.
        dropped_tokens: How many tokens at the end did not fit the encoder and were left out.
    """

    vectors: torch.Tensor
    tokens: tuple[str, ...]
    dropped_tokens: int = 0
