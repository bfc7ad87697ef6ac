"""Own documents and a table of queries: as a benchmark, and as training pairs."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from conceptformer.benchmarks import Benchmark, DocumentFolder
from conceptformer.data.document_pages import read_document_folder
from conceptformer.data.images import open_image
from conceptformer.data.json_rows import Refusals
from conceptformer.data.training_files import read_training_rows
from conceptformer.errors import DataError
from conceptformer.proposals.pairs import read_pairs
from conceptformer.retrieval.evaluation import check_task
from tests.conceptformer.commands_here import run_here
from tests.conceptformer.parquet_files import pq, write_benchmark, write_table
from tests.conceptformer.row_files import save_page, write_lines

pytest.importorskip("reportlab", reason="reportlab, which draws the PDFs, is not installed")
from tests.visar.made_documents import draw_pdf, lines  # noqa: E402


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A PDF of three pages below a folder, two images at the top, a folder of two page images."""
    folder = tmp_path / "documents"
    (folder / "reports").mkdir(parents=True)
    draw_pdf(folder / "reports" / "2020.pdf", *(lines([f"page {number}"] * 5) for number in range(3)), size=(144, 216))
    save_page(folder / "a.png", (30, 40), "red")
    save_page(folder / "b.jpg", (50, 40), "blue")
    save_page(folder / "scans" / "page_10.png", (20, 20), "green")
    save_page(folder / "scans" / "page_2.png", (20, 21), "white")
    save_page(folder / ".hidden" / "c.png")
    (folder / "notes.docx").write_bytes(b"PK")
    return folder


PAGES = [
    "a.png", "b.jpg", "scans/page_2.png", "scans/page_10.png",
    "reports/2020.pdf#1", "reports/2020.pdf#2", "reports/2020.pdf#3",
]  # fmt: skip


def benchmark(documents: Path | None, **changes: object) -> DocumentFolder:
    settings = {
        "documents": documents,
        "queries": None,
        "drawn": None if documents is None else documents.parent / "drawn",
        "dpi": 72,
        "skip_bad_rows": False,
    }
    return DocumentFolder(**(settings | changes))


def write_queries(documents: Path, text: str) -> Path:
    path = documents / "queries.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_all_pages_are_the_corpus_and_rows_name_documents_pages_and_images(documents):
    write_queries(
        documents,
        "query;document;page;image\n"
        "What was sold?;reports/2020.pdf;3;\n"
        '"Where;\\nexactly?";2020.pdf;1,3;\n'
        "Where is red?;;;a.png\n"
        "Where is red?;2020;2;\n"
        "Which scan?;scans;1;\n"
        "Which other scan?;;;page_10\n",
    )
    seen: list[tuple[int, int]] = []
    task = benchmark(documents).load(lambda *progress: seen.append(progress))
    check_task(task)
    assert isinstance(benchmark(documents), Benchmark)
    assert (task.name, task.refused) == ("documents", ())
    assert [page.page_id for page in task.pages] == PAGES
    assert {task.queries[query_id]: set(page_ids) for query_id, page_ids in task.relevant.items()} == {
        "What was sold?": {"reports/2020.pdf#3"},
        "Where;\\nexactly?": {"reports/2020.pdf#1", "reports/2020.pdf#3"},
        "Where is red?": {"a.png", "reports/2020.pdf#2"},
        "Which scan?": {"scans/page_2.png"},
        "Which other scan?": {"scans/page_10.png"},
    }
    assert list(task.queries) == [f"query-{number}" for number in range(1, 6)]
    assert seen[-1] == (7, 7)
    sizes = [open_image(page.image).size for page in task.pages]
    assert sizes == [(30, 40), (50, 40), (20, 21), (20, 20), *[(144, 216)] * 3]


def test_rows_in_json_lines_with_ids_are_one_query_where_the_ids_are_equal(documents, tmp_path):
    rows = [
        {"query_id": 7, "query": "Which?", "document": "2020.pdf", "page": [1, 2], "note": "unused"},
        {"query_id": 7, "query": "Which?", "image": "a.png"},
        {"query_id": "8", "query": "Which?", "document": "scans", "page": 2},
    ]
    with pytest.warns(UserWarning, match="columns not used: 'note'; known are query, question, query_id, id"):
        task = benchmark(documents, queries=write_lines(tmp_path / "own.jsonl", *rows)).load()
    assert task.queries == {"7": "Which?", "8": "Which?"}
    assert task.relevant == {
        "7": {"reports/2020.pdf#1", "reports/2020.pdf#2", "a.png"},
        "8": {"scans/page_10.png"},
    }


def test_drawn_pages_are_kept_and_drawn_anew_at_another_resolution(documents, tmp_path):
    write_queries(documents, "query,document,page\nWhat?,2020.pdf,2\n")
    first = benchmark(documents).load()
    drawn = [page.image for page in first.pages[4:]]
    before = [path.stat().st_mtime_ns for path in drawn]
    drawn[1].unlink()
    second = benchmark(documents).load()
    assert second == first
    after = [path.stat().st_mtime_ns for path in drawn]
    assert (after[0], after[2]) == (before[0], before[2]) and after[1] != before[1]
    sharper = benchmark(documents, dpi=144).load()
    assert open_image(sharper.pages[4].image).size == (288, 432)
    # A copy elsewhere is the same document.
    (documents / "reports" / "2020.pdf").rename(documents / "moved.pdf")
    assert [page.image for page in _pages(documents) if page.page_id.startswith("moved")] == drawn


