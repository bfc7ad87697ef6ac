"""Figures of box files, on cases worked by hand and against a slow count."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conceptformer.backbones.qwen2_5_vl_inputs import InputSettings, page_grid
from conceptformer.box_files.sampling import asked_rows, chosen_rows
from conceptformer.box_files.statistics import BoxStatistics, Spread, box_statistics, coverage
from conceptformer.box_files.summary import facts, write_summary
from conceptformer.errors import ConceptFormerError
from conceptformer.records import EvidenceBox
from tests.conceptformer.box_rows import box_row, read_rows
from tests.conceptformer.row_files import save_page

GRID = partial(page_grid, settings=InputSettings())


def statistics(folder, *rows) -> BoxStatistics:
    return box_statistics(read_rows(folder, *rows), GRID)


def test_the_figures_of_a_small_file(tmp_path):
    """On a page of 10 x 10 tokens: the first box covers 5 x 5 of them and a quarter of the page; the second columns 2
    to 4 and rows 2 to 7, hence 18 tokens, and an eighth, half of which lies under the first as well; the third, alone
    on its page, one token and a hundredth."""
    found = statistics(
        tmp_path,
        box_row(1, [[0, 0, 140, 140], [70, 70, 140, 210]]),
        box_row(2, [[0, 0, 28, 28]]),
        box_row(3, []),
        box_row(4, [[5, 5, 5, 9]]),
        b"{}",
    )
    assert (found.rows, found.pairs, found.invalid) == (5, 4, 1)
    assert (found.without_boxes, found.none_usable) == (1, 1)
    assert (found.boxes, found.dropped, found.clipped) == (3, 1, 0)
    assert found.pairs_by_boxes == {"0": 2, "1": 1, "2": 1, "3": 0, "4": 0, "5 or more": 0}
    assert found.boxes_per_pair == Spread(1, 1.5, 1.5, 1.9, 2)
    area = found.box_area
    assert (area.least, area.median, area.most) == pytest.approx((0.01, 0.125, 0.25))
    assert area.mean == pytest.approx(0.385 / 3)
    assert (found.covered_area.least, found.covered_area.most) == pytest.approx((0.01, 0.3125))
    assert found.overlapping_pairs == 1
    assert found.overlap.median == pytest.approx(0.0625 / 0.3125)
    assert found.repeated_boxes == 0
    assert (found.frames, found.makers) == ({"absolute": 2}, {"a-model, prompt 1": 4})
    lengths = found.lengths
    assert (lengths.pairs, lengths.without, lengths.longest) == (2, 2, 43)
    assert (lengths.median, lengths.p90) == pytest.approx((22, 1 + 0.9 * 42))


def test_lengths_are_always_told_in_the_groups_of_figure_3a(tmp_path):
    lengths = statistics(tmp_path, box_row(1, [[0, 0, 140, 140], [70, 70, 140, 210]])).lengths
    assert [(group.name, group.count) for group in lengths.groups] == [
        ("1–8", 0), ("9–16", 0), ("17–32", 0), ("33–64", 1), ("65–128", 0), ("129–256", 0), ("257 and more", 0)
    ]  # fmt: skip


def test_pixels_beyond_the_budget_make_fewer_tokens(tmp_path):
    file = read_rows(tmp_path, box_row(1, [[0, 0, 280, 280]]))
    small = box_statistics(file, partial(page_grid, settings=InputSettings(max_pixels=25 * 28 * 28)))
    assert (box_statistics(file, GRID).lengths.longest, small.lengths.longest) == (100, 25)


def test_a_page_that_no_grid_fits_is_listed_and_counted_apart(tmp_path):
    save_page(tmp_path / "long.png", (2010, 10))
    found = statistics(tmp_path, box_row(1, [], image="long.png", image_size=[2010, 10], input_size=[2010, 10]))
    assert found.unfit_pages[0].reason.startswith("image of 2010 x 10 pixels: Qwen2.5-VL takes sides up to 200 times")
    assert found.lengths is None and found.pairs == 1


def test_a_repeated_box_is_counted(tmp_path):
    found = statistics(tmp_path, box_row(1, [[0, 0, 140, 140]] * 3))
    assert found.repeated_boxes == 2 and found.overlap.most == 1.0
    assert found.lengths.longest == 75


def test_boxes_side_by_side_do_not_overlap():
    sides = [EvidenceBox(0, 0, 0.5, 1), EvidenceBox(0.5, 0, 1, 1)]
    assert coverage(sides) == (1.0, 0.0)
    assert coverage([]) == (0.0, 0.0)


edges = st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda pair: pair[0] != pair[1]).map(sorted)


@given(st.lists(st.tuples(edges, edges), max_size=6))
def test_covered_areas_are_those_of_a_count_cell_by_cell(spans):
    boxes = [EvidenceBox(x[0] / 8, y[0] / 8, x[1] / 8, y[1] / 8) for x, y in spans]
    layers = [
        sum(x[0] <= column < x[1] and y[0] <= row < y[1] for x, y in spans) for column in range(8) for row in range(8)
    ]
    expected = (sum(n > 0 for n in layers) / 64, sum(n > 1 for n in layers) / 64)
    assert coverage(boxes) == pytest.approx(expected)


def test_everything_is_written_as_json_and_as_markdown(tmp_path):
    file = read_rows(
        tmp_path,
        box_row(1, [[0, 0, 140, 140], [0, 0, 0, 1]], model="a|b <b>*x*</b>"),
        box_row(2, [[0, 0, 400, 9]]),
        b"[",
    )
    markdown = write_summary(tmp_path / "check.json", file, box_statistics(file, GRID)).read_text()
    written = json.loads((tmp_path / "check.json").read_text())
    assert (written["rows"], written["boxes"], written["lengths"]["median"]) == (3, 2, 17.5)
    assert {name: len(found) for name, found in written["faults"].items()} == {
        "invalid rows": 1, "boxes that cannot be used": 1, "boxes cut off": 1
    }  # fmt: skip
    assert written["faults"]["boxes that cannot be used"][0]["place"] == "boxes.jsonl:1"
    assert "| made by | a\\|b \\<b\\>\\*x\\*\\</b\\>, prompt 1 (1 pair); a-model, prompt 1 (1 pair) |" in markdown
    assert "| frames of the boxes | absolute (2 pairs) |\n| pairs by number of boxes | 2 with 1 |\n" in markdown
    groups = [line for line in markdown.splitlines() if line.endswith("% |") and line.count("|") == 4]
    assert groups == ["| 9–16 | 1 | 50.0% |", "| 17–32 | 1 | 50.0% |"]
    assert len(written["lengths"]["groups"]) == 7 and "To compare, the paper's training set (Figure 3a)" in markdown
    assert "| 17–32 | 1 | 50.0% |" in markdown and "## Invalid rows: 1" in markdown


def test_figures_that_a_file_without_boxes_does_not_have_are_not_shown(tmp_path):
    file = read_rows(tmp_path, box_row(1, []), box_row(2, []))
    shown = dict(facts(box_statistics(file, GRID)))
    assert (shown["rows"], shown["pairs without boxes"], shown["pairs by number of boxes"]) == ("2", "2", "2 with 0")
    assert not {"frames of the boxes", "boxes of a pair", "area of a box, of its page"} & set(shown)


def test_boxes_that_were_lost_when_they_were_proposed_are_summed_up_and_looked_at(tmp_path):
    file = read_rows(
        tmp_path,
        box_row(1, [[0, 0, 9, 9]], clipped=1, dropped=3),
        box_row(2, [[0, 0, 9, 280]], clipped=1),
        box_row(3, [[0, 0, 9, 9]]),
        box_row(4, [[0, 0, 9, 9]], clipped=7, frame="pixels"),
    )
    found = box_statistics(file, GRID)
    assert (found.clipped, found.clipped_before, found.dropped_before) == (0, 2, 3)
    told = dict(facts(found))
    assert told["boxes cut off at the edge when they were proposed"] == "2"
    assert told["boxes dropped when they were proposed"] == "3"
    chosen = {choice.row.query_id: choice.reasons for choice in chosen_rows(file, 1, seed=0)}
    assert {name for name, why in chosen.items() if "with boxes lost when they were proposed" in why} == {"q1", "q2"}
    untouched = dict(facts(statistics(tmp_path, box_row(3, [[0, 0, 9, 9]]))))
    assert not [name for name in untouched if "when they were proposed" in name]


def test_a_file_of_single_boxes_has_no_row_with_the_most(tmp_path):
    file = read_rows(tmp_path, *(box_row(n, [[0, 0, 9 + n, 9]]) for n in range(9)))
    assert not [choice for choice in chosen_rows(file, 9, seed=0) if "most boxes" in choice.reasons]


def test_rows_to_look_at_are_chosen_by_rule(tmp_path):
    sides = [3, 5, 7, 9, 50, 60, 70, 80]
    rows = [box_row(number, [[0, 0, side, side]]) for number, side in enumerate(sides)]
    rows[4]["boxes"], rows[4]["labels"] = [[0, 0, 50, 50], [0, 0, 9, 9]], ["", ""]
    file = read_rows(tmp_path, *rows, box_row(90, [[1, 1, 1, 9]]), box_row(91, [[0, 0, 1, 300]]), b"", box_row(92, [1]))
    chosen = {choice.row.query_id: choice.reasons for choice in chosen_rows(file, 1, seed=0)}
    drawn = [query_id for query_id, reasons in chosen.items() if "at random" in reasons]
    assert len(drawn) == 1
    told = {query_id: tuple(r for r in reasons if r != "at random") for query_id, reasons in chosen.items()}
    assert {query_id: reasons for query_id, reasons in told.items() if reasons} == {
        "q92": ("invalid",),
        "q90": ("with a box that cannot be used",),
        "q91": ("with a box beyond its page",),
        "q7": ("largest area",),
        "q6": ("largest area",),
        "q5": ("largest area",),
        "q0": ("smallest area",),
        "q1": ("smallest area",),
        "q2": ("smallest area",),
        "q4": ("most boxes",),
    }
    assert chosen_rows(file, 3, seed=5) == chosen_rows(file, 3, seed=5)
    assert [c.row.query_id for c in asked_rows(file, ["q7", "q92"])] == ["q7", "q92"]
    with pytest.raises(ConceptFormerError, match="has no row of the query 'q8'"):
        asked_rows(file, ["q8"])
