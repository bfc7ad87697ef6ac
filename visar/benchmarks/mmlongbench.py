"""MMLongBench-Doc: questions about long PDFs (Ma et al., 2024)."""

from __future__ import annotations

from pathlib import Path

from visar.benchmarks.admission import Admission, Row, RowRefusedError, answer_text, made_id
from visar.benchmarks.catalog import DocumentCatalog, locate_pdf
from visar.benchmarks.hub import HubCopy, benchmark_folder
from visar.benchmarks.page_numbers import evidence_indexes, parse_page_list
from visar.benchmarks.question_files import looking_into, read_json, read_parquet
from visar.errors import DatasetError
from visar.records import Question, QuestionSet

_NEEDS = "samples.json (or data/*.parquet) and the PDFs in documents/"


class MMLongBench:
    """The benchmark in the layouts of its copies: ``samples.json`` or ``data/*.parquet``, and ``documents/``.

    Page numbers: ``evidence_pages`` is a string that holds a list, counted from 1 as a person counts the pages of the
    PDF. Page p becomes index p - 1. A few rows name page 0 or a page after the last one; the benchmark does not say
    which page is meant, so these rows are refused, not moved to the nearest page (the authors of ViSAR took
    max(0, p - 1)). An empty list means that the document holds no answer.

    The files give questions no ids; they get one made of the document's name and the question.
    """

    name = "mmlongbench"

    def __init__(self, root: str | Path | None = None, hub: HubCopy | None = None) -> None:
        """
        Args:
            root: Local folder with the benchmark.
            hub: Where to download it from when ``root`` is None.
        """
        self.root = root
        self.hub = hub

    def load(self) -> QuestionSet:
        """See :meth:`visar.benchmarks.Benchmark.load`."""
        root = benchmark_folder(self.root, self.hub, _NEEDS)
        documents = root / "documents"
        with looking_into(root):
            source, rows = _rows(root)
            if not documents.is_dir():
                raise DatasetError(f"{documents} is not a folder, expected the PDFs of {source.name} in it")
        catalog = DocumentCatalog(lambda name: locate_pdf(documents, name))
        admission = Admission(self.name, source)
        for row in rows:
            try:
                question = _question(row, catalog)
            except RowRefusedError as refusal:
                admission.refuse(row, _question_id(row), refusal)
            else:
                admission.admit(row, question)
        return admission.result(catalog.documents, catalog.broken)


def _rows(root: Path) -> tuple[Path, list[Row]]:
    samples = root / "samples.json"
    if samples.is_file():
        return samples, read_json(samples)
    tables = sorted((root / "data").glob("*.parquet"))
    if not tables:
        raise DatasetError(f"{root} holds neither samples.json nor data/*.parquet, expected {_NEEDS}")
    return root / "data", [row for table in tables for row in read_parquet(table)]


def _question(row: Row, catalog: DocumentCatalog) -> Question:
    document_id, text, numbers = row.text("doc_id"), row.text("question"), row.text("evidence_pages")
    pages = parse_page_list(numbers)
    document, page_count = catalog.open(document_id)
    return Question(
        id=made_id(document_id, text),
        document_id=document.id,
        text=text,
        evidence_pages=evidence_indexes(pages, first_number=1, page_count=page_count),
        answer=answer_text(row.fields.get("answer")),
    )


def _question_id(row: Row) -> str:
    try:
        return made_id(row.text("doc_id"), row.text("question"))
    except RowRefusedError:
        return str(row.fields.get("doc_id") or "")
