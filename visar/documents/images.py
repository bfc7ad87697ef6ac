"""Image files as pages."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from visar.errors import DocumentError

# Below the size at which Pillow itself warns of a decompression bomb; an A3 sheet scanned at 600 dpi has 70 million.
MAX_PIXELS = 80_000_000
SIXTEEN_BIT_STEP = 257  # 65535 / 255
PHOTOMETRIC, WHITE_IS_ZERO = 262, 0  # a tag of TIFF and one of its values
# Pillow goes by content, and would start Ghostscript for an EPS file that is named .png.
FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP")
# What Pillow's decoders raise on damaged files.
DAMAGE = (OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, EOFError, struct.error)


def check_page_image(path: Path) -> None:
    """Read an image file's header and refuse what cannot become one page.

    Raises:
        DocumentError: Empty, no image, more than one frame, too large, or of 32 bits per pixel.
    """
    with _open(path):
        pass


def read_page_image(path: Path) -> Image.Image:
    """Decode an image file as a page: RGB, upright as its EXIF orientation says, transparent parts white.

    Of the pictures in a phone's photo (a JPEG with a preview or a depth map behind it) the first is the page.

    Raises:
        DocumentError: As :func:`check_page_image`, or the image is damaged.
    """
    with _open(path) as image:
        try:
            # Pillow sees to that with 8 bits only.
            inverted = image.format == "TIFF" and image.tag_v2.get(PHOTOMETRIC) == WHITE_IS_ZERO
            upright = ImageOps.exif_transpose(image)
            return _in_eight_bits(upright, inverted) if upright.mode.startswith("I") else _on_white(upright)
        except DAMAGE as error:
            raise DocumentError(f"{path}: the image is damaged or truncated ({error}); get another copy") from error


def _open(path: Path) -> Image.Image:
    try:
        if not path.is_file():
            raise DocumentError(f"{path}: no such file")
        if path.stat().st_size == 0:
            raise DocumentError(f"{path}: the file is empty; expected an image")
        image = Image.open(path, formats=FORMATS)
    except UnidentifiedImageError as error:
        raise DocumentError(f"{path}: not an image that can be read; expected PNG, JPEG, WebP, TIFF or BMP") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DocumentError(f"{path}: too large for a page ({error}); scale it down") from error
    except DAMAGE as error:
        raise DocumentError(f"{path}: the image cannot be opened ({error}); get another copy") from error
    try:
        fault = _fault(image)
    except DAMAGE as error:  # counting the images in a file reads their headers
        fault = f"the image is damaged or truncated ({error}); get another copy"
    if fault:
        image.close()
        raise DocumentError(f"{path}: {fault}")
    return image


def _fault(image: Image.Image) -> str | None:
    if image.width * image.height > MAX_PIXELS:
        return (
            f"{image.width} x {image.height} pixels are too many for a page; "
            f"scale it down to at most {MAX_PIXELS // 10**6} million"
        )
    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    if frames > 1:
        return f"holds {frames} images; expected one page per file: split it, or save it as a PDF"
    # Pillow clips these at 255. Only the 16 bits of a PNG, which older versions of Pillow call "I", have a known range.
    if image.mode == "F" or (image.mode == "I" and image.format != "PNG"):
        return "holds numbers and no shades (32 bits per pixel); save it with 8 or 16 bits per pixel"
    return None


def _in_eight_bits(image: Image.Image, inverted: bool) -> Image.Image:
    """RGB from 16 bits per pixel, which Pillow would cut off at 255."""
    shades = (np.asarray(image) // SIXTEEN_BIT_STEP).clip(0, 255).astype(np.uint8)
    return Image.fromarray(255 - shades if inverted else shades).convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    if "A" in image.mode or "a" in image.mode or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
