"""Exact search against worked cases and a full sort, with ties, and with vectors that are none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from conceptformer.errors import DataError
from conceptformer.retrieval import search as search_module
from conceptformer.retrieval.search import PageBlock, Ranking, search


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}{number}" for number in range(count)]


def blocks(vectors: np.ndarray, *cuts: int) -> list[PageBlock]:
    ids = names("p", len(vectors))
    edges = [0, *cuts, len(vectors)]
    return [PageBlock(ids[a:b], vectors[a:b]) for a, b in zip(edges, edges[1:], strict=False) if b > a]


def full_sort(queries: np.ndarray, pages: np.ndarray, depth: int) -> list[Ranking]:
    """Every product by itself, every ranking by Python's stable sort."""
    rankings = []
    for query in queries.astype(np.float64):
        scores = [float(np.float32(np.dot(query, page))) for page in pages.astype(np.float64)]
        order = sorted(range(len(pages)), key=lambda place: -scores[place])[:depth]
        rankings.append(Ranking(tuple(f"p{place}" for place in order), tuple(scores[place] for place in order)))
    return rankings


def test_a_case_worked_by_hand():
    queries = np.array([[1, 0], [0.5, -1]], np.float32)
    pages = np.array([[0.25, 0.5], [0.5, 0.75], [-1, -2]], np.float32)
    assert search(["a", "b"], queries, blocks(pages), depth=2) == [
        Ranking(("p1", "p0"), (0.5, 0.25)),
        Ranking(("p2", "p0"), (1.5, -0.375)),
    ]


@settings(max_examples=150)
@given(
    arrays.arrays(np.int8, st.tuples(st.integers(1, 5), st.just(3)), elements=st.integers(-2, 2)),
    arrays.arrays(np.int8, st.tuples(st.integers(1, 23), st.just(3)), elements=st.integers(-2, 2)),
    st.integers(1, 30),
    st.data(),
)
def test_any_cut_into_blocks_gives_the_full_sort_with_ties_in_corpus_order(queries, pages, depth, data):
    """Small whole numbers: most pages tie with others, and every product is exact."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(pages)), max_size=3)))
    at_once = data.draw(st.integers(1, 40))
    queries, pages = queries.astype(np.float32), pages.astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "_SCORES_AT_ONCE", at_once)
        found = search(names("q", len(queries)), queries, blocks(pages, *cuts), depth=depth)
    assert found == full_sort(queries, pages, depth)


@pytest.mark.parametrize("cuts", [(), (1, 2, 3), (500,), (7, 400, 601)])
def test_many_real_vectors_give_the_full_sort_and_the_same_bits_for_every_cut(cuts):
    generator = np.random.default_rng(11)
    queries = generator.normal(size=(13, 97)).astype(np.float32)
    pages = generator.normal(size=(701, 97)).astype(np.float32)
    found = search(names("q", 13), queries, blocks(pages, *cuts), depth=50)
    assert found == search(names("q", 13), queries, blocks(pages), depth=50)
    expected = full_sort(queries, pages, 50)
    assert [ranking.page_ids for ranking in found] == [ranking.page_ids for ranking in expected]
    np.testing.assert_allclose(
        [ranking.scores for ranking in found], [ranking.scores for ranking in expected], rtol=1e-6, atol=1e-6
    )


def test_equal_pages_stand_in_corpus_order_wherever_they_lie():
    """Kernels sum in another order at the edges of a matrix, so that in float32 equal pages would differ in a bit."""
    generator = np.random.default_rng(5)
    queries = generator.normal(size=(3, 331)).astype(np.float32)
    pages = generator.normal(size=(257, 331)).astype(np.float32)
    pages[[3, 100, 101, 256]] = 10 * queries[1]
    found = search(names("q", 3), queries, blocks(pages, 64, 101), depth=5)[1]
    assert found.page_ids[:4] == ("p3", "p100", "p101", "p256")
    assert len(set(found.scores[:4])) == 1


def test_zero_and_minus_zero_are_equal_scores():
    """Products too small for float32 become 0 or, below 0, -0."""
    tiny = np.float32(1e-30)
    pages = np.array([[-tiny], [tiny], [0.0], [-tiny]], np.float32)
    found = search(["a"], np.full((1, 1), tiny), blocks(pages), depth=4)
    assert found == [Ranking(("p0", "p1", "p2", "p3"), (0.0, 0.0, 0.0, 0.0))]


def test_a_corpus_smaller_than_the_depth_is_returned_whole():
    found = search(["a"], np.ones((1, 2), np.float32), blocks(np.eye(2, dtype=np.float32)), depth=100)
    assert found == [Ranking(("p0", "p1"), (1.0, 1.0))]


def test_no_query_is_no_ranking():
    assert search([], np.empty((0, 2), np.float32), blocks(np.eye(2, dtype=np.float32)), depth=3) == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["query", "page"])
def test_a_broken_vector_is_named(kind, value):
    queries, pages = np.ones((3, 2), np.float32), np.ones((4, 2), np.float32)
    (queries if kind == "query" else pages)[2, 1] = value
    with pytest.raises(DataError, match=rf"^{kind} '{kind[0]}2': its vector holds NaN or Inf") as raised:
        search(names("q", 3), queries, blocks(pages, 1), depth=3)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("queries", "pages", "depth", "said"),
    [
        (np.ones((1, 2)), np.ones((1, 3)), 1, "page 'p0': its vector has 3 dimensions and those of the queries have 2"),
        (np.ones((1, 2)), np.empty((0, 2)), 1, "the corpus has no page"),
        (np.ones((2, 2)), np.ones((1, 2)), 1, r"query vectors: expected shape \[1, D\], got \[2, 2\]"),
        (np.ones(1), np.ones((1, 2)), 1, r"query vectors: expected shape \[1, D\], got \[1\]"),
        (np.full((1, 2), 1e30), np.full((1, 2), 1e30), 1, "too large for float32"),
        (np.ones((1, 2)), np.ones((1, 2)), 0, "depth is 0"),
    ],
)
def test_what_does_not_fit_is_refused(queries, pages, depth, said):
    with pytest.raises(DataError, match=said):
        search(["q0"], queries.astype(np.float32), blocks(pages.astype(np.float32)), depth=depth)