def _pages(documents: Path):
    refusals = Refusals(documents, skip=False)
    return read_document_folder(documents, documents.parent / "drawn", dpi=72, refusals=refusals).pages


def test_drawn_pages_below_the_documents_are_no_documents(documents):
    def ids() -> list[str]:
        found = read_document_folder(
            documents, documents / "out" / "drawn", dpi=72, refusals=Refusals(documents, skip=False)
        )
        return [page.page_id for page in found.pages]

    before = ids()
    assert any((documents / "out" / "drawn").rglob("*.png"))
    assert ids() == before


def test_names_are_found_however_accents_are_composed(documents):
    composed, apart = (unicodedata.normalize(form, "café.png") for form in ("NFC", "NFD"))
    save_page(documents / apart, (33, 44))
    write_queries(documents, f"query,image\nWhere?,{composed}\n")
    task = benchmark(documents).load()
    assert task.relevant == {"query-1": frozenset({composed})}
    assert next(open_image(page.image).size for page in task.pages if page.page_id == composed) == (33, 44)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("Who?,gone.pdf,1,", "document 'gone.pdf' is not among the documents"),
        ("Who?,twin,1,", "document 'twin' may be any of twin.png, scans/twin.pdf: give its path"),
        ("Who?,2020.pdf,4,", "document '2020.pdf' has no page 4; its pages are 1 to 3"),
        ("Who?,2020.pdf,0,", "document '2020.pdf' has no page 0"),
        ("Who?,2020.pdf,,", "document '2020.pdf' has 3 pages; expected their numbers"),
        ("Who?,2020.pdf,1-2,", "'1-2' is not a list of page numbers"),
        ("Who?,,1,", "names no page; expected a document and its pages, or an image"),
        ("Who?,2020.pdf,1,a.png", "names document and image"),
        (",2020.pdf,1,", "there is no query in this row"),
    ],
)
def test_rows_that_name_no_page_are_listed(documents, row, reason):
    save_page(documents / "twin.png")
    draw_pdf(documents / "scans" / "twin.pdf", lines(["x"]))
    table = write_queries(documents, f"query,document,page,image\nGood?,,,a.png\n{row}\n")
    task = benchmark(documents, skip_bad_rows=True).load()
    assert list(task.queries.values()) == ["Good?"]
    assert len(task.refused) == 1 and task.refused[0].startswith(f"queries.csv, line 3: {reason}")
    with pytest.raises(DataError, match=f"{table}: rows or boxes that cannot be used: 1"):
        benchmark(documents).load()


def test_equal_ids_of_different_texts_contradict_each_other(documents):
    write_queries(documents, "query_id,query,image\nq,Who?,a.png\nq,Where?,b.jpg\n")
    with pytest.raises(DataError, match="line 3: another text of the query 'q' than in an earlier row"):
        benchmark(documents).load()


def test_documents_that_cannot_be_read_are_listed_and_so_is_who_asks_for_them(documents):
    (documents / "empty.png").write_bytes(b"")
    (documents / "torn.pdf").write_bytes((documents / "reports" / "2020.pdf").read_bytes()[:300])
    write_queries(documents, "query,image\nGood?,a.png\nWhich?,empty.png\nWho?,torn.pdf\n")
    task = benchmark(documents, skip_bad_rows=True).load()
    assert [page.page_id for page in task.pages] == PAGES
    assert list(task.queries.values()) == ["Good?"]
    beginnings = ["empty.png: ", "torn.pdf: ", "queries.csv, line 4: document 'torn.pdf' is not", "query 'query-2': "]
    assert [line[: len(start)] for line, start in zip(task.refused, beginnings, strict=True)] == beginnings


def test_what_is_missing_is_said(documents, tmp_path):
    with pytest.raises(DataError, match="write benchmark.documents=FOLDER"):
        benchmark(None).load()
    with pytest.raises(DataError, match=r"has none of queries.csv, .*; write benchmark.queries=FILE"):
        benchmark(documents).load()
    with pytest.raises(
        DataError, match="benchmark.documents: .*No such file or directory; expected a folder with PDFs"
    ):
        benchmark(tmp_path / "gone").load()
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\)"):
        benchmark(documents, queries=tmp_path / "gone.csv").load()
    with pytest.raises(DataError, match=r"of the kind '.xlsx'; expected .parquet, .jsonl, .csv, .tsv"):
        benchmark(documents, queries=tmp_path / "own.xlsx").load()
    write_queries(documents, "text,document\nWho?,a.png\n")
    with pytest.raises(DataError, match="has no column 'query'; found the columns 'text', 'document'"):
        benchmark(documents).load()
    write_queries(documents, "query,document\n")
    with pytest.raises(DataError, match="expected queries, found none"):
        benchmark(documents).load()
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="expected pages, found none"):
        benchmark(tmp_path / "bare", queries=documents / "queries.csv").load()


def test_the_command_writes_pairs_that_proposals_and_training_read(documents, tmp_path):
    write_queries(documents, "query,document,page\nWhat?,2020.pdf,2;3\nWhich?,scans,2\n")
    arguments = ("out=own, data", "cache=cache", "benchmark.documents=documents", "benchmark.dpi=72")
    done = run_here("pairs", *arguments, folder=tmp_path)
    assert done.status == 0, done.err
    assert "documents: queries: 2; pages that answer them: 3; pairs of the two: 3\n" in done.out
    assert "page images: 2 in own, data/images; 1 where they were\n" in done.out
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
    assert "page images: 2 in pairs/images; 0 where they were\n" in outcome.out
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
