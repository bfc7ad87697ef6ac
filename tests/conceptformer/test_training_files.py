"""Training files: what is read is what was written, and what cannot be used is named by file, line and reason."""

from __future__ import annotations

import json
import logging
import math
import os
from pathlib import Path
from typing import Any

import pytest

from conceptformer.data.training_files import read_training_rows, write_training_rows
from conceptformer.errors import DataError
from conceptformer.records import EvidenceBox, Page, TrainingExample, TrainingSet
from tests.conceptformer.row_files import png_of_size, save_page, training_row, write_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three pages of 40 x 60 pixels."""
    for number, colour in enumerate(("red", "green", "blue"), start=1):
        save_page(tmp_path / f"p{number}.png", (40, 60), colour)
    return tmp_path


def read(folder: Path, *rows: Any, skip: bool = True, **options: Any) -> TrainingSet:
    return read_training_rows(write_lines(folder / "train.jsonl", *rows), skip_bad_rows=skip, **options)


GOOD = training_row(query_id="q0", page_id="p3", image="p3.png")


def refusal(folder: Path, *rows: Any) -> str:
    """The one line on what is left out beside a good row, which is also the error where nothing may be left out."""
    data = read(folder, GOOD, *rows)
    assert [example.query_id for example in data.examples] == ["q0"]
    (line,) = data.refused
    assert "\n" not in line
    with pytest.raises(DataError) as caught:
        read(folder, GOOD, *rows, skip=False)
    message = str(caught.value)
    assert line in message
    assert str(folder / "train.jsonl") in message
    assert "\n" not in message
    return line


def test_a_row_becomes_an_example(folder: Path):
    row = training_row(
        boxes=[[4, 6, 20, 30], [0, 30, 40, 60]], labels=["a chart", ""], other_positives=["p7", "p9"], image="./p1.png"
    )
    data = read(folder, row, skip=False)
    page = Page("p1", folder / "p1.png")
    boxes = (EvidenceBox(0.1, 0.1, 0.5, 0.5, "a chart"), EvidenceBox(0, 0.5, 1, 1))
    assert data.examples == (TrainingExample("q1", "Which year?", page, (40, 60), boxes, ("p7", "p9")),)
    assert data.refused == ()
    assert data.name == folder.name


@pytest.mark.parametrize(
    ("frame", "input_size", "numbers"),
    [
        ("absolute", None, [4, 6, 20, 30]),
        ("absolute", [80, 120], [8, 12, 40, 60]),
        ("relative", None, [0.1, 0.1, 0.5, 0.5]),
        ("relative1000", [80, 120], [100, 100, 500, 500]),
    ],
)
def test_each_frame_gives_the_same_box(folder: Path, frame: str, input_size: Any, numbers: list[float]):
    data = read(folder, training_row(boxes=[numbers], frame=frame, input_size=input_size), skip=False)
    assert data.examples[0].boxes == (EvidenceBox(0.1, 0.1, 0.5, 0.5),)


def test_texts_are_kept_byte_for_byte(folder: Path):
    texts = [
        "Instruct: find\\nQuery: which?",
        "line\nbreak\u2028 and\x85more",
        "  spaces  ",
        "\u00e9 \U0001f600 e\u0301",
    ]
    rows = [training_row(query_id=f"q{number}", query=text) for number, text in enumerate(texts)]
    assert [example.query for example in read(folder, *rows, skip=False).examples] == texts
    raw = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    assert [example.query for example in read(folder, *raw, skip=False).examples] == texts


def test_what_is_written_is_read_back(tmp_path: Path):
    path = tmp_path / "data" / "train.jsonl"
    examples = [
        TrainingExample(
            f"q{number}",
            f"Query {number}\\n\u2028\u00e9",
            Page(f"p{number % 3}", save_page(tmp_path / "images" / f"p{number % 3}.png", (17, 13))),
            (17, 13),
            (EvidenceBox(0.1, 1 / 3, 0.7, 2 / 3, "a label"), EvidenceBox(0, 0, 1, 1))[: number % 3],
            ("p8", "p9")[: number % 2],
        )
        for number in range(6)
    ]
    write_training_rows(path, examples)
    assert read_training_rows(path, skip_bad_rows=False).examples == tuple(examples)
    assert sorted(file.name for file in path.parent.iterdir()) == ["train.jsonl"]


def test_a_page_in_memory_cannot_be_written(tmp_path: Path):
    with pytest.raises(DataError, match="'p1': its image is no file of its own"):
        write_training_rows(tmp_path / "a.jsonl", [TrainingExample("q", "?", Page("p1", b"..."), (1, 1))])
    assert list(tmp_path.iterdir()) == []


def test_blank_lines_a_byte_order_mark_and_windows_line_ends_are_no_rows(folder: Path):
    (folder / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(training_row()).encode() + b"\r\n\r\n  \n")
    assert len(read_training_rows(folder / "a.jsonl", skip_bad_rows=False).examples) == 1


# Bad rows


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{'query_id': 1}", "expected a JSON object in UTF-8"),
        (b'{"query_id": "q1", "que', "expected a JSON object in UTF-8"),
        (b'["q1"]', "expected a JSON object"),
        (b"null", "expected a JSON object"),
        (b'{"query_id": "\xff"}', "expected a JSON object in UTF-8"),
        (b"[" * 100_000, "expected a JSON object"),
        (b'{"query": "a", "query": "b"}', "the key 'query' stands there twice"),
    ],
)
def test_a_line_that_is_no_object_is_refused(folder: Path, line: bytes, reason: str):
    found = refusal(folder, line)
    assert found.startswith("train.jsonl:2: ")
    assert reason in found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"query": None}, "no 'query'"),
        ({"boxes": None}, "no 'boxes'"),
        ({"bbox": [[1, 2, 3, 4]]}, "unknown 'bbox'"),
        ({"query": ""}, "query is ''"),
        ({"query": " \n "}, "query is"),
        ({"query": ["Which?"]}, "query is ['Which?']; expected a text"),
        ({"query": "\ud83d"}, "half of a character"),
        ({"query_id": 7}, "query_id is 7"),
        ({"page_id": ""}, "page_id is ''"),
        ({"image": ""}, "image is ''"),
        ({"other_positives": "p2"}, "other_positives is 'p2'; expected a list"),
        ({"other_positives": [3]}, "other_positives is 3"),
        ({"boxes": {"x": 1}}, "boxes are {'x': 1}; expected a list"),
        ({"labels": "a"}, "labels are 'a'"),
        ({"labels": [1]}, "labels are [1]"),
        ({"labels": ["a", "b"]}, "1 boxes and 2 labels"),
        ({"boxes": [], "labels": ["a"], "frame": None}, "0 boxes and 1 labels"),
        ({"frame": None}, "no frame is stated"),
        ({"frame": "pixels"}, "the frame is stated as 'pixels'"),
        ({"frame": "relative"}, "likelier"),
        ({"boxes": [[0.1, 0.1, 0.5, 0.5]]}, "likelier 'relative'"),
        ({"input_size": [40]}, "input_size is"),
        ({"input_size": [60, 40]}, "swap them"),
        ({"image": "none.png"}, "none.png: no such file"),
    ],
)
def test_a_row_that_cannot_be_used_is_refused(folder: Path, changes: dict[str, Any], reason: str):
    line = refusal(folder, training_row(**changes))
    assert line.startswith("train.jsonl:2")
    assert reason in line


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n\0\0"])
def test_a_row_with_a_broken_image_is_refused(folder: Path, content: bytes):
    (folder / "broken.png").write_bytes(content)
    assert f"(query 'q1', page 'p1'): {folder / 'broken.png'}: " in refusal(folder, training_row(image="broken.png"))


def test_rows_that_contradict_an_earlier_one_are_refused(folder: Path):
    first = training_row()
    data = read(
        folder,
        first,
        training_row(query="Which year? Again."),
        training_row(page_id="p2", image="p2.png", query="Which month?"),
        training_row(query_id="q2", image="p2.png"),
        training_row(query_id="q2", page_id="p2", image="p2.png"),
        training_row(page_id="p2", image="p2.png"),
        training_row(query_id="q3", image="./x/../p1.png"),
    )
    assert [(one.query_id, one.page.page_id) for one in data.examples] == [
        ("q1", "p1"), ("q2", "p2"), ("q1", "p2"), ("q3", "p1"),
    ]  # fmt: skip
    assert data.refused == (
        "train.jsonl:2 (query 'q1', page 'p1'): the same query and page as train.jsonl:1",
        "train.jsonl:3 (query 'q1', page 'p2'): another text of this query than in train.jsonl:1",
        "train.jsonl:4 (query 'q2', page 'p1'): another image of this page than in train.jsonl:1",
    )


def test_a_row_that_was_refused_contradicts_nobody(folder: Path):
    data = read(folder, training_row(query=""), training_row(other_positives=7), training_row())
    assert (len(data.examples), len(data.refused)) == (1, 2)


def test_bad_boxes_are_left_out_and_their_row_stays(folder: Path):
    boxes = [[4, 6, 20, 30], [20, 6, 4, 30], [41, 6, 90, 30], [4, 6, math.nan, 30], [0, 0, 4]]
    row = training_row(boxes=boxes, labels=list("abcde"))
    data = read(folder, row)
    assert data.examples[0].boxes == (EvidenceBox(0.1, 0.1, 0.5, 0.5, "a"),)
    assert [line.split(": ", 1)[1].split(" ")[:2] for line in data.refused] == [["box", str(n)] for n in (2, 3, 4, 5)]
    assert all(line.startswith("train.jsonl:1 (query 'q1', page 'p1'): ") for line in data.refused)
    with pytest.raises(DataError, match="cannot be used: 4: .*; and 1 more; correct them, or skip_bad_rows=true"):
        read(folder, row, skip=False)


def test_a_row_without_any_usable_box_stays_and_is_listed(folder: Path):
    data = read(folder, training_row(boxes=[[50, 70, 90, 90]]))
    assert [example.boxes for example in data.examples] == [()]
    assert "outside the page of 40 x 60 pixels" in data.refused[0]


def test_a_row_of_a_proposer_that_found_nothing_needs_no_frame(folder: Path):
    assert read(folder, training_row(boxes=[], frame=None), skip=False).examples[0].boxes == ()


def test_clipped_boxes_are_used_and_counted(folder: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        data = read(folder, training_row(boxes=[[-4, 6, 20, 30], [4, 6, 41, 30]]), skip=False)
    assert data.examples[0].boxes == (EvidenceBox(0, 0.1, 0.5, 0.5), EvidenceBox(0.1, 0.1, 1, 0.5))
    assert data.refused == ()
    (record,) = caplog.records
    assert "boxes clipped to their pages: 2, the first: train.jsonl:1 (query 'q1'" in record.getMessage()


def test_reasons_of_many_lines_become_one(folder: Path):
    assert refusal(folder, training_row(image="no\nsuch\u2028file.png")).count("no such file") == 2


@pytest.mark.parametrize("size", [(1, 1), (20_000, 20_000), (1, 20_000)])
def test_pages_of_any_size_are_read_and_left_to_the_backbone(folder: Path, size: tuple[int, int]):
    (folder / "p9.png").write_bytes(png_of_size(*size))
    row = training_row(image="p9.png", boxes=[[0, 0, 1, 1]], frame="relative")
    assert read(folder, row, skip=False).examples[0].image_size == size


# Bad files


def test_a_missing_file_says_what_was_expected(tmp_path: Path):
    with pytest.raises(DataError, match="none.jsonl: no such file; expected one JSON object per line with query_id"):
        read_training_rows(tmp_path / "none.jsonl", skip_bad_rows=True)
    with pytest.raises(DataError, match="cannot be read"):
        read_training_rows(tmp_path, skip_bad_rows=True)


def test_a_file_without_rows_and_one_without_usable_rows_are_errors(folder: Path):
    with pytest.raises(DataError, match="expected training pairs, found none$"):
        read(folder)
    with pytest.raises(DataError, match="found none that can be used: train.jsonl:1: query is ''"):
        read(folder, training_row(query=""))


# Progress, fingerprint


def test_each_image_is_looked_at_once_and_reported(folder: Path):
    reports: list[tuple[int, int]] = []
    rows = [training_row(query_id=f"q{n}", page_id=f"p{n % 3 + 1}", image=f"p{n % 3 + 1}.png") for n in range(9)]
    read(folder, *rows, on_progress=lambda done, total: reports.append((done, total)))
    assert reports == [(1, 3), (2, 3), (3, 3)]


def test_the_fingerprint_follows_what_is_trained_on(folder: Path, tmp_path_factory: pytest.TempPathFactory):
    first, second = training_row(), training_row(query_id="q2")
    base = read(folder, first, second).fingerprint
    assert len(base) == 64
    # Not what is left out, nor the frame in which a box is stated, nor the time or place of a file.
    assert read(folder, first, b"{}", second).fingerprint == base
    same = training_row(boxes=[[8, 12, 40, 60]], input_size=[80, 120])
    assert read(folder, same, second).fingerprint == base
    os.utime(folder / "p1.png", (1, 1))
    assert read(folder, first, second).fingerprint == base
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "page.png").write_bytes((folder / "p1.png").read_bytes())
    moved = [row | {"image": "page.png"} for row in (first, second)]
    assert read(elsewhere, *moved).fingerprint == base
    others = [
        read(folder, second, first),
        read(folder, first),
        *(read(folder, training_row(**changes), second) for changes in (
            {"query_id": "q3"}, {"boxes": [[4, 6, 20, 31]]}, {"labels": ["a"]}, {"other_positives": ["p2"]},
        )),
        read(folder, first | {"image": "p2.png"}, second | {"image": "p2.png"}),
        read(folder, first | {"query": "Which?"}, second),
        read(folder, first | {"page_id": "p4"}, second),
    ]  # fmt: skip
    assert len({base, *(other.fingerprint for other in others)}) == 1 + len(others)
