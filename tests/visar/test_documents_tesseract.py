"""Tesseract: faults of one image are told from faults of the program; images beyond its limit are scaled down."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from visar.documents import Tesseract, tesseract
from visar.documents.ocr import ImageRefusedError
from visar.errors import DocumentError

pytest.importorskip("reportlab", reason="made_documents needs reportlab")
from tests.visar.made_documents import typed_page  # noqa: E402

installed = pytest.mark.skipif(shutil.which("tesseract") is None, reason="the program tesseract is not installed")
scripts = pytest.mark.skipif(os.name != "posix", reason="a script stands for the program")
WORDS = ["Rotterdam", "harbour"]


def wrapped(folder: Path, before: str) -> Tesseract:
    """The program behind a few lines of shell. They find the image in the file $image, and its width in $width."""
    program = folder / "tesseract"
    program.write_text(
        "#!/bin/sh\n"
        f"image={folder}/image.png\n"
        "cat > $image\n"
        "width=$(od -An -j16 -N4 -tu1 $image | { read -r a b c d; echo $((c * 256 + d)); })\n"
        f"{before}\n"
        f'exec {shutil.which("tesseract")} "$@" < $image\n'
    )
    program.chmod(0o755)
    return Tesseract(command=str(program))


@installed
@pytest.mark.parametrize("size", [(40_000, 120), (300, 32_768)])
def test_an_image_beyond_the_limit_is_scaled_down_with_a_warning_and_its_words_stand_where_they_are(size, caplog):
    image = Image.new("RGB", size, "white")
    part = typed_page([" ".join(WORDS)], size=(300, 120), font_size=22)
    image.paste(part, (size[0] - 300, size[1] - 120))
    found = Tesseract().read(image)
    assert [word.text for word in found] == WORDS
    # Where the same words stand, in pixels, on a page of which nothing has to be scaled down.
    for word, alone in zip(found, Tesseract().read(part), strict=True):
        left, top = word.box[0] * size[0] - (size[0] - 300), word.box[1] * size[1] - (size[1] - 120)
        assert (left, top) == pytest.approx((alone.box[0] * 300, alone.box[1] * 120), abs=4)
    assert f"an image of {size[0]} x {size[1]} pixels is scaled down to " in caplog.text


@installed
def test_an_image_at_the_limit_is_read_as_it_is(caplog):
    image = Image.new("RGB", (32_767, 120), "white")
    image.paste(typed_page([" ".join(WORDS)], size=(300, 120), font_size=22), (100, 0))
    assert [word.text for word in Tesseract().read(image)] == WORDS
    assert caplog.text == ""


@installed
@scripts
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("echo Image too odd >&2; echo Error during processing. >&2; exit 1", r"\(Image too odd\)"),
        ("exit 3", r"\(status 3, no message\)"),
        ("kill -SEGV $$", r"\(status -11, no message\)"),
    ],
)
def test_an_image_that_the_program_cannot_read_is_told_from_a_program_that_reads_none(tmp_path, fault, reason):
    engine = wrapped(tmp_path, f"if [ $width = 200 ]; then {fault}; fi")
    with pytest.raises(ImageRefusedError, match=f"^Tesseract cannot read an image of 200 x 50 pixels {reason}$"):
        engine.read(Image.new("RGB", (200, 50), "white"))
    assert engine.read(Image.new("RGB", (201, 50), "white")) == ()
    engine = wrapped(tmp_path, fault)
    with pytest.raises(DocumentError, match=rf"{reason}, nor any other; see to its installation") as caught:
        engine.read(Image.new("RGB", (200, 50), "white"))
    assert not isinstance(caught.value, ImageRefusedError) and "\n" not in str(caught.value)


@installed
@scripts
def test_an_image_that_takes_too_long_is_told_from_a_program_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(tesseract, "TIMEOUT_SECONDS", 2)  # what takes 300 s cannot be waited for
    engine = wrapped(tmp_path, "if [ $width = 200 ]; then exec sleep 60; fi")
    with pytest.raises(ImageRefusedError, match="^Tesseract does not read an image of 200 x 50 pixels within 2 s$"):
        engine.read(Image.new("RGB", (200, 50), "white"))
    engine = wrapped(tmp_path, "exec sleep 60")
    with pytest.raises(DocumentError, match="within 2 s, nor any other") as caught:
        engine.read(Image.new("RGB", (200, 50), "white"))
    assert not isinstance(caught.value, ImageRefusedError)


@installed
@pytest.mark.parametrize("languages", ["xyz", "eng+xyz", "xyz+eng"])
def test_a_language_without_data_is_an_error_of_all_images_even_beside_one_with(languages):
    """Tesseract itself goes on with the languages that it has, and says it only where nobody looks."""
    with pytest.raises(DocumentError, match="cannot load the languages '.*xyz.*' .*must be installed") as caught:
        Tesseract(languages=languages).read(typed_page(["x"]))
    assert not isinstance(caught.value, ImageRefusedError) and "\n" not in str(caught.value)
