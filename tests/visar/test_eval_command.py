"""``python -m visar.eval`` on a small folder of real PDFs: its files, its figures, documents that leave no choice."""

from __future__ import annotations

import json
import shutil
import statistics
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from tests.visar.commands import run, run_here
from tests.visar.evaluated_papers import (
    QUESTIONS,
    QUICK,
    SELECTORS,
    make_papers,
    metrics_in,
    pages,
    rows_in,
    write_questions,
)
from tests.visar.made_documents import draw_pdf
from tests.visar.report_reading import assert_self_contained
from visar.eval import column_groups
from visar.metrics import set_metrics
from visar.records import PageEmbedding
from visar.store import EmbeddingKey, EmbeddingStore

# One run in a process of its own, looked at from all sides.


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, str]:
    folder = make_papers(tmp_path_factory.mktemp("eval"))
    outcome = run("eval", *QUICK, folder=folder)
    assert outcome.status == 0, outcome.err
    return folder, outcome.out


def test_a_run_leaves_its_five_files(finished):
    folder, _ = finished
    names = {path.name for path in (folder / "out").iterdir()}
    assert names == {"config.yaml", "metrics.json", "per_query.jsonl", "table.md", "report.html"}
    assert_self_contained((folder / "out" / "report.html").read_text(encoding="utf-8"))
    assert {path.name for path in folder.iterdir()} == {"papers", "cache", "out"}


def test_there_is_a_row_for_each_question_and_selector(finished):
    folder, _ = finished
    rows = rows_in(folder)
    assert [(row["question_id"], row["selector"]) for row in rows] == [
        (question, selector) for question in ("q1", "q2", "q3", "q4", "q5") for selector in SELECTORS
    ]
    assert len({row["key"] for row in rows}) == 50
    for row in rows:
        evidence = next(pages for name, _, _, pages in QUESTIONS if name == row["question_id"])
        assert row["evidence_pages"] == [int(page) - 1 for page in evidence.split(";") if page]
        assert sorted(row["order"]) == list(
            range({"harbour.pdf": 4, "bees.pdf": 2, "whale.pdf": 1}[row["document_id"]])
        )
        assert 1 <= row["k"] <= len(row["order"])


def test_the_figures_are_those_of_the_rows(finished):
    folder, _ = finished
    rows, metrics = rows_in(folder), metrics_in(folder)
    assert list(metrics["selectors"]) == list(SELECTORS)
    for name, of in metrics["selectors"].items():
        own = [row for row in rows if row["selector"] == name]
        judged = [row for row in own if row["evidence_pages"]]
        figures = [set_metrics(row["order"][: row["k"]], row["evidence_pages"]) for row in judged]
        by_hand = {
            "mean_k": statistics.mean(row["k"] for row in own),
            "median_k": statistics.median(row["k"] for row in own),
            "recall": statistics.mean(figure.recall for figure in figures),
            "precision": statistics.mean(figure.precision for figure in figures),
            "f1": statistics.mean(figure.f1 for figure in figures),
        }
        for figure, value in by_hand.items():
            entry = of["at_k"][figure]
            assert entry["value"] == pytest.approx(value)
            assert entry["low"] - 1e-12 <= entry["value"] <= entry["high"] + 1e-12
        first = [1 / (1 + min(row["order"].index(page) for page in row["evidence_pages"])) for row in judged]
        assert of["ranking"]["mrr@5"]["value"] == pytest.approx(statistics.mean(first))
        times = [sum(row["seconds"].values()) for row in own]
        assert of["seconds"]["total"]["median"] == pytest.approx(statistics.median(times))
        assert sum(of["reasons"].values()) == 5


def test_counts_and_everything_left_out_are_listed(finished):
    folder, printed = finished
    metrics = metrics_in(folder)
    counts = {name: metrics[name] for name in ("questions", "questions_with_evidence", "documents", "pages")}
    assert counts == {"questions": 5, "questions_with_evidence": 4, "documents": 3, "pages": 7}
    document, row, page = metrics["refused"]
    assert document.startswith("document 'broken.pdf': ") and "truncated" in document
    assert row == "line 7 (q6): its document 'broken.pdf' cannot be read"
    assert page == "line 8 (q7): evidence page 9 is outside the document, whose pages are 1 to 4"
    assert metrics["failures"] == []
    for text in (printed, (folder / "out" / "table.md").read_text(encoding="utf-8")):
        assert "the PDF is truncated" in text
    assert "refused: 3, listed in the report" in printed
    assert metrics["visar"] and metrics["encoder_fingerprint"]["class"] == "TokenStates"
    assert {test["baseline"] for test in metrics["tests"]} == {"late_interaction_10"}


def test_the_table_is_printed_whole(finished):
    folder, printed = finished
    metrics = metrics_in(folder)
    for name, of in metrics["selectors"].items():
        (line,) = (line for line in printed.splitlines() if f"│ {name} " in line)
        assert f"{of['at_k']['f1']['value']:.3f}" in line and f"{of['at_k']['mean_k']['value']:.2f}" in line
        assert f"{of['ranking']['ndcg@5']['value']:.3f}" in line
    assert printed.rstrip().endswith("out/report.html")


