"""What reads text from page images: the protocol, and the engine that reads nothing."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata
from typing import Protocol, runtime_checkable

from PIL import Image

from visar.documents.text_layer import BOX_DIGITS
from visar.errors import DocumentError
from visar.records import Box, Word


class ImageRefusedError(DocumentError):
    """An engine that reads other images cannot read this one."""


@runtime_checkable
class OcrEngine(Protocol):
    """Reads text from an image. Engines hold settings only and load their models at first use, so they can be pickled.

    Attributes:
        name: Appears as :attr:`visar.records.PageText.source`.
    """

    name: str

    def fingerprint(self) -> dict[str, str]:
        """Everything that changes what is read: engine, versions, models, settings. Must not fail where the engine is
        not installed, since documents with a text layer never need it."""
        ...

    def read(self, image: Image.Image) -> tuple[Word, ...]:
        """The words of an RGB image in reading order; none on a page without text.

        Raises:
            MissingExtraError: The engine's package is not installed.
            ImageRefusedError: The engine cannot read this image; others it may.
            DocumentError: The engine cannot be run, whatever the image.
        """
        ...


class NoOcr:
    """Reads nothing: pages without a text layer stay without words."""

    name = "none"

    def fingerprint(self) -> dict[str, str]:
        return {"ocr": self.name}

    def read(self, image: Image.Image) -> tuple[Word, ...]:
        return ()


def installed_version(package: str) -> str:
    """The package's version, for fingerprints; says so where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def box_around(points: Iterable[tuple[float, float]], size: tuple[int, int]) -> Box:
    """The upright box around points given in pixels, as clipped fractions of an image of ``size`` (width, height)."""
    across, down = zip(*points, strict=True)
    width, height = size
    sides = (min(across) / width, min(down) / height, max(across) / width, max(down) / height)
    left, top, right, bottom = (round(min(max(side, 0.0), 1.0), BOX_DIGITS) for side in sides)
    return left, top, right, bottom
