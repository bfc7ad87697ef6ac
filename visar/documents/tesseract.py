"""Tesseract, run as a program of its own."""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path

from PIL import Image

from visar.documents.ocr import ImageRefusedError, box_around
from visar.errors import DocumentError
from visar.records import Word

WORD_LEVEL = "5"
TIMEOUT_SECONDS = 300
# Tesseract takes no image with a longer side.
MAX_SIDE = 32_767
# Said with status 0 where other languages' data are there.
LANGUAGE_NOT_LOADED = "Failed loading language"

logger = logging.getLogger(__name__)


class Tesseract:
    """Tesseract 4 or 5 by its command line.

    The program is called directly and not through pytesseract, because its OpenMP threads must be limited (two of them
    on a busy machine took 131 s for a page) and pytesseract could only do so by changing the whole process's
    environment, which would limit torch too.

    Args:
        languages: As Tesseract names them, e.g. ``"eng"`` or ``"deu+eng"``; their data must be installed.
        command: The program, a name on PATH or a path.
    """

    name = "tesseract"

    def __init__(self, *, languages: str = "eng", command: str = "tesseract") -> None:
        self.languages = languages
        self.command = command

    def fingerprint(self) -> dict[str, str]:
        return {
            "ocr": self.name,
            "tesseract": _version(self.command),
            "languages": self.languages,
            "language data": _language_data(self.command, self.languages),
        }

    def read(self, image: Image.Image) -> tuple[Word, ...]:
        """Words in Tesseract's own reading order. An image with a side above 32,767 pixels is scaled down to that, with
        a warning.

        Raises:
            ImageRefusedError: Tesseract cannot read this image, or takes over 300 s, and reads another one.
            DocumentError: Tesseract or a language's data is not installed, or it fails at any image.
        """
        image = _within_limits(image)
        try:
            table = self._run(image)
        except ImageRefusedError:
            # Its messages and status do not tell an image that it cannot read from a fault of its own.
            try:
                self._run(Image.new("RGB", (64, 64), "white"))
            except ImageRefusedError as fault:
                raise DocumentError(
                    f"{fault}, nor any other; see to its installation, or take rapidocr instead"
                ) from fault
            raise
        words: list[Word] = []
        for row in csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE):
            text = (row["text"] or "").strip()
            if row["level"] == WORD_LEVEL and text:
                left, top, width, height = (int(row[side]) for side in ("left", "top", "width", "height"))
                words.append(Word(text, box_around([(left, top), (left + width, top + height)], image.size)))
        return tuple(words)

    def _run(self, image: Image.Image) -> str:
        """Tesseract's table of words.

        Raises:
            ImageRefusedError: It fails for another reason than those that are known to concern all images.
            DocumentError: It cannot be run, or a language's data are missing.
        """
        buffer = io.BytesIO()
        image.save(buffer, format="PNG", compress_level=1)
        what = f"an image of {image.width} x {image.height} pixels"
        try:
            finished = subprocess.run(
                [self.command, "stdin", "stdout", "-l", self.languages, "tsv"],
                input=buffer.getvalue(),
                capture_output=True,
                env={**os.environ, "OMP_THREAD_LIMIT": "1"},
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except OSError as error:
            raise DocumentError(
                f"Tesseract cannot be run as '{self.command}' ({error.strerror}); install it (Debian, Ubuntu: "
                "apt install tesseract-ocr; macOS: brew install tesseract) or take rapidocr instead"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise ImageRefusedError(f"Tesseract does not read {what} within {TIMEOUT_SECONDS} s") from error
        said = finished.stderr.decode(errors="replace").strip()
        if LANGUAGE_NOT_LOADED in said:
            raise DocumentError(
                f"Tesseract cannot load the languages '{self.languages}' ({said.splitlines()[0]}); their data must be "
                "installed (Debian: tesseract-ocr-LANGUAGE)"
            )
        if finished.returncode != 0:
            reason = said.splitlines()[0] if said else f"status {finished.returncode}, no message"
            raise ImageRefusedError(f"Tesseract cannot read {what} ({reason})")
        return finished.stdout.decode(errors="replace")


def _within_limits(image: Image.Image) -> Image.Image:
    shrink = MAX_SIDE / max(image.size)
    if shrink >= 1:
        return image
    width, height = (max(1, round(side * shrink)) for side in image.size)
    logger.warning(
        "an image of %d x %d pixels is scaled down to %d x %d for Tesseract, which takes none larger; small print may "
        "be lost", *image.size, width, height,
    )  # fmt: skip
    return image.resize((width, height), Image.Resampling.LANCZOS)


@lru_cache
def _version(command: str) -> str:
    lines = _said(command, "--version")
    if lines is None:
        return "not installed"
    return lines[0] if lines else "unknown"


@lru_cache
def _language_data(command: str, languages: str) -> str:
    """Checksums of the languages' data, which may be exchanged (fast, best) while the version stays."""
    named = re.search(r'"(.+)"', " ".join((_said(command, "--list-langs") or [])[:1]))
    if named is None:
        return "not found"
    return " ".join(
        f"{language}:{_digest(Path(named[1], f'{language}.traineddata'))}" for language in languages.split("+")
    )


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "not found"


def _said(command: str, question: str) -> list[str] | None:
    """The lines that Tesseract answers, None where it cannot be asked."""
    try:
        finished = subprocess.run([command, question], capture_output=True, timeout=TIMEOUT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return (finished.stdout or finished.stderr).decode(errors="replace").splitlines()
