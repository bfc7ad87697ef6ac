"""LongDocURL: questions about slices of long documents (Deng et al., 2024)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from visar.benchmarks.admission import Admission, Row, RowRefusedError, answer_text
from visar.benchmarks.catalog import DocumentCatalog, locate_pdf
from visar.benchmarks.hub import HubCopy, benchmark_folder
from visar.benchmarks.page_numbers import evidence_indexes, parse_page_list
from visar.benchmarks.question_files import looking_into, read_json, read_json_lines
from visar.errors import DatasetError
from visar.records import Document, Question, QuestionSet

_NEEDS = "one .jsonl file and page images in pages/, or samples.json and PDFs in documents/"
_IMAGE = re.compile(r"(?P<document>.+)_(?P<index>[0-9]{1,9})\.(png|jpe?g)", re.IGNORECASE)
_NAMED_PAGES = re.compile(r"\bpages?\s+([0-9]{1,9}(?:(?:\s*,\s*and\s+|\s*,\s*|\s+and\s+)[0-9]{1,9})*)", re.IGNORECASE)

_log = logging.getLogger(__name__)


class LongDocUrl:
    """The benchmark in either of two layouts; the log says which one was found.

    *Page images*: one ``.jsonl`` file and ``pages/``, the benchmark's own files. The document of a question is the
    slice of images that its row names, so the same PDF makes several documents. Images are found by file name
    anywhere under ``pages/``; the folders in the rows are those of another machine. Page numbers count from 1 over
    the whole PDF, file names from 0: page 54 is ``..._53.png``. Page p of a slice that starts with
    ``..._{f}.png`` becomes index p - 1 - f, and the document's ``first_label`` is f + 1. ``start_end_idx`` is the part
    that the question was made from, often less than the slice, and is not used.

    *Whole PDFs*: ``samples.json`` and ``documents/``, the layout of copies of the benchmark. Some copies count
    ``evidence_pages`` from 0, some from 1, so ``page_base`` must say it, and the pages that the rows name in words
    (``detailed_evidences``, counted from 1) have to agree. Page p becomes index p - page_base.

    In both, a row whose evidence lies outside its document is refused.
    """

    name = "longdocurl"

    def __init__(
        self, root: str | Path | None = None, hub: HubCopy | None = None, page_base: int | None = None
    ) -> None:
        """
        Args:
            root: Local folder with the benchmark.
            hub: Where to download it from when ``root`` is None.
            page_base: The number of a PDF's first page in ``evidence_pages``, 0 or 1. Required with whole PDFs; with
                page images it is 1 and may be left out.
        """
        if page_base not in (None, 0, 1):
            raise DatasetError(f"page_base={page_base!r} is not a way to count pages, expected 0 or 1")
        self.root = root
        self.hub = hub
        self.page_base = page_base

    def load(self) -> QuestionSet:
        """See :meth:`visar.benchmarks.Benchmark.load`."""
        if self.root is None and self.hub is not None and self.page_base is None:
            raise DatasetError(
                f"{self.hub.repository} holds whole PDFs: set dataset.page_base to 0 or 1, the number of a PDF's first "
                "page in its 'evidence_pages' (a setting that the rows contradict is refused)"
            )
        root = benchmark_folder(self.root, self.hub, _NEEDS)
        with looking_into(root):
            lines = sorted(root.glob("*.jsonl"))
            images = bool(lines) and (root / "pages").is_dir()
            pdfs = (root / "samples.json").is_file() and (root / "documents").is_dir()
        if images == pdfs:
            found = "both layouts" if images else "neither layout"
            raise DatasetError(f"{root} holds {found}, expected {_NEEDS}")
        if images:
            return self._load_images(root, lines)
        return self._load_pdfs(root)

    def _load_images(self, root: Path, lines: list[Path]) -> QuestionSet:
        if len(lines) > 1:
            names = ", ".join(path.name for path in lines)
            raise DatasetError(f"{root} holds {len(lines)} question files ({names}), expected one .jsonl file")
        if self.page_base == 0:
            raise DatasetError(f"page_base=0 does not fit the page images in {root}: their rows count pages from 1")
        _log.info("%s: page images, each row's slice is a document, pages counted from 1", root)
        rows = read_json_lines(lines[0])
        _check_page_base(lines[0], rows, 1)
        files = _files_by_name(root / "pages")
        documents: dict[str, Document] = {}
        admission = Admission(self.name, lines[0])
        for row in rows:
            try:
                document = _image_slice(row, files)
                question = _question(row, document, document.first_label, len(document.files))
            except RowRefusedError as refusal:
                admission.refuse(row, str(row.fields.get("question_id") or ""), refusal)
            else:
                documents.setdefault(document.id, document)
                admission.admit(row, question)
        return admission.result(documents.values())

    def _load_pdfs(self, root: Path) -> QuestionSet:
        source = root / "samples.json"
        rows = read_json(source)
        if self.page_base is None:
            from_zero, from_one = _page_base_votes(rows)
            raise DatasetError(
                f"{source}: set dataset.page_base to 0 or 1, the number of a PDF's first page in 'evidence_pages'; of "
                f"the rows that name their pages in words, {from_zero} fit 0 and {from_one} fit 1"
            )
        _log.info("%s: whole PDFs, pages counted from %d", root, self.page_base)
        _check_page_base(source, rows, self.page_base)
        catalog = DocumentCatalog(lambda name: locate_pdf(root / "documents", name))
        admission = Admission(self.name, source)
        for row in rows:
            try:
                document, page_count = catalog.open(row.text("doc_id"))
                question = _question(row, document, self.page_base, page_count)
            except RowRefusedError as refusal:
                admission.refuse(row, str(row.fields.get("question_id") or ""), refusal)
            else:
                admission.admit(row, question)
        return admission.result(catalog.documents, catalog.broken)


def _question(row: Row, document: Document, first_number: int, page_count: int) -> Question:
    question_id, text = row.text("question_id"), row.text("question")
    pages = parse_page_list(row.value("evidence_pages"))
    return Question(
        id=question_id,
        document_id=document.id,
        text=text,
        evidence_pages=evidence_indexes(pages, first_number=first_number, page_count=page_count),
        answer=answer_text(row.fields.get("answer")),
    )


def _files_by_name(folder: Path) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if _IMAGE.fullmatch(path.name):
            files.setdefault(path.name, []).append(path)
    return files


def _image_slice(row: Row, files: dict[str, list[Path]]) -> Document:
    """The document that the row's images are the pages of.

    Raises:
        RowRefusedError: The images are not consecutive pages of one PDF, or some are missing or stand twice.
    """
    images = row.value("images")
    if not isinstance(images, list) or not images or not all(isinstance(image, str) for image in images):
        raise RowRefusedError("field 'images' is not a list of file names")
    names = [PurePosixPath(image).name for image in images]
    matches = [_IMAGE.fullmatch(name) for name in names]
    stems = {match["document"] for match in matches if match}
    indexes = [int(match["index"]) for match in matches if match]
    first = indexes[0] if indexes else 0
    if len(stems) != 1 or indexes != list(range(first, first + len(names))):
        raise RowRefusedError("field 'images' does not name consecutive pages of one document")
    missing = [name for name in names if name not in files]
    if missing:
        raise RowRefusedError(f"{len(missing)} of its {len(names)} page images are not in pages/, first {missing[0]}")
    repeated = [name for name in names if len(files[name]) > 1]
    if repeated:
        raise RowRefusedError(f"page image {repeated[0]} is in pages/ {len(files[repeated[0]])} times")
    return Document(
        id=f"{stems.pop()}_{first + 1}-{first + len(names)}",
        files=tuple(files[name][0] for name in names),
        first_label=first + 1,
    )


def _page_base_votes(rows: Iterable[Row]) -> tuple[int, int]:
    """How many rows name in words exactly their evidence pages, if these count from 0 and if they count from 1."""
    votes = [0, 0]
    for row in rows:
        try:
            pages = set(parse_page_list(row.fields.get("evidence_pages")))
        except RowRefusedError:
            continue
        phrases = _NAMED_PAGES.findall(str(row.fields.get("detailed_evidences") or ""))
        named = {int(number) for phrase in phrases for number in re.findall("[0-9]+", phrase)}
        if pages and named:
            votes[0] += named == {page + 1 for page in pages}
            votes[1] += named == pages
    return votes[0], votes[1]


def _check_page_base(source: Path, rows: Iterable[Row], page_base: int) -> None:
    votes = _page_base_votes(rows)
    if votes[1 - page_base] > votes[page_base]:
        raise DatasetError(
            f"{source}: 'evidence_pages' counts from {1 - page_base}, not from {page_base}: of the rows that name "
            f"their pages in words, {votes[1 - page_base]} fit {1 - page_base} and {votes[page_base]} fit {page_base}"
        )
