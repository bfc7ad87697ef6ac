"""From pages of one document to stored embeddings: the work of one process, in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from visar.documents import DocumentReader, OcrEngine
from visar.encoders.protocol import Encoder, PageContent
from visar.errors import DocumentError, EmbeddingError
from visar.records import Document, PageEmbedding
from visar.store import EmbeddingKey, EmbeddingStore


def page_range(pages: Sequence[int]) -> str:
    """Name pages in a message, by the first and the last of them."""
    if len(pages) < 2:
        return f"page {pages[0]} (0-based)" if pages else "no page"
    return f"pages {pages[0]} to {pages[-1]} (0-based)"


@dataclass(frozen=True)
class Piece:
    """Pages of one document that one process encodes, in order."""

    document: Document
    key: EmbeddingKey
    pages: tuple[int, ...]

    def without_first(self, count: int) -> Piece:
        """What is left when the first ``count`` pages are done."""
        return replace(self, pages=self.pages[count:])


@dataclass(frozen=True)
class Step:
    """What happened to a piece since its last step.

    Attributes:
        pages: How many more of its pages are stored.
        ended: Whether this is its last step.
        failure: Why it ended early, in one line.
    """

    key: EmbeddingKey
    pages: int = 0
    ended: bool = False
    failure: str | None = None


@dataclass(frozen=True)
class PageEncoding:
    """How pages become stored embeddings. Sent once to each process.

    Attributes:
        fingerprint: Of the encoder; asked for once, since it may read the model's files.
    """

    encoder: Encoder
    fingerprint: dict[str, str]
    store: EmbeddingStore
    dpi: int
    ocr: OcrEngine
    text_cache: Path | None
    batch_pages: int

    def open(self, document: Document) -> DocumentReader:
        """The document's reader; to be closed by the caller."""
        return DocumentReader(document, dpi=self.dpi, ocr=self.ocr, text_cache=self.text_cache)

    def key(self, reader: DocumentReader) -> EmbeddingKey:
        """Everything that makes the embeddings of this document."""
        reading = reader.image_fingerprint() if self.encoder.needs == "image" else reader.text_fingerprint()
        return EmbeddingKey.of(
            document=reader.content_fingerprint(), encoder=self.fingerprint, needs=self.encoder.needs, reading=reading
        )

    def steps(self, piece: Piece) -> Iterator[Step]:
        """Encode and store the pages of a piece. A document or page that cannot be read or embedded ends the piece.

        Yields:
            One step after each batch, and a last one.

        Raises:
            StoreError: The disk is full or the store cannot be written.
            VisarError: Whatever else concerns all documents, such as a missing package.
        """
        try:
            with self.open(piece.document) as reader:
                if self.key(reader) != piece.key:
                    raise DocumentError(f"{piece.document.id}: the file changed while the run was on; run again")
                for start in range(0, len(piece.pages), self.batch_pages):
                    batch = piece.pages[start : start + self.batch_pages]
                    for page, embedding in zip(batch, self._encode(reader, batch), strict=True):
                        self.store.write_page(piece.key, page, embedding)
                    yield Step(piece.key, pages=len(batch))
        except (DocumentError, EmbeddingError) as error:
            yield Step(piece.key, ended=True, failure=str(error))
        else:
            yield Step(piece.key, ended=True)

    def run(self, pieces: Iterable[Piece]) -> Iterator[Step]:
        """The steps of several pieces, one piece after the other in this process; none for a key that failed."""
        failed: set[EmbeddingKey] = set()
        for piece in pieces:
            if piece.key in failed:
                continue
            for step in self.steps(piece):
                if step.failure is not None:
                    failed.add(piece.key)
                yield step

    def _encode(self, reader: DocumentReader, pages: Sequence[int]) -> list[PageEmbedding]:
        contents = [self._content(reader, page) for page in pages]
        try:
            embeddings = self.encoder.encode_pages(contents)
        except EmbeddingError as error:
            raise EmbeddingError(f"{page_range(pages)}: {error}") from error
        if len(embeddings) != len(pages):
            raise EmbeddingError(f"{page_range(pages)}: expected one embedding for each, got {len(embeddings)}")
        return embeddings

    def _content(self, reader: DocumentReader, page: int) -> PageContent:
        if self.encoder.needs == "image":
            return PageContent(image=reader.image(page))
        return PageContent(text=reader.text(page))
