"""Page images from files and from memory: decoded as RGB, or measured by their headers alone."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import ExifTags, Image, ImageOps

from conceptformer.errors import DataError
from conceptformer.records import ImageSource, OnProgress
from visar.documents.images import DAMAGE, FORMATS

# 20,000 x 20,000: a large scanned map. It takes up to 3.2 GB while it is decoded.
MAX_PIXELS = 400_000_000
_SIXTEEN_BIT_STEP = 257  # 65535 / 255
_QUARTER_TURNS = {5, 6, 7, 8}  # values of EXIF's orientation that exchange width and height
_WHITE_IS_ZERO = 0  # a value of TIFF's PhotometricInterpretation
# Headers are small and disks far away: most of the time is waiting.
_THREADS = 8
_SKETCH = 4096
# Formats whose decoders in Pillow refuse images beyond twice its own limit, whatever opened them.
_LIMITED_BY_PILLOW = {"TIFF", "WEBP"}


def open_image(source: ImageSource) -> Image.Image:
    """Decode a page: RGB, upright as its EXIF orientation says, transparent parts white, 16 bits scaled down to 8.

    Args:
        source: A PNG, JPEG, WebP, TIFF or BMP file, the content of one, or where that can be read.

    Raises:
        DataError: Missing, empty, no image, damaged or truncated, of several frames, of more than
            :data:`MAX_PIXELS`, or of 32 bits per pixel.
    """
    with _opened(source) as (image, _):
        # Pillow turns shades round itself, but not where they have 16 bits.
        inverted = (
            image.format == "TIFF" and image.tag_v2.get(ExifTags.Base.PhotometricInterpretation) == _WHITE_IS_ZERO
        )
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode.startswith("I"):  # convert() would cut shades off at 255
            shades = (np.asarray(image) // _SIXTEEN_BIT_STEP).clip(0, 255).astype(np.uint8)
            return Image.fromarray(255 - shades if inverted else shades).convert("RGB")
        if image.has_transparency_data:
            layer = image.convert("RGBA")
            return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
        return image.convert("RGB")


def image_size(source: ImageSource) -> tuple[int, int]:
    """(width, height) of the image that :func:`open_image` gives, from the header alone.

    Raises:
        DataError: As :func:`open_image`, as far as the header tells; a truncated file may pass.
    """
    with _opened(source) as (image, file):
        return _upright_size(image, file)


@dataclass(frozen=True)
class ImageFacts:
    """What can be known of an image file without decoding it.

    Attributes:
        size: (width, height), upright.
        digest: SHA-256 over the file's length, its first and its last 4 KiB: the same wherever the file is copied to,
            and another one, but for uncompressed formats, when anything in the picture changes.
    """

    size: tuple[int, int]
    digest: str


def read_image_facts(
    paths: Sequence[Path], on_progress: OnProgress | None = None
) -> dict[Path, ImageFacts | DataError]:
    """Look at many image files, several at a time.

    Args:
        on_progress: Called with (done, all) after each file.

    Returns:
        For each path its facts, or the error that :func:`image_size` raises.
    """
    facts: dict[Path, ImageFacts | DataError] = {}
    threads = ThreadPoolExecutor(_THREADS)
    try:
        for done, (path, found) in enumerate(zip(paths, threads.map(_facts, paths), strict=True), start=1):
            facts[path] = found
            if on_progress is not None:
                on_progress(done, len(paths))
    finally:  # an interrupt does not wait for all the files that are left
        threads.shutdown(cancel_futures=True)
    return facts


def _facts(path: Path) -> ImageFacts | DataError:
    try:
        with _opened(path) as (image, file):
            size = _upright_size(image, file)
            length = file.seek(0, os.SEEK_END)
            file.seek(0)
            digest = hashlib.sha256(f"{length}\n".encode() + file.read(_SKETCH))
            file.seek(max(_SKETCH, length - _SKETCH))
            digest.update(file.read(_SKETCH))
            return ImageFacts(size, digest.hexdigest())
    except DataError as error:
        return error


@contextmanager
def _opened(source: ImageSource) -> Iterator[tuple[Image.Image, BinaryIO]]:
    """The image, its pixels not yet read, and the stream they come from; what Pillow raises becomes a DataError."""
    name = f"the image of {len(source):,} bytes in memory" if isinstance(source, bytes) else str(source)
    try:
        with _stream(source) as file:
            image = _identified(file, name)
            fault = _fault(image)
            if fault:
                raise DataError(f"{name}: {fault}")
            yield image, file
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file; expected a page image") from error
    except (*DAMAGE, Image.DecompressionBombError) as error:
        reason = str(error).replace("\n", " ") or type(error).__name__
        raise DataError(
            f"{name}: the image is damaged, truncated or not readable ({reason}); get another copy"
        ) from error


def _stream(source: ImageSource) -> BinaryIO:
    if isinstance(source, Path):
        return source.open("rb")
    return io.BytesIO(source if isinstance(source, bytes) else source.read_bytes())


def _identified(file: BinaryIO, name: str) -> Image.Image:
    """Image.open without its limit of pixels, which is the whole process's and lower than ours."""
    start = file.read(16)
    if not start:
        raise DataError(f"{name}: empty; expected an image")
    Image.init()
    for image_format in FORMATS:
        factory, accepts = Image.OPEN[image_format]
        if accepts(start) is True:
            file.seek(0)
            return factory(file, "")
    raise DataError(f"{name}: not an image that can be read; expected PNG, JPEG, WebP, TIFF or BMP")


