"""Make printed pages look as if they had been scanned: grey, a little skewed, noisy, and without a text layer."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pypdfium2
from PIL import Image, ImageFilter

SCAN_DPI = 150
JPEG_QUALITY = 55
PAPER = 236


def scan(pdf: bytes, seed: int) -> tuple[list[bytes], list[str]]:
    """Scan every page.

    Args:
        pdf: A PDF with a text layer.
        seed: Of the skew and the noise, so that a second run gives the same bytes.

    Returns:
        A grey JPEG for each page, and the text that was printed on it.
    """
    noise = np.random.default_rng(seed)
    images, texts = [], []
    with pypdfium2.PdfDocument(pdf) as document:
        for page in document:
            texts.append(page.get_textpage().get_text_range())
            grey = page.render(scale=SCAN_DPI / 72, grayscale=True).to_pil().convert("L")
            images.append(_worn(grey, noise))
    return images, texts


def _worn(page: Image.Image, noise: np.random.Generator) -> bytes:
    skew = noise.uniform(0.35, 0.9) * noise.choice((-1, 1))
    turned = page.rotate(float(skew), resample=Image.Resampling.BICUBIC, fillcolor=255)
    blurred = turned.filter(ImageFilter.GaussianBlur(0.5))
    ink = np.asarray(blurred, dtype=np.float32) / 255
    height, width = ink.shape
    # Paper is darker towards one side, where the lid of the scanner did not close over the binder.
    shadow = np.linspace(0.9, 1.0, width, dtype=np.float32)[None, :]
    grain = noise.normal(0, 5, (height, width)).astype(np.float32)
    pixels = 38 + (PAPER - 38) * ink * shadow + grain
    specks = noise.random((height, width)) < 4e-5
    pixels[specks] = 90
    file = BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(
        file, "JPEG", quality=JPEG_QUALITY, dpi=(SCAN_DPI,) * 2
    )
    return file.getvalue()
