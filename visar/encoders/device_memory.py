"""A GPU that runs out of memory, said in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from visar.errors import EmbeddingError


@contextmanager
def one_line_when_exhausted(device: torch.device | str, advice: str) -> Iterator[None]:
    """Turn torch's error on exhausted memory into one that says what to do.

    Raises:
        EmbeddingError: The block ran out of the device's memory.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        # Not chained: the traceback would keep the tensors alive that fill the memory.
        raise EmbeddingError(f"{device} ran out of memory; {advice}") from None


WHILE_ENCODING = "lower encoder.batch_size or set encoder.device=cpu"
WHILE_LOADING = "free some of it or set encoder.device=cpu"
