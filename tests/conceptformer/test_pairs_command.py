"""Own documents and published corpora as training pairs, or as a held-out folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from conceptformer.data.retrieval_files import read_retrieval_folder
from conceptformer.data.task_pairs import write_held_out
from conceptformer.data.training_files import read_training_rows
from conceptformer.errors import DataError
from conceptformer.proposals.pairs import read_pairs
from conceptformer.records import EvidenceBox, Page, RetrievalTask
from tests.conceptformer.commands_here import run_here
from tests.conceptformer.parquet_files import pq, write_benchmark, write_table
from tests.conceptformer.row_files import save_page

pytest.importorskip("reportlab", reason="reportlab, which draws the PDFs, is not installed")
from tests.conceptformer.own_documents import PAGES, benchmark, make_documents, write_queries  # noqa: E402


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return make_documents(tmp_path / "documents")


def test_the_command_writes_pairs_that_proposals_and_training_read(documents, tmp_path):
    write_queries(documents, "query,document,page\nWhat?,2020.pdf,2;3\nWhich?,scans,2\n")
    arguments = ("out=own, data", "cache=cache", "benchmark.documents=documents", "benchmark.dpi=72")
    done = run_here("pairs", *arguments, folder=tmp_path)
    assert done.status == 0, done.err
    assert "documents: queries: 2; pages that answer them: 3; pairs of the two: 3\n" in done.out
    assert "page images copied to own, data/images: 2\npage images used where they lie, so leave them there: 1\n" in (
        done.out
    )
    out = tmp_path / "own, data"
    pairs = read_pairs(out / "pairs.jsonl")
    assert pairs.refused == ()
    assert [(pair.query, pair.page_id, pair.other_positives) for pair in pairs.pairs] == [
        ("What?", "reports/2020.pdf#2", ("reports/2020.pdf#3",)),
        ("What?", "reports/2020.pdf#3", ("reports/2020.pdf#2",)),
        ("Which?", "scans/page_10.png", ()),
    ]
    train = read_training_rows(out / "train.jsonl", skip_bad_rows=False)
    assert [example.page for example in train.examples] == [
        type(train.examples[0].page)(pair.page_id, pair.image) for pair in pairs.pairs
    ]
    assert [example.image_size for example in train.examples] == [(144, 216), (144, 216), (20, 20)]
    # Drawn pages are copied, images stay where they are.
    assert [out / "images" in Path(os.path.normpath(pair.image)).parents for pair in pairs.pairs] == [True, True, False]
    # Of the three pages that were drawn, those that answer a query, and nothing else.
    copies = sorted((out / "images").rglob("*.png"))
    assert {path.name.split("-", 1)[1] for path in copies} == {"2020_pdf_2.png", "2020_pdf_3.png"}
    assert {path.name for path in out.iterdir()} == {"images", "pairs.jsonl", "train.jsonl"}
    drawn = [next((tmp_path / "cache").rglob(f"page-000{number}.png")) for number in (2, 3)]
    assert {path.read_bytes() for path in copies} == {path.read_bytes() for path in drawn}


def test_the_command_writes_a_held_out_folder_with_the_whole_corpus(documents, tmp_path):
    write_queries(documents, "query,document,page\nWhat?,2020.pdf,2;3\nWhich?,scans,2\n")
    arguments = ("out=held, out", "cache=cache", "benchmark.documents=documents", "benchmark.dpi=72", "held_out=true")
    done = run_here("pairs", *arguments, folder=tmp_path)
    assert done.status == 0, done.err
    assert "documents: queries: 2; pages, all of the corpus: 7\n" in done.out
    assert "train with 'data.held_out=held, out'\n" in done.out
    out = tmp_path / "held, out"
    assert {path.name for path in out.iterdir()} == {"images", "pages.jsonl", "queries.jsonl"}
    task = read_retrieval_folder(out, skip_bad_rows=False)
    original = benchmark(documents).load()
    assert [page.page_id for page in task.pages] == PAGES
    assert (task.queries, task.relevant) == (original.queries, original.relevant)
    images = [page.image.resolve() for page in task.pages]
    assert [path.read_bytes() for path in images] == [page.image.read_bytes() for page in original.pages]
    # Drawn pages are copied, images stay where they are.
    assert [out / "images" in path.parents for path in images] == [False] * 4 + [True] * 3
    assert images[:4] == [documents / name for name in PAGES[:4]]


def test_held_out_queries_of_pages_that_cannot_be_read_are_left_out_with_their_boxes(tmp_path):
    pages = [Page(name, save_page(tmp_path / f"{name}.png")) for name in "abc"]
    pages[1].image.write_bytes(b"no image")
    box = EvidenceBox(0.0, 0.0, 0.5, 0.5)
    task = RetrievalTask(
        "mine",
        {"q": "What?", "r": "Which?"},
        tuple(pages),
        {"q": frozenset("ab"), "r": frozenset("c")},
        {("q", "a"): (box,), ("r", "c"): (box,)},
        ("earlier",),
    )
    written = write_held_out(task, tmp_path / "out", cache=tmp_path / "cache", skip_bad_rows=True)
    assert [line.split(":")[0] for line in written.task.refused] == ["earlier", "page 'b'", "query 'q'"]
    assert written.task.refused[2] == "query 'q': its page 'b' cannot be read"
    again = read_retrieval_folder(tmp_path / "out", skip_bad_rows=False)
    assert ([page.page_id for page in again.pages], again.queries) == (["a", "c"], {"r": "Which?"})
    assert again.boxes == {("r", "c"): (box,)} and written.copied == 0
    with pytest.raises(DataError, match="page 'b'"):
        write_held_out(task, tmp_path / "other", cache=tmp_path / "cache", skip_bad_rows=False)
    assert not (tmp_path / "other" / "queries.jsonl").exists()


def test_pairs_of_pages_that_are_drawn_anew_have_the_new_pages(documents, tmp_path):
    write_queries(documents, "query,document,page\nWhat?,2020.pdf,2\n")
    for dpi, size in ((72, (144, 216)), (144, (288, 432))):
        arguments = ("out=own", "cache=cache", "benchmark.documents=documents", f"benchmark.dpi={dpi}")
        assert run_here("pairs", *arguments, folder=tmp_path).status == 0
        (pair,) = read_pairs(tmp_path / "own" / "pairs.jsonl").pairs
        assert Image.open(pair.image).size == size


def test_pages_that_cannot_be_read_are_in_no_number_of_the_pairs(tmp_path):
    ids = [f"d/{number}.png" for number in range(6)]
    write_benchmark(tmp_path / "corpus", {"q0": [ids[0], ids[1]], "q1": [ids[2]]}, ids)
    (tmp_path / "corpus" / "manifest.json").unlink()
    shard = tmp_path / "corpus" / "corpus-00001-of-00003.parquet"
    rows = pq.read_table(shard).to_pylist()
    rows[0]["image"]["bytes"] = b"no image"
    write_table(shard, rows, pq.read_schema(shard))
    arguments = ("out=pairs", "cache=cache", "benchmark=parquet", "benchmark.root=corpus", "skip_bad_rows=true")
    outcome = run_here("pairs", *arguments, folder=tmp_path)
    assert outcome.status == 0, outcome.err
    assert "corpus: queries: 1; pages that answer them: 2; pairs of the two: 2\n" in outcome.out
    assert "page images copied to pairs/images: 2\n" in outcome.out and "where they lie" not in outcome.out
    assert "left out: 1\n" in outcome.out and "page 'd/2.png': " in outcome.out
    assert len((tmp_path / "pairs" / "train.jsonl").read_text().splitlines()) == 2
    assert len(list((tmp_path / "pairs" / "images").rglob("*.png"))) == 2


def test_the_command_copies_pages_out_of_parquet_files_once(tmp_path):
    ids = [f"d/{number}.png" for number in range(9)]
    write_benchmark(tmp_path / "corpus", {"q0": [ids[2], ids[7]], "q1": [ids[2]]}, ids)
    arguments = ("out=pairs", "cache=cache", "benchmark=parquet", "benchmark.root=corpus")
    assert run_here("pairs", *arguments, folder=tmp_path).status == 0
    rows = [json.loads(line) for line in (tmp_path / "pairs" / "pairs.jsonl").read_text().splitlines()]
    assert [(row["query_id"], row["page_id"]) for row in rows] == [("q0", ids[2]), ("q0", ids[7]), ("q1", ids[2])]
    images = sorted((tmp_path / "pairs" / "images").rglob("*.png"))
    assert {tmp_path / "pairs" / row["image"] for row in rows} == set(images) and len(images) == 2
    assert Image.open(images[0]).size == (12, 21)
    times = [path.stat().st_mtime_ns for path in images]
    assert run_here("pairs", *arguments, folder=tmp_path).status == 0
    assert [path.stat().st_mtime_ns for path in images] == times


def test_the_command_says_what_is_missing(tmp_path):
    assert run_here("pairs", folder=tmp_path).error == "out: expected the folder to write to; write out=FOLDER"
    outcome = run_here("pairs", "out=a", "benchmark=all", "benchmark.root=b", folder=tmp_path)
    assert outcome.error == "benchmark: expected a single one, each with an out of its own"
