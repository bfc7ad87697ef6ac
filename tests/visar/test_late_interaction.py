from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.visar import plain_method as plain
from visar.errors import EmbeddingError
from visar.late_interaction import (
    PackedPages,
    activation,
    as_unit_vectors,
    late_interaction_scores,
    query_patch_cosine,
    rank_pages,
)


def test_scores_of_a_case_worked_by_hand():
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    pages = PackedPages.pack([torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[-1.0, 0.0]])])
    # Page 0: best of (1, 0.6) and of (0, 0.8); page 1: -1 and 0.
    assert torch.allclose(late_interaction_scores(query, pages), torch.tensor([1.8, -1.0]))


@given(st.integers(0, 10_000))
def test_activation_equals_slow_loops_on_ragged_pages(seed):
    generator = np.random.default_rng(seed)
    query = generator.normal(size=(3, 7))
    pages = [generator.normal(size=(count, 7)) for count in (1, 5, 2, 11)]
    packed = PackedPages.pack(pages)
    cosine = query_patch_cosine(as_unit_vectors(query, "query"), packed)
    expected = plain.activation(plain.unit(query), [plain.unit(page) for page in pages])
    np.testing.assert_allclose(activation(cosine, packed.starts).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_half_and_double_precision_are_taken_and_scored_in_float32(dtype):
    generator = torch.Generator().manual_seed(0)
    query, page = torch.randn(3, 8, generator=generator), torch.randn(5, 8, generator=generator)
    exact = late_interaction_scores(as_unit_vectors(query, "query"), PackedPages.pack([page]))
    rounded = late_interaction_scores(as_unit_vectors(query.to(dtype), "query"), PackedPages.pack([page.to(dtype)]))
    assert rounded.dtype == torch.float32
    assert torch.allclose(exact, rounded, atol=3e-2)


def test_vectors_are_brought_to_length_one_and_zero_rows_stay_zero():
    unit = as_unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]]), "page")
    assert torch.allclose(unit, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (torch.zeros(0, 4), "at least one row"),
        (torch.zeros(4), "matrix"),
        (torch.zeros(2, 4, dtype=torch.long), "floating-point"),
        (torch.tensor([[1.0, float("nan")]]), "NaN or Inf"),
        ([[1.0, 2.0]], "torch tensor or numpy array"),
    ],
)
def test_malformed_embeddings_are_named(vectors, message):
    with pytest.raises(EmbeddingError, match=message) as caught:
        PackedPages.pack([torch.ones(1, 4), vectors])
    assert str(caught.value).startswith("page 1")
    assert "\n" not in str(caught.value)


def test_pages_of_unequal_width_and_no_pages_are_errors():
    with pytest.raises(EmbeddingError, match="one embedding width"):
        PackedPages.pack([torch.ones(1, 4), torch.ones(1, 5)])
    with pytest.raises(EmbeddingError, match="at least one page"):
        PackedPages.pack([])


def test_broken_pages_can_be_left_out_and_keep_their_number():
    broken = torch.tensor([[float("inf"), 0.0]])
    packed = PackedPages.pack([torch.ones(1, 2), broken, torch.ones(2, 2)], leave_out_broken=True)
    assert packed.numbers == (0, 2)
    assert packed.document_length == 3
    assert packed.by_page_number(torch.tensor([1.0, 2.0])).tolist() == [1.0, float("-inf"), 2.0]
    assert "[1]" in packed.left_out_warnings[0]
    with pytest.raises(EmbeddingError, match="every page"):
        PackedPages.pack([broken], leave_out_broken=True)


def test_question_of_another_width_is_an_error():
    with pytest.raises(EmbeddingError, match="width 3 .* width 2"):
        late_interaction_scores(torch.ones(1, 3), PackedPages.pack([torch.ones(1, 2)]))


def test_ranking_puts_ties_in_page_order():
    assert rank_pages(torch.tensor([0.5, 2.0, 0.5, 2.0])) == [1, 3, 0, 2]
