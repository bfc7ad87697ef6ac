"""OpenDocVQA's queries and the released boxes: sources, evidence, and rows that make no sense."""

from __future__ import annotations

import json
import random
import re
import warnings
from pathlib import Path

import pytest

from conceptformer.data.json_rows import JsonRow, Refusals
from conceptformer.errors import BoxError, DataError
from conceptformer.opendocvqa import OpenDocVqaQueries, ReleasedTrainset
from conceptformer.opendocvqa.queries import SOURCES, Evidence, source_of
from conceptformer.opendocvqa.released import stated_evidence
from conceptformer.opendocvqa.table4 import PUBLISHED, beside_table4
from conceptformer.records import EvidenceBox
from tests.conceptformer.opendocvqa_files import (
    DOCVQA,
    INFOVQA,
    NOWHERE,
    brief,
    query_row,
    released_row,
    write_queries,
    write_released,
)

SHARED = Path(__file__).parents[2].parent / "shared"


def read(source, *, skip: bool = False):
    refusals = Refusals(Path("made"), skip=skip)
    queries = source.read(refusals)
    return queries, refusals.result(len(queries), "queries")


@pytest.mark.parametrize(
    ("query_id", "page_ids", "names", "source"),
    [
        ("dude-train_3", ["docvqa/1.png"], ["docvqa"], "dude"),
        ("mhdocvqa-train_0", ["a", "b"], [], "mhdocvqa"),
        ("17", ["docvqa/1.png"], ["visualmrc"], "visualmrc"),
        # Two pages of one set: a question of MHDocVQA, whose names are those of its pages or none at all.
        ("17", ["docvqa/1.png", "docvqa/2.png"], ["docvqa", "docvqa"], "mhdocvqa"),
        ("17", ["docvqa/1.png", "infovqa/2.png"], [], "mhdocvqa"),
        ("17", ["infovqa/2.png"], [], "infovqa"),
        ("slidevqa-train_0", ["slidevqa/deck/1.jpg"], [], "slidevqa"),
    ],
)
def test_the_source_of_a_query(query_id, page_ids, names, source):
    assert source_of(query_id, page_ids, names) == source


def test_queries_are_read_as_they_stand(tmp_path):
    rows = [
        query_row("docvqa-train_0", DOCVQA[:1], ["docvqa"]),
        query_row("mhdocvqa-train_0", [DOCVQA[2], INFOVQA[1], DOCVQA[2]]),
    ]
    queries, refused = read(write_queries(tmp_path, *rows))
    assert [brief(query) for query in queries] == [
        ("docvqa-train_0", (DOCVQA[0],), "docvqa"),
        ("mhdocvqa-train_0", (DOCVQA[2], INFOVQA[1]), "mhdocvqa"),
    ]
    assert [query.text for query in queries] == [row["query"] for row in rows]
    assert all(query.evidence is None for query in queries) and refused == ()


def test_rows_that_make_no_sense_are_listed(tmp_path):
    good = query_row("docvqa-train_0", DOCVQA[:1])
    rows = [good, query_row("a", []), query_row("b", None), query_row("c", [" "]), {**good, "query": None}]
    queries, refused = read(write_queries(tmp_path, *rows), skip=True)
    assert len(queries) == 1
    assert [re.match(r"train-00000-of-00001\.parquet:(\d)", line)[1] for line in refused] == ["2", "3", "4", "5"]
    with pytest.raises(DataError, match="rows or boxes that cannot be used: 4"):
        read(write_queries(tmp_path, *rows))


def test_files_that_are_missing_are_said(tmp_path):
    with pytest.raises(DataError, match=r"queries: .* has no data/train-\*.parquet; set queries.files=\[PATTERN\]"):
        read(OpenDocVqaQueries(tmp_path, ["data/train-*.parquet"], NOWHERE))
    write_queries(tmp_path, query_row("q", DOCVQA[:1]))
    with pytest.raises(DataError, match="has no column 'query_text', none 'bbox_2d'; found 'query_id', 'query'"):
        read(ReleasedTrainset(tmp_path, ["data/*.parquet"], NOWHERE, "absolute"))


def test_released_rows_hold_boxes_labels_frame_and_sizes(tmp_path):
    rows = [
        released_row("docvqa-train_0", DOCVQA[:1], [[0, 0, 40, 21], [40, 0, 80, 42]]),
        released_row("docvqa-train_1", DOCVQA[1:2], []),
        released_row("docvqa-train_2", DOCVQA[1:2], None, bbox_2d=None),
        released_row("docvqa-train_3", DOCVQA[1:2], [1, 2, 3, 4], describe='["a label"]', input_size=None),
    ]
    queries, _ = read(write_released(tmp_path, *rows))
    first, *middle, last = (query.evidence for query in queries)
    assert first.boxes == [[0, 0, 40, 21], [40, 0, 80, 42]]
    assert (first.labels, first.description) == (None, "the stripe")
    assert (first.row.values, first.image_size) == ({"frame": "absolute", "input_size": (80, 42)}, (40, 21))
    assert middle == [None, None]
    assert (last.boxes, last.labels, last.row.values["input_size"]) == ([[1, 2, 3, 4]], ["a label"], None)


