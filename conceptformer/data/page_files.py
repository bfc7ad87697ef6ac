"""Page images as files of their own: those that lie in Parquet files or in a cache are copied out, byte for byte."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.data.images import ImageFacts, read_image_facts
from conceptformer.data.json_rows import Refusals, shown
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, Page
from visar.tensor_files import StoreError, canonical_json, remove_leftovers, write_atomically

# First bytes of image files, and what such files are called.
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"RIFF", ".webp"),
    (b"II*\x00", ".tif"),
    (b"MM\x00*", ".tif"),
    (b"BM", ".bmp"),
)
_NAME_SHOWN = 40
_SAME_SHAPE = math.log(1.02)


class PageFiles:
    """A folder of page images. What an earlier run has copied is not copied again.

    A file's name holds a digest of the page's id and of the corpus, and the end of the id for people to read.
    """

    def __init__(self, folder: Path, corpus: str, *, cache: Path | None = None) -> None:
        """
        Args:
            folder: Where the files go, in up to 256 folders.
            corpus: Tells corpora apart whose pages have equal ids, see :func:`corpus_stamp`.
            cache: A folder whose image files are copied too, since they may be gone tomorrow. What changes an image
                must change its file's path there.

        Raises:
            StoreError: The folder cannot be looked into.
        """
        self.folder = folder
        self._corpus = corpus
        self._cache = None if cache is None else cache.resolve()
        self._there: dict[str, Path] = {}
        try:
            for home in folder.iterdir() if folder.is_dir() else ():
                remove_leftovers(home)
                self._there |= {name.split("-", 1)[0]: home / name for name in os.listdir(home) if name[0] != "."}
        except OSError as error:
            raise StoreError(
                f"{folder}: cannot be looked into ({error.strerror}); check who may read it, or choose another folder"
            ) from error

    def known(self, page: Page) -> Path | None:
        """The page's file, if there is one: the image itself, or a copy of an earlier run."""
        if isinstance(page.image, Path) and self._cached(page.image) is None:
            return page.image
        return self._there.get(self._digest(page))

    def file_of(self, page: Page) -> Path:
        """The page's file, copied if there is none yet.

        Raises:
            DataError: The image cannot be read, or is of no kind that can be used.
            StoreError: The file cannot be written.
        """
        known = self.known(page)
        if known is not None:
            return known
        try:
            content = page.image if isinstance(page.image, bytes) else page.image.read_bytes()
        except OSError as error:
            raise DataError(f"{page.image}: cannot be read ({error.strerror}); expected an image file") from error
        suffix = next((suffix for start, suffix in _KINDS if content.startswith(start)), None)
        if suffix is None:
            raise DataError(f"page {shown(page.page_id)}: not an image; expected PNG, JPEG, WebP, TIFF or BMP")
        digest = self._digest(page)
        # Not the stem, which is without the page's number in report.pdf#3.
        name = re.sub(r"\.\w+$", "", Path(page.page_id).name)
        readable = re.sub(r"[^A-Za-z0-9]+", "_", name)[-_NAME_SHOWN:]
        path = self.folder / digest[:2] / f"{digest}-{readable}{suffix}"
        write_atomically(path, content)
        self._there[digest] = path
        return path

    def _digest(self, page: Page) -> str:
        facts = {"corpus": self._corpus, "page": page.page_id}
        if isinstance(page.image, Path):
            facts["file"] = self._cached(page.image)
        return hashlib.sha256(canonical_json(facts).encode()).hexdigest()[:24]

    def _cached(self, image: Path) -> str | None:
        """The path of an image below the cache; None where it lies elsewhere."""
        if self._cache is None or not (path := image.resolve()).is_relative_to(self._cache):
            return None
        return path.relative_to(self._cache).as_posix()


@dataclass(frozen=True)
class CopiedPage:
    """A page whose image is a file.

    Attributes:
        size: (width, height) of the image.
    """

    page: Page
    size: tuple[int, int]


def copy_pages(
    pages: Sequence[Page], page_files: PageFiles, refusals: Refusals, on_progress: OnProgress | None = None
) -> dict[str, CopiedPage]:
    """The pages that can be used, as files, by id.

    Args:
        pages: Best in the order of their corpus.
        refusals: Gets those whose image cannot be read.
        on_progress: Called with (done, all) after each page.

    Raises:
        StoreError: A file cannot be written.
    """
    files: dict[str, Path] = {}
    for done, page in enumerate(pages, start=1):
        try:
            files[page.page_id] = page_files.file_of(page)
        except DataError as error:
            refusals.refuse(f"page {shown(page.page_id)}", error)
        if on_progress is not None:
            on_progress(done, len(pages))
    return readable_pages(files, refusals)


def readable_pages(
    files: Mapping[str, Path], refusals: Refusals, on_progress: OnProgress | None = None
) -> dict[str, CopiedPage]:
    """The pages whose files are images, by id. Of the images only the headers are read.

    Args:
        files: By the id of each page.
        refusals: Gets pages whose image cannot be read.
        on_progress: Called with (done, all) after each file.
    """
    facts = read_image_facts(list(dict.fromkeys(files.values())), on_progress)
    pages: dict[str, CopiedPage] = {}
    for page_id, path in files.items():
        found = facts[path]
        if isinstance(found, ImageFacts):
            pages[page_id] = CopiedPage(Page(page_id, path), found.size)
        else:
            refusals.refuse(f"page {shown(page_id)}", found)
    return pages


def page_of_size(pages: Sequence[CopiedPage], size: tuple[float, float] | None) -> CopiedPage:
    """The page that boxes lie on, told by the page size that a file states with them.

    Args:
        pages: At least one.
        size: (width, height); None where it is not stated.

    Returns:
        The first page of that size, else the first of that shape; the first of all where no size is stated.

    Raises:
        DataError: None has that shape.
    """
    if size is None:
        return pages[0]
    same = [page for page in pages if page.size == size]
    alike = [page for page in pages if _same_shape(page.size, size)]
    if not alike:
        raise DataError(f"image_size is {size[0]:g} x {size[1]:g}, and none of its pages has that shape")
    return (same or alike)[0]


def corpus_stamp(files: Iterable[Path]) -> str:
    """Changes with the names and sizes of a corpus's files, and not with their place.

    Raises:
        DataError: A file is gone.
    """
    sizes: dict[str, list[int]] = {}
    try:
        for path in files:
            sizes.setdefault(path.name, []).append(path.stat().st_size)
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}; expected a file of the corpus") from error
    # Files in several folders may have one name.
    facts = {name: own[0] if len(own) == 1 else own for name, own in sizes.items()}
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def _same_shape(size: tuple[int, int], other: tuple[float, float]) -> bool:
    return abs(math.log(size[0] * other[1] / (size[1] * other[0]))) < _SAME_SHAPE
