"""Queries and pages to vectors on disk: resumable, shared by several processes, few images in memory at a time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from conceptformer.data.images import open_image
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, Page
from conceptformer.retrieval.filling import Encoded, Encoding, OnItems, Place, fill, refuse_left_out
from conceptformer.retrieval.protocol import PageRetriever
from conceptformer.retrieval.search import checked_vectors
from conceptformer.retrieval.shards import Shard, VectorFolder

__all__ = ["Encoded", "Encoding", "Place", "encode_pages", "encode_queries", "page_stamps", "read_page"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


def encode_queries(
    queries: Mapping[str, str], retriever: PageRetriever, encoding: Encoding, on_progress: OnProgress
) -> Encoded:
    """Encode query texts by id, or find them encoded.

    Args:
        on_progress: Called with the number of queries that are done, and of all.

    Raises:
        DataError: The retriever gives NaN or Inf, or another number of vectors than it was given queries.
        StoreError: The disk is full or the cache cannot be used.
    """
    ids, texts = list(queries), list(queries.values())
    stamps = {query_id: _digest(text.encode(errors="surrogatepass")) for query_id, text in queries.items()}
    vectors = VectorFolder(encoding.cache / "queries", retriever.fingerprint(), stamps, encoding.shard_items)

    def make(places: range, on_items: OnItems) -> Shard:
        made = []
        for part in cut(places, encoding.batch_queries):
            found = retriever.encode_queries(texts[part.start : part.stop])
            made.append(checked_vectors(found, ids[part.start : part.stop], "query").numpy())
            on_items(part.stop - places.start)
        return Shard(tuple(ids[places.start : places.stop]), np.concatenate(made))

    return Encoded(vectors, fill(vectors, make, encoding, on_progress))


def encode_pages(
    pages: Sequence[Page], retriever: PageRetriever, encoding: Encoding, on_progress: OnProgress
) -> Encoded:
    """Encode pages, or find them encoded.

    Args:
        pages: With distinct ids. Looked at one after the other and not kept: a sequence may read them when asked.
        on_progress: Called with the number of pages that are done, and of all; with none before the first is looked at.

    Raises:
        DataError: A page cannot be read and may not be skipped; the retriever gives NaN or Inf; an id comes
            twice; an image changed after the run had begun.
        StoreError: The disk is full or the cache cannot be used.
    """
    on_progress(0, len(pages))
    stamps = page_stamps(pages)
    vectors = VectorFolder(encoding.cache / "pages", retriever.fingerprint(), stamps, encoding.shard_items)
    work = _PageWork(pages, stamps, retriever, encoding)
    return Encoded(vectors, fill(vectors, work.shard, encoding, on_progress))


@dataclass(frozen=True)
class _Opened:
    """A batch of pages: images by id, and why others have none."""

    images: dict[str, Image.Image]
    broken: dict[str, str]


@dataclass(frozen=True)
class _PageWork:
    """Makes shards of a corpus.

    Attributes:
        stamps: What :func:`read_page` said of each page when the run began.
    """

    pages: Sequence[Page]
    stamps: Mapping[str, str]
    retriever: PageRetriever
    encoding: Encoding

    def shard(self, places: range, on_items: OnItems) -> Shard:
        vectors: dict[str, np.ndarray] = {}
        left_out: dict[str, str] = {}
        for batch in self._batches(places):
            left_out |= batch.broken
            vectors |= self._vectors(batch.images, left_out)
            if not self.encoding.skip_bad_pages:
                refuse_left_out(left_out)
            on_items(len(vectors) + len(left_out))
        rows = np.stack(list(vectors.values())) if vectors else np.empty((0, 0), np.float32)
        return Shard(tuple(vectors), rows, left_out)

    def _batches(self, places: range) -> Iterator[_Opened]:
        """The batches, opened. A thread opens the next one while the retriever is busy."""
        first, *rest = cut(places, self.encoding.batch_pages)
        with ThreadPoolExecutor(max_workers=1) as thread:
            opening = thread.submit(self._open, first)
            for batch in rest:
                opened, opening = opening.result(), thread.submit(self._open, batch)
                yield opened
            yield opening.result()

    def _open(self, places: range) -> _Opened:
        opened = _Opened({}, {})
        for place in places:
            page = self.pages[place]
            content, stamp = read_page(page)
            refuse_changed(page, stamp, self.stamps)
            if content is None:
                opened.broken[page.page_id] = stamp
                continue
            try:
                # Of a file not the bytes: the message about it names it.
                opened.images[page.page_id] = open_image(page.image if isinstance(page.image, Path) else content)
            except DataError as error:
                opened.broken[page.page_id] = str(error)
        return opened

    def _vectors(self, images: Mapping[str, Image.Image], left_out: dict[str, str]) -> dict[str, np.ndarray]:
        """Vectors [D] by page id. Pages that the retriever refuses are added to ``left_out``."""
        if not images:
            return {}
        try:
            made = self.retriever.encode_pages(list(images.values()))
        except DataError as error:
            if len(images) == 1:
                left_out |= dict.fromkeys(images, str(error))
                return {}
            # One by one, to find out which it was.
            single = [self._vectors({page_id: image}, left_out) for page_id, image in images.items()]
            return {page_id: vector for one in single for page_id, vector in one.items()}
        return dict(zip(images, checked_vectors(made, list(images), "page").numpy(), strict=True))


def page_stamps(pages: Sequence[Page]) -> dict[str, str]:
    """By page id what :func:`read_page` says of each page beside its bytes, which are not kept.

    Raises:
        DataError: An id comes twice.
    """
    stamps = {page.page_id: read_page(page)[1] for page in pages}
    if len(stamps) != len(pages):
        raise DataError(
            f"pages: {len(pages)} pages have {len(stamps)} different ids; expected an id of its own for each"
        )
    return stamps


def read_page(page: Page) -> tuple[bytes | None, str]:
    """The bytes of a page's image and their SHA-256, or None and why they cannot be read."""
    if isinstance(page.image, bytes):
        return page.image, _digest(page.image)
    try:
        content = page.image.read_bytes()
    except OSError as error:
        return None, f"{page.image}: cannot be read ({error.strerror}); expected an image file"
    except DataError as error:
        return None, str(error)
    return content, _digest(content)


def image_digest(stamp: str) -> str | None:
    """The SHA-256 of an image's content; None where its stamp says why it cannot be read."""
    return stamp if _SHA256.fullmatch(stamp) else None


def refuse_changed(page: Page, stamp: str, stamps: Mapping[str, str]) -> None:
    """Stop where a page is another one than it was. Never left out: what is kept of it is found by its first stamp.

    Args:
        stamp: What :func:`read_page` says of it now.
        stamps: What it said when the run began, by page id.

    Raises:
        DataError: They differ.
    """
    if stamp != stamps[page.page_id]:
        raise DataError(f"page '{page.page_id}': the image changed while the run was on; run again")


def cut(places: range, size: int) -> list[range]:
    """The places in parts of at most ``size``."""
    return [places[start : start + size] for start in range(0, len(places), size)]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
