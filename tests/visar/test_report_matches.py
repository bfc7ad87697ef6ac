"""Which places of a page light up for which tokens."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from visar.errors import EmbeddingError
from visar.matches import count_without_place, find_matches
from visar.records import PageEmbedding, QueryEmbedding

NOWHERE = (math.nan,) * 4
A, B, C = (0.1, 0.1, 0.2, 0.15), (0.3, 0.1, 0.4, 0.15), (0.1, 0.5, 0.2, 0.55)


def _query(rows: list[list[float]], tokens: tuple[str, ...]) -> QueryEmbedding:
    return QueryEmbedding(torch.nn.functional.normalize(torch.tensor(rows, dtype=torch.float32), dim=1), tokens)


def _page(rows: list[list[float]], boxes: list[tuple[float, ...]]) -> PageEmbedding:
    return PageEmbedding(torch.tensor(rows), torch.tensor(boxes))


AXES = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_a_case_worked_by_hand() -> None:
    # "net" finds A with cosine 1, 0.6 above its mean. "the" finds B with 1, which is its mean: it says nothing here.
    # "cash" = (3, 0, 4) / 5 finds C with 0.8, 0.3 above its mean.
    query = _query([[1, 0, 0], [0, 1, 0], [3, 0, 4]], ("net", "the", "cash"))
    matches = find_matches(query, _page(AXES, [A, B, C]), torch.tensor([0.4, 1.0, 0.5]))
    assert [match.token for match in matches] == ["net", "cash"]
    assert [match.box for match in matches] == [pytest.approx(A), pytest.approx(C)]
    assert [match.similarity for match in matches] == pytest.approx([1.0, 0.8])
    assert [match.strength for match in matches] == pytest.approx([0.6, 0.3])


def test_tokens_that_meet_in_one_box_become_one_match_with_the_strongest_figures() -> None:
    query = _query([[3, 0, 4], [0, 0, 1], [1, 0, 0]], ("free", "flow", "cash"))
    (match,) = find_matches(query, _page(AXES, [A, B, A]), torch.tensor([0.5, 0.1, 0.8]))
    assert match.token == "free, flow, cash"
    assert match.strength == pytest.approx(0.9)
    assert match.similarity == pytest.approx(1.0)


def test_pieces_of_a_word_are_joined_only_where_they_follow_each_other() -> None:
    query = _query([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]], ("data", "##set", "the", "of", "##s"))
    matches = find_matches(query, _page(AXES, [A, B, C]), torch.tensor([0.1, 0.1, 0.1, 0.1, 0.1]))
    assert {match.token for match in matches} == {"dataset, the, ##s", "of"}


def test_places_without_a_box_are_left_out_and_counted() -> None:
    query = _query(AXES, ("a", "b", "c"))
    page = _page(AXES, [A, NOWHERE, NOWHERE])
    mean = torch.tensor([0.5, 0.5, 1.0])
    assert [match.token for match in find_matches(query, page, mean)] == ["a"]
    assert count_without_place(query, page, mean) == 1  # "c" is not above its mean, so it would not be shown anyway


def test_the_strongest_are_kept() -> None:
    query = _query(AXES, ("a", "b", "c"))
    matches = find_matches(query, _page(AXES, [A, B, C]), torch.tensor([0.5, 0.2, 0.4]), most=2)
    assert [match.token for match in matches] == ["b", "c"]


def test_nothing_lights_up_on_the_only_page_of_a_document() -> None:
    vectors = torch.randn(7, 5, generator=torch.Generator().manual_seed(3))
    query = QueryEmbedding(torch.randn(3, 5, generator=torch.Generator().manual_seed(4)), ("a", "b", "c"))
    page = PageEmbedding(vectors, torch.rand(7, 4))
    unit = torch.nn.functional.normalize
    mean = (unit(query.vectors, dim=1) @ unit(vectors, dim=1).T).max(dim=1).values
    assert find_matches(query, page, mean) == ()


def test_half_precision_and_vectors_of_any_length_give_cosines() -> None:
    query = QueryEmbedding(torch.tensor([[8.0, 0.0, 0.0]], dtype=torch.float16), ("a",))
    page = PageEmbedding(torch.tensor(AXES, dtype=torch.bfloat16) * 3, torch.tensor([A, B, C]))
    (match,) = find_matches(query, page, torch.tensor([0.25], dtype=torch.float64))
    assert (match.similarity, match.strength) == pytest.approx((1.0, 0.75))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 7))
def test_equals_a_plain_loop(seed: int, tokens: int, places: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query = QueryEmbedding(torch.randn(tokens, 3, generator=generator), tuple(f"t{i}" for i in range(tokens)))
    boxes = torch.rand(places, 4, generator=generator)
    boxes[torch.rand(places, generator=generator) < 0.3] = math.nan
    page = PageEmbedding(torch.randn(places, 3, generator=generator), boxes)
    mean = torch.rand(tokens, generator=generator) - 0.3

    expected: dict[tuple[float, ...], float] = {}
    nowhere = 0
    for i in range(tokens):
        cosines = [torch.cosine_similarity(query.vectors[i], vector, dim=0).item() for vector in page.vectors]
        best = cosines.index(max(cosines))
        strength = min(max(cosines[best] - mean[i].item(), 0.0), 1.0)
        if strength <= 1e-5:
            continue
        box = tuple(boxes[best].tolist())
        if math.isnan(box[0]):
            nowhere += 1
        else:
            expected[box] = max(strength, expected.get(box, 0.0))

    matches = find_matches(query, page, mean)
    assert {match.box: match.strength for match in matches} == pytest.approx(expected, abs=1e-5)
    assert count_without_place(query, page, mean) == nowhere
    assert [match.strength for match in matches] == sorted((match.strength for match in matches), reverse=True)
    assert all(0 < match.strength <= 1 for match in matches)


@pytest.mark.parametrize(
    ("query", "page", "mean", "words"),
    [
        (_query([[1.0, 0.0]], ("a",)), _page(AXES, [A, B, C]), torch.zeros(1), "as wide as the question's 2, got 3"),
        (_query(AXES, ("a", "b", "c")), _page(AXES, [A, B]), torch.zeros(3), r"expected shape \[3, 4\]"),
        (_query(AXES, ("a", "b", "c")), _page(AXES, [A, B, C]), torch.zeros(2), "one per vector of the question"),
        (_query(AXES, ("a", "b")), _page(AXES, [A, B, C]), torch.zeros(3), "2 tokens"),
        (_query(AXES, ("a", "b", "c")), _page(AXES, [A, B, C]), torch.full((3,), math.nan), "NaN or Inf"),
    ],
)
def test_what_does_not_fit_together_is_refused(query, page, mean, words: str) -> None:
    with pytest.raises(EmbeddingError, match=words) as caught:
        find_matches(query, page, mean)
    assert "\n" not in str(caught.value)


def test_punctuation_is_no_match() -> None:
    """A comma's state carries its sentence's meaning, so it can match strongly; a reader learns nothing from it."""
    query = QueryEmbedding(torch.eye(2), ("pump", ","))
    page = PageEmbedding(torch.eye(2), torch.tensor([[0.0, 0.0, 0.1, 0.1], [0.2, 0.2, 0.3, 0.3]]))
    assert [match.token for match in find_matches(query, page, torch.zeros(2))] == ["pump"]
