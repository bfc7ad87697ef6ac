from __future__ import annotations

import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conceptformer.errors import ConceptFormerError
from conceptformer.losses import false_negatives, info_nce, page_key
from tests.conceptformer import plain_losses as plain


def test_page_keys_are_the_first_63_bits_of_sha_256():
    digest = hashlib.sha256("Seite 7, größer".encode()).hexdigest()
    bits = bin(int(digest, 16))[2:].zfill(256)
    assert page_key("Seite 7, größer") == int(bits[:63], 2)
    assert torch.tensor([page_key(str(number)) for number in range(1000)]).unique().numel() == 1000


def test_false_negatives_worked_by_hand():
    # Candidates: pages 5, 8, 5, 9. Row 0 wants the first 5: its copy is none. Row 1 wants 8, and 9 and 5 answer too.
    keys = torch.tensor([5, 8, 5, 9])
    found = false_negatives(keys, torch.tensor([0, 1]), torch.tensor([[-1, -1], [9, 5]]))
    assert found.tolist() == [[False, False, True, False], [True, False, True, True]]


def test_false_negatives_without_other_positives_are_the_copies():
    keys = torch.tensor([5, 8, 5, 9])
    expected = [[True, False, False, False], [False, False, False, False]]
    assert false_negatives(keys, torch.tensor([2, 3])).tolist() == expected
    assert false_negatives(keys, torch.tensor([2, 3]), torch.zeros(2, 0, dtype=torch.int64)).tolist() == expected


def test_a_rows_own_positive_stays_even_if_listed_again():
    keys = torch.tensor([5, 8])
    assert not false_negatives(keys, torch.tensor([0, 1]), torch.tensor([[5], [8]])).any()


@settings(max_examples=30)
@given(st.data())
def test_false_negatives_equal_slow_loops_and_are_accepted_by_info_nce(data):
    keys = data.draw(st.lists(st.integers(0, 4), min_size=4, max_size=4))
    positives = data.draw(st.lists(st.integers(0, 3), min_size=3, max_size=3))
    others = data.draw(st.lists(st.lists(st.integers(-1, 4), min_size=2, max_size=2), min_size=3, max_size=3))
    excluded = false_negatives(torch.tensor(keys), torch.tensor(positives), torch.tensor(others))
    assert excluded.tolist() == plain.false_negatives(keys, positives, others)
    query, page = torch.eye(4)[:3], torch.eye(4)
    assert info_nce(query, page, temperature=0.1, positive=torch.tensor(positives), excluded=excluded).isfinite()


@pytest.mark.parametrize(
    "keys, positive, others, message",
    [
        ([5, -1], [0], [[1]], "a page key is negative"),
        ([5.0, 8.0], [0], [[1]], r"expected \[N\] int64"),
        ([5, 8], [2], [[1]], "outside the 2 candidates"),
        ([5, 8], [0], [1], r"expected \[1, K\] int64"),
    ],
)
def test_wrong_keys_are_refused(keys, positive, others, message):
    with pytest.raises(ConceptFormerError, match=message):
        false_negatives(torch.tensor(keys), torch.tensor(positive), torch.tensor(others))
