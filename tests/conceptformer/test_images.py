"""Page images: the same pixels and the same size from every kind of file, and one clear line for every bad one."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conceptformer.data.images import MAX_PIXELS, ImageFacts, image_size, open_image, read_image_facts
from conceptformer.errors import DataError
from tests.conceptformer.row_files import png_chunk, png_of_size, save_page

ORIENTATION = 0x0112
# For each value of EXIF's orientation, where the corner that is stored top left is to be seen.
CORNERS = ["top left", "top right", "bottom right", "bottom left"]
CORNER_SEEN = dict(enumerate(CORNERS + CORNERS, start=1))
WHITE, BLACK, RED = (255, 255, 255), (0, 0, 0), (255, 0, 0)


def oriented(image_format: str, orientation: int) -> bytes:
    """An image stored 48 x 32, white with a red corner top left, that asks to be turned."""
    image = Image.new("RGB", (48, 32), "white")
    image.paste("red", (0, 0, 16, 16))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    data = io.BytesIO()
    options = {"PNG": {}, "JPEG": {"quality": 95}, "WEBP": {"lossless": True}, "TIFF": {}}[image_format]
    image.save(data, image_format, exif=exif, **options)
    return data.getvalue()


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", list(CORNER_SEEN))
def test_pages_are_upright_and_their_size_is_known_without_decoding(image_format: str, orientation: int):
    data = oriented(image_format, orientation)
    image = open_image(data)
    assert image.size == image_size(data) == ((48, 32) if orientation < 5 else (32, 48))
    down, across = CORNER_SEEN[orientation].split()
    place = (2 if across == "left" else image.width - 3, 2 if down == "top" else image.height - 3)
    red, green, blue = image.getpixel(place)
    assert red > 200
    assert max(green, blue) < 60
    assert np.asarray(image).min(axis=2).mean() > 150  # the rest is white


def with_chunks_behind_pixels(data: bytes, *chunks: bytes) -> bytes:
    end = data.rindex(png_chunk(b"IEND", b""))
    return data[:end] + b"".join(chunks) + data[end:]


def test_an_orientation_behind_the_pixels_of_a_png_counts():
    plain = io.BytesIO()
    Image.new("RGB", (48, 32)).save(plain, "PNG")
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    turned = with_chunks_behind_pixels(plain.getvalue(), png_chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0")))
    assert open_image(turned).size == image_size(turned) == (32, 48)
    packet = b'<x:xmpmeta xmlns:x="adobe:ns:meta/" tiff:Orientation="8"></x:xmpmeta>'
    xmp = png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + packet)
    turned = with_chunks_behind_pixels(plain.getvalue(), xmp)
    assert open_image(turned).size == image_size(turned) == (32, 48)
    other = with_chunks_behind_pixels(plain.getvalue(), png_chunk(b"tEXt", b"Comment\0orientation 6"))
    assert open_image(other).size == image_size(other) == (48, 32)


def test_the_size_of_a_png_is_known_without_its_pixels():
    assert image_size(png_of_size(700, 900)) == (700, 900)
    with pytest.raises(DataError, match="damaged"):
        open_image(png_of_size(700, 900))


def saved(image: Image.Image, image_format: str = "PNG", **options) -> bytes:
    data = io.BytesIO()
    image.save(data, image_format, **options)
    return data.getvalue()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_parts_become_white(mode: str):
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.putpixel((1, 1), (0, 0, 0, 255))
    page = open_image(saved(image.convert(mode)))
    assert (page.mode, page.getpixel((0, 0)), page.getpixel((1, 1))) == ("RGB", WHITE, BLACK)


def test_half_transparent_parts_are_mixed_with_white():
    page = open_image(saved(Image.new("RGBA", (2, 2), (255, 0, 0, 128))))
    assert page.getpixel((0, 0)) == pytest.approx((255, 127, 127), abs=1)


def test_a_colour_that_counts_as_transparent_becomes_white():
    image = Image.new("RGB", (2, 1), "red")
    image.putpixel((1, 0), (0, 0, 255))
    page = open_image(saved(image, transparency=(0, 0, 255)))
    assert [page.getpixel((0, 0)), page.getpixel((1, 0))] == [RED, WHITE]


@pytest.mark.parametrize("image_format", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_and_not_cut_off(image_format: str):
    shades = Image.fromarray(np.array([[0, 257, 32896, 65535]], dtype=np.uint16))
    page = open_image(saved(shades, image_format))
    assert page.mode == "RGB"
    assert [page.getpixel((across, 0)) for across in range(4)] == [(0,) * 3, (1,) * 3, (128,) * 3, (255,) * 3]


def test_sixteen_bits_with_zero_for_white_are_turned_round():
    shades = Image.fromarray(np.array([[0, 65535]], dtype=np.uint16))
    page = open_image(saved(shades, "TIFF", tiffinfo={262: 0}))
    assert [page.getpixel((across, 0)) for across in range(2)] == [WHITE, BLACK]


@pytest.mark.parametrize(
    ("image", "image_format"),
    [
        (Image.new("1", (4, 4), 1), "PNG"),
        (Image.new("L", (4, 4), 255), "JPEG"),
        (Image.new("P", (4, 4), 0), "BMP"),
        (Image.new("CMYK", (4, 4), (0, 0, 0, 0)), "JPEG"),
        (Image.new("CMYK", (4, 4), (0, 0, 0, 0)), "TIFF"),
        (Image.new("YCbCr", (4, 4), (255, 128, 128)), "JPEG"),
    ],
)
def test_every_colour_space_becomes_rgb(image: Image.Image, image_format: str):
    if image.mode == "P":
        image.putpalette([255, 255, 255])
    page = open_image(saved(image, image_format))
    assert page.mode == "RGB"
    assert min(page.getpixel((1, 1))) > 250


def test_an_image_is_decoded_apart_from_its_file(tmp_path: Path):
    path = save_page(tmp_path / "a.png", (30, 20), "red")
    page = open_image(path)
    path.unlink()
    assert type(page) is Image.Image
    assert page.resize((3, 2)).getpixel((0, 0)) == RED


def test_a_file_and_its_content_are_the_same_page(tmp_path: Path):
    path = tmp_path / "a.jpg"
    path.write_bytes(oriented("JPEG", 6))
    assert open_image(path).tobytes() == open_image(path.read_bytes()).tobytes()
    assert image_size(path) == image_size(path.read_bytes()) == (32, 48)


def test_the_name_of_a_file_says_nothing_about_its_format(tmp_path: Path):
    path = tmp_path / "a.jpg"
    path.write_bytes(saved(Image.new("RGB", (3, 2), "red")))
    assert open_image(path).getpixel((0, 0)) == RED


# What is refused


def assert_refused(source: Path | bytes, reason: str) -> None:
    for read in (open_image, image_size):
        with pytest.raises(DataError, match=reason) as caught:
            read(source)
        message = str(caught.value)
        assert "\n" not in message
        assert (str(source) if isinstance(source, Path) else f"{len(source):,} bytes") in message


def test_what_is_no_image_is_refused_by_name(tmp_path: Path):
    assert_refused(tmp_path / "none.png", "no such file")
    assert_refused(tmp_path, "not readable")
    (tmp_path / "empty.png").write_bytes(b"")
    assert_refused(tmp_path / "empty.png", "empty")
    assert_refused(b"", "empty")
    (tmp_path / "text.png").write_bytes(b"What is shown in this image?")
    assert_refused(tmp_path / "text.png", "expected PNG, JPEG")
    assert_refused(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "expected PNG, JPEG")
    assert_refused(saved(Image.new("P", (4, 4)), "GIF"), "expected PNG, JPEG")


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP", "TIFF", "BMP"])
def test_a_truncated_image_is_refused_wherever_it_ends(image_format: str):
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    data = saved(Image.fromarray(noise), image_format)
    for length in (1, 5, 17, 40, len(data) // 2, len(data) * 9 // 10):
        with pytest.raises(DataError):
            open_image(data[:length])


def test_damaged_bytes_are_refused_or_give_a_page_and_nothing_else():
    data = bytearray(saved(Image.new("RGB", (40, 50), "red")))
    random = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), 3):
            damaged[place] = random.integers(256)
        for read in (open_image, image_size):
            try:
                read(bytes(damaged))
            except DataError as error:
                assert "\n" not in str(error)


@pytest.mark.filterwarnings("error")
def test_a_large_page_is_measured_and_a_larger_one_is_refused_before_it_is_decoded():
    assert MAX_PIXELS == 20_000 * 20_000
    assert image_size(png_of_size(20_000, 20_000)) == (20_000, 20_000)
    assert_refused(png_of_size(20_000, 20_001), "20000 x 20001 pixels are too many; .* at most 400,000,000 pixels")
    assert_refused(png_of_size(2**31 - 1, 2**31 - 1), "too many")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "BMP"])
def test_a_page_beyond_pillows_own_limit_is_decoded(monkeypatch: pytest.MonkeyPatch, image_format: str):
    data = saved(Image.new("RGB", (60, 50)), image_format)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert open_image(data).size == image_size(data) == (60, 50)


@pytest.mark.parametrize("image_format", ["TIFF", "WEBP"])
def test_where_pillow_keeps_to_its_limit_the_header_says_so_too(monkeypatch: pytest.MonkeyPatch, image_format: str):
    data = saved(Image.new("RGB", (60, 50)), image_format)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert_refused(data, "too many|exceeds limit")


def test_pages_of_one_pixel_and_of_one_line_are_pages():
    for size in [(1, 1), (20_000, 1), (1, 20_000)]:
        data = saved(Image.new("RGB", size))
        assert open_image(data).size == image_size(data) == size


def test_several_images_in_one_file_are_refused():
    pages = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue", "green")]
    for image_format in ("TIFF", "WEBP", "PNG"):
        data = saved(pages[0], image_format, save_all=True, append_images=pages[1:])
        assert_refused(data, "holds 3 images")


def test_a_preview_behind_a_photo_is_no_second_page():
    photo, preview = Image.new("RGB", (40, 30), "white"), Image.new("RGB", (4, 3), "white")
    data = saved(photo, "MPO", save_all=True, append_images=[preview])
    assert open_image(data).size == image_size(data) == (40, 30)


def test_numbers_without_a_range_are_refused():
    assert_refused(saved(Image.new("F", (4, 4)), "TIFF"), "32 bits")
    assert_refused(saved(Image.new("I", (4, 4)), "TIFF"), "32 bits")


# read_image_facts


def test_facts_of_many_files_in_order_with_the_errors_of_bad_ones(tmp_path: Path):
    paths = [save_page(tmp_path / f"{side}.png", (side, 2 * side)) for side in range(1, 30)]
    paths.insert(7, tmp_path / "none.png")
    reports = []
    facts = read_image_facts(paths, lambda done, total: reports.append((done, total)))
    assert list(facts) == paths
    assert reports == [(done, 30) for done in range(1, 31)]
    assert isinstance(facts[paths[7]], DataError)
    good = [found for found in facts.values() if isinstance(found, ImageFacts)]
    assert [found.size for found in good] == [(side, 2 * side) for side in range(1, 30)]
    assert len({found.digest for found in good}) == 29
    assert read_image_facts([]) == {}


def test_a_digest_follows_the_content_and_not_the_name_or_the_time(tmp_path: Path):
    noise = np.random.default_rng(0).integers(0, 256, (100, 100, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "a.png").read_bytes())
    noise[50, 50] += 1
    Image.fromarray(noise).save(tmp_path / "c.png")
    facts = read_image_facts([tmp_path / f"{name}.png" for name in "abc"])
    first, copy, changed = (found.digest for found in facts.values())
    assert first == copy != changed
    # An appended byte, and one changed at either end
    data = (tmp_path / "a.png").read_bytes()
    end = data.rindex(b"IEND")
    for name, other in {
        "longer": data + b"\0",
        "end": data[: end + 4] + b"\0" + data[end + 5 :],
        "start": data.replace(b"IDAT", b"IDAU", 1),
    }.items():
        (tmp_path / f"{name}.png").write_bytes(other)
    for found in read_image_facts([tmp_path / f"{name}.png" for name in ("longer", "end", "start")]).values():
        assert isinstance(found, DataError) or found.digest != first


def test_an_error_in_the_report_ends_the_reading(tmp_path: Path):
    paths = [save_page(tmp_path / f"{number}.png") for number in range(20)]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_image_facts(paths, stop)
