"""One PDF, read through a process of its own that may crash or hang without harm to the caller."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from visar.documents import pdf_worker
from visar.documents.page_characters import PageCharacters, displayed_boxes, displayed_size
from visar.documents.text_layer import STAMP_CHARACTERS
from visar.errors import DocumentError

logger = logging.getLogger(__name__)

# 50 million pixels are a page of 41 x 59 inches at 144 dpi, and 150 MB of memory.
MAX_PIXELS = 50_000_000
PDF_MARK = b"%PDF-"
# Readers accept up to a kilobyte of mail headers and the like before the mark, and some bytes after the end.
PDF_MARK_WITHIN = 1024
PDF_END = b"%%EOF"
PDF_END_WITHIN = 2048
NO_PAGES = 0  # FPDF_ERR_SUCCESS, and yet no document
PASSWORD_NEEDED = 4  # FPDF_ERR_PASSWORD
UNKNOWN_SECURITY = 5  # FPDF_ERR_SECURITY


class PdfFile:
    """A PDF and the process that reads it. One thread at a time is served, others wait.

    Args:
        path: The file.
        timeout: Seconds that one page may take before its process is ended.

    Raises:
        DocumentError: Missing, empty, not a PDF, encrypted, truncated or damaged, without pages, or no process can be
            started to read it.
    """

    def __init__(self, path: Path, *, timeout: float) -> None:
        self.path = path
        self._timeout = timeout
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        with self._lock:
            self.page_count = self._connected_worker().page_count
        if not _ends_like_a_pdf(path):
            logger.warning("%s: has no end-of-file mark; it may be truncated and miss pages", path)

    def close(self) -> None:
        """End the process. A later request would start a new one."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def render(self, page: int, *, dpi: float) -> Image.Image:
        """Draw a page, forms and annotations included, on white.

        Args:
            page: 0-based.
            dpi: Resolution. A page that would have more than :data:`MAX_PIXELS` is drawn smaller, with a warning.

        Raises:
            DocumentError: The page is damaged, or reading it crashed the process or took too long.
        """
        header, pixels = self._ask(page, request="render", dpi=dpi, max_pixels=MAX_PIXELS)
        used = header["dpi"]
        if used < dpi * 0.999:
            bound = f"{MAX_PIXELS:,} pixels"
            logger.warning(
                "%s: drawn at %.0f instead of %.0f dpi to stay below %s", self._place(page), used, dpi, bound
            )
        return Image.frombytes("RGB", (header["width"], header["height"]), pixels, "raw", "RGB", header["stride"])

    def characters(self, page: int) -> PageCharacters:
        """The characters of a page's text layer, in the order of the file.

        Args:
            page: 0-based.

        Raises:
            DocumentError: As for :meth:`render`.
        """
        header, payload = self._ask(page, request="characters", images_below=2 * STAMP_CHARACTERS)
        count = header["count"]
        codes = np.frombuffer(payload, dtype=np.uint32, count=count)
        marks = np.frombuffer(payload, dtype=np.uint8, count=count, offset=4 * count)
        left, right, bottom, top = np.frombuffer(payload, dtype=np.float64, offset=5 * count).reshape(count, 4).T
        boxes = np.stack([left, bottom, right, top], axis=1)
        images = np.array(header["images"], dtype=np.float64).reshape(-1, 4)
        place = tuple(header["page_box"]), header["rotation"]
        return PageCharacters(
            codes=codes,
            unmapped=(marks & 1) > 0,
            line_end_hyphens=(marks & 2) > 0,
            boxes=displayed_boxes(boxes, *place),
            image_boxes=displayed_boxes(images, *place),
            size=displayed_size(*place),
        )

    def _place(self, page: int) -> str:
        return f"{self.path}, page {page + 1} of {self.page_count}"

    def _connected_worker(self) -> _Worker:
        # After a fork both sides would talk through one pipe: the child needs a process of its own.
        if self._worker is None or self._worker.owner != os.getpid():
            check_pdf(self.path)
            self._worker = _Worker(self.path, self._timeout)
        return self._worker

    def _ask(self, page: int, **request: Any) -> tuple[dict[str, Any], bytes]:
        with self._lock:
            worker = self._connected_worker()
            try:
                header, payload = worker.ask({**request, "page": page}, self._place(page))
            finally:
                if worker.stopped:
                    self._worker = None
        if "error" in header:
            raise DocumentError(f"{self._place(page)}: cannot be read ({header['error']}); the other pages may be")
        return header, payload


