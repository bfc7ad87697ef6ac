"""Image files as pages: upright, on white, in 8 bits, and refused where they are damaged or too large."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from visar.documents.images import read_page_image
from visar.errors import DocumentError


def test_exif_orientation_is_honoured(tmp_path: Path) -> None:
    image = Image.new("RGB", (30, 20), "white")
    image.paste("red", (0, 0, 5, 5))  # top left as stored
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn clockwise by 90 degrees to view"
    image.save(tmp_path / "a.png", exif=exif)
    page = read_page_image(tmp_path / "a.png")
    assert page.size == (20, 30)
    assert page.getpixel((18, 2)) == (255, 0, 0)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_become_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.putpixel((1, 1), (0, 0, 0, 255))
    image.convert(mode).save(tmp_path / "a.png")
    page = read_page_image(tmp_path / "a.png")
    assert (page.mode, page.getpixel((0, 0)), page.getpixel((1, 1))) == ("RGB", (255, 255, 255), (0, 0, 0))


def test_sixteen_bit_images_keep_their_shades(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 32896, 65535]], dtype=np.uint16)).save(tmp_path / "a.png")
    page = read_page_image(tmp_path / "a.png")
    assert [page.getpixel((across, 0)) for across in range(3)] == [(0,) * 3, (128,) * 3, (255,) * 3]


def test_other_colour_spaces_become_rgb(tmp_path: Path) -> None:
    Image.new("CMYK", (4, 4), (0, 255, 255, 0)).save(tmp_path / "a.jpg", quality=95)
    red, green, blue = read_page_image(tmp_path / "a.jpg").getpixel((1, 1))
    assert red > 200
    assert max(green, blue) < 60


def test_a_truncated_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.effect_noise((200, 200), 50).save(path)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DocumentError, match="damaged or truncated"):
        read_page_image(path)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [9_500, 50_000])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path: Path, side: int) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")))
    with pytest.raises(DocumentError, match="too large for a page|too many for a page"):
        read_page_image(tmp_path / "a.png")


def test_a_missing_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        read_page_image(tmp_path / "a.png")
