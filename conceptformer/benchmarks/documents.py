"""Own documents and a table of queries as a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.benchmarks.judgments import judged_task
from conceptformer.data.document_pages import DocumentPages, read_document_folder
from conceptformer.data.folder import own_folder
from conceptformer.data.json_rows import JsonRow, Refusals, shown
from conceptformer.data.table_files import cell_text, identifier, read_table
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, RetrievalTask
from visar.benchmarks.page_numbers import parse_page_list

_NEEDED = {"query": ("query", "question")}
_POSSIBLE = {
    "query_id": ("query_id", "id"),
    "document": ("document",),
    "page": ("page", "pages", "evidence_pages"),
    "image": ("image",),
}
_UNUSED = ("answer",)
_TABLES = tuple(f"{name}{kind}" for name in ("queries", "questions") for kind in (".csv", ".jsonl", ".tsv", ".parquet"))


@dataclass(frozen=True)
class DocumentFolder:
    """A folder of PDFs and images, and queries in a CSV, TSV, JSONL or Parquet file.

    A row of the table is a query and what answers it: ``query``; ``document`` and ``page``, numbers from 1 as in
    ``3``, ``3;5`` or ``[3, 5]``, not needed where the document has one page; or ``image``, the name of an image file;
    perhaps ``query_id``. Several rows may ask the same query of several documents: with equal ids, or without ids and
    with equal texts, they are one query with several answers.

    Attributes:
        documents: The folder.
        queries: The table; None for the one in the folder, named queries or questions and .csv, .jsonl, .tsv or
            .parquet.
        drawn: Where drawn pages of PDFs are kept between runs.
        dpi: Resolution of pages of PDFs.
        skip_bad_rows: Leave rows and pages that make no sense out and list them; they are an error otherwise.
    """

    documents: Path | str | None
    queries: Path | str | None
    drawn: Path | str
    dpi: float
    skip_bad_rows: bool

    def load(self, on_progress: OnProgress | None = None) -> RetrievalTask:
        """See :meth:`conceptformer.benchmarks.Benchmark.load`. All pages of all documents are the corpus.

        Raises:
            StoreError: A drawn page cannot be written.
        """
        if self.documents is None:
            raise DataError(
                "benchmark.documents: expected a folder of PDFs or images; write benchmark.documents=FOLDER"
            )
        folder = own_folder(self.documents, setting="benchmark.documents", needs="PDFs or images")
        table = _own_table(folder) if self.queries is None else Path(self.queries).expanduser()
        refusals = Refusals(table, skip=self.skip_bad_rows)
        rows = read_table(table, _NEEDED, _POSSIBLE, _UNUSED, refusals)
        found = read_document_folder(
            folder, Path(self.drawn).expanduser(), dpi=self.dpi, refusals=refusals, on_progress=on_progress
        )
        texts, relevant = _answered_queries(rows, found, refusals)
        return judged_task(folder.resolve().name, texts, relevant, found.pages, refusals)


def _own_table(folder: Path) -> Path:
    """The table of queries that lies beside the documents."""
    found = [folder / name for name in _TABLES if (folder / name).is_file()]
    if not found:
        raise DataError(f"{folder}: has none of {', '.join(_TABLES)}; write benchmark.queries=FILE")
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise DataError(f"{folder}: has {names}; expected one of them: write benchmark.queries=FILE, or remove others")
    return found[0]


def _answered_queries(
    rows: Sequence[JsonRow], found: DocumentPages, refusals: Refusals
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Texts, and the pages that answer, by query id."""
    texts: dict[str, str] = {}
    relevant: dict[str, tuple[str, ...]] = {}
    made_ids: dict[str, str] = {}
    for row in rows:
        try:
            text = cell_text(row, "query")
            if "query_id" in row.values:
                query_id = identifier(row, "query_id")
            else:
                query_id = made_ids.setdefault(text, f"query-{len(made_ids) + 1}")
            if texts.get(query_id, text) != text:
                raise DataError(f"another text of the query {shown(query_id)} than in an earlier row")
            page_ids = _answering(row, found)
        except DataError as error:
            refusals.refuse(row.place, error)
            continue
        texts[query_id] = text
        relevant[query_id] = tuple(dict.fromkeys((*relevant.get(query_id, ()), *page_ids)))
    return texts, relevant


def _answering(row: JsonRow, found: DocumentPages) -> tuple[str, ...]:
    """The pages that a row names."""
    named = [key for key in ("document", "image") if key in row.values]
    if len(named) != 1:
        raise DataError(f"names {' and '.join(named) or 'no page'}; expected a document and its pages, or an image")
    page_ids = found.find(cell_text(row, named[0]))
    what, numbers = f"{named[0]} {shown(row.values[named[0]])}", _page_numbers(row.values)
    if not numbers:
        if len(page_ids) > 1:
            raise DataError(f"{what} has {len(page_ids)} pages; expected their numbers, from 1")
        return page_ids
    outside = [number for number in numbers if not 1 <= number <= len(page_ids)]
    if outside:
        raise DataError(f"{what} has no page {outside[0]}; its pages are 1 to {len(page_ids)}")
    return tuple(page_ids[number - 1] for number in numbers)


def _page_numbers(values: Mapping[str, object]) -> tuple[int, ...]:
    try:
        return parse_page_list(values.get("page"))
    except ValueError as error:
        raise DataError(str(error)) from error
