"""Things on drawn pages: each can be told from all others, and its box is exactly what it covers."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from PIL import Image

from conceptformer.drawn.drawing import CELL, COLOURS, MARGIN, room
from conceptformer.drawn.pages import Sheet
from conceptformer.drawn.papers import PAPERS
from conceptformer.drawn.things import FORMS, WORDS, Shape, Word, all_things
from conceptformer.errors import DataError
from tests.conceptformer.drawn_pages import differing, opened

THINGS = all_things(colours=8, shapes=6, words=40)
VARIANTS = 3
SHEET = Sheet(THINGS, (168, 224), MARGIN, VARIANTS, seed=5)
NAMES = [thing.name for thing in THINGS]


def test_every_colour_shape_and_word_makes_its_things():
    assert len(THINGS) == len(COLOURS) * len(FORMS) + len(WORDS) + 3 * len(COLOURS) == 112
    assert {"red circle", "the word harbour", "table with an orange header", "blue bar chart"} <= set(NAMES)


def test_fewer_colours_shapes_and_words_make_fewer_things():
    few = all_things(colours=2, shapes=1, words=3)
    assert [thing.name for thing in few] == [
        *("red circle", "blue circle", "the word harbour", "the word garden", "the word lemon"),
        *("table with a red header", "table with a blue header", "red bar chart", "blue bar chart"),
        *("red pie chart", "blue pie chart"),
    ]


def test_no_name_is_part_of_another_ones_phrase():
    for thing in THINGS:
        assert [other.name for other in THINGS if thing.name in other.phrase] == [thing.name]


def test_an_article_fits_its_noun():
    assert Shape("orange", "star").phrase == "an orange star"
    assert Shape("blue", "star").phrase == "a blue star"
    assert Word("oyster").phrase == "the word oyster"


@pytest.mark.parametrize("thing", THINGS, ids=NAMES)
def test_a_thing_fits_its_cells_with_the_margin_around_it(thing):
    for variant in range(20):
        tile = thing.paint(Random(variant))
        width, height = room(thing.columns, thing.rows)
        assert tile.mode == "RGBA" and tile.width <= width and tile.height <= height
        # Not a speck either: boxes are to be the size of the things.
        left, top, right, bottom = tile.getchannel("A").getbbox()
        assert max((right - left) / width, (bottom - top) / height) > 0.4


@pytest.mark.parametrize("thing", range(len(THINGS)), ids=NAMES)
def test_a_thing_alone_on_a_page_covers_exactly_its_box(thing):
    random = Random(NAMES[thing])
    for paper in PAPERS:
        (one,) = SHEET.place([thing], random)
        page = opened(SHEET.draw([one], paper))
        ink = differing(page, opened(SHEET.draw([], paper)))
        assert ink.getbbox() == one.box
        # A box that is drawn around what nobody can see would be too large.
        assert ink.point(lambda levels: levels * (levels >= 5)).getbbox() == one.box


@pytest.mark.parametrize("thing", range(len(THINGS)), ids=NAMES)
def test_a_thing_moved_as_far_as_allowed_stays_in_its_own_cells(thing):
    columns, rows = THINGS[thing].columns, THINGS[thing].rows
    for lot in range(30):
        (one,) = SHEET.place([thing], Random(lot))
        left, top, right, bottom = one.box
        assert 0 <= left < right <= 168 and 0 <= top < bottom <= 224
        assert (right - 1) // CELL - left // CELL < columns
        assert (bottom - 1) // CELL - top // CELL < rows


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (2, 1), (2, 2)])
def test_no_two_things_look_alike(columns, rows):
    """Mean difference of their tiles, in grey levels, where one is shifted so that they fit best."""
    things = [thing for thing in THINGS if (thing.columns, thing.rows) == (columns, rows)]
    tiles = np.stack([[on_white(thing, variant) for variant in range(2)] for thing in things])
    shifted = np.stack([np.roll(tiles, (y, x), (2, 3)) for y in (-1, 0, 1) for x in (-1, 0, 1)])
    for first, thing in enumerate(things):
        for variant in range(2):
            away = np.abs(shifted - tiles[first, variant].astype(np.int16)).mean((3, 4, 5)).min((0, 2))
            away[first] = np.inf
            assert away.min() > 5, f"{thing.name}, {things[int(away.argmin())].name}"


def on_white(thing, variant: int) -> np.ndarray:
    tile = thing.paint(Random(variant))
    page = Image.new("RGB", room(thing.columns, thing.rows), "white")
    page.paste(tile, ((page.width - tile.width) // 2, (page.height - tile.height) // 2), tile)
    return np.asarray(page, dtype=np.int16)


def test_variants_of_a_thing_differ_in_what_its_name_leaves_open():
    for thing in THINGS:
        assert len({thing.paint(Random(variant)).tobytes() for variant in range(8)}) > 2


def test_things_never_share_a_cell():
    for lot in range(200):
        random = Random(lot)
        standing = SHEET.place(random.sample(range(len(THINGS)), 8), random)
        cells = [cell for one in standing for cell in cells_of(one.box)]
        assert len(cells) == len(set(cells))


def cells_of(box: tuple[int, int, int, int]) -> list[tuple[int, int]]:
    left, top, right, bottom = box
    columns, rows = range(left // CELL, (right - 1) // CELL + 1), range(top // CELL, (bottom - 1) // CELL + 1)
    return [(column, row) for column in columns for row in rows]


def test_every_place_of_a_page_is_used():
    corners = {
        (standing.box[0] // CELL, standing.box[1] // CELL)
        for lot in range(600)
        for standing in SHEET.place([0], Random(lot))
    }
    assert len(corners) == 6 * 8


def test_without_jitter_a_thing_stands_in_the_middle_of_its_cells():
    still = Sheet(THINGS, (168, 224), 0, VARIANTS, seed=5)
    for lot in range(20):
        (one,) = still.place([0], Random(lot))
        left, top, right, bottom = (side % CELL for side in one.box)
        assert abs(left - (CELL - right)) <= 1 and abs(top - (CELL - bottom)) <= 1


def test_more_things_than_a_page_can_hold_are_refused_in_one_line():
    small = Sheet(THINGS, (56, 56), 2, VARIANTS, seed=5)
    charts = [NAMES.index("red bar chart"), NAMES.index("blue bar chart")]
    with pytest.raises(DataError, match=r"^things_per_page: 2 things do not fit on a page of 56 x 56 pixels; [^\n]+$"):
        small.place(charts, Random(0))
