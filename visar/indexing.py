"""Encode documents into the store: only the pages that are missing, in several processes, one broken file stops nobody.

A run that was killed is continued by calling :func:`index_documents` again: each batch of pages is on the disk before
the next one is encoded. Where an encoder's numbers depend on which pages share a batch (padding), a continued run can
differ from an uninterrupted one in the last bit.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from visar.documents import OcrEngine
from visar.encoders.protocol import Encoder
from visar.errors import DocumentError, EmbeddingError, VisarError
from visar.page_encoding import PageEncoding, Piece
from visar.records import Document
from visar.store import EmbeddingKey, EmbeddingStore
from visar.worker_processes import run_in_processes

# Long documents are cut so that each process gets about this many pieces: the last ones to end, end close together.
_PIECES_PER_PROCESS = 4


@dataclass(frozen=True)
class Failure:
    """A document that could not be encoded, and why, in one line."""

    document_id: str
    reason: str


@dataclass(frozen=True)
class IndexReport:
    """What came of the documents.

    Attributes:
        keys: Document id -> the key to read its embeddings with, for each document that is complete.
        page_counts: Document id -> number of pages, for the same documents.
        failures: The other documents, in the order in which they were given.
        encoded_pages: Pages encoded now; all others were there already.
    """

    keys: dict[str, EmbeddingKey]
    page_counts: dict[str, int]
    failures: tuple[Failure, ...]
    encoded_pages: int


@dataclass
class _Planned:
    """One key's state during the run. Documents of equal content share it and are encoded once."""

    document: Document
    page_count: int
    missing: tuple[int, ...]
    finished: bool
    ids: list[str]
    failure: str | None = None
    written: int = 0


@dataclass
class _Plan:
    """The state of all documents: what is there, what is to be done, what failed."""

    by_key: dict[EmbeddingKey, _Planned] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    def add(self, document: Document, encoding: PageEncoding) -> None:
        """Find out what of the document is missing. Opens the file only where the store lacks something."""
        try:
            with encoding.open(document) as reader:
                key = encoding.key(reader)
                if key in self.by_key:
                    self.by_key[key].ids.append(document.id)
                    return
                page_count, missing = encoding.store.page_count(key), ()
                finished = page_count is not None
                if page_count is None:
                    page_count = reader.page_count
                    missing = tuple(encoding.store.missing_pages(key, page_count))
        except DocumentError as error:
            self.unreadable[document.id] = str(error)
        else:
            self.by_key[key] = _Planned(document, page_count, missing, finished, [document.id])

    def pieces(self, encoding: PageEncoding, processes: int) -> list[Piece]:
        """The missing pages, longest piece first so that no process is left alone with a long one at the end."""
        size = max(1, sum(len(planned.missing) for planned in self.by_key.values()))
        if processes > 1:
            batches = math.ceil(size / (processes * _PIECES_PER_PROCESS * encoding.batch_pages))
            size = batches * encoding.batch_pages
        pieces = [
            Piece(planned.document, key, planned.missing[start : start + size])
            for key, planned in self.by_key.items()
            for start in range(0, len(planned.missing), size)
        ]
        return sorted(pieces, key=lambda piece: -len(piece.pages))

    def progress(self) -> tuple[int, int]:
        """Pages written in this run, and how many there will be; pages of failed documents are no longer expected."""
        planned = self.by_key.values()
        total = sum(one.written if one.failure else len(one.missing) for one in planned)
        return sum(one.written for one in planned), total

    def finish(self, key: EmbeddingKey, store: EmbeddingStore) -> None:
        """Join the pages of one key into one file."""
        planned = self.by_key[key]
        try:
            missing = store.finish(key, planned.page_count)
        except EmbeddingError as error:
            planned.failure = str(error)
            return
        if missing:
            planned.failure = f"pages {missing} (0-based) vanished from {store.folder(key)} after encoding; run again"
        planned.finished = not missing

    def report(self, documents: Sequence[Document]) -> IndexReport:
        """Sort the documents into complete ones and failures."""
        keys = {name: key for key, planned in self.by_key.items() if planned.finished for name in planned.ids}
        reasons = self.unreadable | {
            name: planned.failure for planned in self.by_key.values() if planned.failure for name in planned.ids
        }
        return IndexReport(
            keys={document.id: keys[document.id] for document in documents if document.id in keys},
            page_counts={name: self.by_key[key].page_count for name, key in keys.items()},
            failures=tuple(Failure(one.id, reasons[one.id]) for one in documents if one.id in reasons),
            encoded_pages=self.progress()[0],
        )


def index_documents(
    documents: Sequence[Document],
    encoder: Encoder,
    store: EmbeddingStore,
    *,
    dpi: int,
    ocr: OcrEngine,
    text_cache: Path | None,
    processes: int = 1,
    batch_pages: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> IndexReport:
    """Make sure that the store holds all pages of the documents.

    Args:
        documents: With distinct ids.
        encoder: Holds settings only until it is used, so that it can be sent to processes.
        dpi: Resolution of page images.
        ocr: Reads pages without a text layer, where the encoder wants text.
        text_cache: Folder where the texts of pages are kept, or None.
        processes: 1 encodes in this process. More start that many, each with its share of the processor's cores;
            a process that is killed (out of memory) is replaced once per piece of work. A script that asks for more
            than 1 needs the guard ``if __name__ == "__main__":``, since each process imports it.
        batch_pages: Pages given to the encoder at once, and at most lost by a kill.
        on_progress: Called with the pages encoded so far in this run and the number to encode, first with 0, then
            after each batch; not at all where nothing is missing.

    Returns:
        Keys to read with, and a line for each document that failed; its pages so far are kept for the next run.

    Raises:
        StoreError: The disk is full or the store cannot be written. No other document would fare better.
        VisarError: Two documents of one id, fewer than one process or page per batch, or anything that stops the
            encoder itself, such as a missing package.
    """
    repeated = [name for name, count in Counter(document.id for document in documents).items() if count > 1]
    if repeated:
        raise VisarError(f"documents: expected distinct ids, got {repeated} more than once")
    for name, value in {"processes": processes, "batch_pages": batch_pages}.items():
        if value < 1:
            raise VisarError(f"{name}: expected 1 or more, got {value}")
    encoding = PageEncoding(encoder, encoder.fingerprint(), store, dpi, ocr, text_cache, batch_pages)
    plan = _Plan()
    for document in documents:
        plan.add(document, encoding)
    _encode_missing(plan, encoding, processes, on_progress)
    return plan.report(documents)


def _encode_missing(
    plan: _Plan, encoding: PageEncoding, processes: int, on_progress: Callable[[int, int], None] | None
) -> None:
    """Run the plan's pieces and note in it what came of them."""
    pieces = plan.pieces(encoding, processes)
    waiting = Counter(piece.key for piece in pieces)
    for key, planned in plan.by_key.items():
        if not planned.finished and not waiting[key]:
            plan.finish(key, encoding.store)  # A run was killed between the last page and joining them.
    if not pieces:
        return
    steps = run_in_processes(encoding, pieces, processes) if processes > 1 else encoding.run(pieces)
    if on_progress is not None:
        on_progress(*plan.progress())
    with contextlib.closing(steps):  # Whatever goes wrong below, the processes end here and not some time later.
        for step in steps:
            planned = plan.by_key[step.key]
            planned.written += step.pages
            planned.failure = planned.failure or step.failure
            waiting[step.key] -= step.ended
            if step.ended and not waiting[step.key] and not planned.failure:
                plan.finish(step.key, encoding.store)
            if on_progress is not None:
                on_progress(*plan.progress())
