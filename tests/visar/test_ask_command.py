"""``python -m visar.ask``: what is printed, what is written, and what is not done twice."""

from __future__ import annotations

import io
import os
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console

from tests.visar.commands import Outcome, run, run_here
from tests.visar.made_documents import draw_pdf, lines, typed_page
from tests.visar.report_reading import Reading, assert_self_contained, read
from visar.algorithm import select_pages
from visar.ask import Asking
from visar.documents import NoOcr, find_document
from visar.encoders import TokenStates
from visar.indexing import index_documents
from visar.selectors import FixedK
from visar.store import EmbeddingStore

TEXTS = (
    "The harbour of Rotterdam handled more containers in 2019 than Antwerp.",
    "Total revenue rose by 12.5 percent to 847 million euros.",
    "Seven engineers inspected the northern breakwater twice.",
    "The annual report was signed by Jane Miller in May.",
    "Revenue of the ferry company fell in the same year.",
    "Bees collect nectar in spring and store it as honey.",
)
QUESTION = 'How did "revenue" develop, in [million] euros?'
QUICK = ("cache=cache", "ocr=none")


def make_report(folder: Path) -> None:
    draw_pdf(folder / "report.pdf", *(lines([text]) for text in TEXTS))


def printed_pages(outcome: Outcome) -> list[tuple[int, float, float]]:
    """Label, score and late-interaction score of each printed page; ranks must count up from 1."""
    rows = [re.split(r"[│|]", line)[1:-1] for line in outcome.out.splitlines() if re.match(r"[│|] +\d", line)]
    assert [int(rank) for rank, *_ in rows] == list(range(1, len(rows) + 1))
    return [(int(label), float(score), float(late)) for _, label, score, late in rows]


def page_at(folder: Path, name: str) -> Reading:
    html = (folder / name).read_text(encoding="utf-8")
    assert_self_contained(html)
    return read(html)


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> tuple[Path, Outcome]:
    """One question to one PDF, in a process of its own."""
    folder = tmp_path_factory.mktemp("ask")
    make_report(folder)
    outcome = run("ask", "document=report.pdf", f"question={QUESTION}", *QUICK, folder=folder)
    assert outcome.status == 0, outcome.err
    return folder, outcome


def test_what_is_printed_is_the_selection(asked, tmp_path):
    folder, outcome = asked
    encoder, store = TokenStates(), EmbeddingStore(tmp_path)
    document = find_document(folder / "report.pdf")
    index = index_documents([document], encoder, store, dpi=144, ocr=NoOcr(), text_cache=None)
    pages = [page.vectors for page in store.read(index.keys["report.pdf"])]
    expected = select_pages(encoder.encode_query(QUESTION).vectors, pages)
    printed = printed_pages(outcome)
    assert [label - 1 for label, _, _ in printed] == expected.pages
    for (_, score, late), page in zip(printed, expected.pages, strict=True):
        assert score == pytest.approx(float(expected.scores[page]), abs=6e-4)
        assert late == pytest.approx(float(expected.late_interaction[page]), abs=6e-4)
    assert f"{expected.k} of 6 pages" in outcome.out
    assert f"k = {expected.k}: {expected.explanation}" in outcome.out
    assert printed[0][0] == 2
    assert outcome.err == ""


def test_the_page_shows_the_same(asked):
    folder, outcome = asked
    assert outcome.out.rstrip().endswith("report: runs/ask/report.pdf.html")
    reading = page_at(folder, "runs/ask/report.pdf.html")
    assert reading.text("h1") == [QUESTION]
    labels = [label for label, _, _ in printed_pages(outcome)]
    assert [image.attributes["alt"] for image in reading.all("img")] == [
        f"Page {label} of report.pdf" for label in labels
    ]
    named = {title.text.split(":")[0] for title in reading.all("title")}
    assert "revenue" in named
    assert {"minilm", "none", "visar", "144"} <= set(reading.text("dd"))


def test_only_the_page_and_the_cache_are_written(asked):
    folder, _ = asked
    assert {path.name for path in folder.iterdir()} == {"report.pdf", "runs", "cache"}


def test_a_second_question_encodes_no_page_anew(asked, tmp_path):
    folder, first = asked
    assert "encoding pages" in first.out
    before = sorted((path, path.stat().st_mtime_ns) for path in (folder / "cache").rglob("*"))
    arguments = ("document=report.pdf", "question=Who signed the report?", f"output={tmp_path}/second.html", *QUICK)
    outcome = run_here("ask", *arguments, folder=folder)
    assert "encoding pages" not in outcome.out
    assert sorted((path, path.stat().st_mtime_ns) for path in (folder / "cache").rglob("*")) == before
    assert printed_pages(outcome)[0][0] == 4
    assert page_at(tmp_path, "second.html").text("h1") == ["Who signed the report?"]


