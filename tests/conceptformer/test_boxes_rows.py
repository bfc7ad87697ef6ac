"""What is found in files of evidence boxes, and what is found wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conceptformer.box_files.frame_hints import frame_hints
from conceptformer.box_files.rows import read_box_file
from conceptformer.box_files.schema import schema_faults
from conceptformer.errors import DataError
from conceptformer.proposals.box_file import SCHEMA
from tests.conceptformer.box_rows import SIDE, box_row, read_rows
from tests.conceptformer.row_files import save_page, write_lines

GOOD = box_row(1, [[0, 0, 140, 140]], other_positives=["p9"])
UNREADABLE_HERE = {"$schema", "title", "description", "properties", "required", "additionalProperties"}


def keywords(schema: dict[str, Any]) -> set[str]:
    found = set(schema)
    for part in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        found |= keywords(part)
    return found


def test_the_schema_says_nothing_that_is_not_read():
    read = {"type", "const", "enum", "pattern", "minimum", "minItems", "maxItems", "items"}
    assert keywords(json.loads(SCHEMA.read_text())) <= read | UNREADABLE_HERE


def test_a_good_row_has_no_fault():
    assert schema_faults(GOOD) == ()
    assert schema_faults(box_row(1, [])) == ()
    assert schema_faults(box_row(1, [], clipped=0, dropped=2)) == ()


@pytest.mark.parametrize("key", [key for key in GOOD if key != "other_positives"])
def test_each_key_is_needed(key):
    (fault,) = schema_faults({name: value for name, value in GOOD.items() if name != key})
    assert fault == f"there is no {key}; expected it in each row of evidence-boxes/1"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "evidence-boxes/2"}, "format is 'evidence-boxes/2'; expected 'evidence-boxes/1'"),
        ({"query": " \n"}, "query is ' \\n'; expected a text that is not empty"),
        ({"query_id": 7}, "query_id is 7; expected a text"),
        ({"boxes": {}}, "boxes is {}; expected a list"),
        ({"boxes": [[1, 2, 3]]}, "boxes[0] is [1, 2, 3]; expected 4 numbers"),
        ({"boxes": [[1, 2, 3, 4], [1, -2, 3, 4]]}, "boxes[1][1] is -2; expected at least 0"),
        ({"boxes": [[1, 2, 3, float("nan")]]}, "boxes[0][3] is nan; expected a finite number"),
        ({"boxes": [[1, 2, 3, 10**400]]}, "boxes[0][3] is 1000"),
        ({"boxes": [[1, 2, True, 4]]}, "boxes[0][2] is True; expected a finite number"),
        ({"labels": [None]}, "labels[0] is None; expected a text"),
        ({"frame": "pixels"}, "frame is 'pixels'; expected 'absolute' or 'relative' or 'relative1000'"),
        ({"image_size": [280.5, 280]}, "image_size[0] is 280.5; expected a whole number"),
        ({"image_size": [280]}, "image_size is [280]; expected 2 numbers"),
        ({"input_size": [0, 280]}, "input_size[0] is 0; expected at least 1"),
        ({"other_positives": [""]}, "other_positives[0] is ''; expected a text that is not empty"),
        ({"clipped": 0.5}, "clipped is 0.5; expected a whole number"),
        ({"dropped": -1}, "dropped is -1; expected at least 0"),
        ({"score": 1}, "unknown key 'score'; expected format, "),
    ],
)
def test_what_is_not_as_the_schema_says_is_told_with_its_place(change, told):
    (fault,) = schema_faults(GOOD | change)
    assert fault.startswith(told)


def test_usable_boxes_are_shares_of_the_page_and_the_others_have_their_reasons(tmp_path):
    boxes = [[0, 70, 140, 280], [9, 9, 9, 20], [300, 0, 400, 9], [210, 0, 400, 70]]
    file = read_rows(tmp_path, box_row(1, boxes))
    (row,) = file.pairs
    assert [(box.left, box.top, box.right, box.bottom, box.label) for box in row.boxes] == [
        (0.0, 0.25, 0.5, 1.0, "label 0"), (0.75, 0.0, 1.0, 0.25, "label 3")
    ]  # fmt: skip
    assert list(map(str, file.dropped)) == [
        "boxes.jsonl:1: box 2 (9, 9, 9, 20): empty or turned round; expected x1 < x2 and y1 < y2",
        "boxes.jsonl:1: box 3 (300, 0, 400, 9): outside the page of 280 x 280 pixels",
    ]
    assert list(map(str, file.clipped)) == [
        "boxes.jsonl:1: box 4 (210, 0, 400, 70): reaches beyond the page of 280 x 280 pixels"
    ]
    assert file.invalid == ()


def test_invalid_rows_are_listed_with_line_and_reason_and_the_others_stay(tmp_path):
    file = read_rows(
        tmp_path,
        box_row(1, [[0, 0, 9, 9]]),
        b"no json",
        box_row(2, [[0.1, 0.1, 0.5, 0.5]]),
        box_row(1, []),
        b"",
        box_row(3, [[0, 0, 9, 9]], labels=[]),
        box_row(4, [], page_id="p1"),
        box_row(5, [], query_id="q1"),
        box_row(6, [], image_size=[280, 140]),
        box_row(7, [], format=None),
        box_row(8, [], query_id="\ud800"),
        box_row(9, [[0, 0, 9, 9]]),
    )
    assert [row.query_id for row in file.pairs] == ["q1", "q9"]
    told = {int(fault.place.split(":")[1]): fault.reason for fault in file.invalid}
    assert list(told) == [2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert told[2].startswith("expected a JSON object in UTF-8 (")
    assert told[3].endswith("no number is above 1; likelier 'relative' (0 to 1): correct the frame")
    assert told[4] == "the same query and page as boxes.jsonl:1"
    assert told[6].startswith("1 boxes and 0 labels")
    assert told[7] == "another image of this page than in boxes.jsonl:1"
    assert told[8] == "another text of this query than in boxes.jsonl:1"
    assert told[9] == "image_size is 280 x 140 and the image has 280 x 280 pixels, upright"
    assert told[10] == "there is no format; expected it in each row of evidence-boxes/1"
    assert "half of a character" in told[11]


def test_a_page_that_is_gone_makes_its_row_invalid_unless_images_are_not_opened(tmp_path):
    path = write_lines(tmp_path / "boxes.jsonl", box_row(1, [[0, 0, 140, 140]]))
    assert "no such file" in read_box_file(path).invalid[0].reason
    (row,) = read_box_file(path, open_images=False).pairs
    assert row.image_size == (SIDE, SIDE) and row.boxes[0].right == 0.5


def test_a_training_file_needs_neither_format_nor_sizes(tmp_path):
    row = {"query_id": "q", "query": "?", "page_id": "p", "image": "p.png"}
    good = row | {"boxes": [[0, 0, 500, 1000]], "frame": "relative1000"}
    file = read_rows(tmp_path, good, row | {"query_id": "r", "boxes": [[0, 0, 5, 5]]}, row | {"boxes": []})
    assert [pair.boxes[0].right for pair in file.pairs] == [0.5]
    assert file.invalid[0].reason.startswith("no frame is stated; expected 'absolute'")
    (lines,) = read_box_file(write_lines(tmp_path / "one.jsonl", good), open_images=False).invalid
    assert lines.reason == "there is no image_size; expected it where images are not to be opened"


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_rows_is_an_error(tmp_path, content):
    (tmp_path / "boxes.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="no rows; expected one JSON object per line"):
        read_box_file(tmp_path / "boxes.jsonl")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_box_file(tmp_path / "boxes.jsonl")


def hints(folder: Path, size: tuple[int, int], boxes: list[list[float]], **changes: Any) -> tuple[str, ...]:
    """Of rows on one page of ``size``, one box each."""
    save_page(folder / "p.png", size)
    same = {"image": "p.png", "page_id": "p", "image_size": list(size), "input_size": list(size)} | changes
    rows = [box_row(number, [box], **same) for number, box in enumerate(boxes)]
    return frame_hints(read_rows(folder, *rows).rows)


def test_thousandths_that_pass_for_pixels_are_a_sign_of_a_wrong_frame(tmp_path):
    boxes = [[10, 10, 700 + 10 * n, 500] for n in range(30)]
    (hint,) = hints(tmp_path, (4000, 4000), boxes)
    assert hint.startswith("the boxes may be in another frame than absolute: no box of 30 rows ends beyond 25% ")
    assert "all fit relative1000 (0 to 1000)" in hint


def test_boxes_that_never_come_near_the_far_edges_are_a_sign(tmp_path):
    boxes = [[10, 10, 100 + n, 90] for n in range(30)]
    (hint,) = hints(tmp_path, (SIDE, SIDE), boxes)
    assert hint.startswith("no box of 30 rows in the frame absolute ends beyond 46% of its page")
    assert hints(tmp_path, (SIDE, SIDE), [*boxes, [10, 10, 270, 90]]) == ()


def test_few_rows_give_no_sign(tmp_path):
    assert hints(tmp_path, (SIDE, SIDE), [[10, 10, 100, 90]] * 29) == ()


def test_rows_most_of_which_had_boxes_cut_off_are_a_sign(tmp_path):
    boxes = [[10, 10, 270, 90]] * 2
    cut, whole = ([box_row(n, boxes, clipped=clipped) for n in range(9)] for clipped in (2, None))
    (hint,) = frame_hints(read_rows(tmp_path, *cut[:2], *whole[2:4], box_row(9, [])).rows)
    assert hint.startswith("boxes of 2 of 4 rows reached beyond their pages when they were proposed, and were cut off")
    assert frame_hints(read_rows(tmp_path, *cut[:2], *whole[2:5]).rows) == ()
    assert frame_hints(read_rows(tmp_path, *cut[:3]).rows) == ()


def test_an_input_of_another_shape_than_the_page_is_a_sign(tmp_path):
    (hint,) = hints(tmp_path, (SIDE, SIDE), [[10, 10, 100, 90]] * 3, input_size=[280, 210])
    assert hint.startswith("input_size has another shape than the page in 3 rows, the first boxes.jsonl:1")


def test_one_model_under_two_frames_is_a_sign(tmp_path):
    save_page(tmp_path / "p.png", (SIDE, SIDE))
    same = {"image": "p.png", "page_id": "p", "image_size": [SIDE, SIDE], "input_size": [SIDE, SIDE]}
    rows = [box_row(1, [[10, 10, 100, 90]], **same), box_row(2, [[10, 10, 100, 90]], **same, frame="relative1000")]
    (hint,) = frame_hints(read_rows(tmp_path, *rows).rows)
    assert "state the frames absolute and relative1000: a model answers in one" in hint
    # What a faulty row says is no sign of anything.
    for wrong in ({"model": ["x"]}, {"prompt_version": None}):
        assert frame_hints(read_rows(tmp_path, rows[0], rows[1] | wrong).rows) == ()
    rows[1]["model"] = "another"
    assert frame_hints(read_rows(tmp_path, *rows).rows) == ()


def test_what_a_refused_row_says_contradicts_nothing(tmp_path):
    file = read_rows(
        tmp_path,
        box_row(1, []),
        box_row(2, [], query_id="q1"),
        box_row(2, [], image="page1.png"),
    )
    assert [row.place for row in file.pairs] == ["boxes.jsonl:1", "boxes.jsonl:3"]
