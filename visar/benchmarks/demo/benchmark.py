"""The demo benchmark: documents that the project draws itself, and questions whose evidence is known by layout."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

from visar.benchmarks.demo.blocks import DemoDocument
from visar.benchmarks.demo.documents import DOCUMENTS
from visar.errors import MissingExtraError
from visar.records import Document, Question, QuestionSet
from visar.tensor_files import StoreError, canonical_json, remove_leftovers, write_atomically

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"


class Demo:
    """Six invented documents with text, tables, charts and a scanned part, and questions with one, several and no
    evidence pages.

    The PDFs are drawn at the first :meth:`load`, in a few seconds, and are the same bytes on every run. Later loads
    check them against the manifest beside them and draw anew only what is missing or damaged.

    Args:
        folder: Where the PDFs are kept. By default a folder of the user's cache, named for the version of the content.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = Path(folder).expanduser() if folder else _default_folder()

    def load(self) -> QuestionSet:
        """The questions in a fixed order, and the documents, which are drawn where need be.

        Raises:
            MissingExtraError: A document has to be drawn and reportlab is not installed.
            StoreError: The folder cannot be written or read.
        """
        entries = self._intact_entries()
        for document in DOCUMENTS:
            if document.id not in entries:
                entries[document.id] = self._draw(document)
                self._write_manifest(entries)
        return QuestionSet(
            name="demo",
            documents=tuple(Document(document.id, (self._pdf(document.id),)) for document in DOCUMENTS),
            questions=tuple(
                Question(
                    question.id,
                    document.id,
                    question.text,
                    tuple(entries[document.id]["evidence"][question.id]),
                    question.answer,
                )
                for document in DOCUMENTS
                for question in document.questions
            ),
        )

    def _pdf(self, document_id: str) -> Path:
        return self.folder / f"{document_id}.pdf"

    def _intact_entries(self) -> dict[str, dict[str, Any]]:
        """Entries of the manifest whose file is still what was drawn from the present content."""
        content = _read(self.folder / MANIFEST)
        if content is None:
            return {}
        try:
            manifest = json.loads(content)
            entries, version = manifest["documents"], manifest["version"]
            sound = manifest["checksum"] == _checksum(version, entries)
        except (ValueError, TypeError, KeyError):
            sound = False
        if not sound:
            logger.info("%s: the manifest is damaged; all documents are drawn anew", self.folder)
            return {}
        if version != content_version():
            return {}
        return {id_: entry for id_, entry in entries.items() if self._is_intact(id_, entry["sha256"])}

    def _is_intact(self, document_id: str, sha256: str) -> bool:
        content = _read(self._pdf(document_id))
        return content is not None and hashlib.sha256(content).hexdigest() == sha256

    def _draw(self, document: DemoDocument) -> dict[str, Any]:
        try:
            from visar.benchmarks.demo.drawing import draw_document
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "reportlab":
                raise
            raise MissingExtraError("reportlab", "offline", "drawing the demo documents") from error
        logger.info("drawing %s into %s", document.id, self.folder)
        drawn = draw_document(document)
        write_atomically(self._pdf(document.id), drawn.pdf)
        evidence = {
            question.id: sorted({drawn.marks[mark] for mark, _ in question.evidence}) for question in document.questions
        }
        return {"sha256": hashlib.sha256(drawn.pdf).hexdigest(), "evidence": evidence}

    def _write_manifest(self, entries: dict[str, dict[str, Any]]) -> None:
        version = content_version()
        ordered = {document.id: entries[document.id] for document in DOCUMENTS if document.id in entries}
        manifest = {"version": version, "documents": ordered, "checksum": _checksum(version, ordered)}
        write_atomically(self.folder / MANIFEST, json.dumps(manifest, indent=1).encode())
        remove_leftovers(self.folder)


def _read(path: Path) -> bytes | None:
    """The file's bytes, None where there is no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); remove it or choose another folder") from error


def content_version() -> str:
    """Changes whenever the text, the layout or the drawing of the demo documents does."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.relative_to(folder).as_posix().encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _checksum(version: str, entries: dict[str, dict[str, Any]]) -> str:
    return hashlib.sha256(canonical_json({"version": version, "documents": entries}).encode()).hexdigest()


def _default_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "visar" / f"demo-{content_version()}"
