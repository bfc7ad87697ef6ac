"""The process in which PDFium runs, and the messages that it exchanges with its owner over stdin and stdout.

PDFium is not thread-safe and a hostile file can crash it, so it never runs in the user's process. This file is run as a
script by :class:`visar.documents.pdf.PdfFile` and imports nothing of the package, which would load torch and take
seconds. A message is two big-endian 32-bit lengths, a JSON object and raw bytes: no pickle crosses the pipe.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import struct
import sys
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

LENGTHS = struct.Struct(">II")
# A page whose decoded images fill the machine's memory must end this process, not the user's session.
MEMORY_LIMIT_BYTES = 4 * 2**30
FORM_DEPTH = 5
HYPHEN_CODE = 2  # what PDFium puts for a hyphen at a line's end; fonts without Unicode use the same code for a glyph


def write_message(stream: BinaryIO, header: dict[str, Any], payloads: Sequence[Any] = ()) -> None:
    """Write one message; ``payloads`` are buffers of bytes, joined."""
    views = [memoryview(payload).cast("B") for payload in payloads]
    encoded = json.dumps(header).encode()
    stream.write(LENGTHS.pack(len(encoded), sum(view.nbytes for view in views)) + encoded)
    for view in views:
        stream.write(view)
    stream.flush()


def read_message(stream: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """Read one message; None where the other side has gone, be it in the middle of a message."""
    lengths = stream.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    header_length, payload_length = LENGTHS.unpack(lengths)
    header, payload = stream.read(header_length), stream.read(payload_length)
    if len(header) < header_length or len(payload) < payload_length:
        return None
    return json.loads(header), payload


class PdfDocumentServer:
    """One open PDF and the three requests about it: ``open``, ``characters``, ``render``."""

    def __init__(self) -> None:
        import pypdfium2
        import pypdfium2.raw as pdfium

        self._library, self._pdfium = pypdfium2, pdfium
        self._flattened: set[int] = set()
        # Called with plain addresses, the per-character functions cost 60 % of what pypdfium2's own declarations do.
        self._unicode = self._by_address(pdfium.FPDFText_GetUnicode, ctypes.c_uint, pointers=0)
        self._unmapped = self._by_address(pdfium.FPDFText_HasUnicodeMapError, ctypes.c_int, pointers=0)
        self._hyphen = self._by_address(pdfium.FPDFText_IsHyphen, ctypes.c_int, pointers=0)
        self._box = self._by_address(pdfium.FPDFText_GetCharBox, ctypes.c_int, pointers=4)

    @staticmethod
    def _by_address(function: Any, result: Any, *, pointers: int) -> Callable[..., int]:
        prototype = ctypes.CFUNCTYPE(result, ctypes.c_void_p, ctypes.c_int, *[ctypes.c_void_p] * pointers)
        return prototype(ctypes.cast(function, ctypes.c_void_p).value)

    def answer(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """The reply to one request: header and payloads. What PDFium or the file did wrong comes back as ``error``."""
        handlers = {"open": self._open, "characters": self._characters, "render": self._render}
        arguments = dict(request)
        try:
            return handlers[arguments.pop("request")](**arguments)
        except self._library.PdfiumError as error:
            return {"error": str(error), "code": error.err_code}, []
        except (OSError, ValueError, MemoryError) as error:
            return {"error": f"{type(error).__name__}: {error}", "code": None}, []

    def _open(self, path: str) -> tuple[dict[str, Any], list[Any]]:
        self._document = self._library.PdfDocument(path)
        self._document.init_forms()
        return {"pages": len(self._document)}, []

    def _load_page(self, number: int) -> Any:
        page = self._document[number]
        if self._document.formenv and number not in self._flattened:
            # What was filled into a form is drawn but is no text of the page until it is merged into its content.
            page.flatten()
            self._flattened.add(number)
            page.close()
            page = self._document[number]
        return page

    def _characters(self, page: int, images_below: int) -> tuple[dict[str, Any], list[Any]]:
        """Codes (uint32), marks (bit 0: no Unicode known, bit 1: hyphen at a line's end) and boxes (4 float64 in PDF
        units, y upwards) of all characters; where there are fewer than ``images_below``, the boxes of images too."""
        loaded = self._load_page(page)
        text_page = loaded.get_textpage()
        handle = ctypes.cast(text_page.raw, ctypes.c_void_p).value
        count = text_page.count_chars()
        codes = array("I", [self._unicode(handle, index) for index in range(count)])
        marks = array("B", [self._unmapped(handle, index) == 1 for index in range(count)])
        for index, code in enumerate(codes):
            if code == HYPHEN_CODE and self._hyphen(handle, index) == 1:
                marks[index] |= 2
        boxes = array("d", bytes(32 * count))
        start, _ = boxes.buffer_info()
        for place, index in zip(range(start, start + 32 * count, 32), range(count), strict=True):
            self._box(handle, index, place, place + 8, place + 16, place + 24)
        images = self._image_boxes(loaded) if count < images_below else []
        header = {"count": count, "page_box": loaded.get_bbox(), "rotation": loaded.get_rotation(), "images": images}
        text_page.close()
        loaded.close()
        return header, [codes, marks, boxes]

    def _image_boxes(self, page: Any) -> list[tuple[float, float, float, float]]:
        """(left, bottom, right, top) of the page's images. One inside a form XObject counts with the form's box,
        since only boxes of the top level are in the page's coordinates."""
        holds_image = {self._pdfium.FPDF_PAGEOBJ_IMAGE}
        boxes = []
        for item in page.get_objects(max_depth=1):
            if item.type == self._pdfium.FPDF_PAGEOBJ_FORM:
                inner = page.get_objects(filter=holds_image, form=item, level=1, max_depth=FORM_DEPTH)
                if next(inner, None) is None:
                    continue
            elif item.type not in holds_image:
                continue
            boxes.append(item.get_bounds())
        return boxes

    def _render(self, page: int, dpi: float, max_pixels: int) -> tuple[dict[str, Any], list[Any]]:
        loaded = self._load_page(page)
        width, height = loaded.get_size()
        if not (0 < width < math.inf and 0 < height < math.inf):
            raise ValueError(f"the page measures {width} x {height} points")
        scale = min(dpi / 72, math.sqrt(max_pixels / (width * height)))
        bitmap = loaded.render(scale=scale, rev_byteorder=True)
        header = {"width": bitmap.width, "height": bitmap.height, "stride": bitmap.stride, "dpi": scale * 72}
        pixels = bytes(bitmap.buffer)
        bitmap.close()
        loaded.close()
        return header, [pixels]


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):  # Windows has no such limit, macOS may refuse it
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard == resource.RLIM_INFINITY or hard > MEMORY_LIMIT_BYTES:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, hard))


def _end_with_owner() -> None:
    """Leave when the owner is killed. A closed pipe tells the same, but not while a page is being drawn, nor while a
    forked sibling of the owner holds the other end."""
    owner = os.getppid()
    while os.getppid() == owner:
        time.sleep(2)
    os._exit(1)


def main() -> None:
    """Answer requests until stdin closes."""
    _limit_memory()
    threading.Thread(target=_end_with_owner, daemon=True).start()
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a C library prints must not land between the messages
    server = PdfDocumentServer()
    while (message := read_message(requests)) is not None:
        header, payloads = server.answer(message[0])
        write_message(replies, header, payloads)


if __name__ == "__main__":
    main()
