"""From characters to words by hand and by properties, and when they are not the text of the page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from visar.documents.page_characters import PageCharacters, displayed_boxes, displayed_size
from visar.documents.pdf import PdfFile
from visar.documents.text_layer import TextLayer, read_text_layer

SIDE = 1000.0
CELL = 10.0


def typed(
    text: str | Sequence[int],
    *,
    unmapped: Sequence[int] = (),
    hyphens: Sequence[int] = (),
    boxes: dict[int, tuple[float, float, float, float]] | None = None,
    images: Sequence[tuple[float, float, float, float]] = (),
) -> PageCharacters:
    """Characters side by side in cells of 10 points on the page of 1,000 x 1,000, a new row after a line feed."""
    codes = [ord(character) for character in text] if isinstance(text, str) else list(text)
    places = []
    across = down = 0.0
    for code in codes:
        places.append((across, down, across + CELL, down + CELL))
        across += CELL
        if code == ord("\n"):
            across, down = 0.0, down + CELL
    for index, box in (boxes or {}).items():
        places[index] = box
    marks = np.arange(len(codes))
    return PageCharacters(
        codes=np.array(codes, dtype=np.uint32),
        unmapped=np.isin(marks, unmapped),
        line_end_hyphens=np.isin(marks, hyphens),
        boxes=np.array(places, dtype=np.float64).reshape(-1, 4),
        image_boxes=np.array(images, dtype=np.float64).reshape(-1, 4),
        size=(SIDE, SIDE),
    )


def words(characters: PageCharacters) -> list[str]:
    return [word.text for word in read_text_layer(characters).words]


# Geometry


@pytest.mark.parametrize(
    ("rotation", "expected"),
    # A box 10 to 30 from the left and 40 to 70 from the bottom of a page of 100 x 200 whose corner is at (5, 7).
    [(0, (10, 130, 30, 160)), (90, (40, 10, 70, 30)), (180, (70, 40, 90, 70)), (270, (130, 70, 160, 90))],
)
def test_boxes_turn_with_the_page(rotation: int, expected: tuple[float, ...]) -> None:
    page_box = (5.0, 7.0, 105.0, 207.0)
    found = displayed_boxes(np.array([[15.0, 47.0, 35.0, 77.0]]), page_box, rotation)
    assert found.tolist() == [list(expected)]
    assert displayed_size(page_box, rotation) == ((100, 200) if rotation in (0, 180) else (200, 100))


# Words


def test_words_are_divided_by_white_space_and_boxed() -> None:
    layer = read_text_layer(typed("to be\r\nor"))
    assert [(word.text, word.box) for word in layer.words] == [
        ("to", (0.0, 0.0, 0.02, 0.01)),
        ("be", (0.03, 0.0, 0.05, 0.01)),
        ("or", (0.0, 0.01, 0.02, 0.02)),
    ]
    assert (layer.readable, layer.unreadable, layer.outside, layer.fault) == (6, 0, 0, None)


def test_a_page_without_characters_has_no_words() -> None:
    assert read_text_layer(typed("")).words == ()


@pytest.mark.parametrize(
    ("text", "hyphens", "expected"),
    [
        ("a candi\x02date", (7,), ["a", "candidate"]),
        ("inter\x02nation\x02al law", (5, 12), ["international", "law"]),
        ("Non\x02GAAP", (3,), ["Non-GAAP"]),
        ("COVID\x0219", (5,), ["COVID-19"]),
        ("end\x02", (3,), ["end-"]),
        ("end\x02 of", (3,), ["end-", "of"]),
    ],
)
def test_words_divided_at_a_line_end_are_joined_and_keep_the_hyphen_before_others_than_small_letters(
    text: str, hyphens: tuple[int, ...], expected: list[str]
) -> None:
    assert words(typed(text, hyphens=hyphens)) == expected


def test_a_divided_word_has_the_box_of_its_first_part() -> None:
    layer = read_text_layer(typed("x can\x02didate", hyphens=(5,), boxes={6: (0, 500, 10, 510)}))
    assert layer.words[1].box == (0.02, 0.0, 0.05, 0.01)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("of\ufb01ce", ["office"[:2] + "fi" + "ce"]),
        ("\ufb03", ["ffi"]),
        ("co\u00adop", ["coop"]),
        ("\ufeffstart", ["start"]),
        ("a\x00b", ["ab"]),
        ("bullet \uf0b7 point", ["bullet", "point"]),
        ("re\u0301sume\u0301", ["r\u00e9sum\u00e9"]),
        ("a\u00a0b\u2003c\u2028d", ["a", "b", "c", "d"]),
        ("\u0645\u06cc\u200c\u062e", ["\u0645\u06cc\u200c\u062e"]),
        ("\ud835\udc00 x", ["\U0001d400", "x"]),
        ("\U0001d400", ["\U0001d400"]),
        ("a\ud835b", ["ab"]),
        ("\ufffd\ufffe", []),
    ],
)
def test_characters_that_are_no_letters_as_such(text: str, expected: list[str]) -> None:
    assert words(typed(text)) == expected


def test_letters_printed_twice_to_look_bold_count_once() -> None:
    shifted = {1: (0.5, 0, 10.5, 10), 3: (10.5, 0, 20.5, 10), 0: (0, 0, 10, 10), 2: (10, 0, 20, 10)}
    assert words(typed("BBOO", boxes=shifted)) == ["BO"]
    assert words(typed("BOOK")) == ["BOOK"]


def test_a_ligature_of_two_equal_letters_stays_two_letters() -> None:
    # PDFium gives both letters of one glyph the same box; taking them for an overprint turned "diff" into "dif".
    same = {2: (20, 0, 35, 10), 3: (20, 0, 35, 10)}
    assert words(typed("diff", boxes=same)) == ["diff"]


def test_words_wholly_outside_are_counted_and_others_clipped() -> None:
    boxes = {0: (-20, 0, -10, 10), 2: (-5, 0, 5, 10), 4: (990, 1001, 999, 1010)}
    layer = read_text_layer(typed("a b c", boxes=boxes))
    assert [(word.text, word.box) for word in layer.words] == [("b", (0.0, 0.0, 0.005, 0.01))]
    assert layer.outside == 2


def test_characters_without_a_place_do_not_displace_their_word() -> None:
    nowhere = (float("nan"),) * 4
    layer = read_text_layer(typed("ab c", boxes={1: nowhere, 3: nowhere}))
    assert [(word.text, word.box) for word in layer.words] == [("ab", (0.0, 0.0, 0.01, 0.01))]
    assert layer.outside == 1


MUTE = "\x02\uf0b7\u00ad"  # a glyph without Unicode, a private one, a soft hyphen
TEXTS = st.text(st.sampled_from("abc  \n\u00e9\ufb01-\U0001d400" + MUTE), max_size=40)


@given(TEXTS, st.randoms(use_true_random=False))
def test_grouping_agrees_with_a_slow_one_and_keeps_boxes_on_the_page(text: str, random) -> None:
    text = "".join(character for character, _ in itertools.groupby(text))  # none is an overprint
    boxes = {}
    for index in range(len(text)):
        left, top = random.uniform(-100, 1050), random.uniform(-100, 1050)
        boxes[index] = (left, top, left + random.uniform(0, 50), top + random.uniform(0, 50))
    expected: list[str] = []
    unions: list[list[float]] = []
    outside = 0
    for start, token in _tokens(text):
        members = list(range(start, start + len(token)))
        while members and text[members[0]] in MUTE:
            del members[0]
        if not members:
            continue
        spots = [boxes[index] for index in members]
        if not any(box[2] >= 0 and box[3] >= 0 and box[0] <= SIDE and box[1] <= SIDE for box in spots):
            outside += 1
            continue
        expected.append("".join(text[index] for index in members if text[index] not in MUTE).replace("\ufb01", "fi"))
        union = [outer(box[side] for box in spots) / SIDE for side, outer in enumerate((min, min, max, max))]
        unions.append([min(max(side, 0.0), 1.0) for side in union])
    layer = read_text_layer(typed(text, boxes=boxes))
    assert layer.outside == outside
    assert [word.text for word in layer.words] == expected
    for word, union in zip(layer.words, unions, strict=True):
        assert word.box == pytest.approx(union, abs=1e-6)


def _tokens(text: str) -> list[tuple[int, str]]:
    found, start = [], 0
    for index, character in enumerate([*text, " "]):
        if character in " \n":
            if index > start:
                found.append((start, text[start:index]))
            start = index + 1
    return found


# Whether it is the page's text


def layer(readable: int, unreadable: int = 0, coverage: float = 0.0) -> TextLayer:
    return TextLayer((), 0, readable, unreadable, coverage)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (layer(0), "no readable characters"),
        (layer(0, 500), "no readable characters"),
        (layer(10, 11), "11 of 21 characters without Unicode"),
        (layer(10, 10), None),
        (layer(5, coverage=0.79), None),
        (layer(199, coverage=0.8), "only 199 characters on a page that images cover to 80%"),
        (layer(200, coverage=1.0), None),
    ],
)
def test_the_rule_for_pages_without_a_usable_text_layer(found: TextLayer, fault: str | None) -> None:
    assert found.fault == fault


def test_glyphs_without_unicode_make_no_words_and_are_counted() -> None:
    found = read_text_layer(typed("ab\uf0b7 cd", unmapped=(0, 1, 4)))
    assert [word.text for word in found.words] == ["d"]
    assert (found.readable, found.unreadable) == (1, 4)


def test_strips_of_one_scan_are_joined_and_overlaps_count_once() -> None:
    strips = [(0, 0, 1000, 300), (0, 300, 1000, 600), (0, 200, 1000, 500)]
    assert read_text_layer(typed("x", images=strips)).image_coverage == pytest.approx(0.6)
    assert read_text_layer(typed("x", images=[(-500, -500, 2000, 2000)])).image_coverage == 1.0
    assert read_text_layer(typed("x")).image_coverage == 0.0


def test_images_within_form_objects_are_seen(tmp_path: Path) -> None:
    pytest.importorskip("reportlab", reason="reportlab draws the documents")
    from tests.visar.made_documents import draw_pdf, picture

    scan = picture(Image.new("RGB", (60, 80), "gray"), (0, 0, 612, 792))

    def nested(canvas) -> None:
        canvas.beginForm("stamped")
        scan(canvas)
        canvas.endForm()
        canvas.scale(0.5, 0.5)
        canvas.doForm("stamped")

    file = PdfFile(draw_pdf(tmp_path / "a.pdf", scan, nested), timeout=60)
    assert read_text_layer(file.characters(0)).image_coverage == 1.0
    assert read_text_layer(file.characters(1)).image_coverage == pytest.approx(0.25, abs=0.02)
    file.close()
