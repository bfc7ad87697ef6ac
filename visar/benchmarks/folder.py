"""Own documents and a table of questions as a benchmark."""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from visar.benchmarks.admission import Admission, Row, RowRefusedError, answer_text, made_id, valid_text
from visar.benchmarks.catalog import DocumentCatalog
from visar.benchmarks.page_numbers import evidence_indexes, parse_page_list
from visar.benchmarks.question_files import looking_into, read_csv, read_json, read_json_lines, require_columns
from visar.documents import IMAGE_SUFFIXES
from visar.errors import DatasetError
from visar.records import Question, QuestionSet

_REQUIRED = ("document", "question")
_OPTIONAL = ("id", "evidence_pages", "answer")
_DEFAULT_FILES = ("questions.csv", "questions.json", "questions.jsonl")


class Folder:
    """A folder of PDFs, images and folders of page images, and questions in a CSV, JSON or JSON Lines file.

    Columns: ``document`` and ``question``; optional are ``id``, ``evidence_pages`` and ``answer``, each of which may be
    blank in single rows too. Other columns are named in a warning and not used.

    ``document`` is a path below the folder (``reports/2020.pdf``), or just the file's or image folder's name, with or
    without suffix, where only one has it. Only documents that a question names are opened.

    Page numbers: ``evidence_pages`` counts from 1, as a person counts the pages of the file: ``3``, ``3;5``, ``3,5``
    or ``[3, 5]``. Page p becomes index p - 1. A row that names a page outside its document is refused. Questions
    without evidence pages are loaded; ranking metrics leave them out.
    """

    name = "folder"

    def __init__(self, documents: str | Path | None = None, questions: str | Path | None = None) -> None:
        """
        Args:
            documents: The folder.
            questions: The file (``.csv``, ``.tsv``, ``.json`` or ``.jsonl``). None takes the folder's
                ``questions.csv``, ``.json`` or ``.jsonl``.
        """
        self.documents = documents
        self.questions = questions

    def load(self) -> QuestionSet:
        """See :meth:`visar.benchmarks.Benchmark.load`."""
        if self.documents is None:
            raise DatasetError("no documents given: set dataset.documents=FOLDER, a folder of PDFs or page images")
        folder = Path(self.documents).expanduser()
        with looking_into(folder):
            if not folder.is_dir():
                raise DatasetError(
                    f"dataset.documents={self.documents} is not a folder, expected one with PDFs or images"
                )
            next(folder.iterdir(), None)  # os.walk would pass over a folder that it may not list
            source = _question_file(folder, self.questions)
        rows = _read(source)
        catalog = DocumentCatalog(_FolderIndex(folder).locate)
        admission = Admission(self.name, source)
        for row in rows:
            try:
                question = _question(row, catalog)
            except RowRefusedError as refusal:
                admission.refuse(row, str(row.fields.get("id") or ""), refusal)
            else:
                admission.admit(row, question)
        return admission.result(catalog.documents, catalog.broken)


class _FolderIndex:
    """The documents of a folder by the names that people may call them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, Path] = {}
        self._equal_names: set[str] = set()
        self._ids_by_short_name: dict[str, set[str]] = {}
        for parent, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            visible = sorted(name for name in files if not name.startswith("."))
            images = [name for name in visible if Path(name).suffix.lower() in IMAGE_SUFFIXES]
            if images and Path(parent) != folder:
                self._add(Path(parent))
            for name in visible:
                if name in images or Path(name).suffix.lower() == ".pdf":
                    self._add(Path(parent, name))

    def _add(self, path: Path) -> None:
        relative = path.relative_to(self._folder).as_posix()
        if _normalised(relative) in self._paths:
            self._equal_names.add(_normalised(relative))
        self._paths[_normalised(relative)] = path
        short = PurePosixPath(_normalised(relative))
        stem = short if path.is_dir() else short.with_suffix("")
        for name in {short.name, stem.name, str(stem)}:
            self._ids_by_short_name.setdefault(name, set()).add(_normalised(relative))

    def locate(self, name: str) -> tuple[str, Path]:
        """The id and path of the document that ``name`` means.

        Raises:
            RowRefusedError: It means none, or several.
        """
        wanted = _normalised(name)
        candidates = [wanted] if wanted in self._paths else sorted(self._ids_by_short_name.get(wanted, ()))
        if not candidates:
            raise RowRefusedError(f"document '{name}' is not in {self._folder}")
        if len(candidates) > 1:
            raise RowRefusedError(f"document '{name}' may be any of {', '.join(candidates)}: give its path")
        if candidates[0] in self._equal_names:
            raise RowRefusedError(
                f"document '{name}' may be any of several files whose names differ only in how accents are stored: "
                "rename all but one"
            )
        return candidates[0], self._paths[candidates[0]]


def _normalised(name: str) -> str:
    # File systems differ in how they compose accents; tables come from yet other machines.
    return unicodedata.normalize("NFC", PurePosixPath(name.replace("\\", "/")).as_posix())


def _question_file(folder: Path, questions: str | Path | None) -> Path:
    if questions is not None:
        return Path(questions).expanduser()
    found = [folder / name for name in _DEFAULT_FILES if (folder / name).is_file()]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "no questions file"
        raise DatasetError(
            f"{folder} holds {names}, expected one of {', '.join(_DEFAULT_FILES)}: or set dataset.questions=FILE"
        )
    return found[0]


def _read(source: Path) -> list[Row]:
    suffix = source.suffix.lower()
    if suffix in (".csv", ".tsv"):
        columns, rows = read_csv(source, _REQUIRED)
    elif suffix in (".json", ".jsonl"):
        rows = read_json(source) if suffix == ".json" else read_json_lines(source)
        columns = list(dict.fromkeys(name for row in rows for name in row.fields))
        if rows:
            require_columns(source, columns, _REQUIRED)
    else:
        raise DatasetError(f"{source} has the suffix '{suffix}', expected .csv, .tsv, .json or .jsonl")
    _warn_of_unused(source, columns)
    return rows


def _warn_of_unused(source: Path, columns: Sequence[str]) -> None:
    unused = [name for name in columns if name not in (*_REQUIRED, *_OPTIONAL)]
    if unused:
        warnings.warn(
            f"{source}: columns not used: {', '.join(repr(name) for name in unused)}; known are "
            f"{', '.join((*_REQUIRED, *_OPTIONAL))}",
            stacklevel=4,
        )


def _question(row: Row, catalog: DocumentCatalog) -> Question:
    name, text = row.text("document"), row.text("question")
    given_id, answer = row.fields.get("id"), row.fields.get("answer")
    numbers = parse_page_list(row.fields.get("evidence_pages"))
    document, page_count = catalog.open(name)
    return Question(
        id=valid_text(str(given_id).strip()) if given_id not in (None, "") else made_id(document.id, text),
        document_id=document.id,
        text=text,
        evidence_pages=evidence_indexes(numbers, first_number=document.first_label, page_count=page_count),
        answer=None if answer == "" else answer_text(answer),
    )
