"""Overlapping windows over a long sequence of tokens: where they begin, and which one each token is taken from."""

from __future__ import annotations

import torch


def window_starts(length: int, size: int, overlap: int) -> list[int]:
    """First token of each window, so that the windows cover ``length`` tokens.

    Windows advance by ``size - overlap``. The last one is moved back to end with the sequence, so that every window
    is full and the last tokens see as much as all others.

    Args:
        length: Number of tokens; none make one empty window.
        size: Tokens in a window, at least 1.
        overlap: Tokens that consecutive windows share at least, 0 <= overlap < size.
    """
    starts = list(range(0, max(length - size, 0), size - overlap))
    return [*starts, max(length - size, 0)]


def most_central_window(length: int, size: int, starts: list[int]) -> torch.Tensor:
    """For each token the window in which it stands most central, so that every token is taken exactly once.

    Central means: the distance to the nearest edge at which the window was cut out of the sequence is greatest. The
    ends of the sequence itself are no such edges, since nothing is missing beyond them. Ties go to the earlier window.

    Returns:
        [length] indices into ``starts``.
    """
    token = torch.arange(length)
    first = torch.tensor(starts).unsqueeze(1)
    last = (first + size).clamp(max=length) - 1
    before = torch.where(first == 0, length, token - first)
    after = torch.where(last == length - 1, length, last - token)
    inside = (token >= first) & (token <= last)
    room = torch.minimum(before, after).masked_fill(~inside, -1)
    # argmax takes any of several maxima; a max over room * windows - index takes the first for certain.
    return (room * len(starts) - torch.arange(len(starts)).unsqueeze(1)).argmax(dim=0)
