"""The order of training: shuffled, with rows of like length in one batch, so that little is computed on padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler


class LengthBuckets(Sampler[int]):
    """Shuffles all rows, sorts runs of ``bucket`` batches by length, and shuffles the batches.

    A batch that is not full comes last, where a trainer drops it; its rows are others in each epoch.

    The order depends on ``seed`` and the epoch alone, so that a resumed run sees what an uninterrupted one would have.

    Args:
        lengths: Tokens of each row.
        batch: Rows of one step over all processes.
        bucket: Batches that are sorted together; 1 leaves together what was drawn together.
    """

    def __init__(self, lengths: Sequence[int], *, batch: int, bucket: int, seed: int) -> None:
        self._lengths = torch.tensor(lengths)
        self._batch = batch
        self._bucket = bucket
        self._seed = seed
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._lengths)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch (called by the data loader)."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + self._epoch)
        order = torch.randperm(len(self), generator=generator)
        # Before the sorting: a trainer drops what fills no batch, and those would else be the longest rows each time.
        full = len(self) // self._batch
        order, rest = order.split((full * self._batch, len(self) - full * self._batch))
        runs = order.split(self._batch * self._bucket)
        # Stable, so that rows of equal length stay shuffled.
        by_length = torch.cat([run[self._lengths[run].sort(stable=True).indices] for run in runs])
        batches = by_length.view(full, self._batch)
        yield from batches[torch.randperm(full, generator=generator)].flatten().tolist()
        yield from rest.tolist()