def _fault(image: Image.Image) -> str | None:
    most = MAX_PIXELS
    if image.format in _LIMITED_BY_PILLOW and Image.MAX_IMAGE_PIXELS is not None:
        most = min(most, 2 * Image.MAX_IMAGE_PIXELS)
    if image.width * image.height > most:
        return f"{image.width} x {image.height} pixels are too many; scale the page down to at most {most:,} pixels"
    # The pictures behind the first in a phone's JPEG are previews and depth maps.
    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    if frames > 1:
        return f"holds {frames} images; expected one page per file: split it"
    # Only the 16 bits of a PNG, which older versions of Pillow call "I", have a known range.
    if image.mode == "F" or (image.mode == "I" and image.format != "PNG"):
        return "holds numbers and no shades (32 bits per pixel); save it with 8 or 16 bits per pixel"
    return None


def _upright_size(image: Image.Image, file: BinaryIO) -> tuple[int, int]:
    if image.format == "TIFF":  # newer versions of Pillow have turned its size already, older ones have not
        width, height = image.tag_v2[ExifTags.Base.ImageWidth], image.tag_v2[ExifTags.Base.ImageLength]
    else:
        width, height = image.size
    if image.format == "PNG" and not _tells_more_behind_its_pixels(file):
        exif = Image.Image.getexif(image)  # PngImageFile.getexif would decode the pixels to see what follows them
    else:
        exif = image.getexif()
    return (height, width) if exif.get(ExifTags.Base.Orientation) in _QUARTER_TURNS else (width, height)


def _tells_more_behind_its_pixels(file: BinaryIO) -> bool:
    """Whether a PNG has EXIF or XMP data after its pixels; the stream is put back to where it was."""
    position = file.tell()
    file.seek(8)
    seen_pixels = False
    while True:
        start = file.read(8)
        kind = start[4:]
        if len(start) < 8 or kind == b"IEND" or (seen_pixels and kind in {b"eXIf", b"iTXt", b"tEXt", b"zTXt"}):
            break
        seen_pixels = seen_pixels or kind == b"IDAT"
        file.seek(int.from_bytes(start[:4], "big") + 4, os.SEEK_CUR)
    file.seek(position)
    return len(start) == 8 and kind != b"IEND"
