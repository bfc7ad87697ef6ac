"""Page text for ColBERT-like encoders: wordpieces between marker tokens, cut into windows that the encoder can take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from visar.encoders.windows import most_central_window, window_starts
from visar.errors import EmbeddingError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class TextWindow:
    """One input of the encoder.

    Attributes:
        text: Which text of the batch it belongs to.
        ids: [L] token ids, markers included.
        places: [L] each token's place in the whole text: negative for markers before it, from n on for those after.
        taken: [L] whether the token's vector is taken from this window.
    """

    text: int
    ids: list[int]
    places: torch.Tensor
    taken: torch.Tensor


@dataclass(frozen=True)
class MarkedText:
    """A tokenised text and the markers that the encoder sees around it, such as [CLS] [D] and [SEP].

    Attributes:
        before: Marker ids in front.
        ids: [n] ids of the text itself.
        after: Marker ids behind.
        words: [n] index of the word that each token is part of.
    """

    before: list[int]
    ids: list[int]
    after: list[int]
    words: list[int]

    def windows(self, text: int, limit: int, overlap: int) -> Iterator[TextWindow]:
        """Windows of at most ``limit`` tokens. Each token of the text is taken once, markers from the first window.

        Raises:
            EmbeddingError: ``overlap`` leaves no room in a window.
        """
        size = limit - len(self.before) - len(self.after)
        if overlap >= size:
            raise EmbeddingError(f"overlap is {overlap}, but a window of this encoder holds {size} tokens: choose less")
        starts = window_starts(len(self.ids), size, overlap)
        source = most_central_window(len(self.ids), size, starts)
        front = torch.arange(-len(self.before), 0)
        back = torch.arange(len(self.after)) + len(self.ids)
        for index, start in enumerate(starts):
            inside = torch.arange(start, min(start + size, len(self.ids)))
            first = torch.full((len(self.before),), index == 0), torch.full((len(self.after),), index == 0)
            yield TextWindow(
                text,
                [*self.before, *self.ids[start : start + size], *self.after],
                torch.cat([front, inside, back]),
                torch.cat([first[0], source[inside] == index, first[1]]),
            )


def mark(tokenizer: PreTrainedTokenizerBase, prompt: str, words: Sequence[str]) -> MarkedText:
    """Tokenise ``prompt`` and the words, untruncated, and tell markers from text by the characters they stand for."""
    # MiniLM's own tokenizer.json truncates and pads to 128: saying no by name overrules it.
    encoded = tokenizer(
        prompt + " ".join(words), truncation=False, padding=False, return_offsets_mapping=True, verbose=False
    )
    ids, ends = list(encoded["input_ids"]), [end for _, end in encoded["offset_mapping"]]
    # Special tokens stand for no characters and end at 0; tokens of the prompt end within it.
    content = [position for position, end in enumerate(ends) if end > len(prompt)]
    if not content:
        return MarkedText(ids, [], [], [])
    first, last = content[0], content[-1] + 1
    word_starts = [0, *accumulate(len(word) + 1 for word in words)]
    # The last character decides: in some vocabularies a token begins with the blank before its word.
    of_word = [bisect_right(word_starts, end - 1 - len(prompt)) - 1 for end in ends[first:last]]
    return MarkedText(ids[:first], ids[first:last], ids[last:], of_word)


def pad(windows: Sequence[TextWindow], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and attention mask [B, L] of windows, the shorter ones filled up with the token ``padding``."""
    longest = max(len(window.ids) for window in windows)
    ids = torch.full((len(windows), longest), padding)
    mask = torch.zeros_like(ids)
    for row, window in enumerate(windows):
        ids[row, : len(window.ids)] = torch.tensor(window.ids)
        mask[row, : len(window.ids)] = 1
    return ids, mask
