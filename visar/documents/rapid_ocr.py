"""The default OCR engine: PaddleOCR's models through rapidocr and onnxruntime."""

from __future__ import annotations

import logging
import math
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from visar.documents.ocr import ImageRefusedError, box_around, installed_version
from visar.documents.reading_order import reading_order
from visar.errors import DocumentError, MissingExtraError
from visar.records import Word

# Enough for an A4 page at 210 dpi. rapidocr's own bounds are on sides: it shrinks tall infographics to 2,000 pixels,
# and enlarges small pages to 736 to find lines. Without either, words are found as well or better, and sooner.
MAX_PIXELS = 4_000_000
NO_MAX_SIDE = 1_000_000
NO_MIN_SIDE = 32
# Letters need more; and rapidocr enlarges a strip to the height that it expects, with its length: minutes for nothing.
MIN_SIDE = 16
MIN_CONFIDENCE = 0.5
MODEL_TASKS = {"Det": "det", "Rec": "rec"}
# Raise it when the words of the same image change: it is part of the fingerprint.
RULES_VERSION = "2"

logger = logging.getLogger(__name__)


class RapidOcr:
    """rapidocr 3 with the models that lie in its wheel; nothing is ever downloaded.

    Args:
        threads: Processor threads per page; 0 takes as many as torch does in the same process, so that parallel
            processes share the cores out.
    """

    name = "rapidocr"

    def __init__(self, *, threads: int = 0) -> None:
        if threads < 0:
            raise ValueError(f"threads must be 0 (all) or more, got {threads}")
        self.threads = threads
        self._engine: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None}  # the loaded models stay in their process

    def fingerprint(self) -> dict[str, str]:
        versions = {package: installed_version(package) for package in ("rapidocr", "onnxruntime")}
        return {"ocr": self.name, "ocr rules": RULES_VERSION, **versions}

    def read(self, image: Image.Image) -> tuple[Word, ...]:
        """Words in reading order. The words of a line share its height; where one ends is read off the recogniser.

        None, with a warning, where the smaller side is below 16 pixels, in a very long image after it was shrunk to
        4 million pixels: no text can be read there.

        Raises:
            MissingExtraError: rapidocr or onnxruntime is not installed.
            ImageRefusedError: rapidocr fails at this image, mostly for want of memory.
            DocumentError: rapidocr's wheel has no models, or it cannot be loaded.
        """
        shrink = min(1.0, math.sqrt(MAX_PIXELS / (image.width * image.height)))
        size = max(1, round(image.width * shrink)), max(1, round(image.height * shrink))
        if min(size) < MIN_SIDE:
            logger.warning("an image of %d x %d pixels is too narrow to hold text and is not read", *image.size)
            return ()
        if self._engine is None:
            self._engine = _load_engine(self.threads or torch.get_num_threads())
        pixels = np.asarray(image if size == image.size else image.resize(size, Image.Resampling.LANCZOS))
        result = self._recognised(pixels[:, :, ::-1])  # rapidocr takes blue first
        if result.txts is None:
            return ()
        lines = [
            _words_of_line(text, corners, parts, size)
            for text, confidence, corners, parts in zip(
                result.txts, result.scores, result.boxes, _parts_of_lines(result), strict=True
            )
            if confidence >= MIN_CONFIDENCE and text.strip()
        ]
        boxes = [box_around([point for word in line for point in _corners(word)], (1, 1)) for line in lines]
        return tuple(word for index in reading_order(boxes) for word in lines[index])

    def _recognised(self, pixels: np.ndarray) -> Any:
        """What rapidocr makes of [H, W, 3] shades, blue first."""
        import cv2
        from rapidocr.inference_engine.onnxruntime.main import ONNXRuntimeError

        try:
            return self._engine(pixels)
        except (cv2.error, ONNXRuntimeError, MemoryError) as error:
            # onnxruntime's text is a whole traceback, whose last line says it.
            reason = (str(error).strip() or type(error).__name__).splitlines()[-1].strip()
            height, width = pixels.shape[:2]
            raise ImageRefusedError(f"rapidocr fails at an image of {width} x {height} pixels ({reason})") from error


