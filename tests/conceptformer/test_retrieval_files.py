"""Retrieval tasks: what is read is what was written, and what cannot be judged is named by file, line and reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conceptformer.data.retrieval_files import read_retrieval_folder, write_retrieval_folder
from conceptformer.errors import DataError
from conceptformer.records import EvidenceBox, Page, RetrievalTask
from tests.conceptformer.row_files import save_page, write_lines

PAGES = [{"page_id": f"p{number}", "image": f"images/p{number}.png"} for number in range(1, 5)]
QUERY = {"query_id": "q1", "query": "Which year?", "relevant": ["p1"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The images of four pages of 40 x 60 pixels."""
    for row in PAGES:
        save_page(tmp_path / row["image"], (40, 60))
    return tmp_path


def read(folder: Path, pages: list[Any], queries: list[Any], *, skip: bool = True, **options: Any) -> RetrievalTask:
    write_lines(folder / "pages.jsonl", *pages)
    write_lines(folder / "queries.jsonl", *queries)
    return read_retrieval_folder(folder, skip_bad_rows=skip, **options)


def refusal(folder: Path, pages: list[Any], queries: list[Any]) -> str:
    """The one line on what is left out, which is also the error where nothing may be left out."""
    task = read(folder, pages, queries)
    assert set(task.queries) == set(task.relevant)
    (line,) = task.refused
    assert "\n" not in line
    with pytest.raises(DataError) as caught:
        read(folder, pages, queries, skip=False)
    assert line in str(caught.value)
    assert str(caught.value).startswith(f"{folder}: ")
    return line


def test_a_folder_becomes_a_task(folder: Path):
    second = {
        "query_id": "q2",
        "query": "Which month?",
        "relevant": ["p4", "p2"],
        "boxes": {"p2": [[4, 6, 20, 30], [0, 30, 40, 60]]},
        "frame": "absolute",
    }
    task = read(folder, PAGES, [QUERY, second], skip=False)
    assert task == RetrievalTask(
        folder.name,
        {"q1": "Which year?", "q2": "Which month?"},
        tuple(Page(f"p{number}", folder / "images" / f"p{number}.png") for number in range(1, 5)),
        {"q1": frozenset({"p1"}), "q2": frozenset({"p2", "p4"})},
        {("q2", "p2"): (EvidenceBox(0.1, 0.1, 0.5, 0.5), EvidenceBox(0, 0.5, 1, 1))},
    )


def test_texts_are_kept_byte_for_byte(folder: Path):
    text = "Instruct: find\\nQuery: which\u2028 \u00e9?\n "
    assert read(folder, PAGES, [QUERY | {"query": text}], skip=False).queries == {"q1": text}


