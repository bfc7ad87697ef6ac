"""The Oracle reads down to the last evidence page, and refuses evidence that it cannot find."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from visar.errors import DatasetError, EmbeddingError
from visar.late_interaction import PackedPages
from visar.selectors import (
    Oracle,
)
from visar.selectors.oracle import smallest_k_with_all

QUERY = torch.tensor([[1.0, 0.0]])


def pages_scoring(*scores):
    """One-patch pages whose late-interaction score with QUERY is the given cosine."""
    return PackedPages.pack([torch.tensor([[score, (1 - score**2) ** 0.5]]) for score in scores])


def test_oracle_reads_down_to_the_last_evidence_page():
    pages = pages_scoring(0.2, 0.9, 0.5, 0.7)  # ranking 1, 3, 2, 0
    assert [Oracle().select(QUERY, pages, evidence_pages=wanted).k for wanted in ((1,), (2,), (1, 3), (3, 0))] == [
        1,
        3,
        2,
        4,
    ]
    selection = Oracle().select(QUERY, pages)
    assert (selection.k, selection.reason) == (1, "no_evidence")


@given(st.permutations(range(9)), st.sets(st.integers(0, 8), min_size=1))
def test_oracle_holds_all_evidence_and_one_page_less_would_not(order, evidence):
    k = smallest_k_with_all(order, sorted(evidence)).k
    assert evidence <= set(order[:k])
    assert not evidence <= set(order[: k - 1])


@pytest.mark.parametrize("page", [-1, 3])
def test_oracle_refuses_evidence_outside_the_document(page):
    with pytest.raises(DatasetError, match=rf"\[{page}\].*3 pages"):
        Oracle().select(QUERY, pages_scoring(0.1, 0.2, 0.3), evidence_pages=(0, page))


def test_oracle_refuses_evidence_on_a_page_that_was_left_out():
    raw = [torch.ones(1, 2), torch.full((1, 2), float("inf")), torch.ones(1, 2)]
    with pytest.raises(EmbeddingError, match=r"\[1\].*left out"):
        Oracle().select(QUERY, PackedPages.pack(raw, leave_out_broken=True), evidence_pages=(1, 2))