def _load_engine(threads: int) -> Any:
    for package in ("rapidocr", "onnxruntime"):
        if installed_version(package) == "not installed":
            raise MissingExtraError(package, "ocr", "reading pages without a text layer with rapidocr")
    try:
        import rapidocr
    except ImportError as error:  # OpenCV without the system's libGL, mostly
        raise DocumentError(
            f"rapidocr is installed but cannot be loaded ({error}); if a library is missing, install it "
            "(Debian: apt install libgl1) or pip install opencv-python-headless, or take tesseract instead"
        ) from error

    settings: dict[str, Any] = {
        "Global.log_level": "critical",  # it reports every page without text as a warning
        "Global.text_score": 0.0,  # its own filter loses the pairing of lines and words
        # Pages are upright, and the classifier that looks for lines upside down turns some long upright ones.
        "Global.use_cls": False,
        "Rec.rec_batch_num": 1,  # on processors 15 to 30 % faster than batches, which are padded to their longest line
        "Global.return_word_box": True,
        "Global.max_side_len": NO_MAX_SIDE,
        "Det.limit_side_len": NO_MIN_SIDE,
        "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        **{f"{task}.model_path": str(path) for task, path in _packaged_models().items()},
    }
    return rapidocr.RapidOCR(params=settings)


def _packaged_models() -> dict[str, Path]:
    """The models in rapidocr's wheel, to be named explicitly: it downloads those that it does not find by itself."""
    files = [file for file in metadata.files("rapidocr") or () if file.suffix == ".onnx"]
    models: dict[str, Path] = {}
    for task, mark in MODEL_TASKS.items():
        found = [Path(file.locate()) for file in files if f"_{mark}" in file.name]
        if len(found) != 1 or not found[0].is_file():
            raise DocumentError(
                f"rapidocr {installed_version('rapidocr')}: expected one model '{mark}' in the package, "
                f"found {len(found)}; install rapidocr >= 3.4, < 4 from a wheel, or take tesseract instead"
            )
        models[task] = found[0]
    return models


def _parts_of_lines(result: Any) -> list[Any]:
    """What rapidocr says of the words of each line; None for all lines where it did not divide every one of them."""
    if len(result.word_results) == len(result.txts):
        return list(result.word_results)
    return [None] * len(result.txts)


def _words_of_line(text: str, corners: np.ndarray, parts: Any, size: tuple[int, int]) -> list[Word]:
    """Divide a line at its spaces.

    Args:
        text: The recognised line.
        corners: [4, 2] pixels, clockwise from the line's top left as it is read.
        parts: (text, confidence, [4, 2] pixels) of each word, as rapidocr divides. It divides lines in other scripts
            than Latin by character; such lines fall back to shares of the line's length.
    """
    tokens = text.split()
    if isinstance(parts, (list, tuple)) and [part[0] for part in parts] == tokens:
        return [Word(token, box_around(part[2], size)) for token, part in zip(tokens, parts, strict=True)]
    words: list[Word] = []
    end = 0
    for token in tokens:
        start = text.index(token, end)
        end = start + len(token)
        words.append(Word(token, box_around(_share(corners, start / len(text), end / len(text)), size)))
    return words


def _share(corners: np.ndarray, start: float, end: float) -> list[tuple[float, float]]:
    """Corners of the part of a line from one share of its length to another."""
    top_left, top_right, bottom_right, bottom_left = np.asarray(corners, dtype=np.float64)
    return [
        tuple((one + share * (other - one)).tolist())
        for one, other in ((top_left, top_right), (bottom_left, bottom_right))
        for share in (start, end)
    ]


def _corners(word: Word) -> tuple[tuple[float, float], tuple[float, float]]:
    left, top, right, bottom = word.box
    return (left, top), (right, bottom)
