"""BM25 against a hand-worked case and a slow formula of its own, and what is found at all."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conceptformer.baselines import Bm25, PageTextReader
from conceptformer.errors import DataError, MissingExtraError
from conceptformer.questions import question_of
from conceptformer.records import Page
from conceptformer.retrieval.encoding import Place
from conceptformer.retrieval.evaluation import evaluate_retrieval
from conceptformer.retrieval.protocol import PageRanker
from tests.conceptformer.coded_pages import CodedReader, coded_page, coded_task
from tests.conceptformer.colour_pages import encoding, silent
from visar.significance import Resampling

pytest.importorskip("bm25s", reason="the text extra is not installed")

FEW = Resampling(samples=50, seed=0)


def bm25(**changes: object) -> Bm25:
    given_ = {"k1": 1.5, "b": 0.75, "stop_words": None, "stemmer": None, "question_only": True, **changes}
    return Bm25(page_text=PageTextReader(CodedReader(), processes=1), **given_)


def rankings(ranker: Bm25, texts: dict[str, str], queries: dict[str, str], cache, depth: int = 10):
    task = coded_task(texts, queries, {query: [next(iter(texts))] for query in queries})
    found = ranker.rank(task, encoding(cache), depth=depth, on_stage=lambda what: silent)
    return {query: dict(zip(one.page_ids, one.scores, strict=True)) for query, one in found.rankings.items()}


def slow(texts: dict[str, str], query: str, k1: float, b: float) -> dict[str, float]:
    """Lucene's BM25 word by word and page by page."""
    words = {page: re.findall(r"\b\w\w+\b", text.lower()) for page, text in texts.items()}
    mean_length = sum(map(len, words.values())) / len(words)
    scores = {}
    for page, own in words.items():
        counts = Counter(own)
        scores[page] = 0.0
        for word in re.findall(r"\b\w\w+\b", query.lower()):
            having = sum(word in others for others in words.values())
            idf = math.log(1 + (len(words) - having + 0.5) / (having + 0.5))
            tf = counts[word]
            if not tf:  # with b = 1 a page without words would divide by zero
                continue
            scores[page] += idf * tf / (tf + k1 * (1 - b + b * len(own) / mean_length))
    return {page: score for page, score in scores.items() if score > 0}


def test_a_case_worked_by_hand(tmp_path):
    """Two of three pages have "bees", one of them twice; lengths 4, 2 and 3, so 3 in the mean.

    idf = ln(1 + 1.5 / 2.5) = ln 1.6. First page: 2 / (2 + 1.5 (0.25 + 0.75 * 4/3)) = 2 / 3.875. Second: 1 / (1 + 1.5 *
    0.75) = 1 / 2.125.
    """
    texts = {"first": "bees and more bees", "second": "bees fly", "third": "whales eat krill"}
    found = rankings(bm25(), texts, {"q": "Bees?"}, tmp_path)
    assert found == {
        "q": {"first": pytest.approx(math.log(1.6) * 2 / 3.875), "second": pytest.approx(math.log(1.6) / 2.125)}
    }


WORDS = st.lists(st.sampled_from(["aa", "bb", "cc", "dd", "ee", "a", "B1"]), max_size=12).map(" ".join)


@settings(max_examples=30)
@given(st.lists(WORDS, min_size=1, max_size=7), WORDS, st.floats(0.1, 3), st.floats(0, 1))
def test_scores_are_those_of_the_slow_formula(tmp_path_factory, pages, query, k1, b):
    texts = {"anchor": "aa zz", **{f"p{number}": text for number, text in enumerate(pages)}}
    asked = query or "aa"
    found = rankings(bm25(k1=k1, b=b), texts, {"q": asked}, tmp_path_factory.mktemp("cache"))["q"]
    expected = slow(texts, asked, k1, b)
    assert found == {page: pytest.approx(score, rel=1e-4) for page, score in expected.items()}
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_pages_without_a_word_of_the_query_are_not_found(tmp_path):
    texts = {"blank": "", "other": "nothing of that", "one": "whales"}
    found = rankings(bm25(), texts, {"q": "whales", "none": "unheard of", "signs": "?! a"}, tmp_path)
    assert [list(found[query]) for query in ("q", "none", "signs")] == [["one"], ["other"], []]


def test_equal_scores_stand_in_corpus_order_and_depth_cuts(tmp_path):
    texts = {f"p{place}": "honey" for place in (3, 1, 2, 0)} | {"long": "honey and some more"}
    assert list(rankings(bm25(), texts, {"q": "honey"}, tmp_path)["q"]) == ["p3", "p1", "p2", "p0", "long"]
    assert list(rankings(bm25(), texts, {"q": "honey"}, tmp_path, depth=2)["q"]) == ["p3", "p1"]


def test_stop_words_and_stems_are_options(tmp_path):
    pytest.importorskip("Stemmer", reason="the text extra is not installed")
    texts = {"a": "the hive of the bees", "b": "what is a whale"}
    queries = {"q": "what was the whales"}
    plain = rankings(bm25(), texts, queries, tmp_path)["q"]
    assert set(plain) == {"a", "b"}
    assert list(rankings(bm25(stop_words="english"), texts, queries, tmp_path)["q"]) == ["b"]  # "what" is none
    stemmed = rankings(bm25(stop_words="english", stemmer="english"), texts, {"q": "whales"}, tmp_path)["q"]
    assert list(stemmed) == ["b"] and list(rankings(bm25(), texts, {"q": "whales"}, tmp_path)["q"]) == []


