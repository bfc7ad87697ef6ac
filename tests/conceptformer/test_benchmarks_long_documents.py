"""Questions about long documents, with all pages of all documents as one corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conceptformer.benchmarks import Benchmark, LongDocuments
from conceptformer.data.images import open_image
from conceptformer.errors import DataError
from conceptformer.retrieval.evaluation import check_task
from tests.conceptformer.commands_here import run_here
from tests.conceptformer.row_files import save_page
from visar.benchmarks import LongDocUrl, MMLongBench

pytest.importorskip("reportlab", reason="reportlab, which draws the PDFs, is not installed")
from tests.visar.made_documents import draw_pdf, lines  # noqa: E402

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def sample(document: str, question: str, pages: str) -> dict[str, str]:
    return {"doc_id": document, "question": question, "evidence_pages": pages, "answer": "yes"}


@pytest.fixture
def mmlongbench(tmp_path: Path) -> Path:
    folder = tmp_path / "mmlongbench"
    (folder / "documents").mkdir(parents=True)
    for name, count in (("a.pdf", 2), ("b.pdf", 3)):
        draw_pdf(folder / "documents" / name, *(lines([f"{name} {n}"] * 5) for n in range(count)), size=(144, 216))
    samples = [
        sample("a.pdf", "Which?", "[2]"),
        sample("b.pdf", "Which?", "[3, 1]"),
        sample("b.pdf", "Is it said?", "[]"),
        sample("b.pdf", "Where?", "[0]"),
    ]
    (folder / "samples.json").write_text(json.dumps(samples))
    return folder


def test_all_pages_are_one_corpus_and_evidence_pages_answer(tmp_path, mmlongbench):
    benchmark = LongDocuments(MMLongBench(mmlongbench), tmp_path / "drawn", 72)
    told: list[tuple[int, int]] = []
    task = benchmark.load(lambda *now: told.append(now))
    assert isinstance(benchmark, Benchmark)
    check_task(task)
    assert task.name == "mmlongbench"
    assert [page.page_id for page in task.pages] == ["a.pdf#1", "a.pdf#2", "b.pdf#1", "b.pdf#2", "b.pdf#3"]
    assert open_image(task.pages[0].image).size == (144, 216)
    answers = [(task.queries[query], pages) for query, pages in task.relevant.items()]
    # One text asked of two documents is two queries.
    assert answers == [("Which?", {"a.pdf#2"}), ("Which?", {"b.pdf#1", "b.pdf#3"})]
    assert told == [(2, 3), (5, 5)]
    refused = "\n".join(task.refused)
    assert len(task.refused) == 2 and "page 0" in refused and "no page is relevant" in refused


def test_slices_of_one_document_share_their_pages(tmp_path):
    folder = tmp_path / "longdocurl"
    for number in range(5):
        save_page(folder / "pages" / f"7_{number}.png", (20 + number, 30))
    rows = [
        {"question_id": name, "question": f"What, {name}?", "images": [f"x/7_{n}.png" for n in span], "answer": "yes",
         "evidence_pages": pages}
        for name, span, pages in (("one", range(3), [2]), ("two", range(1, 5), [2, 5]))
    ]  # fmt: skip
    (folder / "LongDocURL.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = LongDocuments(LongDocUrl(folder), tmp_path / "drawn", 72).load()
    assert [page.page_id for page in task.pages] == [f"7_{number}.png" for number in range(5)]
    assert task.relevant == {"one": {"7_1.png"}, "two": {"7_1.png", "7_4.png"}}
    assert not (tmp_path / "drawn").exists()


def test_a_missing_folder_is_named_by_the_setting_of_this_package(tmp_path):
    with pytest.raises(DataError, match=r"^benchmark\.questions\.root=\S+ is not a folder"):
        LongDocuments(MMLongBench(tmp_path / "none"), tmp_path / "drawn", 72).load()
    (tmp_path / "my.dataset.root").mkdir()
    with pytest.raises(DataError, match=r"/my\.dataset\.root holds neither samples\.json nor"):
        LongDocuments(MMLongBench(tmp_path / "my.dataset.root"), tmp_path / "drawn", 72).load()


def test_the_pairs_command_takes_it(tmp_path, mmlongbench):
    arguments = ("out=own", "cache=cache", "benchmark=mmlongbench", "benchmark.questions.root=mmlongbench")
    outcome = run_here("pairs", *arguments, folder=tmp_path)
    assert outcome.status == 0, outcome.err
    rows = [json.loads(line) for line in (tmp_path / "own" / "pairs.jsonl").read_text().splitlines()]
    assert sorted(row["page_id"] for row in rows) == ["a.pdf#2", "b.pdf#1", "b.pdf#3"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not here")
def test_the_real_pages_of_longdocurl(tmp_path):
    task = LongDocuments(LongDocUrl(SHARED / "longdocurl"), tmp_path, 144).load()
    check_task(task)
    assert (len(task.pages), len(task.queries), task.refused) == (90, 3, ())
