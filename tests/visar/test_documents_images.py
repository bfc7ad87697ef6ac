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


def tiff(path: Path, *directories: dict[int, int]) -> Path:
    """A TIFF of bare directories (tag -> number of 16 bits), the pixels of each after the last one."""
    content = b"II*\0" + struct.pack("<I", 8)
    for number, tags in enumerate(directories, start=1):
        end = len(content) + 2 + 12 * len(tags) + 4
        content += struct.pack("<H", len(tags))
        content += b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in sorted(tags.items()))
        content += struct.pack("<I", end if number < len(directories) else 0)
    path.write_bytes(content + bytes(64))
    return path


def test_a_directory_without_dimensions_is_damage(tmp_path: Path) -> None:
    whole = {256: 4, 257: 4, 258: 8, 259: 1, 262: 1, 273: 150, 278: 4, 279: 16}
    assert read_page_image(tiff(tmp_path / "whole.tif", whole)).size == (4, 4)
    with pytest.raises(DocumentError, match="damaged or truncated .*dimensions"):
        read_page_image(tiff(tmp_path / "second.tif", whole, {262: 1}))
    with pytest.raises(DocumentError, match="not an image that can be read|cannot be opened"):
        read_page_image(tiff(tmp_path / "first.tif", {262: 1}))


def test_a_name_does_not_open_other_formats(tmp_path: Path) -> None:
    """An EPS file would start Ghostscript."""
    for kind in ("EPS", "GIF", "PPM"):
        Image.new("RGB", (4, 4)).save(tmp_path / "a.png", format=kind)
        with pytest.raises(DocumentError, match="not an image that can be read; expected PNG, JPEG"):
            read_page_image(tmp_path / "a.png")


def test_of_a_phones_photo_the_first_picture_is_the_page(tmp_path: Path) -> None:
    photo, preview = Image.new("RGB", (30, 20), "red"), Image.new("RGB", (3, 2), "blue")
    photo.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[preview])
    page = read_page_image(tmp_path / "a.jpg")
    assert page.size == (30, 20)
    assert page.getpixel((10, 10))[0] > 250


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_pixels_whose_range_is_unknown_are_refused(tmp_path: Path, kind: type) -> None:
    Image.fromarray(np.array([[0, 1, 2]], dtype=kind)).save(tmp_path / "a.tif")
    with pytest.raises(DocumentError, match="32 bits per pixel.*save it with 8 or 16"):
        read_page_image(tmp_path / "a.tif")


def test_sixteen_bits_that_begin_with_white_are_turned(tmp_path: Path) -> None:
    shades = Image.fromarray(np.array([[0, 65535]], dtype=np.uint16))
    shades.save(tmp_path / "a.tif", tiffinfo={262: 0})
    page = read_page_image(tmp_path / "a.tif")
    assert [page.getpixel((across, 0)) for across in range(2)] == [(255,) * 3, (0,) * 3]


def test_a_sixteen_bit_image_is_upright_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((20, 30), dtype=np.uint16)).save(tmp_path / "a.png", exif=exif)
    assert read_page_image(tmp_path / "a.png").size == (20, 30)