@pytest.mark.parametrize(
    ("describe", "labels", "description"),
    [
        ('["one", "two"]', ["one", "two"], None),
        ('["one"]', None, '["one"]'),
        ("[Table 3] and its caption", None, "[Table 3] and its caption"),
        (None, None, ""),
    ],
)
def test_a_description_stands_for_all_boxes_unless_it_lists_a_label_for_each(describe, labels, description):
    values = {"boxes": "[[0, 0, 1, 1], [1, 1, 2, 2]]", "label": describe}
    evidence = stated_evidence(JsonRow("here", values), "absolute")
    assert (evidence.labels, evidence.description) == (labels, description)


def test_the_first_box_that_can_be_used_bears_the_description():
    boxes = [EvidenceBox(0, 0, 0.5, 0.5), EvidenceBox(0.5, 0.5, 1, 1)]
    described = Evidence(JsonRow("here", {}), [], None, None, "a table").described(boxes)
    assert described == (EvidenceBox(0, 0, 0.5, 0.5, "a table"), boxes[1])
    labelled = [EvidenceBox(0, 0, 1, 1, "its own")]
    assert Evidence(JsonRow("here", {}), [], ["its own"]).described(labelled) == tuple(labelled)
    assert Evidence(JsonRow("here", {}), [], None, None, "a table").described([]) == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bbox_2d": "[[1, 2, 3"}, "expected a list in JSON"),
        ({"bbox_2d": "somewhere"}, r"bbox_2d is 'somewhere'; expected a list of \[x1, y1, x2, y2\] in JSON"),
        ({"image_size": "[40]"}, "image_size is .*; expected .width, height."),
        ({"input_size": '["a", "b"]'}, "input_size is"),
        ({"input_size": "[0, 42]"}, "input_size is"),
    ],
)
def test_released_rows_that_make_no_sense_are_listed(tmp_path, change, said):
    rows = [released_row("a", DOCVQA[:1], []), {**released_row("b", DOCVQA[:1], [[0, 0, 9, 9]]), **change}]
    queries, refused = read(write_released(tmp_path, *rows), skip=True)
    assert len(queries) == 1 and len(refused) == 1
    assert re.search(said, refused[0])


def test_a_frame_that_the_boxes_hardly_fit_is_doubted(tmp_path):
    """Thousandths read as pixels of an image of 1,500 x 2,000: no box ends beyond two thirds of a page."""
    draw = random.Random(0)
    rows = []
    for number in range(60):
        left, top = draw.uniform(0, 700), draw.uniform(0, 700)
        boxes = [[left, top, min(998, left + draw.uniform(50, 300)), min(998, top + draw.uniform(50, 300))]]
        rows.append(released_row(f"q{number}", DOCVQA[:1], boxes, input_size="[1500, 2000]"))
    with pytest.warns(UserWarning, match="may be in another frame than queries.frame=absolute: .*frame=relative1000"):
        read(write_released(tmp_path, *rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(write_released(tmp_path, *rows, frame="relative1000"))


def test_a_frame_that_is_none_is_said_before_anything_is_read(tmp_path):
    with pytest.raises(BoxError, match="'pixels'; expected 'absolute'"):
        read(write_released(tmp_path, released_row("q", DOCVQA[:1], []), frame="pixels"))


def test_counts_stand_beside_the_papers():
    rows = beside_table4({"docvqa": 12_767, "infovqa": 1}, {"docvqa": 6_382, "infovqa": 9_592})
    assert [row.source for row in rows] == list(SOURCES)
    assert [row.differs for row in rows] == [False, True, True, True, True, True]
    assert (rows[1].images, rows[1].published_images) == (1, 5_485)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published counts are not beside the checkout")
def test_table_4_is_the_papers_and_adds_up_to_the_released_rows():
    text = (SHARED / "papers" / "conceptformer.txt").read_text(encoding="utf-8")
    table = text[text.index("Table 4. Training dataset statistics.") : text.index("Table 5. Test dataset statistics.")]
    rows = [line.split("\t") for line in table.splitlines() if line.count("\t") == 3][1:]
    whole = [(name.lower(), tuple(int(number.replace(",", "")) for number in numbers)) for name, _, *numbers in rows]
    assert dict(whole) == PUBLISHED
    stats = json.loads((SHARED / "data" / "conceptformer-eval" / "trainset_stats.json").read_text())
    assert sum(queries for _, queries in PUBLISHED.values()) == stats["rows"] == 37_966
