"""What passes between the stages: pages, evidence boxes, training pairs, retrieval tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias


class StoredImage(Protocol):
    """An image within a larger file, e.g. a Parquet corpus: read when it is asked for, and not kept.

    Equal ones are the same image. As a text (``str``) it says where the image lies, for messages.
    """

    def read_bytes(self) -> bytes:
        """The content of the image's own file (PNG, JPEG, ...).

        Raises:
            DataError: It cannot be read.
        """


ImageSource: TypeAlias = Path | bytes | StoredImage
"""An image file, or the content of one (PNG, JPEG, ...), in memory or where it can be read."""

OnProgress: TypeAlias = Callable[[int, int], None]
"""Told of progress as (done, all), by whatever takes long."""


@dataclass(frozen=True)
class EvidenceBox:
    """A rectangle of a page that holds evidence for a query.

    Attributes:
        left, top, right, bottom: In fractions of the page's width and height, origin top left, left < right <= 1 and
            top < bottom <= 1. Data files state other frames; :mod:`conceptformer.regions` turns them into this one.
        label: What the proposer said is to be seen there; may be empty.
    """

    left: float
    top: float
    right: float
    bottom: float
    label: str = ""


@dataclass(frozen=True)
class Page:
    """A page image by its id, which is unique in a corpus."""

    page_id: str
    image: ImageSource = field(repr=False)


@dataclass(frozen=True)
class TrainingExample:
    """One query and the page that answers it.

    Attributes:
        image_size: (width, height) of the page image in pixels, as its file header says.
        boxes: Evidence on the page; empty where the proposer found none.
        other_positives: Ids of further pages that answer the query: never negatives for it.
    """

    query_id: str
    query: str
    page: Page
    image_size: tuple[int, int]
    boxes: tuple[EvidenceBox, ...] = ()
    other_positives: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingSet:
    """Training pairs, and what was left out of them.

    Attributes:
        refused: One line for each row or box that was left out, with its reason.
        fingerprint: SHA-256 over the content of the rows that are used, images by their files' bytes or size and time.
    """

    name: str
    examples: tuple[TrainingExample, ...]
    refused: tuple[str, ...]
    fingerprint: str


@dataclass(frozen=True)
class RetrievalTask:
    """A corpus of pages, queries, and which pages answer which query.

    Attributes:
        queries: Text by query id, byte for byte as published.
        relevant: Ids of the pages that answer a query, by query id; the same keys as ``queries``, none of them empty.
        boxes: Evidence boxes by (query id, page id), where known; only reports use them.
        refused: One line for each row that was left out, with its reason.
    """

    name: str
    queries: Mapping[str, str]
    pages: tuple[Page, ...]
    relevant: Mapping[str, frozenset[str]]
    boxes: Mapping[tuple[str, str], tuple[EvidenceBox, ...]] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
