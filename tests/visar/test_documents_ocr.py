"""OCR engines read what was drawn, offline and quietly; lines are divided into words and put in reading order."""

from __future__ import annotations

import os
import pickle
import random
import re
import shutil
import socket
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from PIL import Image

from visar.documents import NoOcr, OcrEngine, RapidOcr, Tesseract, rapid_ocr
from visar.documents.rapid_ocr import _words_of_line
from visar.documents.reading_order import reading_order
from visar.errors import DocumentError, MissingExtraError
from visar.records import Word

pytest.importorskip("reportlab", reason="made_documents needs reportlab")
from tests.visar.made_documents import SENTENCES, typed_page, typed_places  # noqa: E402

CONFIGS = Path(__file__).parents[2] / "configs" / "visar" / "ocr"
EXPECTED = " ".join(SENTENCES).split()


@pytest.fixture(scope="module")
def rapid() -> RapidOcr:
    pytest.importorskip("rapidocr", reason="the ocr extra is not installed")
    pytest.importorskip("onnxruntime", reason="the ocr extra is not installed")
    return RapidOcr(threads=1)


@pytest.fixture(scope="module")
def tesseract() -> Tesseract:
    if shutil.which("tesseract") is None:
        pytest.skip("the program tesseract is not installed")
    return Tesseract()


def recall(found: tuple[Word, ...], expected: list[str]) -> float:
    texts = {word.text for word in found}
    return sum(text in texts for text in expected) / len(expected)


def assert_words_stand_where_they_were_drawn(found: tuple[Word, ...], image: Image.Image) -> None:
    """To the width of a letter and a half, and in the right line."""
    places = typed_places(SENTENCES)
    seen = 0
    for word in found:
        if EXPECTED.count(word.text) == 1:
            left, right, top = places[word.text]
            assert word.box[0] * image.width == pytest.approx(left, abs=20), word
            assert word.box[2] * image.width == pytest.approx(right, abs=20), word
            assert top <= (word.box[1] + word.box[3]) / 2 * image.height <= top + 40, word
            seen += 1
    assert seen >= 20


# The engines


def test_rapidocr_reads_what_was_drawn_in_order(rapid: RapidOcr) -> None:
    image = typed_page(SENTENCES)
    found = rapid.read(image)
    assert recall(found, EXPECTED) >= 0.95
    order = [EXPECTED.index(word.text) for word in found if EXPECTED.count(word.text) == 1]
    assert order == sorted(order)
    assert_words_stand_where_they_were_drawn(found, image)


def test_rapidocr_needs_no_network_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], rapid: RapidOcr
) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(f"tried to connect: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    fresh = RapidOcr(threads=1)
    assert recall(fresh.read(typed_page(SENTENCES[:1], size=(900, 130))), SENTENCES[0].split()) == 1.0
    noise = np.random.default_rng(0).integers(250, 256, (100, 200, 3), dtype=np.uint8)
    assert fresh.read(Image.fromarray(noise)) == ()
    assert capfd.readouterr() == ("", "")


def test_rapidocr_reads_tall_pages_that_limits_on_sides_make_illegible(rapid: RapidOcr) -> None:
    # With its limits (2,000 pixels on the longer side, 736 on the shorter), half of these words are lost.
    image = Image.new("RGB", (500, 4500), "white")
    image.paste(typed_page(SENTENCES, size=(500, 200), font_size=14), (0, 4200))
    assert recall(rapid.read(image), EXPECTED) >= 0.95


@pytest.mark.parametrize("size", [(3000, 1), (5, 3000), (3000, 15), (2_000_000, 20)])
def test_strips_too_narrow_for_letters_are_not_read_and_told(
    rapid: RapidOcr, caplog: pytest.LogCaptureFixture, size: tuple[int, int]
) -> None:
    # Each of them took minutes.
    assert rapid.read(Image.new("RGB", size, "white")) == ()
    assert f"an image of {size[0]} x {size[1]} pixels is too narrow" in caplog.text


def test_an_engine_in_use_can_be_pickled_without_its_models(rapid: RapidOcr) -> None:
    image = typed_page(["Rotterdam harbour"], size=(500, 120))
    before = rapid.read(image)
    sent = pickle.dumps(rapid)
    assert len(sent) < 1000
    assert pickle.loads(sent).read(image) == before  # noqa: S301


def test_rapidocr_missing_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapid_ocr, "installed_version", lambda package: "not installed")
    engine = RapidOcr()
    assert engine.fingerprint()["rapidocr"] == "not installed"
    with pytest.raises(MissingExtraError, match=r"pip install 'evidence-retrieval\[ocr\]'"):
        engine.read(typed_page(["x"]))


