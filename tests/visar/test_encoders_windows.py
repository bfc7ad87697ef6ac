"""Windows over long texts: nothing is lost, nothing is taken twice, and each token stands where it sees most."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from visar.encoders import checkpoints
from visar.encoders.marked_text import MarkedText, mark, pad
from visar.encoders.windows import most_central_window, window_starts
from visar.errors import EmbeddingError


def room(token: int, start: int, size: int, length: int) -> float:
    """Distance to the nearest cut, written as the definition says it."""
    end = min(start + size, length)
    if not start <= token < end:
        return -1
    before = float("inf") if start == 0 else token - start
    after = float("inf") if end == length else end - 1 - token
    return min(before, after)


def test_windows_of_ten_tokens_by_hand():
    # 10 tokens, windows of 6 that share at least 2: [0, 6) and, moved back to the end, [4, 10).
    starts = window_starts(10, 6, 2)
    assert starts == [0, 4]
    # Token 4 is 1 away from the first window's cut and 0 from the second's; token 5 the other way round.
    assert most_central_window(10, 6, starts).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]


def test_a_text_that_fits_has_one_window_and_an_empty_one_too():
    assert window_starts(6, 6, 2) == [0]
    assert window_starts(0, 6, 2) == [0]
    assert most_central_window(0, 6, [0]).tolist() == []


def test_ties_go_to_the_earlier_window():
    # 9 tokens, windows [0, 6) and [3, 9): token 4 is 1 away from either cut.
    assert most_central_window(9, 6, [0, 3]).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]


@given(st.integers(1, 300), st.integers(1, 60), st.data())
def test_windows_cover_the_text_and_share_what_they_should(length, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    starts = window_starts(length, size, overlap)
    assert starts[0] == 0
    assert starts[-1] + size >= length
    assert all(start + min(size, length) <= length for start in starts)
    steps = [after - before for before, after in zip(starts, starts[1:], strict=False)]
    assert all(1 <= step <= size - overlap for step in steps)


@given(st.integers(1, 120), st.integers(1, 40), st.data())
def test_each_token_is_taken_from_the_first_window_with_most_room(length, size, data):
    starts = window_starts(length, size, data.draw(st.integers(0, size - 1)))
    source = most_central_window(length, size, starts).tolist()
    for token in range(length):
        rooms = [room(token, start, size, length) for start in starts]
        assert source[token] == rooms.index(max(rooms))


@given(st.integers(0, 80), st.integers(0, 3), st.integers(0, 2), st.integers(6, 30), st.data())
def test_windows_of_a_marked_text_take_every_token_and_every_marker_once(length, before, after, limit, data):
    text = MarkedText([1] * before, list(range(100, 100 + length)), [2] * after, [0] * length)
    overlap = data.draw(st.integers(0, limit - before - after - 1))
    places = []
    for window in text.windows(7, limit, overlap):
        assert window.text == 7
        assert len(window.ids) == len(window.places) == len(window.taken) <= limit
        for token, place in zip(window.ids, window.places.tolist(), strict=True):
            assert token == (1 if place < 0 else 2 if place >= length else 100 + place)
        places += window.places[window.taken].tolist()
    assert sorted(places) == list(range(-before, length + after))


def test_an_overlap_as_large_as_the_window_is_refused():
    with pytest.raises(EmbeddingError, match="overlap is 6, but a window of this encoder holds 6 tokens"):
        list(MarkedText([1], [5] * 20, [2], [0] * 20).windows(0, 8, 6))


def test_padding_fills_up_the_shorter_windows_and_masks_them():
    short, long = MarkedText([1], [5], [2], [0]), MarkedText([1], [5, 6, 7], [2], [0, 0, 0])
    windows = [*short.windows(0, 9, 1), *long.windows(1, 9, 1)]
    ids, mask = pad(windows, 9)
    assert ids.tolist() == [[1, 5, 2, 9, 9], [1, 5, 6, 7, 2]]
    assert mask.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]


@pytest.fixture(scope="module")
def minilm_tokenizer():
    return AutoTokenizer.from_pretrained(checkpoints.packaged_minilm())


def test_tokens_know_their_words(minilm_tokenizer):
    words = ["Tokenization", "of", "", "Übergröße", "\u200b", "42%"]
    marked = mark(minilm_tokenizer, "", words)
    assert minilm_tokenizer.convert_ids_to_tokens(marked.before) == ["[CLS]"]
    assert minilm_tokenizer.convert_ids_to_tokens(marked.after) == ["[SEP]"]
    pieces: dict[int, list[str]] = {}
    for token, word in zip(minilm_tokenizer.convert_ids_to_tokens(marked.ids), marked.words, strict=True):
        pieces.setdefault(word, []).append(token.removeprefix("##"))
    # An empty word and one of a zero-width space leave no token; accents and case are the tokenizer's to strip.
    assert {word: "".join(parts) for word, parts in pieces.items()} == {
        0: "tokenization",
        1: "of",
        3: "ubergroße",
        5: "42%",
    }


def test_a_prompt_counts_as_marker_and_a_blank_text_is_all_markers(minilm_tokenizer):
    marked = mark(minilm_tokenizer, "passage: ", ["growth"])
    assert minilm_tokenizer.convert_ids_to_tokens(marked.before) == ["[CLS]", "passage", ":"]
    assert (marked.words, len(marked.after)) == ([0], 1)
    assert mark(minilm_tokenizer, "", [" ", ""]).ids == []


def test_marking_is_not_cut_at_the_128_tokens_of_the_tokenizer_file():
    # A fresh tokenizer: the file's own setting holds until a call overrules it.
    tokenizer = AutoTokenizer.from_pretrained(checkpoints.packaged_minilm())
    assert tokenizer.backend_tokenizer.truncation["max_length"] == 128, "the trap this test is about is gone"
    assert len(mark(tokenizer, "", ["market"] * 700).ids) == 700


def test_word_pieces_agree_with_word_by_word_tokenisation(minilm_tokenizer):
    text = "The (2023) net-zero plan's cost: $1,234.5m — 45°C; naïve_co-op don't U.S.A."
    words = text.split()
    marked = mark(minilm_tokenizer, "", words)
    other = minilm_tokenizer(words, is_split_into_words=True, add_special_tokens=False, truncation=False, padding=False)
    assert marked.ids == other["input_ids"]
    assert marked.words == other.word_ids()
    assert torch.tensor(marked.words).diff().ge(0).all()
