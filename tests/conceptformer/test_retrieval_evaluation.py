"""Evaluation of a retriever that can be followed by hand, against pytrec-eval, and of tasks that make no sense."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from conceptformer.data.images import open_image
from conceptformer.errors import DataError
from conceptformer.records import Page, RetrievalTask
from conceptformer.retrieval.encoding import Place
from conceptformer.retrieval.evaluation import (
    METRICS,
    check_task,
    evaluate_retrieval,
    measure,
    query_groups,
    retrieval_metrics,
)
from conceptformer.retrieval.search import Ranking
from tests.conceptformer.colour_pages import ColourRetriever, encoding, make_task
from visar.significance import Resampling, bootstrap_interval

FEW = Resampling(samples=200, seed=0)


def task_of(relevant: dict[str, set[str]], pages: int = 12) -> RetrievalTask:
    corpus = tuple(Page(f"p{number}", b"") for number in range(pages))
    answers = {query: frozenset(ids) for query, ids in relevant.items()}
    return RetrievalTask("made up", {query: f"text of {query}" for query in relevant}, corpus, answers)


def ranked(*places: int) -> Ranking:
    return Ranking(tuple(f"p{place}" for place in places), tuple(1.0 - 0.01 * rank for rank in range(len(places))))


def test_rows_and_means_worked_by_hand():
    """One answer first; two answers, at 2 and at 11; one answer, not found."""
    task = task_of({"a": {"p0"}, "b": {"p1", "p11"}, "c": {"p3"}})
    rankings = {
        "c": ranked(4, 5),
        "a": ranked(0, 1),
        "b": ranked(2, 1, 0, 3, 4, 5, 6, 7, 8, 9, 11),
    }
    found = measure(task, rankings, FEW)
    first, second, third = found.rows
    assert first == {
        "query_id": "a",
        "query": "text of a",
        "relevant": ["p0"],
        "ranking": ["p0", "p1"],
        "scores": [1.0, 0.99],
        "recall_at_10": 1.0,
        "ndcg_at_10": 1.0,
        "mrr_at_10": 1.0,
    }
    assert second["relevant"] == ["p1", "p11"]
    assert second["ranking"] == ["p2", "p1", "p0", *(f"p{place}" for place in range(3, 10))]
    ndcg = (1 / math.log2(3)) / (1 + 1 / math.log2(3))
    assert [second[name] for name in METRICS] == [0.5, pytest.approx(ndcg), 0.5]
    assert [third[name] for name in METRICS] == [0.0, 0.0, 0.0]
    assert [found.means[name]["value"] for name in METRICS] == pytest.approx([0.5, (1 + ndcg) / 3, 0.5])
    assert list(found.rankings) == ["a", "b", "c"] and len(found.rankings["b"].page_ids) == 11


def test_intervals_are_the_bootstraps_over_queries_about_the_same_page():
    task = task_of({"a": {"p0"}, "b": {"p0", "p1"}, "c": {"p1"}, "d": {"p2"}, "e": {"p3"}})
    rankings = dict(zip("abcde", [ranked(0), ranked(5, 0), ranked(1), ranked(5, 6), ranked(3)], strict=True))
    found = measure(task, rankings, FEW)
    values = [row["ndcg_at_10"] for row in found.rows]
    low, high = bootstrap_interval(values, ["x", "x", "x", "y", "z"], samples=200, seed=0)
    assert found.means["ndcg_at_10"] == {"value": pytest.approx(np.mean(values)), "low": low, "high": high}


def test_queries_that_are_all_about_one_page_have_no_interval():
    found = measure(task_of({"a": {"p0"}, "b": {"p0"}}), {"a": ranked(0), "b": ranked(1)}, FEW)
    assert found.means["mrr_at_10"] == {"value": 0.5, "low": None, "high": None}


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.frozensets(st.sampled_from("12345678"), min_size=1, max_size=3)))
def test_groups_are_the_connected_parts(relevant):
    """Queries are joined by shared pages until nothing changes, the slow way."""
    parts = [{query} for query in relevant]
    pages = [set(relevant[query]) for query in relevant]
    joined = True
    while joined:
        joined = False
        for first in range(len(parts)):
            for second in range(first + 1, len(parts)):
                if pages[first] & pages[second]:
                    parts[first] |= parts.pop(second)
                    pages[first] |= pages.pop(second)
                    joined = True
                    break
            if joined:
                break
    groups = query_groups(relevant)
    assert {frozenset(part) for part in parts} == {
        frozenset(query for query in groups if groups[query] == number) for number in set(groups.values())
    }
    assert list(groups) == list(relevant)
    assert sorted(set(groups.values())) == list(range(len(parts)))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 31))
def test_metrics_of_vectors_are_those_of_pytrec_eval(seed, query_count, page_count):
    generator = np.random.default_rng(seed)
    queries = generator.normal(size=(query_count, 7)).astype(np.float32)
    pages = generator.normal(size=(page_count, 7)).astype(np.float32)
    query_ids, page_ids = [f"q{i}" for i in range(query_count)], [f"p{i}" for i in range(page_count)]
    relevant = {
        query: frozenset(generator.choice(page_ids, size=generator.integers(1, min(13, page_count) + 1), replace=False))
        for query in query_ids
    }
    found = retrieval_metrics(queries, pages, query_ids, page_ids, relevant)
    # Ten pages: reciprocal rank has no cut of its own there.
    scores = {
        query: {page_ids[place]: float(row[place]) for place in np.argsort(-row)[:10]}
        for query, row in zip(query_ids, queries.astype(np.float64) @ pages.T.astype(np.float64), strict=True)
    }
    measures = {"recall.10", "ndcg_cut.10", "recip_rank"}
    judged = pytrec_eval.RelevanceEvaluator(
        {query: dict.fromkeys(map(str, answers), 1) for query, answers in relevant.items()}, measures
    ).evaluate(scores)
    for name, theirs in zip(METRICS, ("recall_10", "ndcg_cut_10", "recip_rank"), strict=True):
        assert found[name] == pytest.approx(np.mean([judged[query][theirs] for query in query_ids]))


def test_equal_scores_count_in_corpus_order():
    ones = np.ones((1, 3), np.float32)
    page_ids = [f"p{number}" for number in range(11)]
    for place, expected in ((0, 1.0), (9, 0.1), (10, 0.0)):
        found = retrieval_metrics(ones, np.ones((11, 3)), ["q"], page_ids, {"q": frozenset([f"p{place}"])})
        assert found["mrr_at_10"] == pytest.approx(expected)


# From images to figures.


def everything_by_hand(task: RetrievalTask) -> dict[str, list[str]]:
    """Each page scored alone, ordered by a stable sort."""
    retriever = ColourRetriever()
    vectors = {page.page_id: retriever.encode_pages([open_image(page.image)])[0].astype(float) for page in task.pages}
    orders = {}
    for query_id, text in task.queries.items():
        query = retriever.encode_queries([text])[0].astype(float)
        scores = {page_id: float(np.float32(query @ vector)) for page_id, vector in vectors.items()}
        orders[query_id] = sorted(scores, key=lambda page_id: -scores[page_id])
    return orders


def test_a_task_is_evaluated_as_by_hand(tmp_path):
    task = make_task(tmp_path / "pages", 29)
    seen: list[str] = []

    def on_progress(what):
        seen.append(what)
        return lambda done, total: None

    found = evaluate_retrieval(
        task, ColourRetriever(), encoding(tmp_path / "cache"), depth=12, resampling=FEW, on_progress=on_progress
    )
    orders = everything_by_hand(task)
    assert {query_id: list(one.page_ids) for query_id, one in found.rankings.items()} == {
        query_id: order[:12] for query_id, order in orders.items()
    }
    assert [row["query_id"] for row in found.rows] == list(task.queries)
    assert [row["query"] for row in found.rows] == list(task.queries.values())
    # Only a page of the same two colours can come before the one that is asked for.
    assert found.means["mrr_at_10"]["value"] >= 0.5 and all(row["mrr_at_10"] >= 0.5 for row in found.rows)
    assert sorted(seen) == ["pages", "queries"]


def test_a_second_evaluation_is_the_same_and_encodes_nothing(tmp_path):
    task, log = make_task(tmp_path / "pages", 11), tmp_path / "log"
    results = [
        evaluate_retrieval(task, ColourRetriever(log), encoding(tmp_path / "cache"), depth=10, resampling=FEW)
        for _ in range(2)
    ]
    assert results[0] == results[1]
    assert len(log.read_text().splitlines()) == 11 + 4


def test_a_page_left_out_counts_as_missed(tmp_path):
    task = make_task(tmp_path / "pages", 29)
    whole = evaluate_retrieval(task, ColourRetriever(), encoding(tmp_path / "cache"), depth=10, resampling=FEW)
    (tmp_path / "pages" / "3.png").write_bytes(b"")
    settings = encoding(tmp_path / "cache", skip_bad_pages=True)
    found = evaluate_retrieval(task, ColourRetriever(), settings, depth=10, resampling=FEW)
    assert list(found.left_out) == ["page 3"] and "empty" in found.left_out["page 3"]
    row = found.rows[1]
    assert row["relevant"] == ["page 3"] and "page 3" not in row["ranking"]
    assert row["recall_at_10"] == 0.0
    assert len(found.rows) == len(whole.rows) and found.means["mrr_at_10"]["value"] < whole.means["mrr_at_10"]["value"]


def test_a_corpus_without_a_page_that_can_be_read_is_refused(tmp_path):
    task = make_task(tmp_path / "pages", 3)
    for page in task.pages:
        page.image.write_bytes(b"x")
    settings = encoding(tmp_path / "cache", skip_bad_pages=True)
    with pytest.raises(DataError, match="colours: none of its 3 pages could be read; the first, 'page 0': .*0.png"):
        evaluate_retrieval(task, ColourRetriever(), settings, depth=10, resampling=FEW)


def test_other_processes_encode_and_say_nothing(tmp_path):
    task = make_task(tmp_path / "pages", 11)
    settings = encoding(tmp_path / "cache", place=Place(1, 2))
    assert evaluate_retrieval(task, ColourRetriever(), settings, depth=10, resampling=FEW) is None
    log = tmp_path / "log"
    first = encoding(tmp_path / "cache", place=Place(0, 2))
    assert evaluate_retrieval(task, ColourRetriever(log), first, depth=10, resampling=FEW) is not None
    # Shards of five: pages 5 to 9 were there, and queries are too few for a second shard.
    assert len(log.read_text().splitlines()) == 6 + 4


def test_a_depth_below_ten_would_cut_the_metrics(tmp_path):
    with pytest.raises(DataError, match="depth: expected a whole number of at least 10, got 9"):
        evaluate_retrieval(task_of({"a": {"p0"}}), ColourRetriever(), encoding(tmp_path), depth=9, resampling=FEW)


# What cannot be measured.

GOOD = task_of({"a": {"p0"}, "b": {"p1", "p2"}})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pages": ()}, "has no page"),
        ({"queries": {}, "relevant": {}}, "has no query"),
        ({"pages": (*GOOD.pages, GOOD.pages[3])}, "13 pages have 12 different ids"),
        ({"pages": (*GOOD.pages, Page("", b""))}, "an id is empty"),
        ({"queries": {"": "text"}, "relevant": {"": frozenset(["p0"])}}, "an id is empty"),
        ({"queries": {**GOOD.queries, "b": " \n"}}, "query 'b' is empty"),
        ({"relevant": {**GOOD.relevant, "b": frozenset()}}, "query 'b' has no relevant page"),
        ({"relevant": {"a": frozenset(["p0"])}}, "query 'b' has no relevant page"),
        ({"relevant": {**GOOD.relevant, "b": frozenset(["p1", "p99"])}}, "relevant page 'p99' is not in the corpus"),
        ({"relevant": {**GOOD.relevant, "c": frozenset(["p1"])}}, "for 'c', which is not among the queries"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused(tmp_path, changes, said):
    check_task(GOOD)
    task = dataclasses.replace(GOOD, **changes)
    with pytest.raises(DataError, match=f"^made up: .*{said}"):
        evaluate_retrieval(task, ColourRetriever(), encoding(tmp_path), depth=10, resampling=FEW)
    assert list(tmp_path.iterdir()) == []


def test_no_query_has_no_metrics():
    with pytest.raises(DataError, match="at least one query"):
        retrieval_metrics(np.empty((0, 2)), np.ones((1, 2)), [], ["p"], {})
