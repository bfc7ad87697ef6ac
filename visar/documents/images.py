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
# What Pillow's decoders raise on damaged files.
DAMAGE = (OSError, SyntaxError, ValueError, EOFError, struct.error)


def check_page_image(path: Path) -> None:
    """Read an image file's header and refuse what cannot become one page.

    Raises:
        DocumentError: Empty, no image, more than one frame, or too large.
    """
    with _open(path):
        pass


def read_page_image(path: Path) -> Image.Image:
    """Decode an image file as a page: RGB, upright as its EXIF orientation says, transparent parts white.

    Raises:
        DocumentError: As :func:`check_page_image`, or the image is damaged.
    """
    with _open(path) as image:
        try:
            upright = ImageOps.exif_transpose(image)
            return _on_white(upright)
        except DAMAGE as error:
            raise DocumentError(f"{path}: the image is damaged or truncated ({error}); get another copy") from error


def _open(path: Path) -> Image.Image:
    if not path.is_file():
        raise DocumentError(f"{path}: no such file")
    if path.stat().st_size == 0:
        raise DocumentError(f"{path}: the file is empty; expected an image")
    try:
        image = Image.open(path)
    except UnidentifiedImageError as error:
        raise DocumentError(f"{path}: not an image that can be read; expected PNG, JPEG, WebP, TIFF or BMP") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DocumentError(f"{path}: too large for a page ({error}); scale it down") from error
    except DAMAGE as error:
        raise DocumentError(f"{path}: the image cannot be opened ({error}); get another copy") from error
    fault = _fault(image)
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
    frames = getattr(image, "n_frames", 1)
    if frames > 1:
        return f"holds {frames} images; expected one page per file: split it, or save it as a PDF"
    return None


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits per pixel, which Pillow would cut off at 255
        return Image.fromarray((np.asarray(image) // SIXTEEN_BIT_STEP).clip(0, 255).astype(np.uint8)).convert("RGB")
    if "A" in image.mode or "a" in image.mode or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    return image.convert("RGB")