def test_only_the_question_is_searched_with_unless_one_wants_all(tmp_path):
    texts = {"instruction": "retrieve the image", "answer": "bees"}
    queries = {"q": "Instruct: retrieve an image.\\nQuery: bees"}
    assert list(rankings(bm25(), texts, queries, tmp_path)["q"]) == ["answer"]
    assert set(rankings(bm25(question_only=False), texts, queries, tmp_path)["q"]) == {"answer", "instruction"}


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ("Instruct: Given a question, retrieve.\nQuery: How many?", "How many?"),
        ("Instruct: I'm looking for an image.\\nQuery: Which?", "Which?"),
        ("Instruct: a\\nQuery: b\nQuery: c", "b\nQuery: c"),
        ("Instruct: a\nb\nQuery: c", "c"),
        ("How many Query: are there?", "How many Query: are there?"),
        ("Instruct: a Query: b", "Instruct: a Query: b"),
        ("Instruct: a\nQuery:  ", "Instruct: a\nQuery:  "),
    ],
)
def test_the_question_is_what_stands_behind_the_instruction(query, question):
    assert question_of(query) == question


# Within an evaluation.


def test_an_evaluation_counts_what_was_not_found_as_missed(tmp_path):
    texts = {f"p{number}": f"topic{number} words" for number in range(12)} | {"blank": ""}
    queries = {"first": "topic3", "shared": "words", "lost": "unheard"}
    task = coded_task(texts, queries, {"first": ["p3"], "shared": ["p11", "p0"], "lost": ["p1"]})
    assert isinstance(bm25(), PageRanker)
    stages: list[str] = []

    def on_progress(what: str):
        stages.append(what)
        return silent

    found = evaluate_retrieval(task, bm25(), encoding(tmp_path), depth=10, resampling=FEW, on_progress=on_progress)
    assert [row["recall_at_10"] for row in found.rows] == [1.0, 0.5, 0.0]
    assert [row["ranking"] for row in found.rows][::2] == [["p3"], []]
    assert stages == ["texts of pages", "queries"]
    assert evaluate_retrieval(
        task, bm25(), encoding(tmp_path, place=Place(1, 2)), depth=10, resampling=FEW
    ) is None  # fmt: skip


def test_pages_that_cannot_be_read_are_left_out(tmp_path):
    task = coded_task({"a": "bees", "b": "bees too"}, {"q": "bees"}, {"q": ["a"]})
    broken = type(task)(task.name, task.queries, (*task.pages, Page("c", b"none")), task.relevant)
    found = evaluate_retrieval(
        broken, bm25(), encoding(tmp_path, skip_bad_pages=True), depth=10, resampling=FEW
    )  # fmt: skip
    assert list(found.left_out) == ["c"] and found.rows[0]["ranking"] == ["a", "b"]
    with pytest.raises(DataError, match="page 'c'"):
        evaluate_retrieval(broken, bm25(), encoding(tmp_path), depth=10, resampling=FEW)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stop_words": "klingon"}, "stop_words is 'klingon'"),
        ({"stemmer": "klingon"}, "stemmer is 'klingon'; expected null or one of .*english"),
    ],
)
def test_settings_that_make_no_sense_are_told_before_pages_are_read(tmp_path, changes, said):
    if "stemmer" in changes:
        pytest.importorskip("Stemmer", reason="the text extra is not installed")
    task = coded_task({"a": "bees"}, {"q": "bees"}, {"q": ["a"]})
    with pytest.raises(DataError, match=said):
        bm25(**changes).rank(task, encoding(tmp_path), depth=10, on_stage=lambda what: silent)
    assert not (tmp_path / "page_text").exists()


@pytest.mark.parametrize("changes", [{"k1": -0.1}, {"b": 1.5}, {"k1": np.nan}])
def test_weights_out_of_range_are_refused(changes):
    with pytest.raises(DataError, match="expected k1 >= 0 and 0 <= b <= 1"):
        bm25(**changes)


def test_a_corpus_without_words_is_refused(tmp_path):
    task = coded_task({"a": "", "b": "!"}, {"q": "bees"}, {"q": ["a"]})
    with pytest.raises(DataError, match="coded: none of 2 pages has a word"):
        bm25().rank(task, encoding(tmp_path), depth=10, on_stage=lambda what: silent)


@pytest.mark.parametrize(("package", "changes"), [("bm25s", {}), ("Stemmer", {"stemmer": "english"})])
def test_missing_packages_name_the_extra(tmp_path, monkeypatch, package, changes):
    monkeypatch.setitem(sys.modules, package, None)
    task = coded_task({"a": "bees"}, {"q": "bees"}, {"q": ["a"]})
    with pytest.raises(MissingExtraError, match=r"evidence-retrieval\[text\]"):
        bm25(**changes).rank(task, encoding(tmp_path), depth=10, on_stage=lambda what: silent)


def test_the_fingerprint_changes_with_every_setting():
    settings_ = [
        {},
        {"k1": 1.2},
        {"b": 0.4},
        {"stop_words": "english"},
        {"stemmer": "english"},
        {"question_only": False},
    ]
    prints = [bm25(**changes).fingerprint() for changes in settings_]
    other = Bm25(
        page_text=PageTextReader(CodedReader(version="2"), processes=1),
        k1=1.5, b=0.75, stop_words=None, stemmer=None, question_only=True,
    )  # fmt: skip
    assert len({*prints, other.fingerprint()}) == len(settings_) + 1
    assert bm25().fingerprint() == prints[0]


def test_a_page_is_a_page_of_the_corpus_whatever_its_text(tmp_path):
    """Two pages of one image are both found."""
    task = coded_task({"a": "bees"}, {"q": "bees"}, {"q": ["a"]})
    twice = type(task)(task.name, task.queries, (*task.pages, coded_page("copy", "bees")), task.relevant)
    found = bm25().rank(twice, encoding(tmp_path), depth=10, on_stage=lambda what: silent)
    assert found.rankings["q"].page_ids == ("a", "copy")
