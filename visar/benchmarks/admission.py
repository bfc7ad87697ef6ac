"""Which rows of a question file become questions, and which are refused and why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from visar.errors import DatasetError
from visar.records import Document, Question, QuestionSet


class RowRefusedError(ValueError):
    """One row cannot become a question; the message is the reason. It never leaves the package's loaders."""


@dataclass(frozen=True)
class Row:
    """One row of a question file.

    Attributes:
        place: Where a person finds it, such as ``"row 3"`` or ``"line 7"``.
        fields: The row's values by field name.
        problem: Why none of the fields can be trusted, such as a row with too many cells; empty where they can.
    """

    place: str
    fields: Mapping[str, object]
    problem: str = ""

    def value(self, name: str) -> object:
        """The field's value.

        Raises:
            RowRefusedError: The row has no such field, nothing in it, or is broken as a whole.
        """
        if self.problem:
            raise RowRefusedError(self.problem)
        if self.fields.get(name) is None:
            raise RowRefusedError(f"field '{name}' is missing")
        return self.fields[name]

    def text(self, name: str) -> str:
        """The field's text without surrounding blanks.

        Raises:
            RowRefusedError: The field is missing, blank, no text, or holds half a character.
        """
        value = self.value(name)
        if not isinstance(value, str):
            raise RowRefusedError(f"field '{name}' holds {type(value).__name__}, expected text")
        if not value.strip():
            raise RowRefusedError(f"field '{name}' is empty")
        return valid_text(value.strip())


class Admission:
    """Collects the questions of one file and a line for every row that is refused."""

    def __init__(self, name: str, source: Path) -> None:
        """
        Args:
            name: The benchmark's name.
            source: The question file, for messages.
        """
        self.name = name
        self.source = source
        self._questions: dict[str, Question] = {}
        self._places: dict[str, str] = {}
        self._refused: list[str] = []

    def admit(self, row: Row, question: Question) -> None:
        """Take the row's question, or refuse it where an earlier row has the same id."""
        if question.id in self._questions:
            self.refuse(row, question.id, f"the same question id as {self._places[question.id]}")
            return
        self._questions[question.id] = question
        self._places[question.id] = row.place

    def refuse(self, row: Row, question_id: str, reason: object) -> None:
        """List the row as refused. ``question_id`` may be empty where the row has none."""
        name = f" ({question_id})" if question_id else ""
        line = f"{row.place}{name}: {reason}"
        self._refused.append(line.encode(errors="backslashreplace").decode())

    def result(self, documents: Iterable[Document], broken: Iterable[str] = ()) -> QuestionSet:
        """The question set.

        Args:
            documents: Documents in the order in which questions first name them. Those without an admitted question
                are left out.
            broken: One line for each document that cannot be read. They are listed before the rows.

        Raises:
            DatasetError: There are no rows, or more than half of them are refused: then the loader and the files do
                not fit each other, and an average over the rest would mean nothing.
        """
        total = len(self._questions) + len(self._refused)
        if total == 0:
            raise DatasetError(f"{self.source} holds no questions, expected at least one row")
        if 2 * len(self._refused) > total:
            first = "; ".join(self._refused[:3])
            more = f"; and {len(self._refused) - 3} more" if len(self._refused) > 3 else ""
            # The rows say only which document cannot be read; the reason stands here.
            why = "".join(f"; {line}" for line in list(broken)[:3])
            raise DatasetError(
                f"{self.source}: {len(self._refused)} of {total} rows are refused, more than half: {first}{more}{why}"
            )
        asked = {question.document_id for question in self._questions.values()}
        return QuestionSet(
            name=self.name,
            documents=tuple(document for document in documents if document.id in asked),
            questions=tuple(self._questions.values()),
            refused=(*broken, *self._refused),
        )


def made_id(document_id: str, question: str) -> str:
    """An id for a question whose file has none. It depends on the document's name and the question alone, so it
    stays the same when rows are added, removed or sorted."""
    digest = hashlib.sha256(f"{document_id}\n{question}".encode()).hexdigest()
    return f"{Path(document_id).stem}:{digest[:12]}"


def answer_text(value: object) -> str | None:
    """A reference answer as text: strings as they are, lists as JSON, numbers as Python writes them.

    Raises:
        RowRefusedError: It holds half a character.
    """
    if value is None:
        return None
    return valid_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def valid_text(text: str) -> str:
    r"""The text itself, if it can be written to a file: JSON's ``\ud83d`` without its other half cannot.

    Raises:
        RowRefusedError: It cannot.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        shown = ascii(text[error.start])
        raise RowRefusedError(f"the text holds {shown}, half of a character (a surrogate without its other)") from error
    return text
