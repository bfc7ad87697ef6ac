"""Pictures as data URIs, so that a report is one file that asks nothing of the network."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

# Widths and JPEG qualities from good to small; the first that fits the budget is taken.
_SIZES = ((900, 78), (900, 66), (820, 60), (740, 58), (660, 55), (580, 50), (500, 45), (420, 40), (340, 35), (260, 30))

# Colour and opacity of the weakest, the middling and the strongest similarity. Opacity rises with the value, so that
# the ramp runs from faint to strong on white paper and on a dark screen alike.
_RAMP = ((0.0, (60, 130, 208), 0.36), (0.5, (158, 78, 166), 0.70), (1.0, (232, 89, 12), 1.0))
_LEVELS = 254
_LEFT_OUT = 255


def data_uri(content: bytes, media_type: str) -> str:
    """``data:`` URI of a file's content."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def page_image(image: Image.Image, budget: int) -> tuple[str, int, int]:
    """A page image as JPEG of at most 900 pixels' width, made smaller and coarser until it fits.

    Args:
        budget: Wanted upper limit in characters of the URI. The smallest size is taken if nothing fits.

    Returns:
        Data URI, width and height in pixels.
    """
    opaque = _on_white(image)
    expected = 0.0
    for width, quality in _SIZES:
        if expected * width**2 * quality > budget and (width, quality) != _SIZES[-1]:
            continue
        width = min(width, opaque.width)
        height = max(1, round(opaque.height * width / opaque.width))
        small = opaque.resize((width, height), Image.Resampling.LANCZOS) if width < opaque.width else opaque
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=quality, optimize=True)
        uri = data_uri(buffer.getvalue(), "image/jpeg")
        if len(uri) <= budget:
            break
        # Length goes roughly with area and quality: sizes that cannot fit are not worth the time to try.
        expected = 0.85 * len(uri) / (width**2 * quality)
    return uri, width, height


def _on_white(image: Image.Image) -> Image.Image:
    """RGB, with white paper under transparent parts."""
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    layered = image.convert("RGBA")
    paper = Image.new("RGBA", layered.size, "white")
    return Image.alpha_composite(paper, layered).convert("RGB")


def ramp(value: float) -> tuple[int, int, int, float]:
    """Red, green, blue in 0..255 and opacity in 0..1 of a similarity in (0, 1]."""
    positions = [position for position, _, _ in _RAMP]
    channels = [np.interp(value, positions, [colour[i] for _, colour, _ in _RAMP]) for i in range(3)]
    opacity = float(np.interp(value, positions, [alpha for _, _, alpha in _RAMP]))
    return round(channels[0]), round(channels[1]), round(channels[2]), opacity


def matrix_image(matrix: np.ndarray) -> str:
    """A matrix as PNG of one pixel per entry: 0 and below is see-through, NaN is grey, up to 1 runs along the ramp.

    Args:
        matrix: [N, N] with values up to 1.
    """
    left_out = ~np.isfinite(matrix)
    level = np.ceil(np.where(left_out, 0, matrix).clip(0, 1) * _LEVELS).astype(np.uint8)
    level[left_out] = _LEFT_OUT
    colours = [ramp(step / _LEVELS) for step in range(1, _LEVELS + 1)]
    palette = [(0, 0, 0, 0.0), *colours, (128, 128, 128, 0.35)]
    image = Image.fromarray(level)
    image.putpalette([channel for colour in palette for channel in colour[:3]])
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True, transparency=bytes(round(255 * colour[3]) for colour in palette))
    return data_uri(buffer.getvalue(), "image/png")
