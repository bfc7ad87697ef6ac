"""Run page selectors over a benchmark's questions: one row of results for each question and selector."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from visar import __version__, metrics
from visar.encoders.protocol import Encoder
from visar.errors import EmbeddingError
from visar.indexing import Failure, IndexReport
from visar.late_interaction import PackedPages, rank_pages
from visar.records import Document, QueryEmbedding, Question, QuestionSet
from visar.selection import Selection
from visar.selectors.oracle import smallest_k_with_all
from visar.selectors.protocol import PageSelector
from visar.store import EmbeddingStore

Row = dict[str, Any]
OnRow = Callable[[Row, bool], None]
RANKS = (5, 10)

# What selectors compute with.
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")


@dataclass(frozen=True)
class Evaluation:
    """What is to be run, and on what.

    Attributes:
        questions: The benchmark.
        encoder: Its fingerprint and its questions' embeddings.
        selectors: Name -> selector; frozen dataclasses, so that their repr names every setting.
        store: Holds the embeddings that ``index`` names.
        leave_out_broken: Leave out pages whose embeddings hold NaN or Inf instead of failing their document.
    """

    questions: QuestionSet
    encoder: Encoder
    selectors: Mapping[str, PageSelector]
    store: EmbeddingStore
    index: IndexReport
    leave_out_broken: bool

    @property
    def row_count(self) -> int:
        """How many rows there will be if nothing fails."""
        return len(self.selectors) * sum(len(questions) for _, questions in self._by_document())

    def rows(self, known: Mapping[str, Row], on_row: OnRow) -> tuple[list[Row], list[Failure]]:
        """One row for each question and selector, document by document.

        Args:
            known: Rows of an earlier run by their key; those that nothing has changed for are taken over.
            on_row: Called with each row and whether it was made now.

        Returns:
            The rows, and what failed although it is indexed: documents with broken pages, and single questions, which
            then have no row of any selector, so that all selectors are measured on the same questions.
        """
        rows: list[Row] = []
        failures: list[Failure] = []
        warm = False
        for document, questions in self._by_document():
            pages = None
            try:
                if any(key not in known for question in questions for key in self._keys(document, question).values()):
                    pages = self._pages(document)
            except EmbeddingError as error:
                failures.append(Failure(document.id, str(error)))
                continue
            if pages is not None and not warm:
                warm_up(self.selectors.values())
                warm = True
            for question in questions:
                try:
                    rows += self._question_rows(document, question, pages, known, on_row)
                except EmbeddingError as error:
                    failures.append(Failure(document.id, f"question '{question.id}': {error}"))
        return rows, failures

    @functools.cached_property
    def _fingerprint(self) -> dict[str, str]:
        return self.encoder.fingerprint()

    def _embed(self, text: str) -> QueryEmbedding:
        """The question's embedding from the store, made and stored where it is not there yet."""
        embedding = self.store.read_query(self._fingerprint, text)
        if embedding is None:
            embedding = self.encoder.encode_query(text)
            self.store.write_query(self._fingerprint, text, embedding)
        return embedding

    def _by_document(self) -> Iterator[tuple[Document, list[Question]]]:
        """The indexed documents and their questions, both in the benchmark's order."""
        asked: dict[str, list[Question]] = {}
        for question in self.questions.questions:
            asked.setdefault(question.document_id, []).append(question)
        for document in self.questions.documents:
            if document.id in self.index.keys and document.id in asked:
                yield document, asked[document.id]

    def _keys(self, document: Document, question: Question) -> dict[str, str]:
        """The key of each selector's row."""
        facts = self.index.keys[document.id].facts
        return {
            name: row_key(facts, document, question, name, selector, self.leave_out_broken)
            for name, selector in self.selectors.items()
        }

    def _pages(self, document: Document) -> PackedPages:
        stored = self.store.read(self.index.keys[document.id])
        return PackedPages.pack([page.vectors for page in stored], leave_out_broken=self.leave_out_broken)

    def _question_rows(
        self,
        document: Document,
        question: Question,
        pages: PackedPages | None,
        known: Mapping[str, Row],
        on_row: OnRow,
    ) -> list[Row]:
        """One row for each selector; ``pages`` may be None only where all rows are known."""
        rows = []
        for name, key in self._keys(document, question).items():
            row = known.get(key)
            if row is None:
                query = self._embed(question.text)
                selection = self.selectors[name].select(query.vectors, pages, evidence_pages=question.evidence_pages)
                row = result_row(document, question, name, selection, key, query.dropped_tokens)
            rows.append(row)
            on_row(row, key not in known)
        return rows