def test_what_is_written_is_read_back(tmp_path: Path):
    pages = tuple(Page(f"p{n}", save_page(tmp_path / "elsewhere" / f"{n}.png", (17, 13))) for n in range(5))
    task = RetrievalTask(
        "task",
        {"b": "Query\\n\u2028", "a": "\u00e9"},
        pages,
        {"b": frozenset({"p3", "p1"}), "a": frozenset({"p0"})},
        {("b", "p3"): (EvidenceBox(0.1, 1 / 3, 0.7, 2 / 3), EvidenceBox(0, 0, 1, 1))},
    )
    write_retrieval_folder(tmp_path / "task", task)
    again = read_retrieval_folder(tmp_path / "task", skip_bad_rows=False)
    assert again == task
    assert list(again.queries) == ["b", "a"]
    assert sorted(file.name for file in (tmp_path / "task").iterdir()) == ["pages.jsonl", "queries.jsonl"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"p5", "expected a JSON object"),
        ({"page_id": "p5"}, "no 'image'"),
        ({"page_id": "p5", "image": "images/p1.png", "title": "a"}, "unknown 'title'"),
        ({"page_id": 5, "image": "images/p1.png"}, "page_id is 5"),
        ({"page_id": "p2", "image": "images/p1.png"}, "the same page_id 'p2' as in pages.jsonl:2"),
        ({"page_id": "p5", "image": "images/p5.png"}, "(page 'p5'): "),
    ],
)
def test_a_bad_page_is_left_out(folder: Path, row: Any, reason: str):
    line = refusal(folder, [*PAGES, row], [QUERY])
    assert line.startswith("pages.jsonl:5")
    assert reason in line
    assert [page.page_id for page in read(folder, [*PAGES, row], [QUERY]).pages] == ["p1", "p2", "p3", "p4"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"query_id": "q1"}, "the same query_id 'q1' as in queries.jsonl:1"),
        ({"query": " "}, "query is ' '"),
        ({"relevant": []}, "no page is relevant"),
        ({"relevant": "p1"}, "relevant is 'p1'; expected a list"),
        ({"relevant": ["p1", "p7", "p8"]}, "not in the corpus: 2, the first: 'p7'"),
        ({"answer": "2012"}, "unknown 'answer'"),
        ({"boxes": [[4, 6, 20, 30]]}, "expected an object of page ids"),
        ({"boxes": {"p1": [4]}, "frame": "absolute"}, "expected four finite numbers"),
        ({"boxes": {"p1": 4}, "frame": "absolute"}, "boxes are 4"),
        ({"boxes": {"p1": [[4, 6, 20, 30]]}}, "no frame is stated"),
        ({"boxes": {"p1": [[4, 6, 20, 30]]}, "frame": "relative"}, "likelier"),
        ({"boxes": {"p2": [[4, 6, 20, 30]]}, "frame": "absolute"}, "boxes on a page that is not relevant: 'p2'"),
    ],
)
def test_a_bad_query_is_left_out(folder: Path, changes: dict[str, Any], reason: str):
    second = QUERY | {"query_id": "q2"} | changes
    if "four finite" in reason:
        task = read(folder, PAGES, [QUERY, second])
        assert (list(task.queries), dict(task.boxes)) == (["q1", "q2"], {})
    else:
        assert list(read(folder, PAGES, [QUERY, second]).queries) == ["q1"]
    line = refusal(folder, PAGES, [QUERY, second])
    assert line.startswith("queries.jsonl:2")
    assert reason in line


def test_a_query_of_a_page_that_cannot_be_read_is_left_out_with_it(folder: Path):
    (folder / "images" / "p2.png").write_bytes(b"no image")
    task = read(folder, PAGES, [QUERY, QUERY | {"query_id": "q2", "relevant": ["p2", "p3"]}])
    assert list(task.queries) == ["q1"]
    assert [line.split(" ")[0] for line in task.refused] == ["pages.jsonl:2", "queries.jsonl:2:"]
    assert "'p2'" in task.refused[1]


def test_a_folder_without_pages_or_queries_is_an_error(folder: Path):
    with pytest.raises(DataError, match=r"pages\.jsonl: no such file"):
        read_retrieval_folder(folder, skip_bad_rows=True)
    with pytest.raises(DataError, match="expected pages, found none"):
        read(folder, [], [QUERY])
    with pytest.raises(DataError, match="expected pages, found none that can be used: pages.jsonl:1"):
        read(folder, [{"page_id": "p1"}], [QUERY])
    with pytest.raises(DataError, match="expected queries, found none"):
        read(folder, PAGES, [])
    (folder / "queries.jsonl").unlink()
    with pytest.raises(DataError, match=r"queries\.jsonl: no such file"):
        read_retrieval_folder(folder, skip_bad_rows=True)


def test_images_are_looked_at_once_and_reported(folder: Path):
    reports: list[tuple[int, int]] = []
    pages = [*PAGES, {"page_id": "p5", "image": "images/../images/p1.png"}]
    task = read(folder, pages, [QUERY], on_progress=lambda done, total: reports.append((done, total)))
    assert reports == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert task.pages[4].image == task.pages[0].image
