"""Queries, pages and boxes merged into one training file: what a reader of it gets, and what is listed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from conceptformer.data.training_files import read_training_rows
from conceptformer.errors import DataError
from conceptformer.opendocvqa import Corpus, write_training_data
from conceptformer.proposals.pairs import read_pairs
from tests.conceptformer.colour_pages import png
from tests.conceptformer.opendocvqa_files import (
    DOCVQA,
    INFOVQA,
    NOWHERE,
    query_row,
    released_row,
    write_pages,
    write_queries,
    write_released,
)
from tests.conceptformer.parquet_files import CORPUS, corpus_rows, page_content, pq, write_table
from tests.conceptformer.row_files import write_lines

ROWS = [
    query_row("docvqa-train_0", [DOCVQA[5]], ["docvqa"]),
    query_row("infovqa-train_0", [INFOVQA[3]], ["infovqa"]),
    query_row("mhdocvqa-train_0", [INFOVQA[0], DOCVQA[1]]),
    query_row("infovqa-train_1", [INFOVQA[3]], ["infovqa"]),
]


def write(tmp_path: Path, queries, corpus: Corpus | None = None, **changes: object):
    settings = {"boxes": None, "all_pages": False, "skip_bad_rows": False}
    corpus = corpus or write_pages(tmp_path / "corpus")
    written = write_training_data(queries, corpus, tmp_path / "out", **(settings | changes))
    return written, read_training_rows(tmp_path / "out" / "train.jsonl", skip_bad_rows=False).examples


def box_row(query_id: str, page_id: str, boxes: list, **changes: object) -> dict:
    row = {
        "format": "evidence-boxes/1", "query_id": query_id, "query": "Q", "page_id": page_id, "image": "a.png",
        "boxes": boxes, "labels": [f"label {number}" for number in range(len(boxes))], "frame": "relative",
        "image_size": [40, 21], "input_size": [40, 21], "model": "m", "prompt_version": "1",
    }  # fmt: skip
    return row | changes


def test_one_row_for_each_query_with_its_page_as_a_file(tmp_path):
    seen: list[tuple[int, int]] = []
    written, examples = write(tmp_path, write_queries(tmp_path / "q", *ROWS), on_progress=lambda *p: seen.append(p))
    assert [(example.query_id, example.page.page_id, example.other_positives) for example in examples] == [
        ("docvqa-train_0", DOCVQA[5], ()),
        ("infovqa-train_0", INFOVQA[3], ()),
        ("mhdocvqa-train_0", INFOVQA[0], (DOCVQA[1],)),
        ("infovqa-train_1", INFOVQA[3], ()),
    ]
    assert [example.query for example in examples] == [row["query"] for row in ROWS]
    contents = [page_content(5, 40), page_content(23, 60), page_content(20, 60), page_content(23, 60)]
    assert [example.page.image.read_bytes() for example in examples] == contents
    assert examples[1].page.image == examples[3].page.image
    assert [example.image_size for example in examples] == [(40, 21), (60, 21), (60, 21), (60, 21)]
    assert (written.pairs, written.without_boxes, written.refused) == (4, 4, ())
    assert written.repeated_pages == 1
    assert seen[-1] == (3, 3)
    pairs = read_pairs(tmp_path / "out" / "pairs.jsonl")
    assert pairs.refused == ()
    assert [(pair.query_id, pair.page_id, pair.image, pair.other_positives) for pair in pairs.pairs] == [
        (example.query_id, example.page.page_id, example.page.image, example.other_positives) for example in examples
    ]


def test_counts_are_of_queries_that_were_written_and_of_all_pages_of_the_corpus(tmp_path):
    queries = write_queries(tmp_path / "q", *ROWS, query_row("slidevqa-train_0", [DOCVQA[0]]))
    written, _ = write(tmp_path, queries)
    counts = {row.source: (row.images, row.queries) for row in written.sources}
    assert counts == {
        "docvqa": (7, 1), "infovqa": (5, 2), "mhdocvqa": (0, 1),
        "visualmrc": (0, 0), "openwikitable": (0, 0), "dude": (0, 0),
    }  # fmt: skip
    assert written.other_sources == {"slidevqa": 1}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["pairs"] == 4 and summary["sources"][0]["published_queries"] == 6_382


def test_a_row_for_each_page_where_that_is_asked_for(tmp_path):
    _, examples = write(tmp_path, write_queries(tmp_path / "q", *ROWS), all_pages=True)
    assert [(example.page.page_id, example.other_positives) for example in examples[2:4]] == [
        (INFOVQA[0], (DOCVQA[1],)),
        (DOCVQA[1], (INFOVQA[0],)),
    ]
    assert len(examples) == 5


def test_released_boxes_are_of_the_image_that_the_proposer_saw(tmp_path):
    rows = [
        released_row("docvqa-train_0", [DOCVQA[0]], [[20, 0, 80, 21], [0, 21, 4, 42]]),
        released_row("docvqa-train_1", [DOCVQA[1]], []),
    ]
    written, examples = write(tmp_path, write_released(tmp_path / "q", *rows))
    (first, second), without = examples[0].boxes, examples[1].boxes
    assert (first.left, first.top, first.right, first.bottom, first.label) == (0.25, 0, 1, 0.5, "the stripe")
    assert (second.left, second.top, second.right, second.bottom, second.label) == (0, 0.5, 0.05, 1, "")
    assert without == () and written.without_boxes == 1
    assert examples[0].query == "Instruct: find it.\\nQuery: docvqa-train_0?"


def test_released_boxes_in_thousandths(tmp_path):
    queries = write_released(
        tmp_path / "q", released_row("q", [DOCVQA[0]], [[500, 0, 1000, 250]]), frame="relative1000"
    )  # fmt: skip
    _, examples = write(tmp_path, queries)
    box = examples[0].boxes[0]
    assert (box.left, box.top, box.right, box.bottom) == (0.5, 0, 1, 0.25)


def test_of_several_pages_the_boxes_lie_on_the_one_of_their_size(tmp_path):
    pages = [INFOVQA[0], DOCVQA[2], DOCVQA[3]]
    rows = [
        released_row("mhdocvqa-train_0", pages, [[0, 0, 40, 42]]),
        # Twice the size of a page of infovqa: the same shape.
        released_row("mhdocvqa-train_1", pages, [[0, 0, 40, 42]], image_size="[120, 42]"),
        released_row("mhdocvqa-train_2", pages, [[0, 0, 40, 42]], image_size=None),
    ]
    _, examples = write(tmp_path, write_released(tmp_path / "q", *rows))
    assert [example.page.page_id for example in examples] == [DOCVQA[2], INFOVQA[0], INFOVQA[0]]
    assert examples[0].other_positives == (INFOVQA[0], DOCVQA[3])
    assert [len(example.boxes) for example in examples] == [1, 1, 1]
    _, examples = write(tmp_path, write_released(tmp_path / "q", *rows), all_pages=True)
    marked = [example.page.page_id for example in examples if example.boxes]
    assert marked == [DOCVQA[2], INFOVQA[0], INFOVQA[0]] and len(examples) == 9


def test_the_page_of_the_very_size_comes_before_one_of_the_same_shape(tmp_path):
    rows = corpus_rows(["docvqa/small.png"], "docvqa", width=40) + corpus_rows(["docvqa/large.png"], "docvqa")
    large = Image.new("RGB", (400, 210))
    rows[1]["image"]["bytes"] = png(large)
    write_table(tmp_path / "corpus" / "a.parquet", rows, CORPUS)
    changes = {"image_size": "[400, 210]", "input_size": "[400, 210]"}
    queries = write_released(
        tmp_path / "q", released_row("q", ["docvqa/small.png", "docvqa/large.png"], [[0, 0, 100, 105]], **changes)
    )
    _, examples = write(tmp_path, queries, Corpus(tmp_path / "corpus", ["*.parquet"], NOWHERE))
    assert examples[0].page.page_id == "docvqa/large.png" and examples[0].boxes[0].right == 0.25


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image_size": "[21, 400]"}, "image_size is 21 x 400, and none of its pages has that shape; no boxes"),
        ({"input_size": "[42, 80]"}, r"input_size is 42 x 80 and the page is 40 x 21 .*; no boxes"),
        ({"bbox_2d": "[[9, 9, 3, 3]]"}, "box 1 .*: empty or turned round"),
        ({"bbox_2d": "[[900, 900, 990, 990]]"}, "outside the page"),
    ],
)
def test_boxes_that_make_no_sense_are_left_out_and_listed_and_the_pair_stays(tmp_path, change, said):
    rows = [
        released_row("q0", [DOCVQA[0]], [[0, 0, 9, 9]]),
        {**released_row("q1", [DOCVQA[1]], [[0, 0, 9, 9]]), **change},
    ]
    written, examples = write(tmp_path, write_released(tmp_path / "q", *rows), skip_bad_rows=True)
    assert [len(example.boxes) for example in examples] == [1, 0]
    assert len(written.refused) == 1
    with pytest.raises(DataError, match=said):
        write(tmp_path, write_released(tmp_path / "q", *rows))


def test_boxes_of_a_box_file_stand_before_released_ones_and_choose_the_page(tmp_path):
    rows = [
        released_row("mhdocvqa-train_0", [INFOVQA[0], DOCVQA[2]], [[0, 0, 40, 42]]),
        released_row("docvqa-train_0", [DOCVQA[0]], [[0, 0, 40, 42]]),
    ]
    boxes = write_lines(
        tmp_path / "boxes.jsonl",
        box_row("mhdocvqa-train_0", INFOVQA[0], [[0.5, 0.5, 0.75, 1], [0, 0, 0.25, 0.25]]),
        box_row("docvqa-train_9", DOCVQA[0], []),
    )
    written, examples = write(tmp_path, write_released(tmp_path / "q", *rows), boxes=boxes)
    assert [example.page.page_id for example in examples] == [INFOVQA[0], DOCVQA[0]]
    assert [box.label for box in examples[0].boxes] == ["label 0", "label 1"]
    assert (examples[0].boxes[0].left, examples[0].boxes[0].right) == (0.5, 0.75)
    assert examples[1].boxes[0].label == "the stripe"
    assert written.unused_boxes == 1


def test_the_page_of_a_row_is_the_one_that_proposals_found_evidence_on(tmp_path):
    queries = write_queries(tmp_path / "q", query_row("mhdocvqa-train_0", [DOCVQA[2], INFOVQA[0]]))
    boxes = write_lines(
        tmp_path / "boxes.jsonl",
        box_row("mhdocvqa-train_0", DOCVQA[2], []),
        box_row("mhdocvqa-train_0", INFOVQA[0], [[0.5, 0.5, 0.75, 1]]),
    )
    _, (example,) = write(tmp_path, queries, boxes=boxes)
    assert (example.page.page_id, len(example.boxes), example.other_positives) == (INFOVQA[0], 1, (DOCVQA[2],))


def test_boxes_for_the_pairs_of_a_first_run_come_back_in_a_second(tmp_path):
    queries, corpus = write_queries(tmp_path / "q", *ROWS), write_pages(tmp_path / "corpus")
    write(tmp_path, queries, corpus)
    pairs = [json.loads(line) for line in (tmp_path / "out" / "pairs.jsonl").read_text().splitlines()]
    rows = [
        box_row(pair["query_id"], pair["page_id"], [[10, 0, 20, 10.5]], frame="absolute", input_size=[40, 21])
        for pair in pairs
    ]
    boxes = write_lines(tmp_path / "boxes.jsonl", *rows[:3])
    written, examples = write(tmp_path, queries, corpus, boxes=boxes)
    assert [len(example.boxes) for example in examples] == [1, 1, 1, 0]
    assert (written.without_boxes, written.unused_boxes) == (1, 0)
    box = examples[0].boxes[0]
    assert (box.left, box.top, box.right, box.bottom) == (0.25, 0, 0.5, 0.5)
    with pytest.raises(DataError, match="boxes: .*no such file"):
        write(tmp_path, queries, corpus, boxes=tmp_path / "gone.jsonl")


def test_pages_are_copied_once_and_anew_from_another_corpus(tmp_path):
    queries, corpus = write_queries(tmp_path / "q", *ROWS), write_pages(tmp_path / "corpus")
    _, first = write(tmp_path, queries, corpus)
    images = sorted((tmp_path / "out" / "images").rglob("*.png"))
    assert len(images) == 3
    before = [path.stat().st_mtime_ns for path in images]
    images[1].unlink()
    # As a process leaves it behind that is killed while it writes.
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    host = socket.gethostname().replace(".", "_")[:64]
    leftover = images[0].parent / f".0123-x.png.{host}.{ended.stdout.strip()}.00000000.tmp"
    leftover.write_bytes(b"\x89PNG")
    _, again = write(tmp_path, queries, corpus)
    assert not leftover.exists()
    assert again == first
    after = [path.stat().st_mtime_ns for path in images]
    assert (after[0], after[2]) == (before[0], before[2]) and after[1] != before[1]
    # Other pages under the same ids.
    other = tmp_path / "other" / "data" / "train-00000-of-00001.parquet"
    write_table(other, corpus_rows([*DOCVQA, *INFOVQA], first=30), CORPUS)
    _, changed = write(tmp_path, queries, Corpus(tmp_path / "other", ["data/*.parquet"], NOWHERE))
    assert changed[0].page.image.read_bytes() == page_content(35)


def test_queries_whose_pages_are_absent_or_broken_are_listed(tmp_path):
    corpus = write_pages(tmp_path / "corpus")
    shard = tmp_path / "corpus" / "data" / "train-00000-of-00003.parquet"
    rows = pq.read_table(shard).to_pylist()
    rows[0]["image"]["bytes"], rows[1]["image"]["bytes"], rows[2]["doc_id"] = (
        b"no image",
        rows[1]["image"]["bytes"][:50],
        None,
    )
    write_table(shard, rows, CORPUS)
    (tmp_path / "corpus" / "data" / "train-00002-of-00003.parquet").unlink()
    queries = write_queries(
        tmp_path / "q",
        query_row("docvqa-train_0", [DOCVQA[0]]),
        query_row("docvqa-train_1", ["docvqa/gone.png"]),
        query_row("docvqa-train_2", [DOCVQA[3]]),
        query_row("docvqa-train_2", [DOCVQA[4]]),
        query_row("mhdocvqa-train_0", ["gone.png", DOCVQA[3]]),
    )
    written, examples = write(tmp_path, queries, corpus, skip_bad_rows=True)
    assert [(example.query_id, example.page.page_id) for example in examples] == [
        ("docvqa-train_2", DOCVQA[3]),
        ("mhdocvqa-train_0", DOCVQA[3]),
    ]
    place = "train-00000-of-00001.parquet"
    beginnings = [
        f"{place}:4: the same query id 'docvqa-train_2' as in {place}:3",
        "train-00000-of-00003.parquet:3: there is no page_id",
        "page 'docvqa/0.png': page 'docvqa/0.png': not an image",
        f"{place}:1 (query 'docvqa-train_0'): none of its 1 pages can be used, e.g. 'docvqa/0.png'",
        f"{place}:2 (query 'docvqa-train_1'): none of its 1 pages can be used, e.g. 'docvqa/gone.png'",
    ]
    assert [line[: len(start)] for line, start in zip(written.refused, beginnings, strict=True)] == beginnings
    with pytest.raises(DataError, match="rows or boxes that cannot be used: 5"):
        write(tmp_path, queries, corpus)


def test_a_corpus_that_is_missing_is_said_before_anything_is_written(tmp_path):
    queries = write_queries(tmp_path / "q", *ROWS)
    with pytest.raises(DataError, match="corpus.root: .*; expected a folder with data/"):
        write(tmp_path, queries, Corpus(tmp_path / "gone", ["data/*.parquet"], NOWHERE))
    write_table(
        tmp_path / "bad" / "a.parquet",
        [],
        pq.ParquetFile(tmp_path / "q/data/train-00000-of-00001.parquet").schema_arrow,
    )
    with pytest.raises(DataError, match="has no column 'doc_id'; found 'query_id'"):
        write(tmp_path, queries, Corpus(tmp_path / "bad", ["*.parquet"], NOWHERE))
    assert not (tmp_path / "out").exists()