class _Worker:
    """A running process with the document open in it."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.owner = os.getpid()
        self._timeout = timeout
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = _start(self._errors)
        # Also runs at the interpreter's exit, so that a reader nobody closed leaves no process behind.
        self._stop = weakref.finalize(self, _stop, self.process, self._errors, self.owner)
        header, _ = self.ask({"request": "open", "path": str(path)}, str(path))
        if "error" in header:
            self.stop()
            raise DocumentError(f"{path}: {_why_not_opened(header, path)}")
        self.page_count: int = header["pages"]

    @property
    def stopped(self) -> bool:
        return not self._stop.alive

    def stop(self) -> None:
        self._stop()

    def ask(self, request: dict[str, Any], place: str) -> tuple[dict[str, Any], bytes]:
        """One request and its reply. A process that died, hangs, or whose reply was not read to the end is stopped."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.process.kill()

        watch = threading.Timer(self._timeout, give_up)
        watch.daemon = True
        watch.start()
        answered = False
        try:
            reply = self._exchange(request)
            if reply is None or late.is_set():
                raise DocumentError(f"{place}: {self._last_words(late.is_set())}")
            answered = True
            return reply
        finally:
            watch.cancel()
            if not answered:  # an interrupt by the user comes here too: its late reply must not answer the next request
                self.stop()

    def _exchange(self, request: dict[str, Any]) -> tuple[dict[str, Any], bytes] | None:
        try:
            pdf_worker.write_message(self.process.stdin, request)
            return pdf_worker.read_message(self.process.stdout)
        except (BrokenPipeError, ConnectionResetError):
            return None

    def _last_words(self, late: bool) -> str:
        if late:
            return f"reading took longer than {self._timeout:g} s and was ended; the page may be too complex or hostile"
        status = self.process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        cause = f"signal {-status}" if status < 0 else f"exit status {status}"
        return (
            f"the process that reads it ended with {cause}{': ' + said[-1] if said else ''}; "
            "the page may be damaged or need too much memory"
        )


def _start(errors: BinaryIO) -> subprocess.Popen[bytes]:
    # What this interpreter can import the child shall find too, as multiprocessing's spawned children do.
    search_path = os.pathsep.join(entry for entry in sys.path if entry)
    try:
        return subprocess.Popen(
            [sys.executable, pdf_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": search_path},
            start_new_session=True,  # Ctrl-C is for the owner, which ends this process itself
        )
    except OSError as error:
        raise DocumentError(f"cannot start a process to read PDFs in ({error}); free memory or processes") from error


def _stop(process: subprocess.Popen[bytes], errors: BinaryIO, owner: int) -> None:
    errors.close()
    if os.getpid() != owner:  # a forked child must not end its parent's process
        return
    process.kill()  # it only reads: nothing can be lost
    process.wait()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):  # a request that was still in the buffer
            stream.close()


def check_pdf(path: Path) -> None:
    """Look at a file's first bytes.

    Raises:
        DocumentError: Missing, empty, or not a PDF. Whether it can be read shows only when it is opened.
    """
    try:
        if not path.is_file():
            raise DocumentError(f"{path}: no such file; expected a PDF")
        with path.open("rb") as file:
            start = file.read(PDF_MARK_WITHIN)
    except OSError as error:
        raise DocumentError(f"{path}: cannot be read ({error.strerror}); check who may read it") from error
    if not start:
        raise DocumentError(f"{path}: the file is empty; expected a PDF")
    if PDF_MARK not in start:
        raise DocumentError(f"{path}: not a PDF (it does not begin with %PDF-); expected a PDF or an image")


def _ends_like_a_pdf(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - PDF_END_WITHIN))
        return PDF_END in file.read()


def _why_not_opened(header: dict[str, Any], path: Path) -> str:
    if header["code"] == PASSWORD_NEEDED:
        return "the PDF is encrypted and needs a password; save a copy without one"
    if header["code"] == UNKNOWN_SECURITY:
        return "the PDF uses an encryption that PDFium does not know; save a copy without it"
    if header["code"] == NO_PAGES:
        return "the PDF has no pages; a document needs at least one"
    if not _ends_like_a_pdf(path):
        return "the PDF is truncated (it has no end-of-file mark); get a complete copy"
    return f"the PDF is damaged ({header['error']}); get another copy, or have a PDF program repair it"