def test_a_copy_of_the_document_needs_no_encoding_either(asked, tmp_path):
    make_report(tmp_path)
    (tmp_path / "report.pdf").rename(tmp_path / "a, copy=[1].pdf")
    arguments = ("document=a, copy=[1].pdf", f"question={QUESTION}", f"cache={asked[0] / 'cache'}", "ocr=none")
    outcome = run_here("ask", *arguments, folder=tmp_path)
    assert "encoding pages" not in outcome.out
    assert printed_pages(outcome) == printed_pages(asked[1])
    assert (tmp_path / "runs" / "ask" / "a, copy=[1].pdf.html").is_file()


def test_another_selector_can_be_chosen_and_set(asked, tmp_path):
    folder, _ = asked
    arguments = (
        "selector=late_interaction_5",
        "selectors.late_interaction_5.k=3",
        f"output={tmp_path}/three.html",
        *QUICK,
    )
    outcome = run_here("ask", "document=report.pdf", f"question={QUESTION}", *arguments, folder=folder)
    assert len(printed_pages(outcome)) == 3
    assert "k = 3: A fixed number of pages is read." in outcome.out
    assert "late_interaction_5" in page_at(tmp_path, "three.html").text("dd")


def test_many_chosen_pages_are_listed_and_the_first_thirty_pictured(tmp_path):
    draw_pdf(tmp_path / "long.pdf", *(lines([f"Chapter {n}. {TEXTS[n % 6]}"]) for n in range(33)), size=(200, 100))
    arguments = (
        "selector=late_interaction_5",
        "selectors.late_interaction_5.k=33",
        "dpi=20",
        "output=all.html",
        *QUICK,
    )
    outcome = run_here("ask", "document=long.pdf", f"question={QUESTION}", *arguments, folder=tmp_path)
    assert len(printed_pages(outcome)) == 33
    assert len(page_at(tmp_path, "all.html").all("img")) == 30
    asking = Asking(TokenStates(), NoOcr(), FixedK(33), tmp_path / "cache", 20, leave_out_broken=False, settings={})
    result = asking.ask(find_document(tmp_path / "long.pdf"), QUESTION, Console(file=io.StringIO()))
    # Those beyond are not even drawn, which would fill the memory for long documents.
    assert [page.image is None for page in result.chosen] == [False] * 30 + [True] * 3


def test_a_question_longer_than_the_encoder_takes_is_said(asked, tmp_path):
    folder, _ = asked
    arguments = (f"question={'revenue ' * 300}", f"output={tmp_path}/long.html", *QUICK)
    outcome = run_here("ask", "document=report.pdf", *arguments, folder=folder)
    note = "the question is longer than the encoder takes: its last 46 tokens were left out"
    assert note in " ".join(outcome.out.split())
    assert note in page_at(tmp_path, "long.html").text("li")


def test_a_folder_of_images_is_a_document(tmp_path):
    pytest.importorskip("rapidocr")
    (tmp_path / "scans").mkdir()
    typed_page(["Revenue rose to 847 million."], size=(560, 120)).save(tmp_path / "scans" / "page_2.png")
    typed_page(["Bees collect nectar."], size=(560, 120)).save(tmp_path / "scans" / "page_10.png")
    arguments = ("question=How much was revenue?", "cache=cache", "ocr.threads=1")
    outcome = run_here("ask", "document=scans", *arguments, folder=tmp_path)
    assert outcome.status == 0, outcome.err
    # Two pages: both are read, and page_2 comes before page_10.
    assert [label for label, _, _ in printed_pages(outcome)] == [1, 2]
    reading = page_at(tmp_path, "runs/ask/scans.html")
    assert {title.text.split(":")[0] for title in reading.all("title")} >= {"revenue"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no names that are not text")
def test_a_file_name_that_is_no_text_is_shown_as_well_as_it_can_be(tmp_path):
    make_report(tmp_path)
    name = os.fsdecode(b"caf\xe9.pdf")
    (tmp_path / "report.pdf").rename(tmp_path / name)
    outcome = run_here("ask", f"document={name}", "question=Who signed?", *QUICK, folder=tmp_path)
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "runs" / "ask" / f"{name}.html").is_file()
    assert "caf\ufffd.pdf" in page_at(tmp_path, f"runs/ask/{name}.html").text("title")[0]


def test_pages_without_text_are_said(tmp_path):
    draw_pdf(tmp_path / "mixed.pdf", lines([TEXTS[0]]), lines([]), lines([]))
    outcome = run_here("ask", "document=mixed.pdf", "question=Which harbour?", *QUICK, folder=tmp_path)
    assert "2 of 3 pages have no text" in " ".join(outcome.out.split())


def test_the_oracle_is_refused(tmp_path):
    make_report(tmp_path)
    outcome = run_here("ask", "document=report.pdf", "question=x", "selector=oracle", *QUICK, folder=tmp_path)
    assert "evidence pages" in outcome.error
