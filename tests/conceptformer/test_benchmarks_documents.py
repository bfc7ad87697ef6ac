"""Own documents and a table of queries: as a benchmark."""

from __future__ import annotations

import unicodedata
import warnings
from pathlib import Path

import pytest

from conceptformer.benchmarks import Benchmark
from conceptformer.data.document_pages import read_document_folder
from conceptformer.data.images import open_image
from conceptformer.data.json_rows import Refusals
from conceptformer.data.table_files import read_table
from conceptformer.errors import DataError
from conceptformer.retrieval.evaluation import check_task
from tests.conceptformer.row_files import save_page, write_lines

pytest.importorskip("reportlab", reason="reportlab, which draws the PDFs, is not installed")
from tests.conceptformer.own_documents import PAGES, benchmark, make_documents, write_queries  # noqa: E402
from tests.visar.made_documents import draw_pdf, lines  # noqa: E402


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    return make_documents(tmp_path / "documents")


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
    assert seen == [(5, 7), (6, 7), (7, 7)]
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


def test_rows_with_too_many_cells_are_listed_with_the_others(documents):
    table = write_queries(
        documents,
        'query,document,page\nWhere?,a.png,\nWhat, where, and why?,2020.pdf,1\n"What, where?",2020.pdf,2\nWho?,gone,\n',
    )
    task = benchmark(documents, skip_bad_rows=True).load()
    assert list(task.queries.values()) == ["Where?", "What, where?"]
    broken = (
        "queries.csv, line 3: 5 cells, expected 3 as in the header; "
        "put text with commas in quotes (or with whatever divides the cells)"
    )
    assert task.refused == (broken, "queries.csv, line 5: document 'gone' is not among the documents")
    with pytest.raises(DataError) as raised:
        benchmark(documents).load()
    assert str(raised.value).startswith(f"{table}: rows or boxes that cannot be used: 2: {broken}; queries.csv, line 5")
    table.write_text("query,document\nWhat, where?,a.png\n")
    with pytest.raises(DataError, match="expected queries, found none that can be used: queries.csv, line 2: 3 cells"):
        benchmark(documents, skip_bad_rows=True).load()


def test_lines_that_are_no_objects_are_listed_without_a_word_on_quotes(documents, tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('[1]\n{"query": "Where?", "image": "a.png"}\n')
    task = benchmark(documents, queries=path, skip_bad_rows=True).load()
    assert task.refused == ("own.jsonl, line 1: holds list, expected an object with named fields",)
    path.write_text("[1]\n")
    with pytest.raises(DataError, match="found none that can be used: own.jsonl, line 1: holds list"):
        benchmark(documents, queries=path, skip_bad_rows=True).load()


def test_tables_without_a_list_for_broken_rows_are_refused(tmp_path):
    path = tmp_path / "queries.csv"
    path.write_text("query,page\nWhat, where?,1\n")
    with pytest.raises(DataError, match="rows that cannot be read: 1, the first: line 2: 3 cells, .*commas in quotes"):
        read_table(path, {"query": ("query",)}, {})


@pytest.mark.parametrize("kind", [".csv", ".jsonl"])
def test_a_table_of_questions_as_the_other_package_has_it_is_found(documents, kind):
    row = {"question": "What?", "document": "2020.pdf", "evidence_pages": "2;3", "answer": "That.", "id": "q9"}
    if kind == ".csv":
        (documents / "questions.csv").write_text(f"{','.join(row)}\n{','.join(row.values())}\n")
    else:
        write_lines(documents / "questions.jsonl", row)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        task = benchmark(documents).load()
    assert task.queries == {"q9": "What?"}
    assert task.relevant == {"q9": {"reports/2020.pdf#2", "reports/2020.pdf#3"}}


def test_two_tables_in_the_folder_are_an_error_that_names_both(documents):
    table = write_queries(documents, "query,image\nWhere?,a.png\n")
    (documents / "questions.csv").write_text("question,image\nWhich?,b.jpg\n")
    with pytest.raises(DataError, match=r"has queries.csv and questions.csv; expected one of them"):
        benchmark(documents).load()
    assert list(benchmark(documents, queries=table).load().queries.values()) == ["Where?"]


def test_pdfs_are_counted_before_the_first_is_drawn(documents):
    draw_pdf(documents / "more.pdf", *(lines(["x"]) for _ in range(4)), size=(72, 72))
    (documents / "torn.pdf").write_bytes((documents / "more.pdf").read_bytes()[:300])
    refusals = Refusals(documents, skip=True)
    seen: list[tuple[int, int]] = []
    for _ in range(2):  # the second time from the notes of the first
        read_document_folder(
            documents, documents.parent / "drawn", dpi=72, refusals=refusals, on_progress=lambda *at: seen.append(at)
        )
    assert seen == [(done, 11) for done in range(5, 12)] * 2
    assert [line.split(":")[0] for line in refusals.result(1, "pages")] == ["torn.pdf"] * 2


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