@given(st.lists(st.integers(1, 30), min_size=2, max_size=12), st.integers(20, 200))
def test_tables_wider_than_the_terminal_are_broken_into_several(widths, width):
    cells = [["x" * size for size in widths], ["y" for _ in widths]]
    groups = column_groups(cells, width)
    assert [column for group in groups for column in group[1:]] == list(range(1, len(widths)))
    for group in groups:
        assert group[0] == 0
        table = Table(*(cells[0][column] for column in group))
        # As wide as rich would like it, unless it is the least that a table can hold.
        wanted = Console(width=999).measure(table).maximum
        assert wanted <= width or len(group) == 2


def test_the_config_of_a_run_says_what_was_run(finished):
    folder, _ = finished
    config = yaml.safe_load((folder / "out" / "config.yaml").read_text(encoding="utf-8"))
    assert config["dataset"]["documents"] == "papers"
    assert config["selectors"]["visar"]["top_patches"] == 50
    assert config["output"] == "out"
    assert "hydra" not in config


# Documents that leave no choice.


def test_pages_that_all_look_alike_are_run_and_said(tmp_path):
    papers = tmp_path / "papers"
    papers.mkdir()
    draw_pdf(papers / "scan.pdf", *[lambda canvas: canvas.rect(100, 100, 300, 300, fill=1)] * 5)
    draw_pdf(papers / "same.pdf", *pages("Whales eat krill.") * 5)
    draw_pdf(papers / "two.pdf", *pages("Whales eat krill.") * 2)
    draw_pdf(papers / "one.pdf", *pages("Whales eat krill."))
    questions = {name: f"What do {name} whales eat?" for name in ("scan", "same", "two", "one")}
    write_questions(papers, tuple((name, name, question, "1") for name, question in questions.items()))
    outcome = run_here("eval", *QUICK, folder=tmp_path)
    assert outcome.status == 0
    found = {(row["question_id"], row["selector"]): (row["reason"], row["k"]) for row in rows_in(tmp_path)}
    cutting = ("largest_gap", "score_cluster", "score_threshold", "gaussian_mixture")
    alike = {found[name, selector] for name in ("scan", "same") for selector in cutting}
    assert alike == {found["same", "visar"]} == {("pages_alike", 1)}
    # Against empty pages a word may have no match at all, which ViSAR says first.
    assert found["scan", "visar"] in {("pages_alike", 1), ("no_informative_token", 1)}
    assert found["two", "visar"] == ("two_pages", 2)
    assert {found["one", selector] for selector in ("visar", *cutting)} == {("one_page", 1)}
    warnings = metrics_in(tmp_path)["warnings"]
    assert warnings["all pages match the question alike, so the ranking is arbitrary"] == 3
    assert "all pages match the question alike" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def poison(folder: Path) -> None:
    """Put NaN into the stored embeddings of page 1 of the four-page document."""
    store = EmbeddingStore(folder / "cache" / "embeddings")
    for path in (folder / "cache" / "embeddings" / "pages").iterdir():
        facts = json.loads((path / "key.json").read_text(encoding="utf-8"))
        key = EmbeddingKey(json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False))
        if store.page_count(key) == 4:
            stored = store.read(key)
            (path / "document.safetensors").unlink()
            for number, page in enumerate(stored):
                vectors = torch.full_like(page.vectors, float("nan")) if number == 1 else page.vectors
                store.write_page(key, number, PageEmbedding(vectors, page.boxes))
            store.finish(key, 4)


@pytest.mark.filterwarnings("ignore:page 1 .0-based. holds NaN")
def test_broken_embeddings_fail_their_document_or_are_left_out(finished, tmp_path):
    folder = tmp_path / "poisoned"
    shutil.copytree(finished[0], folder)
    poison(folder)
    (folder / "out" / "per_query.jsonl").unlink()
    outcome = run_here("eval", *QUICK, folder=folder)
    metrics = metrics_in(folder)
    (failure,) = metrics["failures"]
    assert failure.startswith("harbour.pdf: page 1 (0-based): holds NaN or Inf") and failure in outcome.out
    assert (metrics["documents"], metrics["questions"], metrics["pages"]) == (2, 2, 3)
    assert run_here("eval", *QUICK, "leave_out_broken=true", folder=folder).status == 0
    metrics = metrics_in(folder)
    # The evidence of q1 is the broken page, which the oracle cannot find.
    (failure,) = metrics["failures"]
    assert failure.startswith("harbour.pdf: question 'q1': Oracle: evidence pages [1] (0-based) were left out")
    assert (metrics["documents"], metrics["questions"]) == (3, 4)
    assert metrics["warnings"]["pages left out for NaN or Inf in their embeddings (counted from 0): [1]"] == 2
    assert {len(row["order"]) for row in rows_in(folder) if row["question_id"] == "q2"} == {3}
