"""Documents that questions refer to: found by name, opened once each to count their pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath, PureWindowsPath

from visar.benchmarks.admission import RowRefusedError
from visar.documents import DocumentReader, NoOcr, find_document
from visar.errors import DocumentError
from visar.records import Document


class DocumentCatalog:
    """Opens each document at its first mention and remembers its page count, or why it cannot be read."""

    def __init__(self, locate: Callable[[str], tuple[str, Path]]) -> None:
        """
        Args:
            locate: Turns the name in a question into the document's id and path; raises RowRefusedError where there
                is no such document.
        """
        self._locate = locate
        self._readable: dict[str, tuple[Document, int]] = {}
        self._broken: dict[str, str] = {}

    def open(self, name: str) -> tuple[Document, int]:
        """The document of that name and how many pages it has.

        Raises:
            RowRefusedError: There is no such document, or it cannot be read.
        """
        document_id, path = self._locate(name)
        if document_id not in self._readable and document_id not in self._broken:
            try:
                document = find_document(path, document_id=document_id)
                with DocumentReader(document, dpi=144, ocr=NoOcr()) as reader:
                    self._readable[document_id] = (document, reader.page_count)
            except DocumentError as error:
                self._broken[document_id] = str(error)
        if document_id in self._broken:
            raise RowRefusedError(f"its document '{document_id}' cannot be read")
        return self._readable[document_id]

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents that can be read, in the order of their first mention."""
        return tuple(document for document, _ in self._readable.values())

    @property
    def broken(self) -> tuple[str, ...]:
        """One line for each document that cannot be read."""
        return tuple(f"document '{name}': {reason}" for name, reason in self._broken.items())


def locate_pdf(documents: Path, name: str) -> tuple[str, Path]:
    """The id and path of a file in a benchmark's folder of PDFs.

    Symbolic links are left as they are: the hub's cache links to files without a suffix.

    Raises:
        RowRefusedError: There is no such file, or the name would leave the folder.
    """
    # Read as Windows does, everywhere: it knows drives ("C:x") and both slashes.
    parts = PureWindowsPath(name)
    if parts.anchor or ".." in parts.parts:
        raise RowRefusedError(f"document '{name}' is not a path inside {documents.name}/")
    path = documents / PurePosixPath(parts.as_posix())
    try:
        found = path.is_file()
    except OSError as error:
        raise RowRefusedError(f"document '{name}' cannot be found in {documents.name}/: {error.strerror}") from error
    if not found:
        raise RowRefusedError(f"document '{name}' is not in {documents.name}/")
    return name, path
