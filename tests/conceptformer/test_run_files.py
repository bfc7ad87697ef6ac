"""Run and relevance files: read back as they were, and read by pytrec_eval in the order of the ranking."""

from __future__ import annotations

import math
import string
import warnings
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from conceptformer.errors import DataError
from conceptformer.retrieval.evaluation import query_metrics
from conceptformer.retrieval.run_files import escape, read_qrels, read_run, unescape, write_qrels, write_run
from conceptformer.retrieval.search import Ranking
from visar.tensor_files import StoreError

PUBLISHED = Path(__file__).parents[2].parent / "shared" / "data" / "conceptformer-eval"

IDS = st.text(min_size=1, max_size=6)
# Includes ties, both zeros, neighbours in float32, and numbers that float32 cannot tell apart.
SCORES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, float(np.nextafter(np.float32(1), np.float32(2))), 1.0 + 1e-9, 1e-45]),
    st.floats(-(2.0**100), 2.0**100, width=32),
)


def ranking(pages: dict[str, float]) -> Ranking:
    ordered = sorted(pages.items(), key=lambda item: -item[1])
    return Ranking(tuple(page for page, _ in ordered), tuple(score for _, score in ordered))


def as_trec(run: dict[str, Ranking]) -> dict[str, dict[str, float]]:
    return {query: dict(zip(found.page_ids, found.scores, strict=True)) for query, found in run.items()}


def test_a_file_worked_by_hand(tmp_path):
    path = tmp_path / "run.trec"
    found = {"q1": Ranking(("b/1.png", "a", "c d"), (0.75, 0.5, 0.5)), "q2": Ranking(("a",), (-2.0,))}
    write_run(path, found, "my model")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [r"q1 Q0 b/1.png 1 0.75 my\u0020model", r"q1 Q0 a 2 0.5 my\u0020model"]
    # The next float32 below 0.5.
    assert lines[2] == r"q1 Q0 c\u0020d 3 0.49999997 my\u0020model"
    assert lines[3:] == [r"q2 Q0 a 1 -2.0 my\u0020model"]
    write_qrels(tmp_path / "qrels.trec", {"q1": frozenset(["b", "a"]), "q 2": frozenset(["c"])})
    assert (tmp_path / "qrels.trec").read_text(encoding="utf-8") == "q1 0 a 1\nq1 0 b 1\nq\\u00202 0 c 1\n"


@given(st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=6), max_size=4))
def test_any_run_is_read_back_in_its_order_with_scores_that_fall(tmp_path_factory, runs):
    path = tmp_path_factory.mktemp("run") / "run.trec"
    written = {query: ranking(pages) for query, pages in runs.items()}
    write_run(path, written, "tag")
    read = read_run(path)
    assert list(read) == list(written)
    for query, found in written.items():
        assert read[query].page_ids == found.page_ids
        scores = read[query].scores
        assert all(later < earlier for earlier, later in zip(scores, scores[1:], strict=False))
        exact = [float(np.float32(score)) for score in found.scores]
        if all(later < earlier for earlier, later in zip(exact, exact[1:], strict=False)):
            assert list(scores) == exact


@settings(max_examples=50)
@given(st.dictionaries(IDS, st.frozensets(IDS, min_size=1, max_size=4), max_size=4))
def test_any_relevance_is_read_back(tmp_path_factory, relevant):
    path = tmp_path_factory.mktemp("qrels") / "qrels.trec"
    write_qrels(path, relevant)
    assert read_qrels(path) == relevant


@given(st.text(min_size=1))
def test_an_id_is_one_field_of_text_and_comes_back(identifier):
    field = escape(identifier)
    assert field.split() == [field] and field.encode("utf-8")
    assert unescape(field) == identifier


@given(st.text(alphabet=string.ascii_letters + string.digits + "-_./:%#()[],;'\"", min_size=1))
def test_usual_ids_stand_as_they_are(identifier):
    assert escape(identifier) == identifier


def test_ids_that_look_like_escapes_or_are_no_text_come_back():
    for identifier in (r"a\u0020b", r"\u005cu0020", "C:\\pages\\u1.png", "\udce9.png", "a\u2028b\u00a0c", "\x00"):
        assert unescape(escape(identifier)) == identifier
    assert unescape(r"C:\pages\1.png") == r"C:\pages\1.png"


