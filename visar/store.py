"""Embeddings on disk: found by everything that made them, written so that a kill or a full disk loses one page at most.

Layout below the store's root::

    pages/<digest of the key>/key.json                what made these embeddings, to be read by people
    pages/<digest of the key>/page-00012.safetensors  one file for each page, while the document is being encoded
    pages/<digest of the key>/document.safetensors    all pages in one file, once the last page is there
    questions/<digest>.safetensors                    one file for each question

Page vectors are kept in float16, not bfloat16: entries of unit vectors lie within [-1, 1], far inside float16's range,
and its steps are 8 times finer (10 bits of fraction against 7). Boxes and question vectors are float32, so that a
question read back is the question as it was encoded.

Several processes may write the same key. Every file appears under its name complete or not at all, whoever comes last
wins, and the page files of a document are removed only when the document's one file is safely on the disk.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from visar import tensor_files
from visar.errors import EmbeddingError
from visar.records import PageEmbedding, QueryEmbedding

# Part of every key: files of another version are encoded anew, never misread.
FORMAT_VERSION = 1


@dataclass(frozen=True)
class EmbeddingKey:
    """Everything that made the embeddings of one document.

    Attributes:
        facts: Canonical JSON.
    """

    facts: str

    @classmethod
    def of(
        cls, *, document: str, encoder: Mapping[str, object], needs: str, reading: Mapping[str, object]
    ) -> EmbeddingKey:
        """Join the facts.

        Args:
            document: Fingerprint of the document's content, not of its name.
            encoder: The encoder's fingerprint.
            needs: Which half of a page the encoder saw.
            reading: What else made that half: resolution and renderer of images, or the fingerprint of the text.
        """
        facts = {"document": document, "encoder": dict(encoder), "needs": needs, "reading": dict(reading)}
        return cls(tensor_files.canonical_json({**facts, "store format": FORMAT_VERSION}))

    @property
    def digest(self) -> str:
        """SHA-256 of the facts, in hexadecimal; names the key's folder."""
        return hashlib.sha256(self.facts.encode()).hexdigest()


@dataclass(frozen=True)
class EmbeddingStore:
    """Embeddings of pages and questions below one folder, which is made at the first write.

    Attributes:
        root: The folder. The object holds nothing else and can be sent to other processes.
    """

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))
        tensor_files.remove_leftovers(self.root / "questions")

    def folder(self, key: EmbeddingKey) -> Path:
        """Where everything of ``key`` lies. Delete it to have the document encoded again."""
        return self.root / "pages" / key.digest

    def page_count(self, key: EmbeddingKey) -> int | None:
        """Number of pages of a finished document, or None. Its file is read whole and its checksum verified."""
        pages = self._finished(key)
        if pages is None:
            return None
        # A kill while `finish` was tidying up leaves page files that nobody needs.
        tensor_files.remove(self.folder(key).glob("page-*.safetensors"))
        tensor_files.remove_leftovers(self.folder(key))
        return len(pages)

    def missing_pages(self, key: EmbeddingKey, page_count: int) -> list[int]:
        """The 0-based pages of ``range(page_count)`` that have to be encoded: absent, or damaged (with a warning)."""
        tensor_files.remove_leftovers(self.folder(key))
        missing = [page for page in range(page_count) if self._read_page(key, page) is None]
        # Looked at after the pages: another process that removes page files has put the finished file there before.
        return [] if missing and self._finished(key) is not None else missing

    def write_page(self, key: EmbeddingKey, page: int, embedding: PageEmbedding) -> None:
        """Keep one page. NaN and Inf are kept with a warning: the page selection reports or leaves out such pages.

        Raises:
            EmbeddingError: Wrong shapes, or finite values beyond float16's range (the vectors are not normalised).
            StoreError: The disk is full or the folder cannot be written.
        """
        vectors = _half_precision(embedding, f"page {page} (0-based)")
        if not torch.isfinite(vectors).all():
            folder = self.folder(key)
            tensor_files.warn(f"page {page} (0-based) holds NaN or Inf; delete {folder} to encode the document again")
        description = self.folder(key) / "key.json"
        if not description.exists():
            readable = json.dumps(json.loads(key.facts), indent=2, sort_keys=True, ensure_ascii=False)
            tensor_files.write_atomically(description, f"{readable}\n".encode())
        boxes = embedding.boxes.detach().to("cpu", torch.float32)
        tensor_files.write_atomically(self._page_file(key, page), _pack(key, {page: PageEmbedding(vectors, boxes)}))

    def finish(self, key: EmbeddingKey, page_count: int) -> list[int]:
        """Join the page files into one, which loads fast, and remove them.

        Returns:
            The pages that are still missing; the document is finished if there are none.

        Raises:
            EmbeddingError: The pages do not have vectors of one width.
            StoreError: The disk is full or the folder cannot be written; the page files stay.
        """
        pages = {page: self._read_page(key, page) for page in range(page_count)}
        missing = [page for page, embedding in pages.items() if embedding is None]
        if missing:
            return missing if self.page_count(key) is None else []
        tensor_files.write_atomically(self._document_file(key), _pack(key, pages))
        tensor_files.remove(self._page_file(key, page) for page in range(page_count))
        tensor_files.remove_leftovers(self.folder(key))
        return []

    def read(self, key: EmbeddingKey) -> list[PageEmbedding]:
        """All pages of a finished document, in page order.

        Returns:
            Per page float16 vectors [n_p, D] and float32 boxes [n_p, 4]: views into the file, which is mapped into
            memory and not copied. Do not write to them.

        Raises:
            StoreError: The document is not finished, or its file is damaged.
        """
        pages = self._finished(key)
        if pages is None:
            raise tensor_files.StoreError(
                f"{self.folder(key)}: expected the embeddings of a whole document, found none that are intact; "
                "encode the document again"
            )
        return list(pages.values())

    def write_query(self, encoder: Mapping[str, object], text: str, embedding: QueryEmbedding) -> None:
        """Keep the embedding of the question ``text`` by the encoder of this fingerprint.

        Raises:
            StoreError: The disk is full or the folder cannot be written.
        """
        header = {"text": text, "tokens": list(embedding.tokens), "dropped_tokens": embedding.dropped_tokens}
        vectors = embedding.vectors.detach().to("cpu", torch.float32).contiguous()
        data = tensor_files.to_bytes(header, {"vectors": vectors})
        tensor_files.write_atomically(self._query_file(encoder, text), data)

    def read_query(self, encoder: Mapping[str, object], text: str) -> QueryEmbedding | None:
        """The question's embedding as it was written, or None where there is none (damaged: with a warning)."""
        path = self._query_file(encoder, text)
        loaded = tensor_files.load(path)
        if loaded is None:
            return None
        header, tensors = loaded
        if header.get("text") != text:
            tensor_files.warn(f"{path}: holds another question and is not used; made anew")
            return None
        return QueryEmbedding(tensors["vectors"], tuple(header["tokens"]), header["dropped_tokens"])

    def _finished(self, key: EmbeddingKey) -> dict[int, PageEmbedding] | None:
        return _unpack(key, self._document_file(key))

    def _read_page(self, key: EmbeddingKey, page: int) -> PageEmbedding | None:
        return (_unpack(key, self._page_file(key, page)) or {}).get(page)

    def _page_file(self, key: EmbeddingKey, page: int) -> Path:
        return self.folder(key) / f"page-{page:05d}.safetensors"

    def _document_file(self, key: EmbeddingKey) -> Path:
        return self.folder(key) / "document.safetensors"

    def _query_file(self, encoder: Mapping[str, object], text: str) -> Path:
        facts = tensor_files.canonical_json({"encoder": dict(encoder), "text": text, "store format": FORMAT_VERSION})
        return self.root / "questions" / f"{hashlib.sha256(facts.encode()).hexdigest()}.safetensors"


