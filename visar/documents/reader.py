"""Pages of a document as images and as text, whatever the document consists of."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from types import TracebackType

import PIL
from PIL import Image

from visar.documents.discovery import is_image_file
from visar.documents.images import check_page_image, read_page_image
from visar.documents.ocr import OcrEngine, installed_version
from visar.documents.pdf import PdfFile, check_pdf
from visar.documents.text_cache import CachedText, TextCache
from visar.documents.text_layer import TextLayer, read_text_layer
from visar.errors import DocumentError
from visar.records import Document, PageText, Word

logger = logging.getLogger(__name__)

TEXT_LAYER = "text layer"
# Raise it when the words of the same file change: it is part of the fingerprint.
TEXT_RULES_VERSION = "2"
BLOCK_BYTES = 2**20
SECONDS_PER_PAGE = 120


class DocumentReader:
    """Reads the pages of one document. Use it in a ``with`` block: a PDF is read by a process that has to be ended.

    Page numbers are 0-based. A page that cannot be read raises and leaves the others readable.

    Args:
        document: What to read.
        dpi: Resolution at which pages of a PDF are drawn; images keep their own.
        ocr: Reads pages without a usable text layer, and images.
        text_cache: Folder that keeps the text of all pages of all documents between runs.

    Raises:
        DocumentError: The file is missing, empty or not a PDF; at the first look inside: encrypted, truncated or
            damaged, or without pages.
    """

    def __init__(
        self,
        document: Document,
        *,
        dpi: float = 144,
        ocr: OcrEngine,
        text_cache: Path | None = None,
    ) -> None:
        if not document.files:
            raise DocumentError(f"{document.id}: the document has no files; expected a PDF or images")
        if not dpi > 0:
            raise DocumentError(f"{document.id}: dpi must be above 0, got {dpi}")
        self.document = document
        self._dpi, self._ocr = dpi, ocr
        self._text_cache_folder = text_cache
        self._text_cache: TextCache | None = None
        self._fingerprint: str | None = None
        self._words_outside: dict[int, int] = {}
        self._pdf_path: Path | None = None
        self._pdf: PdfFile | None = None
        if all(is_image_file(file) for file in document.files):
            for file in document.files:
                check_page_image(file)
        else:
            self._pdf_path = _only_pdf(document)
            check_pdf(self._pdf_path)

    def __enter__(self) -> DocumentReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process that reads the PDF, and warn of the words that were left out."""
        if self._pdf is not None:
            self._pdf.close()
        if self._words_outside:
            words, pages = sum(self._words_outside.values()), len(self._words_outside)
            message = "%s: words outside the visible page were left out (%d, on %d of its pages)"
            logger.warning(message, self.document.id, words, pages)
            self._words_outside.clear()

    @property
    def _opened_pdf(self) -> PdfFile:
        """The PDF and its process, which starts at the first request: what the caches hold needs none."""
        if self._pdf is None:
            self._pdf = PdfFile(self._pdf_path, timeout=SECONDS_PER_PAGE)
        return self._pdf

    @property
    def page_count(self) -> int:
        return len(self.document.files) if self._pdf_path is None else self._opened_pdf.page_count

    def image(self, page: int) -> Image.Image:
        """A page as a person sees it: RGB, upright, on white.

        Raises:
            DocumentError: No such page, or it cannot be read.
        """
        self._check_page(page)
        if self._pdf_path is not None:
            return self._opened_pdf.render(page, dpi=self._dpi)
        return read_page_image(self.document.files[page])

    def text(self, page: int) -> PageText:
        """The words of a page: those of the PDF's text layer, and where it has none to speak of
        (:attr:`visar.documents.text_layer.TextLayer.fault`), what OCR reads from the page's image besides.

        Raises:
            DocumentError: No such page, or it cannot be read.
            MissingExtraError: The page needs OCR and the engine is not installed.
        """
        self._check_page(page)
        cache = self._opened_cache()
        cached = cache.load(page) if cache is not None else None
        if cached is None:
            cached = self._read_text(page)
            if cache is not None:
                cache.save(page, cached)
        if cached.words_outside:
            self._words_outside[page] = cached.words_outside
        return cached.text

    def content_fingerprint(self) -> str:
        """SHA-256 over the bytes of all files, in page order; names and places of the files do not matter."""
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for file in self.document.files:
                digest.update(_file_digest(file))
            self._fingerprint = digest.hexdigest()
        return self._fingerprint

    def image_fingerprint(self) -> dict[str, str]:
        """What decides the pixels of pages, besides the files: the drawing library and, for a PDF, the resolution."""
        if self._pdf_path is not None:
            return {"pypdfium2": installed_version("pypdfium2"), "dpi": f"{self._dpi:g}"}
        return {"pillow": PIL.__version__}

    def text_fingerprint(self) -> dict[str, str]:
        """What decides the words of pages, besides the files: how pages are drawn, the OCR engine, the rules here."""
        return {**self.image_fingerprint(), **self._ocr.fingerprint(), "text rules": TEXT_RULES_VERSION}

    def _check_page(self, page: int) -> None:
        if not 0 <= page < self.page_count:
            raise DocumentError(
                f"{self.document.id}: no page {page}; the document has {self.page_count}, numbered from 0 here"
            )

    def _opened_cache(self) -> TextCache | None:
        if self._text_cache is None and self._text_cache_folder is not None:
            key = {"content": self.content_fingerprint(), **self.text_fingerprint()}
            self._text_cache = TextCache(self._text_cache_folder, key)
        return self._text_cache

    def _read_text(self, page: int) -> CachedText:
        if self._pdf_path is None:
            return CachedText(self._recognised(page), 0)
        layer = read_text_layer(self._opened_pdf.characters(page))
        return CachedText(self._text_of_layer(layer, page), layer.outside)

    def _text_of_layer(self, layer: TextLayer, page: int) -> PageText:
        from_layer = PageText(layer.words, TEXT_LAYER)
        if layer.fault is None:
            return from_layer
        place = f"{self.document.id}, page {self.document.label(page)}"
        logger.info("%s: %s; OCR: %s", place, layer.fault, self._ocr.name)
        recognised = self._recognised(page)
        # What the layer does say (a stamp, a title over a picture) is exact; OCR adds what stands elsewhere.
        added = tuple(word for word in recognised.words if not _is_among(word, layer.words))
        if layer.words and not added:
            return from_layer
        return PageText(layer.words + added, recognised.source)

    def _recognised(self, page: int) -> PageText:
        image = self.image(page)
        is_blank = all(low == high for low, high in image.getextrema())
        return PageText(() if is_blank else self._ocr.read(image), self._ocr.name)


def _is_among(word: Word, others: tuple[Word, ...]) -> bool:
    """Whether the middle of a word lies in the box of another."""
    left, top, right, bottom = word.box
    across, down = (left + right) / 2, (top + bottom) / 2
    return any(box[0] <= across <= box[2] and box[1] <= down <= box[3] for box in (other.box for other in others))


def _only_pdf(document: Document) -> Path:
    if len(document.files) > 1:
        raise DocumentError(f"{document.id}: {len(document.files)} files that are not all images; expected one PDF")
    return document.files[0]


def _file_digest(path: Path) -> bytes:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read ({error.strerror}); check that it is still there") from error
    return digest.digest()