@settings(max_examples=30)
@given(st.data())
def test_metrics_are_those_of_pytrec_eval_on_the_written_files(tmp_path_factory, data):
    """Ties too, which trec_eval would put in the order of ids."""
    folder = tmp_path_factory.mktemp("metrics")
    pages = [f"p{number}" for number in range(23)]
    written, relevant = {}, {}
    for query in data.draw(st.lists(st.sampled_from(["q1", "q2", "q3"]), min_size=1, unique=True)):
        order = data.draw(st.permutations(pages))[: data.draw(st.integers(1, 23))]
        scores = sorted(data.draw(st.lists(st.sampled_from([0.5, 0.25, -1.0]), min_size=len(order))), reverse=True)
        written[query] = Ranking(tuple(order), tuple(scores[: len(order)]))
        relevant[query] = data.draw(st.frozensets(st.sampled_from(pages), min_size=1, max_size=15))
    write_run(folder / "run.trec", written, "tag")
    write_qrels(folder / "qrels.trec", relevant)
    with (folder / "run.trec").open() as run, (folder / "qrels.trec").open() as qrels:
        evaluator = pytrec_eval.RelevanceEvaluator(
            pytrec_eval.parse_qrel(qrels), {"recall.10", "ndcg_cut.10", "recip_rank"}
        )
        judged = evaluator.evaluate(pytrec_eval.parse_run(run))
    for query, found in written.items():
        ours, theirs = query_metrics(found.page_ids, relevant[query]), judged[query]
        assert ours["recall_at_10"] == pytest.approx(theirs["recall_10"])
        assert ours["ndcg_at_10"] == pytest.approx(theirs["ndcg_cut_10"])
        # Theirs has no end; ours stops after ten pages.
        assert ours["mrr_at_10"] == pytest.approx(theirs["recip_rank"] if theirs["recip_rank"] >= 0.1 else 0.0)


def test_other_programs_runs_are_ordered_as_trec_eval_does(tmp_path):
    path = tmp_path / "run.txt"
    path.write_text("q1\tQ0\ta 9 1 x\n\nq1 Q0 c 3 2e0 x\r\nq1 Q0 b 1 1.00000000001 x\n", encoding="utf-8")
    assert read_run(path) == {"q1": Ranking(("c", "b", "a"), (2.0, 1.0, 1.0))}


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published relevance files are not at hand")
@pytest.mark.parametrize("name", ["infovqa", "chartqa", "slidevqa", "tqa", "owid_charts_en", "wikimedia-commons-maps"])
def test_published_relevance_is_read_and_written_as_it_was(tmp_path, name):
    published = PUBLISHED / name / "qrels.txt"
    relevant = read_qrels(published)
    rows = [line.split() for line in published.read_text(encoding="utf-8").splitlines()]
    assert {(query, page) for query, _, page, _ in rows} == {
        (query, page) for query, pages in relevant.items() for page in pages
    }
    assert sum(map(len, relevant.values())) == len(rows)
    write_qrels(tmp_path / "qrels.trec", relevant)
    written = (tmp_path / "qrels.trec").read_text(encoding="utf-8").splitlines()
    assert sorted(line.split()[::2] for line in written) == sorted(row[::2] for row in rows)


def test_pages_graded_zero_are_not_relevant_and_higher_grades_count_once(tmp_path):
    path = tmp_path / "qrels.txt"
    path.write_text("q1 0 a 0\nq1 0 b 2\nq2 0 a 0\nq3 0 a -1\nq3 0 b 1\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="1 grades above 1 count as 1"):
        assert read_qrels(path) == {"q1": frozenset("b"), "q3": frozenset("b")}
    path.write_text("q1 0 a 1\n", encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_qrels(path) == {"q1": frozenset("a")}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("q1 Q0 a 1 0.5", "line 2: 5 fields; expected 'query Q0 page rank score tag'"),
        ("q1 Q0 a b 1 0.5 tag", "line 2: 7 fields"),
        ("q1 Q0 b 1 high tag", "line 2: score 'high'; expected a finite number"),
        ("q1 Q0 b 1 nan tag", "line 2: score 'nan'"),
        ("q1 Q0 a 1 0.5 tag", "line 2: page 'a' stands twice for query 'q1'"),
    ],
)
def test_a_line_that_makes_no_sense_is_named(tmp_path, line, said):
    path = tmp_path / "run.trec"
    path.write_text(f"q1 Q0 a 1 0.5 tag\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=said) as raised:
        read_run(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_files_that_cannot_be_read_or_written_are_named(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_run(tmp_path / "none.trec")
    (tmp_path / "latin").write_bytes(b"q1 0 \xe9 1\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_qrels(tmp_path / "latin")
    with pytest.raises(DataError, match="an id is empty"):
        write_run(tmp_path / "run.trec", {"": Ranking(("a",), (1.0,))}, "tag")
    assert not (tmp_path / "run.trec").exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError):
        write_run(tmp_path / "file" / "run.trec", {"q": Ranking(("a",), (1.0,))}, "tag")


def test_scores_that_float32_holds_are_written_exactly(tmp_path):
    scores = sorted((float(value) for value in np.float32([math.pi, 1e-30, 1 / 3, -1e30, 16777217])), reverse=True)
    found = Ranking(tuple("abcde"), tuple(scores))
    write_run(tmp_path / "run.trec", {"q": found}, "tag")
    assert read_run(tmp_path / "run.trec") == {"q": found}
