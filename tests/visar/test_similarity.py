from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.visar import plain_method as plain
from visar.late_interaction import PackedPages
from visar.similarity import active_pages, active_similarity, page_similarity


def random_document(seed: int, counts: tuple[int, ...], width: int = 11, active: float = 0.5):
    """Clustered unit vectors, and weights of which a share is zero and the rest spreads over decades."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(3, width))
    pages = [plain.unit(centres[generator.integers(3, size=n)] + generator.normal(size=(n, width))) for n in counts]
    weights = [np.where(generator.random(n) < active, generator.random(n) ** 3, 0) for n in counts]
    weights[0][0] = 1.0
    return pages, weights


def fast_similarity(pages, weights, top_patches, block_size=1024):
    packed = PackedPages.pack(pages)
    flat = torch.from_numpy(np.concatenate(weights)).float()
    active = active_pages(packed, flat, top_patches=top_patches)
    result = np.zeros((len(pages), len(pages)))
    result[np.ix_(active.pages, active.pages)] = active_similarity(
        active, top_patches=top_patches, block_size=block_size
    )
    return result


def test_a_case_worked_by_hand():
    pages = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.6, 0.8]])]
    weights = [np.array([1.0, 0.5]), np.array([0.5])]
    similarity = fast_similarity(pages, weights, top_patches=1)
    # 0 -> 1: patches reach 1 * 0.6 * 0.5 = 0.3 and 0.5 * 0.8 * 0.5 = 0.2, T = 1 keeps 0.3; 1 -> 0: the best match of
    # 0.5 * (0.6 * 1, 0.8 * 0.5) is 0.3 too; 0 -> 0: 1; 1 -> 1: 0.25.
    np.testing.assert_allclose(similarity, np.sqrt([[1.0, 0.3], [0.3, 0.25]]), atol=1e-6)
    # T = 2: page 0 averages both of its patches, page 1 has only one.
    similarity = fast_similarity(pages, weights, top_patches=2)
    np.testing.assert_allclose(similarity, np.sqrt([[0.625, 0.25], [0.3, 0.25]]), atol=1e-6)


def test_a_light_patch_of_the_target_is_kept_where_a_source_needs_it():
    """0 -> 1 needs no more than two patches of page 0, but the best match of its first lies in the third of page 1."""
    pages = [np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])]
    weights = [np.array([1.0, 0.9]), np.array([1.0, 1.0, 0.3])]
    similarity = fast_similarity(pages, weights, top_patches=2)
    np.testing.assert_allclose(similarity**2, [[0.905, 0.6], [0.9, 1.0]], atol=1e-6)


def test_weights_too_small_for_float32_products_are_no_error():
    pages, weights = [np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])], [np.array([1e-25]), np.array([1.0])]
    np.testing.assert_allclose(fast_similarity(pages, weights, 1, block_size=1), [[0, 0], [0, 1]], atol=1e-6)


@given(
    seed=st.integers(0, 10_000),
    top_patches=st.sampled_from([1, 3, 7, 50]),
    block_size=st.sampled_from([1, 5, 16, 37, 1024]),
    counts=st.sampled_from([(1, 1, 1), (2, 3, 5, 7, 11, 13), (29, 1, 17), (23, 31, 19, 5)]),
    active=st.sampled_from([0.1, 0.5, 1.0]),
)
@settings(max_examples=80)
def test_pruned_tiles_equal_slow_loops(seed, top_patches, block_size, counts, active):
    pages, weights = random_document(seed, counts, active=active)
    expected = plain.similarity(pages, weights, top_patches)
    np.testing.assert_allclose(fast_similarity(pages, weights, top_patches, block_size), expected, atol=1e-5)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_order_of_patches_padding_and_order_of_pages_do_not_matter(seed):
    pages, weights = random_document(seed, (13, 17, 7))
    generator = np.random.default_rng(seed)
    expected = fast_similarity(pages, weights, 5)
    shuffles = [generator.permutation(len(page)) for page in pages]
    shuffled = [page[order] for page, order in zip(pages, shuffles, strict=True)]
    moved = [weight[order] for weight, order in zip(weights, shuffles, strict=True)]
    np.testing.assert_allclose(fast_similarity(shuffled, moved, 5), expected, atol=1e-6)
    padded = [np.concatenate([page, np.zeros((4, page.shape[1]))]) for page in pages]
    with_zeros = [np.concatenate([weight, np.zeros(4)]) for weight in weights]
    np.testing.assert_allclose(fast_similarity(padded, with_zeros, 5), expected, atol=1e-6)
    order = [2, 0, 1]
    turned = fast_similarity([pages[p] for p in order], [weights[p] for p in order], 5)
    np.testing.assert_allclose(turned, expected[np.ix_(order, order)], atol=1e-6)


def test_mean_over_top_patches_counts_zeros_and_short_pages():
    pages, weights = [np.array([[1.0, 0.0]] * 4), np.array([[1.0, 0.0]])], [np.array([1.0, 0, 0, 0]), np.array([1.0])]
    similarity = fast_similarity(pages, weights, top_patches=3)
    # Page 0 averages one match of 1 and two of 0; page 1 has a single patch to average.
    np.testing.assert_allclose(similarity, [[math.sqrt(1 / 3), math.sqrt(1 / 3)], [1, 1]], atol=1e-6)


def test_best_matches_below_zero_count_as_zero():
    pages, weights = [np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]])], [np.array([1.0]), np.array([1.0])]
    np.testing.assert_allclose(fast_similarity(pages, weights, 50), np.eye(2), atol=1e-6)


def test_inactive_pages_have_zero_rows_and_columns_and_the_largest_entry_is_one():
    pages, weights = random_document(3, (5, 7, 11))
    weights[1][:] = 0
    packed = PackedPages.pack(pages)
    active = active_pages(packed, torch.from_numpy(np.concatenate(weights)).float(), top_patches=5)
    similarity = page_similarity(active, 3, top_patches=5)
    assert active.pages == (0, 2)
    assert not similarity[1].any()
    assert not similarity[:, 1].any()
    assert similarity.max().item() == pytest.approx(1, abs=1e-5)
    assert similarity.min().item() == 0


def test_approximation_keeps_the_heaviest_patches_and_pages():
    pages, weights = random_document(5, (13, 17, 19, 23))
    packed, flat = PackedPages.pack(pages), torch.from_numpy(np.concatenate(weights)).float()
    active = active_pages(packed, flat, top_patches=5, patches_per_page=3, max_pages=2)
    peaks = [weight.max() for weight in weights]
    assert active.pages == tuple(sorted(np.argsort(peaks)[-2:].tolist()))
    for page, kept in zip(active.pages, active.weights, strict=True):
        np.testing.assert_allclose(kept, np.sort(weights[page])[::-1][:3], atol=1e-7)


def test_generous_limits_of_the_approximation_change_nothing():
    pages, weights = random_document(7, (13, 17, 19))
    packed, flat = PackedPages.pack(pages), torch.from_numpy(np.concatenate(weights)).float()
    exact = active_pages(packed, flat, top_patches=5)
    generous = active_pages(packed, flat, top_patches=5, patches_per_page=19, max_pages=3)
    assert torch.equal(active_similarity(exact, top_patches=5), active_similarity(generous, top_patches=5))
