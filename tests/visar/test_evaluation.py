"""One row for each question and selector: what is in it, when it is taken over, and what may fail without the rest."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from visar import evaluation
from visar.evaluation import Evaluation, oracle_k, ranking_metrics
from visar.indexing import Failure, IndexReport
from visar.late_interaction import PackedPages
from visar.records import Document, PageEmbedding, QueryEmbedding, Question, QuestionSet
from visar.selection import Selection
from visar.selectors import FixedK, LargestGap, Oracle, Visar
from visar.store import EmbeddingKey, EmbeddingStore

NAN = [math.nan, 1.0, 0.0, 0.0]
# The question "x" scores page 0 with 0.8, page 1 with 0.6, page 2 with 1, page 3 with 0.
FOUR_PAGES = [[0.8, 0.6, 0.0, 0.0], [0.6, 0.8, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]


@dataclass
class OneHot:
    """Knows two words. Counts what it encodes."""

    needs: str = "text"
    version: str = "1"
    calls: list[str] = field(default_factory=list)

    def fingerprint(self) -> dict[str, str]:
        return {"class": "OneHot", "version": self.version}

    def encode_query(self, text: str) -> QueryEmbedding:
        self.calls.append(text)
        if text == "unknown":
            raise evaluation.EmbeddingError("the question is empty: give at least one word")
        vector = {"x": [1.0, 0.0, 0.0, 0.0], "y": [0.0, 0.0, 1.0, 0.0]}[text]
        return QueryEmbedding(torch.tensor([vector]), (text,), dropped_tokens=2 if text == "y" else 0)

    def encode_pages(self, pages: Sequence[Any]) -> list[PageEmbedding]:
        raise AssertionError("pages are in the store already")


@dataclass(frozen=True)
class Counted:
    """Largest-Gap, with a note of each call."""

    calls: list[int] = field(default_factory=list, repr=False)

    def select(self, query: torch.Tensor, pages: PackedPages, *, evidence_pages: Sequence[int] = ()) -> Selection:
        self.calls.append(len(pages))
        return LargestGap().select(query, pages)


@dataclass
class Bench:
    """Documents in a store, and an evaluation of them."""

    root: Path
    documents: dict[str, list[list[float]]]
    questions: Sequence[Question]
    encoder: OneHot = field(default_factory=OneHot)

    def key(self, name: str) -> EmbeddingKey:
        return EmbeddingKey.of(document=name, encoder=self.encoder.fingerprint(), needs="text", reading={"ocr": "none"})

    def evaluation(self, selectors: dict[str, Any], *, leave_out_broken: bool = False, without: str = "") -> Evaluation:
        store = EmbeddingStore(self.root)
        for name, pages in self.documents.items():
            if store.page_count(self.key(name)) is None:
                for number, page in enumerate(pages):
                    boxes = torch.full((1, 4), math.nan)
                    store.write_page(self.key(name), number, PageEmbedding(torch.tensor([page]), boxes))
                store.finish(self.key(name), len(pages))
        names = [name for name in self.documents if name != without]
        index = IndexReport({name: self.key(name) for name in names}, {}, (), 0)
        documents = tuple(Document(name, (Path(name),)) for name in self.documents)
        questions = QuestionSet("made", documents, tuple(self.questions))
        return Evaluation(questions, self.encoder, selectors, store, index, leave_out_broken)


def rows_of(
    evaluation: Evaluation, known: dict[str, Any] | None = None
) -> tuple[list[dict[str, Any]], list[Failure], int]:
    """Rows, failures, and how many rows were made now; what the caller is told must be those rows, in their order."""
    told: list[tuple[dict[str, Any], bool]] = []
    rows, failures = evaluation.rows(known or {}, lambda row, fresh: told.append((row, fresh)))
    assert [row for row, _ in told if row in rows] == rows
    return rows, failures, sum(fresh for _, fresh in told)


@pytest.fixture
def bench(tmp_path) -> Bench:
    """Question a finds its evidence, pages 0 and 3, at ranks 2 and 4; b has none."""
    questions = (Question("a", "four", "x", (0, 3)), Question("b", "four", "y"), Question("c", "two", "x", (1,)))
    return Bench(tmp_path, {"four": FOUR_PAGES, "two": FOUR_PAGES[:2]}, questions)


def test_a_row_by_hand(bench):
    rows, failures, _ = rows_of(bench.evaluation({"top3": FixedK(3), "oracle": Oracle()}))
    assert failures == []
    assert [(row["question_id"], row["selector"]) for row in rows] == [
        (question, selector) for question in "abc" for selector in ("top3", "oracle")
    ]
    first = rows[0]
    assert first["order"] == [2, 0, 1, 3]
    assert (first["k"], first["reason"], first["k_oracle"]) == (3, "fixed_k", 4)
    assert (first["recall"], first["precision"], first["f1"]) == (1 / 2, 1 / 3, pytest.approx(2 / 5))
    assert first["evidence_pages"] == [0, 3]
    assert (first["document_id"], first["question"], first["first_label"]) == ("four", "x", 1)
    gain, ideal = 1 / math.log2(3) + 1 / math.log2(5), 1 + 1 / math.log2(3)
    assert first["ranking"] == pytest.approx(
        {
            **{f"recall@{k}": 1 for k in (5, 10)},
            **{f"ndcg@{k}": gain / ideal for k in (5, 10)},
            **{f"ndcg_retrieved@{k}": gain / ideal for k in (5, 10)},
            **{f"hits@{k}": 1 for k in (5, 10)},
            **{f"mrr@{k}": 1 / 2 for k in (5, 10)},
        }
    )
    assert set(first["seconds"]) == {"late_interaction", "choose_k"}
    assert first["dropped_tokens"] == 0
    oracle = rows[1]
    assert (oracle["k"], oracle["recall"], oracle["precision"], oracle["reason"]) == (4, 1, 1 / 2, "all_evidence")


def test_questions_without_evidence_have_no_retrieval_figures(bench):
    rows, _, _ = rows_of(bench.evaluation({"top3": FixedK(3)}))
    row = rows[1]
    assert (row["question_id"], row["k"], row["order"][0]) == ("b", 3, 3)
    assert [row[name] for name in ("recall", "precision", "f1", "ranking", "k_oracle")] == [None] * 5
    assert row["dropped_tokens"] == 2


def test_short_rankings_and_missed_evidence():
    order = [4, 2, 0, 1, 3, 5, 6]
    found = ranking_metrics(order, [6, 5])
    assert [found[f"{name}@5"] for name in ("recall", "ndcg", "ndcg_retrieved", "hits", "mrr")] == [0] * 5
    assert [found[f"{name}@10"] for name in ("recall", "hits", "mrr")] == [1, 1, 1 / 6]
    assert oracle_k(order, [6, 5]) == 7
    assert oracle_k(order, [4]) == 1
    assert oracle_k(order, []) is None
    assert oracle_k(order, [4, 9]) is None


def test_known_rows_are_taken_over_and_nothing_is_read_or_run(bench):
    counted = Counted()
    selectors = {"counted": counted, "top3": FixedK(3)}
    rows, _, made = rows_of(bench.evaluation(selectors))
    assert made == 6
    again = bench.evaluation(selectors)
    shutil.rmtree(bench.root)
    counted.calls.clear()
    bench.encoder.calls.clear()
    assert rows_of(again, {row["key"]: row for row in rows}) == (rows, [], 0)
    assert counted.calls == [] and bench.encoder.calls == []


def test_only_what_is_unknown_is_made(bench):
    rows, _, _ = rows_of(bench.evaluation({"top": FixedK(3), "gap": LargestGap()}))
    known = {row["key"]: row for row in rows}
    changed, _, made = rows_of(bench.evaluation({"top": FixedK(2), "gap": LargestGap()}), known)
    assert made == 3
    assert [row for row in changed if row["selector"] == "gap"] == [row for row in rows if row["selector"] == "gap"]
    assert [row["k"] for row in changed if row["selector"] == "top"] == [2, 2, 2]


def test_questions_are_encoded_once_for_all_selectors_and_runs(bench):
    rows_of(bench.evaluation({"top": FixedK(3), "gap": LargestGap()}))
    assert bench.encoder.calls == ["x", "y"]
    rows_of(bench.evaluation({"oracle": Oracle()}))
    assert bench.encoder.calls == ["x", "y"]


def test_a_first_call_is_made_before_times_are_taken(bench):
    counted = Counted()
    rows_of(bench.evaluation({"counted": counted}))
    # Once on made-up pages, then the questions: 4, 4 and 2 pages.
    assert len(counted.calls) == 4 and counted.calls[1:] == [4, 4, 2]


def test_documents_that_are_not_indexed_have_no_rows(bench):
    evaluation = bench.evaluation({"top": FixedK(3)}, without="four")
    assert evaluation.row_count == 1
    rows, failures, _ = rows_of(evaluation)
    assert [row["question_id"] for row in rows] == ["c"]
    assert failures == []


# What fails alone.


@pytest.fixture
def broken(tmp_path) -> Bench:
    questions = (
        Question("a", "broken", "x", (0,)),
        Question("b", "broken", "x", (1,)),
        Question("c", "two", "x", (1,)),
    )
    with pytest.warns(UserWarning, match="page 1 .0-based. holds NaN or Inf"):
        bench = Bench(tmp_path, {"broken": [FOUR_PAGES[0], NAN, *FOUR_PAGES[1:]], "two": FOUR_PAGES[:2]}, questions)
        bench.evaluation({})
    return bench


def test_broken_embeddings_fail_their_document_alone(broken):
    rows, failures, _ = rows_of(broken.evaluation({"top": FixedK(3), "visar": Visar()}))
    assert [row["question_id"] for row in rows] == ["c", "c"]
    (failure,) = failures
    assert failure.document_id == "broken"
    assert failure.reason.startswith("page 1 (0-based): holds NaN or Inf")


def test_broken_pages_can_be_left_out(broken):
    rows, failures, _ = rows_of(broken.evaluation({"top": FixedK(9)}, leave_out_broken=True))
    assert failures == []
    a, b, _ = rows
    assert a["order"] == [3, 0, 2, 4]
    assert (a["recall"], a["k"], a["k_oracle"]) == (1, 4, 2)
    assert a["warnings"] == ["pages left out for NaN or Inf in their embeddings (counted from 0): [1]"]
    # No k reaches the evidence of b.
    assert (b["recall"], b["k_oracle"], b["ranking"]["recall@10"]) == (0, None, 0)


def test_a_question_that_one_selector_cannot_answer_fails_alone_and_for_all(broken):
    selectors = {"top": FixedK(9), "oracle": Oracle()}
    rows, failures, _ = rows_of(broken.evaluation(selectors, leave_out_broken=True))
    assert [(row["question_id"], row["selector"]) for row in rows] == [
        (question, selector) for question in "ac" for selector in selectors
    ]
    (failure,) = failures
    assert failure.document_id == "broken"
    assert failure.reason.startswith("question 'b': Oracle: evidence pages [1] (0-based) were left out")


def test_a_question_that_cannot_be_encoded_fails_alone(bench):
    bench.questions = (replace(bench.questions[0], id="odd", text="unknown"), *bench.questions)
    rows, failures, _ = rows_of(bench.evaluation({"top": FixedK(3), "gap": LargestGap()}))
    assert len(rows) == 6
    assert failures == [Failure("four", "question 'odd': the question is empty: give at least one word")]
