"""From a path to a document: what a person points at, and what it consists of."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from visar.documents.images import check_page_image
from visar.documents.pdf import check_pdf
from visar.errors import DocumentError
from visar.records import Document

logger = logging.getLogger(__name__)

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp"})
NAMES_SHOWN = 3


def find_document(path: Path | str, *, document_id: str | None = None) -> Document:
    """Take a PDF, one image file or a folder of images as a document.

    Args:
        path: A folder's images become pages in the order of their names, numbers by value (page_2 before page_10).
            Hidden files are passed over; other files and subfolders too, with a warning.
        document_id: The id; by default the name of the file or folder.

    Raises:
        DocumentError: Nothing there, or not to be looked at, an empty file, neither a PDF nor an image, a folder
            without images, or an image file with several pages. Whether a PDF can be read shows when a
            :class:`DocumentReader` opens it.
    """
    path = Path(path)
    try:
        if path.is_dir():
            files = _images_of_folder(path)
        elif path.is_file():
            _check_file(path)
            files = (path,)
        else:
            raise DocumentError(f"{path}: no such file or folder; expected a PDF, an image or a folder of images")
        return Document(id=document_id if document_id is not None else path.resolve().name, files=files)
    except OSError as error:
        raise DocumentError(
            f"{path}: cannot be looked at ({error.strerror}); check the name and who may read it"
        ) from error


def is_image_file(path: Path) -> bool:
    """Whether the name's ending says image."""
    return path.suffix.lower() in IMAGE_SUFFIXES


def natural_order(name: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key of a file name: case does not matter, runs of digits count as numbers.

    Text and numbers alternate, beginning with text, so that any two keys can be compared.
    """
    parts = re.split(r"([0-9]+)", name.casefold())
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts)), name


def _check_file(path: Path) -> None:
    if is_image_file(path):
        check_page_image(path)
    else:
        check_pdf(path)


def _images_of_folder(folder: Path) -> tuple[Path, ...]:
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    images = sorted((entry for entry in entries if is_image_file(entry)), key=lambda entry: natural_order(entry.name))
    others = sorted(entry.name for entry in entries if not is_image_file(entry))
    shown = ", ".join(others[:NAMES_SHOWN]) + (f" and {len(others) - NAMES_SHOWN} more" if others[NAMES_SHOWN:] else "")
    if not images:
        held = f"it holds {shown}" if others else "it is empty"
        raise DocumentError(f"{folder}: no images in this folder ({held}); expected PNG, JPEG, WebP, TIFF or BMP pages")
    if others:
        logger.warning("%s: %d images are the pages; left out: %s", folder, len(images), shown)
    for image in images:
        check_page_image(image)
    return tuple(images)
