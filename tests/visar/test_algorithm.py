from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.visar import plain_method as plain
from visar import PackedPages, Selection, select_pages
from visar.algorithm import patch_weights
from visar.errors import EmbeddingError, VisarError
from visar.late_interaction import activation, as_unit_vectors, query_patch_cosine
from visar.selection import EXPLANATIONS
from visar.weights import scaled_activation

COUNTS = (5, 17, 29, 3, 23, 2, 31, 19, 7, 11, 13)


def random_case(seed: int, pages: int, width: int = 13, tokens: int = 5):
    """Pages around a centre each, and a question near the first one."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(pages, width, generator=generator)
    document = [centres[p] * 0.8 + torch.randn(COUNTS[p], width, generator=generator) for p in range(pages)]
    return torch.randn(tokens, width, generator=generator) + 0.7 * centres[0], document


def assert_sound(selection: Selection, pages: int) -> None:
    assert sorted(selection.order) == list(range(pages))
    assert 1 <= selection.k <= pages
    assert selection.pages == selection.order[: selection.k]
    assert selection.reason in EXPLANATIONS
    for tensor in (selection.scores, selection.late_interaction, selection.similarity, selection.cost):
        assert torch.isfinite(tensor).all()


@given(
    seed=st.integers(0, 10_000),
    pages=st.sampled_from([3, 5, 7, 11]),
    top_patches=st.sampled_from([1, 3, 50]),
    k_range=st.sampled_from(["active", "authors"]),
)
@settings(max_examples=60)
def test_whole_method_equals_slow_loops_in_double_precision(seed, pages, top_patches, k_range):
    query, document = random_case(seed, pages)
    selection = select_pages(query, document, top_patches=top_patches, k_range=k_range)
    expected = plain.select(query.numpy(), [page.numpy() for page in document], top_patches, k_range=k_range)
    assert_sound(selection, pages)
    np.testing.assert_allclose(selection.similarity, expected["similarity"], atol=2e-4)
    assert selection.order == expected["order"]
    assert selection.k == expected["k"]
    assert len(selection.cost) == len(expected["cost"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_takes_numpy_and_every_float_type(dtype):
    query, document = random_case(1, 7)
    exact = select_pages(query, document)
    rounded = select_pages(query.to(dtype), [page.to(dtype) for page in document])
    assert rounded.order[0] == exact.order[0]
    again = select_pages(query.numpy(), [page.numpy() for page in document])
    assert (again.order, again.k) == (exact.order, exact.k)


@given(seed=st.integers(0, 10_000), order=st.permutations(range(7)))
@settings(max_examples=30)
def test_order_of_the_pages_does_not_matter(seed, order):
    query, document = random_case(seed, 7)
    first = select_pages(query, document)
    moved = select_pages(query, [document[page] for page in order])
    assert [order[page] for page in moved.pages] == first.pages
    assert torch.allclose(moved.scores, first.scores[list(order)], atol=1e-5)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_order_of_patches_and_block_size_do_not_matter(seed):
    query, document = random_case(seed, 7)
    first = select_pages(query, document)
    generator = torch.Generator().manual_seed(seed)
    shuffled = [page[torch.randperm(len(page), generator=generator)] for page in document]
    for other in (select_pages(query, shuffled), select_pages(query, document, block_size=3)):
        assert other.order == first.order
        assert other.k == first.k
        assert torch.allclose(other.similarity, first.similarity, atol=1e-5)


def test_packed_pages_give_the_same_selection():
    query, document = random_case(2, 7)
    first, packed = select_pages(query, document), select_pages(query, PackedPages.pack(document))
    assert (packed.order, packed.k, packed.reason) == (first.order, first.k, first.reason)


def test_scores_are_by_page_number_and_order_follows_them():
    query, document = random_case(3, 11)
    selection = select_pages(query, document)
    assert torch.equal(selection.scores, selection.similarity.diagonal())
    assert selection.order == sorted(range(11), key=lambda page: -selection.scores[page])
    assert set(selection.seconds) == {"late_interaction", "weights", "similarity", "adaptive_k"}


def test_sparsity_is_the_share_of_pages_with_next_to_no_self_similarity():
    query, document = random_case(4, 11)
    selection = select_pages(query, document)
    assert selection.sparsity == pytest.approx(sum(score <= 0.01 for score in selection.scores.tolist()) / 11)


# Edge cases: each has a defined outcome, a reason that names it, and no NaN.


def test_one_page():
    query, document = random_case(0, 1)
    selection = select_pages(query, document)
    assert_sound(selection, 1)
    assert (selection.k, selection.reason) == (1, "one_page")
    assert selection.warnings


def test_two_pages_are_ranked_by_late_interaction_and_both_read():
    query, document = random_case(0, 2)
    selection = select_pages(query, document)
    assert_sound(selection, 2)
    assert selection.reason == "two_pages"
    assert selection.k == 2
    assert any("two pages" in warning for warning in selection.warnings)
    assert selection.order == selection.late_interaction.argsort(descending=True).tolist()
    assert select_pages(query, document, k_range="authors").k == 1
    assert select_pages(query, document, search_limit=1).k == 1


@pytest.mark.parametrize("seed", range(20))
def test_three_pages_are_all_searched_and_the_best_one_wins_while_it_shares_anything(seed):
    query, document = random_case(seed, 3)
    selection = select_pages(query, document)
    assert_sound(selection, 3)
    active = int((selection.scores > 0).sum())
    assert len(selection.cost) == (3 if active > 1 else 1)
    # Leakage lowers J(1) only: from the second page on, no active page is left unread.
    assert selection.k == 1
    authors = select_pages(query, document, k_range="authors")
    assert authors.k == 1
    assert authors.reason == ("one_active_page" if active == 1 else "no_choice")


def test_equal_pages_fall_back_with_a_warning():
    query, document = random_case(0, 1)
    selection = select_pages(query, document * 22)
    assert_sound(selection, 22)
    assert (selection.k, selection.reason) == (1, "pages_alike")
    assert selection.order == list(range(22))
    assert any("alike" in warning for warning in selection.warnings)


def test_question_that_matches_nothing_falls_back_with_a_warning():
    document = [torch.tensor([[1.0, 0.0], [1.0, 0.2]]), torch.tensor([[1.0, -0.1]]), torch.tensor([[1.0, 0.1]])]
    selection = select_pages(torch.tensor([[-1.0, 0.0]]), document)
    assert_sound(selection, 3)
    assert selection.reason == "no_informative_token"
    assert any("match no page" in warning for warning in selection.warnings)


def test_single_token_counts_although_its_normalised_weight_would_be_zero():
    query, document = random_case(5, 7, tokens=1)
    if bool((torch.nn.functional.normalize(query) @ torch.cat(document).T).max() > 0):
        selection = select_pages(query, document)
        assert_sound(selection, 7)
        assert selection.reason not in ("no_active_page", "no_informative_token")


def test_ties_in_self_similarity_are_in_page_order():
    query, document = random_case(6, 5)
    doubled = [*document, *document]
    selection = select_pages(query, doubled)
    assert_sound(selection, 10)
    positions = {page: rank for rank, page in enumerate(selection.order)}
    assert all(positions[page] < positions[page + 5] for page in range(5))


def test_nan_names_the_page_and_can_be_left_out():
    query, document = random_case(7, 7)
    document[2][0, 0] = float("nan")
    with pytest.raises(EmbeddingError, match="page 2 "):
        select_pages(query, document)
    selection = select_pages(query, document, leave_out_broken=True)
    assert sorted(selection.order) == [0, 1, 3, 4, 5, 6]
    assert selection.scores[2] == float("-inf")
    assert not selection.similarity[2].any()
    assert not selection.similarity[:, 2].any()
    assert any("[2]" in warning for warning in selection.warnings)
    rest = select_pages(query, [page for number, page in enumerate(document) if number != 2])
    assert selection.k == rest.k
    with pytest.raises(EmbeddingError, match="query"):
        select_pages(torch.full((1, 13), float("inf")), document[:1])


@pytest.mark.parametrize("limit", [1, 2, 3, 10])
def test_search_limit_caps_k(limit):
    for seed in range(12):
        query, document = random_case(seed, 11)
        free = select_pages(query, document)
        capped = select_pages(query, document, search_limit=limit)
        assert capped.k <= limit
        assert capped.order == free.order
        assert len(capped.cost) == min(len(free.cost), limit + 3)
        if free.k <= limit and int(free.cost.argmin()) < limit:
            assert capped.k in (free.k, limit)


def test_generous_approximation_equals_the_exact_method():
    query, document = random_case(8, 11)
    exact = select_pages(query, document)
    generous = select_pages(query, document, patches_per_page=450, max_pages=75, search_limit=50)
    assert (generous.order, generous.k) == (exact.order, exact.k)
    assert torch.equal(generous.similarity, exact.similarity)


@pytest.mark.parametrize(
    "setting",
    [
        {"top_patches": 0},
        {"top_patches": 1.5},
        {"max_pages": -1},
        {"search_limit": True},
        {"block_size": 0},
        {"leakage_weight": 0},
        {"leakage_weight": float("nan")},
        {"leakage_weight": float("inf")},
        {"leakage_weight": "1e5"},
        {"k_range": "everything"},
    ],
)
def test_settings_out_of_range_are_named(setting):
    query, document = random_case(0, 3)
    with pytest.raises(VisarError, match=next(iter(setting))):
        select_pages(query, document, **setting)


def test_patch_weights_equal_the_witness():
    query, document = random_case(9, 7)
    expected = plain.select(query.numpy(), [page.numpy() for page in document])
    packed, unit = PackedPages.pack(document), as_unit_vectors(query, "query")
    cosine = query_patch_cosine(unit, packed)
    weights = patch_weights(cosine, packed.starts, scaled_activation(activation(cosine, packed.starts)))
    np.testing.assert_allclose(weights, np.concatenate(expected["weights"]), atol=1e-5)


def test_pages_that_matter_alike_all_count_in_spite_of_rounding():
    """Min-max without a tolerance turned page weights that differed by 1e-7 into weights of 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
    pages = [torch.stack([0.8 * turn[page] + 0.2 * turn.mean(0), -turn.mean(0)]) for page in range(6)]
    selection = select_pages(turn, pages)
    assert_sound(selection, 6)
    assert selection.scores.min() > 0.9
    nothing_stands_out = select_pages(turn, [page[:1] for page in pages])
    assert_sound(nothing_stands_out, 6)
    assert nothing_stands_out.reason == "no_active_page"


@pytest.mark.parametrize("copies", [2, 7, 33])
def test_a_repeated_token_says_no_more_than_it_does_once(copies):
    for seed in range(5):
        query, document = random_case(seed, 7, tokens=1)
        once, often = select_pages(query, document), select_pages(query.repeat(copies, 1), document)
        assert torch.allclose(once.similarity, often.similarity, atol=1e-4)


def test_equal_pages_are_in_page_order_whatever_the_rounding():
    for width in (5, 13, 100):
        page = torch.randn(3, width, generator=torch.Generator().manual_seed(width))
        selection = select_pages(page[:1] + 0.1, [page.clone() for _ in range(57)])
        assert selection.order == list(range(57))


def test_pages_that_match_nothing_alike_are_in_page_order():
    """A scan without OCR: every page is the same vector, at a cosine below zero."""
    page = torch.nn.functional.normalize(torch.randn(1, 384, generator=torch.Generator().manual_seed(2)))
    selection = select_pages(-page + 0.1 * page.roll(1), [page.clone() for _ in range(23)])
    assert selection.reason == "no_informative_token"
    assert selection.order == list(range(23))