def test_a_negative_number_of_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="threads"):
        RapidOcr(threads=-1)


def test_tesseract_reads_what_was_drawn_in_order(tesseract: Tesseract) -> None:
    image = typed_page(SENTENCES)
    found = tesseract.read(image)
    assert recall(found, EXPECTED) >= 0.9
    order = [EXPECTED.index(word.text) for word in found if EXPECTED.count(word.text) == 1]
    assert order == sorted(order)
    assert_words_stand_where_they_were_drawn(found, image)


def test_tesseract_finds_no_words_on_an_empty_page(tesseract: Tesseract) -> None:
    assert tesseract.read(Image.new("RGB", (300, 200), "white")) == ()


def test_tesseract_without_a_languages_data_says_so(tesseract: Tesseract) -> None:
    with pytest.raises(DocumentError, match="languages 'xyz'.*must be installed"):
        Tesseract(languages="xyz").read(typed_page(["x"]))


def test_tesseract_missing_names_the_packages_to_install() -> None:
    engine = Tesseract(command="no-such-tesseract")
    assert engine.fingerprint()["tesseract"] == "not installed"
    with pytest.raises(DocumentError, match=r"apt install tesseract-ocr; macOS: brew install tesseract") as caught:
        engine.read(typed_page(["x"]))
    assert "\n" not in str(caught.value)


def test_tesseracts_fingerprint_tells_version_and_languages(tesseract: Tesseract) -> None:
    assert tesseract.fingerprint()["tesseract"].startswith("tesseract ")
    assert Tesseract(languages="deu").fingerprint() != tesseract.fingerprint()


@pytest.mark.skipif(os.name != "posix", reason="a script stands for the program")
def test_a_program_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    broken = tmp_path / "tesseract"
    broken.write_bytes(b"\x7fELF of another machine")
    broken.chmod(0o755)
    engine = Tesseract(command=str(broken))
    assert engine.fingerprint()["tesseract"] == "not installed"
    with pytest.raises(DocumentError, match=r"cannot be run as .*\(Exec format error\); install it") as caught:
        engine.read(typed_page(["x"]))
    assert "\n" not in str(caught.value)


