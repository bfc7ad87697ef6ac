"""Box files made from the release's columns, from training files, and in other frames."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conceptformer.box_files.conversion import (
    Conversion,
    convert_box_file,
    convert_released,
    is_released,
    write_conversion,
)
from conceptformer.box_files.page_sources import PageCorpus, PageFolder
from conceptformer.box_files.rows import read_box_file
from conceptformer.box_files.schema import schema_faults
from conceptformer.data.training_files import read_training_rows
from conceptformer.errors import BoxError, DataError
from conceptformer.proposals.box_file import read_done
from tests.conceptformer.box_rows import SIDE, box_row, write_boxes
from tests.conceptformer.row_files import save_page, training_row, write_lines

FRAMES = ("absolute", "relative", "relative1000")


def convert(path: Path, out: Path, frame: str) -> Conversion:
    converted = convert_box_file(read_box_file(path), out, frame)
    write_conversion(out, converted)
    return converted


def released(number: int, pages: list[str], boxes: object, **changes: object) -> dict:
    row = {
        "query_id": f"q{number}",
        "query_text": "Which\\nferry?",
        "relevant_doc_ids": pages,
        "describe": "a table",
        "bbox_2d": json.dumps(boxes),
        "image_size": "[280, 280]",
        "input_size": "[560, 560]",
        "answers": "[]",
        "dataset_names": '["docvqa"]',
    }
    return row | changes


@pytest.mark.parametrize("frame", FRAMES)
def test_boxes_come_back_from_another_frame_within_a_hundredth_of_a_pixel(tmp_path, frame):
    save_page(tmp_path / "p1.png", (953, 1347))
    boxes = [[0, 0, 953, 1347], [13, 17, 14, 18], [101.5, 33.25, 720.125, 1346]]
    start = write_lines(tmp_path / "train.jsonl", training_row(boxes=boxes, other_positives=["p7"]))
    convert(start, tmp_path / "there" / "boxes.jsonl", frame)
    convert(tmp_path / "there" / "boxes.jsonl", tmp_path / "back.jsonl", "absolute")
    (row,) = read_done(tmp_path / "back.jsonl").values()
    for box, expected in zip(row.values["boxes"], boxes, strict=True):
        assert box == pytest.approx(expected, abs=0.01)
    assert row.values["image"] == "p1.png" and row.values["other_positives"] == ["p7"]
    (there,) = read_done(tmp_path / "there" / "boxes.jsonl").values()
    assert (there.values["frame"], there.values["image"]) == (frame, "../p1.png")
    assert schema_faults(there.values) == () == schema_faults(row.values)


def test_what_training_reads_is_the_same_before_and_after(tmp_path):
    path = write_boxes(
        tmp_path, box_row(1, [[7, 14, 140, 270]]), box_row(2, []), box_row(3, [[9, 9, 99, 99]], input_size=[140, 140])
    )
    convert(path, tmp_path / "other.jsonl", "relative1000")
    before, after = (
        read_training_rows(tmp_path / name, skip_bad_rows=False).examples for name in ("boxes.jsonl", "other.jsonl")
    )
    assert [(e.query_id, e.query, e.page, e.image_size) for e in before] == [
        (e.query_id, e.query, e.page, e.image_size) for e in after
    ]
    for one, other in zip(before, after, strict=True):
        for box, twin in zip(one.boxes, other.boxes, strict=True):
            assert (box.left, box.top, box.right, box.bottom) == pytest.approx(
                (twin.left, twin.top, twin.right, twin.bottom), abs=1e-7
            )
            assert box.label == twin.label


def test_absolute_boxes_keep_the_size_that_they_refer_to(tmp_path):
    path = write_boxes(tmp_path, box_row(1, [[7, 14, 140, 280]], frame="relative1000", input_size=[560, 140]))
    (row,) = convert(path, tmp_path / "other.jsonl", "absolute").rows
    assert row["boxes"] == [[3.92, 1.96, 78.4, 39.2]] and row["input_size"] == [560, 140]
    assert (row["model"], row["prompt_version"]) == ("a-model", "1")


def test_the_boxes_that_were_lost_on_the_way_are_counted_through(tmp_path):
    path = write_boxes(
        tmp_path,
        box_row(1, [[0, 0, 9, 900], [9, 9, 9, 9], [9, 9, 20, 20]], clipped=1, dropped=2),
        box_row(2, [[0, 0, 9, 9]], clipped=4),
        box_row(3, [[0, 0, 9, 9]]),
    )
    rows = convert(path, tmp_path / "other.jsonl", "relative").rows
    assert [(row.get("clipped"), row.get("dropped")) for row in rows] == [(2, 3), (4, None), (None, None)]
    assert all(schema_faults(row) == () for row in rows)


def test_whole_numbers_stay_whole(tmp_path):
    path = write_boxes(tmp_path, box_row(1, [[101, 33, 271, 279]]))
    (row,) = convert(path, tmp_path / "other.jsonl", "absolute").rows
    assert json.dumps(row["boxes"]) == "[[101, 33, 271, 279]]"


def test_rows_and_boxes_that_cannot_be_converted_are_listed(tmp_path):
    path = write_boxes(
        tmp_path,
        box_row(1, [[0, 0, 9, 9], [9, 9, 9, 9]]),
        box_row(2, [[9, 9, 9, 9]]),
        box_row(3, [[0, 0, 9, 900]]),
        b"?",
    )
    converted = convert(path, tmp_path / "other.jsonl", "relative")
    assert [row["query_id"] for row in converted.rows] == ["q1", "q3"]
    listed = [json.loads(line) for line in (tmp_path / "other.skipped.jsonl").read_text().splitlines()]
    assert [line["place"] for line in listed] == ["boxes.jsonl:4", "boxes.jsonl:1", "boxes.jsonl:2", "boxes.jsonl:2"]
    assert listed[-1]["reason"] == "none of its boxes can be used; no row"
    assert [fault.place for fault in converted.clipped] == ["boxes.jsonl:3"]
    assert converted.rows[1]["boxes"][0][3] == 1


def test_nothing_to_write_or_no_such_frame_is_an_error(tmp_path):
    path = write_boxes(tmp_path, box_row(1, [[9, 9, 9, 9]]))
    with pytest.raises(DataError, match=r"no row can be converted, 2 left out: boxes.jsonl:1: box 1 \(9, 9, 9, 9\)"):
        convert(path, tmp_path / "other.jsonl", "relative")
    with pytest.raises(BoxError, match="the frame is stated as 'pixels'"):
        convert(path, tmp_path / "other.jsonl", "pixels")
    assert not (tmp_path / "other.jsonl").exists()


def test_the_release_is_told_by_its_columns(tmp_path):
    assert is_released(tmp_path / "any.parquet")
    assert is_released(write_lines(tmp_path / "a.jsonl", b"", released(1, ["p"], [])))
    assert not is_released(write_lines(tmp_path / "b.jsonl", training_row()))
    assert not is_released(write_lines(tmp_path / "c.jsonl", b"broken"))


def test_rows_of_the_release_become_rows_of_a_box_file(tmp_path):
    pages = tmp_path / "pages"
    for name, size in {"docvqa/1.png": (SIDE, SIDE), "docvqa/2.png": (100, 300), "3.jpg": (SIDE, SIDE)}.items():
        save_page(pages / name, size)
    path = write_lines(
        tmp_path / "set.jsonl",
        released(1, ["docvqa/1.png"], [[56, 0, 560, 280]]),
        released(2, ["docvqa/2.png", "3"], [[0, 0, 28, 28], [9, 9, 9, 9]]),
        released(3, ["docvqa/2"], []),
        released(4, ["../set.jsonl", "gone"], [[0, 0, 9, 9]]),
        released(5, ["docvqa/2.png"], [[0, 0, 9, 9]]),
        released(6, ["3"], [[0, 0, 0.5, 0.5]]),
        released(7, ["3"], "nothing"),
        released(1, ["3"], []),
    )
    out = tmp_path / "out" / "boxes.jsonl"
    converted = convert_released(path, PageFolder(pages), out, "absolute", "absolute")
    write_conversion(out, converted)
    one, two, three = (row.values for row in read_done(out).values())
    assert all(schema_faults(row) == () for row in (one, two, three))
    assert one["boxes"] == [[56, 0, 560, 280]] and one["labels"] == ["a table"]
    assert (one["image_size"], one["input_size"]) == ([SIDE, SIDE], [560, 560])
    assert (one["query"], one["image"]) == ("Which\\nferry?", "../pages/docvqa/1.png")
    assert one["model"] == "hmhm1229/ConceptFormer-Trainset"
    assert (two["page_id"], two["other_positives"], len(two["boxes"])) == ("3", ["docvqa/2.png"], 1)
    assert two["dropped"] == 1 and "clipped" not in two
    assert (three["boxes"], three["input_size"]) == ([], [100, 300])
    told = [str(fault) for fault in converted.skipped]
    assert [re.match(r"set.jsonl\D*(\d+)", line)[1] for line in told] == ["7", "2", "4", "5", "6", "8"]
    reasons = " | ".join(told)
    for part in (
        "box 2 (9, 9, 9, 9): empty or turned round",
        "(query 'q4'): none of its 2 pages is there, e.g. '../set.jsonl'",
        "(query 'q5'): image_size is 280 x 280, and none of its pages has that shape",
        "(query 'q6'): the frame is stated as 'absolute' (pixels) but no number is above 1",
        "bbox_2d is ",
        "(query 'q1'): the same query id as in ",
    ):
        assert part in reasons, reasons


def test_the_frame_of_the_release_can_be_set(tmp_path):
    save_page(tmp_path / "pages" / "p.png", (SIDE, SIDE))
    path = write_lines(tmp_path / "set.jsonl", released(1, ["p"], [[0, 0, 500, 1000]]))
    (row,) = convert_released(
        path, PageFolder(tmp_path / "pages"), tmp_path / "b.jsonl", "absolute", "relative1000"
    ).rows
    assert row["boxes"] == [[0, 0, 280, 560]] and row["input_size"] == [560, 560]


def test_a_wrong_frame_of_the_release_is_doubted_under_the_name_of_the_setting(tmp_path):
    save_page(tmp_path / "pages" / "p.png", (SIDE, SIDE))
    rows = [released(n, ["p"], [[0, 0, 900 + n, 100]], input_size="[2800, 2800]") for n in range(40)]
    path = write_lines(tmp_path / "set.jsonl", *rows)
    with pytest.warns(UserWarning, match="another frame than from_frame=absolute.* all fit from_frame=relative1000"):
        convert_released(path, PageFolder(tmp_path / "pages"), tmp_path / "b.jsonl", "absolute", "absolute")


def test_a_page_name_that_several_files_bear_is_refused(tmp_path):
    save_page(tmp_path / "pages" / "p.png")
    save_page(tmp_path / "pages" / "p.jpg")
    path = write_lines(tmp_path / "set.jsonl", released(1, ["p"], []), released(2, ["p.png"], []))
    converted = convert_released(path, PageFolder(tmp_path / "pages"), tmp_path / "b.jsonl", "absolute", "absolute")
    assert [row["page_id"] for row in converted.rows] == ["p.png"]
    assert str(converted.skipped[0]).startswith("page 'p': several files have its name: p.jpg, p.png")


def test_a_folder_without_images_is_an_error(tmp_path):
    (tmp_path / "pages").mkdir()
    path = write_lines(tmp_path / "set.jsonl", released(1, ["p"], []))
    with pytest.raises(DataError, match="pages: .* holds no image"):
        convert_released(path, PageFolder(tmp_path / "pages"), tmp_path / "b.jsonl", "absolute", "absolute")


def test_pages_and_boxes_in_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from tests.conceptformer.opendocvqa_files import DOCVQA, released_row, write_pages, write_released

    write_pages(tmp_path / "corpus")
    write_released(tmp_path / "set [1]", released_row("docvqa-train_0", [DOCVQA[0]], [[0, 0, 40, 21]]))
    out = tmp_path / "boxes.jsonl"
    source = PageCorpus(tmp_path / "corpus", tmp_path / "images")
    converted = convert_released(tmp_path / "set [1]" / "train.parquet", source, out, "relative", "absolute")
    (tmp_path / "boxes.skipped.jsonl").write_text("of an earlier run")
    assert write_conversion(out, converted) is None
    (pair,) = read_box_file(out).pairs
    assert (pair.page_id, pair.image_size) == (DOCVQA[0], (40, 21)) and pair.image.is_relative_to(tmp_path / "images")
    assert [(box.left, box.top, box.right, box.bottom) for box in pair.boxes] == [(0, 0, 0.5, 0.5)]
    assert not (tmp_path / "boxes.skipped.jsonl").exists()