def warm_up(selectors: Iterable[PageSelector]) -> None:
    """Let each selector run once on made-up pages: what only a first call does (imports, kernels) is no part of the
    time that a question takes."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(5, 16, generator=generator)
    pages = PackedPages.pack([torch.randn(11, 16, generator=generator) for _ in range(7)])
    for selector in selectors:
        selector.select(query, pages, evidence_pages=(0,))


def result_row(
    document: Document, question: Question, name: str, selection: Selection, key: str, dropped_tokens: int
) -> Row:
    """Everything that is kept of one selection. Page numbers in it are 0-based."""
    evidence = question.evidence_pages
    row: Row = {
        "question_id": question.id,
        "document_id": document.id,
        "question": question.text,
        "selector": name,
        "k": selection.k,
        "k_oracle": oracle_k(_late_interaction_order(selection), evidence),
        "reason": selection.reason,
        "order": selection.order,
        "evidence_pages": list(evidence),
        "first_label": document.first_label,
        "sparsity": selection.sparsity,
        "recall": None,
        "precision": None,
        "f1": None,
        "ranking": None,
        "seconds": selection.seconds,
        "warnings": list(selection.warnings),
        "dropped_tokens": dropped_tokens,
        "key": key,
    }
    if evidence:
        row.update(metrics.set_metrics(selection.pages, evidence)._asdict())
        row["ranking"] = ranking_metrics(selection.order, evidence)
    return row


def ranking_metrics(order: Sequence[int], evidence: Sequence[int]) -> dict[str, float]:
    """Recall, nDCG, the authors' nDCG, hits and MRR at each of :data:`RANKS`."""
    measures = {
        "recall": metrics.recall_at,
        "ndcg": metrics.ndcg_at,
        "ndcg_retrieved": metrics.ndcg_retrieved_at,
        "hits": metrics.hit_at,
        "mrr": metrics.reciprocal_rank_at,
    }
    return {f"{name}@{k}": measure(order, evidence, k) for name, measure in measures.items() for k in RANKS}


def oracle_k(order: Sequence[int], evidence: Sequence[int]) -> int | None:
    """Smallest top-k of a ranking that holds all evidence; None without evidence, or where no k reaches all of it."""
    if not evidence or not set(evidence) <= set(order):
        return None
    return smallest_k_with_all(order, evidence).k


def _late_interaction_order(selection: Selection) -> list[int]:
    """Pages by late interaction, without those left out for broken embeddings."""
    ranked = set(selection.order)
    return [page for page in rank_pages(selection.late_interaction) if page in ranked]


def row_key(
    facts: str, document: Document, question: Question, name: str, selector: PageSelector, leave_out_broken: bool
) -> str:
    """Digest of everything that a row depends on or shows.

    Args:
        facts: What made the embeddings.
        document: Its name and first label stand in the row; its content is part of ``facts``.
        name: Of the selector.
        selector: Its repr names every setting.
        leave_out_broken: See :class:`Evaluation`.
    """
    evidence = list(question.evidence_pages)
    shown = [document.id, document.first_label, question.id, question.text, evidence, name]
    return hashlib.sha256(
        json.dumps([facts, *shown, repr(selector), leave_out_broken, code_fingerprint()]).encode()
    ).hexdigest()


@functools.cache
def code_fingerprint() -> str:
    """Digest of the package's sources and its libraries' versions: what other code made is made anew, not mixed in."""
    digest = hashlib.sha256(__version__.encode())
    for library in _LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    package = Path(__file__).parent
    for path in sorted([*package.glob("*.py"), *package.glob("selectors/*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