def test_tesseracts_fingerprint_tells_one_languages_data_from_another(
    tesseract: Tesseract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tesseract.fingerprint()["language data"]
    assert re.fullmatch("eng:[0-9a-f]{64}", installed)
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    (tmp_path / "eng.traineddata").write_bytes(b"another training")
    own = Tesseract(languages="eng+xyz", command=shutil.which("tesseract"))  # known answers are not asked for again
    assert own.fingerprint()["language data"] == f"eng:{sha256(b'another training').hexdigest()} xyz:not found"
    assert Tesseract(command="no-such-tesseract").fingerprint()["language data"] == "not found"


def test_no_ocr_reads_nothing() -> None:
    assert NoOcr().read(typed_page(SENTENCES)) == ()


@pytest.mark.parametrize(("name", "kind"), [("rapidocr", RapidOcr), ("tesseract", Tesseract), ("none", NoOcr)])
def test_each_config_makes_its_engine(name: str, kind: type) -> None:
    engine = instantiate(OmegaConf.load(CONFIGS / f"{name}.yaml"))
    assert isinstance(engine, kind)
    assert isinstance(engine, OcrEngine)
    assert engine.name == name
    assert all(isinstance(value, str) for value in engine.fingerprint().values())


# Lines into words


LINE = np.array([[100.0, 50.0], [300.0, 50.0], [300.0, 80.0], [100.0, 80.0]])


def test_words_take_the_boxes_that_the_recogniser_gives() -> None:
    parts = (
        ("to", 0.9, [[100, 50], [140, 50], [140, 80], [100, 80]]),
        ("be", 0.9, [[200, 50], [290, 50], [290, 80], [200, 80]]),
    )
    assert _words_of_line("to be", LINE, parts, (1000, 100)) == [
        Word("to", (0.1, 0.5, 0.14, 0.8)),
        Word("be", (0.2, 0.5, 0.29, 0.8)),
    ]


@pytest.mark.parametrize("parts", [None, object(), [], [("t", 0.9, LINE), ("o", 0.9, LINE), ("be", 0.9, LINE)]])
def test_other_lines_are_divided_by_their_share_of_characters(parts: object) -> None:
    # "to be or": 8 characters on 200 pixels, 25 each.
    assert _words_of_line("to be or", LINE, parts, (1000, 100)) == [
        Word("to", (0.1, 0.5, 0.15, 0.8)),
        Word("be", (0.175, 0.5, 0.225, 0.8)),
        Word("or", (0.25, 0.5, 0.3, 0.8)),
    ]


def test_a_repeated_word_is_placed_where_it_stands() -> None:
    found = _words_of_line("a a", LINE, None, (1000, 100))
    assert [word.box[0] for word in found] == [0.1, pytest.approx(0.233333)]


def test_a_slanted_line_gives_upright_boxes_along_it() -> None:
    slanted = np.array([[0.0, 100.0], [100.0, 0.0], [120.0, 20.0], [20.0, 120.0]])
    first, second = _words_of_line("ab cd", slanted, None, (200, 200))
    assert first.box == (0.0, 0.3, 0.3, 0.6)
    assert second.box == (0.3, 0.0, 0.6, 0.3)


# Reading order


def column(left: float, width: float, tops: list[float]) -> list[tuple[float, float, float, float]]:
    return [(left, top, left + width, top + 0.015) for top in tops]


def test_columns_are_read_one_after_the_other_between_title_and_footer() -> None:
    tops = [0.2 + 0.02 * row for row in range(20)]
    title, footer = [(0.2, 0.05, 0.8, 0.08)], [(0.3, 0.95, 0.7, 0.97)]
    figure = [(0.1, 0.62, 0.9, 0.64)]
    lower = [0.7 + 0.02 * row for row in range(8)]
    expected = [
        *title, *column(0.1, 0.38, tops), *column(0.52, 0.38, tops),
        *figure, *column(0.1, 0.38, lower), *column(0.52, 0.38, lower), *footer,
    ]  # fmt: skip
    shuffled = random.Random(0).sample(expected, len(expected))
    assert [shuffled[index] for index in reading_order(shuffled)] == expected


def test_three_columns_are_read_from_left_to_right() -> None:
    tops = [0.1 + 0.02 * row for row in range(10)]
    expected = [*column(0.05, 0.27, tops), *column(0.36, 0.27, tops), *column(0.67, 0.27, tops)]
    assert [expected[::-1][index] for index in reading_order(expected[::-1])] == expected


def test_tables_are_read_row_by_row() -> None:
    rows = [0.1 + 0.03 * row for row in range(8)]
    expected = [
        box for top in rows for left in (0.1, 0.6, 0.75) for box in column(left, 0.1, [top + 0.002 * (left > 0.5)])
    ]
    assert [expected[::-1][index] for index in reading_order(expected[::-1])] == expected


def test_a_tall_logo_does_not_merge_the_rows_beside_it() -> None:
    logo, rows = (0.0, 0.40, 0.1, 0.6), column(0.4, 0.3, [0.41, 0.46, 0.51, 0.56])
    order = reading_order([logo, *rows])
    assert [index for index in order if index] == [1, 2, 3, 4]


SIDES = st.floats(0, 1)


@given(st.lists(st.tuples(SIDES, SIDES, SIDES, SIDES), max_size=40))
def test_every_line_is_read_once(corners: list[tuple[float, float, float, float]]) -> None:
    boxes = [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners]
    assert sorted(reading_order(boxes)) == list(range(len(boxes)))