def _half_precision(embedding: PageEmbedding, name: str) -> torch.Tensor:
    """[n, D] float16 vectors of a page on the CPU, after checking its shapes and range."""
    vectors, boxes = embedding.vectors.detach().to("cpu"), embedding.boxes
    if vectors.ndim != 2 or 0 in vectors.shape or not vectors.is_floating_point():
        raise EmbeddingError(f"{name}: expected float vectors [n, D], got {vectors.dtype} {list(vectors.shape)}")
    if tuple(boxes.shape) != (len(vectors), 4):
        raise EmbeddingError(f"{name}: expected boxes [{len(vectors)}, 4], got shape {list(boxes.shape)}")
    half = vectors.to(torch.float16)
    if (torch.isinf(half) & torch.isfinite(vectors)).any():
        raise EmbeddingError(f"{name}: expected vectors of length 1, got entries up to {vectors.abs().max():.3g}")
    return half


def _pack(key: EmbeddingKey, pages: Mapping[int, PageEmbedding]) -> bytes:
    """One file's content: the pages' rows joined, with each page's number and number of rows."""
    widths = {page.vectors.shape[1] for page in pages.values()}
    if len(widths) != 1:
        raise EmbeddingError(f"pages: all pages need one embedding width D, got {sorted(widths)}")
    tensors = {
        "vectors": torch.cat([page.vectors for page in pages.values()]),
        "boxes": torch.cat([page.boxes for page in pages.values()]),
        "numbers": torch.tensor(list(pages)),
        "lengths": torch.tensor([len(page.vectors) for page in pages.values()]),
    }
    return tensor_files.to_bytes({"key": key.digest}, tensors)


def _unpack(key: EmbeddingKey, path: Path) -> dict[int, PageEmbedding] | None:
    """The pages in a file by number; None where there is no file or a damaged one, or one that is not of this key."""
    loaded = tensor_files.load(path)
    if loaded is None:
        return None
    header, tensors = loaded
    if header.get("key") != key.digest:
        tensor_files.warn(f"{path}: holds the embeddings of another key and is not used; made anew")
        return None
    lengths = tensors["lengths"].tolist()
    parts = zip(tensors["vectors"].split(lengths), tensors["boxes"].split(lengths), strict=True)
    return {number: PageEmbedding(*part) for number, part in zip(tensors["numbers"].tolist(), parts, strict=True)}
