"""Own documents as pages: image files as they are, pages of PDFs drawn once and kept."""

from __future__ import annotations

import hashlib
import io
import json
import os
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from PIL import Image

from conceptformer.data.images import read_image_facts
from conceptformer.data.json_rows import Refusals, shown
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, Page
from visar.documents import IMAGE_SUFFIXES, DocumentReader, NoOcr, find_document
from visar.documents.discovery import natural_order
from visar.errors import DocumentError
from visar.records import Document
from visar.tensor_files import canonical_json, write_atomically

_PDF = ".pdf"
# A quarter of the time that the smallest file takes, for a tenth more bytes.
_COMPRESSION = 1


@dataclass(frozen=True)
class DocumentPages:
    """The pages of a folder of documents.

    Attributes:
        pages: Those that can be read, document after document.
        documents: Ids of all pages of a document in their order, by the document's path below the folder. Documents
            are PDFs, image files, and folders with image files in them.
    """

    pages: tuple[Page, ...]
    documents: Mapping[str, tuple[str, ...]]

    def find(self, name: str) -> tuple[str, ...]:
        """Ids of the pages of a document.

        Args:
            name: Its path, or its file's name with or without suffix where only one document has it.

        Raises:
            DataError: It means none, or several.
        """
        wanted = _normalised(name)
        if wanted in self.documents:
            return self.documents[wanted]
        meant = [path for path in self.documents if wanted in (PurePosixPath(path).name, PurePosixPath(path).stem)]
        if len(meant) != 1:
            other = f"may be any of {', '.join(meant[:3])}: give its path" if meant else "is not among the documents"
            raise DataError(f"document {shown(name)} {other}")
        return self.documents[meant[0]]


def read_document_folder(
    folder: Path, drawn: Path, *, dpi: float, refusals: Refusals, on_progress: OnProgress | None = None
) -> DocumentPages:
    """All PDFs and images in a folder and the folders below it. Hidden ones are passed over.

    The id of an image's page is its path below the folder; of a page of a PDF the path, ``#`` and its number from 1.

    Args:
        drawn: Where pages of PDFs are kept as PNG files, found again by the PDF's content and the resolution. If it
            lies in the folder, it is passed over there.
        dpi: Resolution of pages of PDFs.
        refusals: Gets what cannot be read.
        on_progress: Called with (done, all) of the pages. PDFs are counted before the first is drawn.

    Raises:
        DataError: The folder cannot be looked into.
        StoreError: A drawn page cannot be written.
    """
    images, pdfs = _found(folder, drawn)
    facts = read_image_facts(list(images.values()))
    pages: dict[str, Page] = {}
    documents: dict[str, list[str]] = {}
    for name, path in images.items():
        documents.setdefault(PurePosixPath(name).parent.as_posix(), []).append(name)
        documents[name] = [name]
        found = facts[path]
        if isinstance(found, DataError):
            refusals.refuse(name, found)
        else:
            pages[name] = Page(name, path)
    documents.pop(".", None)  # images beside each other at the top are no document
    counts = _counted(pdfs, drawn, dpi, refusals)
    done, total = len(images), len(images) + sum(counts.values())
    for document in counts:
        try:
            for page_id, image in drawn_pages(document, drawn, dpi):
                documents.setdefault(document.id, []).append(page_id)
                done += 1
                if isinstance(image, DocumentError):
                    refusals.refuse(page_id, image)
                else:
                    pages[page_id] = Page(page_id, image)
                if on_progress is not None:
                    on_progress(done, total)
        except DocumentError as error:
            refusals.refuse(document.id, error)
    return DocumentPages(tuple(pages.values()), {name: tuple(ids) for name, ids in documents.items()})


def drawn_pages(document: Document, drawn: Path, dpi: float) -> Iterator[tuple[str, Path | DocumentError]]:
    """The pages of a PDF as PNG files: the id of each, and its image or why it has none.

    The id is that of the document, ``#`` and the number from 1.

    Args:
        drawn, dpi: See :func:`read_document_folder`.

    Raises:
        DocumentError: The PDF cannot be opened.
        StoreError: A page cannot be written.
    """
    with DocumentReader(document, dpi=dpi, ocr=NoOcr()) as reader:
        home, count = _home_and_count(reader, drawn)
        for number in range(1, count + 1):
            image: Path | DocumentError = home / f"page-{number:04d}.png"
            if not image.is_file():
                try:
                    write_atomically(image, _png(reader.image(number - 1)))
                except DocumentError as error:
                    image = error
            yield f"{document.id}#{number}", image


def _found(folder: Path, drawn: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Images and PDFs, each by its path below the folder as tables may write it."""
    images: dict[str, Path] = {}
    pdfs: dict[str, Path] = {}
    own = drawn.resolve()

    def refused(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot be looked into ({error.strerror}); expected a folder of documents")

    for parent, folders, files in os.walk(folder, onerror=refused):
        wanted = (name for name in folders if not name.startswith(".") and Path(parent, name).resolve() != own)
        folders[:] = sorted(wanted, key=natural_order)
        for name in sorted((name for name in files if not name.startswith(".")), key=natural_order):
            path = Path(parent, name)
            found = images if path.suffix.lower() in IMAGE_SUFFIXES else pdfs if path.suffix.lower() == _PDF else None
            if found is not None:
                found[_normalised(path.relative_to(folder).as_posix())] = path
    return images, pdfs


def _counted(pdfs: Mapping[str, Path], drawn: Path, dpi: float, refusals: Refusals) -> dict[Document, int]:
    """The PDFs that can be opened, with their numbers of pages."""
    counts: dict[Document, int] = {}
    for name, path in pdfs.items():
        try:
            document = find_document(path, document_id=name)
            with DocumentReader(document, dpi=dpi, ocr=NoOcr()) as reader:
                _, counts[document] = _home_and_count(reader, drawn)
        except DocumentError as error:
            refusals.refuse(name, error)
    return counts


def _home_and_count(reader: DocumentReader, drawn: Path) -> tuple[Path, int]:
    """Where the pages of a PDF are kept, and how many there are.

    From the note that an earlier look has left, since opening a PDF starts a process; or counted and noted.
    """
    made_from = {"content": reader.content_fingerprint(), **reader.image_fingerprint()}
    home = drawn / hashlib.sha256(canonical_json(made_from).encode()).hexdigest()[:32]
    note = home / "pages.json"
    try:
        return home, int(json.loads(note.read_bytes())["pages"])
    except (OSError, ValueError, TypeError, KeyError):
        count = reader.page_count
        facts = {**made_from, "document": reader.document.id, "pages": count}
        write_atomically(note, f"{json.dumps(facts, indent=2)}\n".encode())
        return home, count


def _png(image: Image.Image) -> bytes:
    content = io.BytesIO()
    image.save(content, "PNG", compress_level=_COMPRESSION)
    return content.getvalue()


def _normalised(name: str) -> str:
    # File systems differ in how they compose accents; tables come from yet other machines.
    return unicodedata.normalize("NFC", PurePosixPath(name.replace("\\", "/")).as_posix())
