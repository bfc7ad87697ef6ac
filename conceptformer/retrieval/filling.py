"""Vectors in shards, made by several processes that share the work, each going on where a kill left it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.errors import DataError
from conceptformer.records import OnProgress
from conceptformer.retrieval.shards import Shard, VectorFolder

OnStage = Callable[[str], OnProgress]
"""Takes what the next stage goes through, such as "pages", and gives what is to be told of it."""

_LOOK_AGAIN_AFTER_SECONDS = 0.2


@dataclass(frozen=True)
class Place:
    """Which of several processes this one is: number ``rank`` of ``world``, counted from 0."""

    rank: int = 0
    world: int = 1


@dataclass(frozen=True)
class Encoding:
    """How vectors are made and kept.

    Attributes:
        cache: Folder of all vectors. Processes that work together share it.
        shard_items: Pages or queries in one file: the most that a kill costs each process.
        batch_pages, batch_queries: Given to the retriever at once. Images of two batches are in memory.
        skip_bad_pages: Leave pages that cannot be read out and list them, instead of stopping at the first.
        patience_seconds: When no shard has come from other processes for so long, the first one makes them itself.
        place: Each process encodes every ``world``-th shard, the first beginning with shard 0.

    Raises:
        DataError: A number is below 1.
    """

    cache: Path
    shard_items: int
    batch_pages: int
    batch_queries: int
    skip_bad_pages: bool
    patience_seconds: float
    place: Place = Place()

    def __post_init__(self) -> None:
        for name in ("shard_items", "batch_pages", "batch_queries"):
            if getattr(self, name) < 1:
                raise DataError(f"{name}: expected a whole number of at least 1, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Encoded:
    """What was encoded.

    Attributes:
        vectors: On disk. Complete when the process of rank 0 returns, and only then.
        left_out: Why a page has no vector, by page id.
    """

    vectors: VectorFolder
    left_out: Mapping[str, str]


OnItems = Callable[[int], None]
"""Takes how many items of a shard are done."""


def fill(
    vectors: VectorFolder, make: Callable[[range, OnItems], Shard], encoding: Encoding, on_progress: OnProgress
) -> dict[str, str]:
    """Make this process's share of the missing shards; with rank 0 wait for those of the others.

    Args:
        make: Gives the shard of the items at these places; tells on the way how many of them are done.
        on_progress: Called with the number of items that are done, and of all. Of the shards that this process makes
            each part counts: one shard may take an hour.

    Returns:
        What was left out of the shards that this process has seen, and why.
    """
    left_out: dict[str, str] = {}
    done = told = 0

    def tell(count: int) -> None:
        nonlocal told
        if count != told:
            told = count
            on_progress(count, len(vectors.stamps))

    def take(shard: int, content: Shard) -> None:
        nonlocal done
        if not encoding.skip_bad_pages:
            refuse_left_out(content.left_out)
        left_out.update(content.left_out)
        done += len(vectors.places(shard))
        tell(done)

    def complete(shard: int) -> None:
        content = vectors.read(shard)
        if content is None:
            content = make(vectors.places(shard), lambda items: tell(done + items))
            vectors.write(shard, content)
        take(shard, content)

    vectors.remove_leftovers()
    rank, world = encoding.place.rank, encoding.place.world
    for shard in range(rank, vectors.count, world):
        complete(shard)
    if rank == 0:
        theirs = [shard for shard in range(vectors.count) if shard % world != 0]
        for shard in _wait(vectors, theirs, take, encoding.patience_seconds):
            complete(shard)
    return left_out


def _wait(
    vectors: VectorFolder, shards: Sequence[int], take: Callable[[int, Shard], None], patience_seconds: float
) -> list[int]:
    """Take shards as other processes finish them; return those that nobody seems to be making."""
    missing, last_news = list(shards), time.monotonic()
    while missing:
        for shard in list(missing):
            content = vectors.read(shard)
            if content is not None:
                take(shard, content)
                missing.remove(shard)
                last_news = time.monotonic()
        if missing and time.monotonic() - last_news > patience_seconds:
            warnings.warn(
                f"{vectors.path}: nothing came from the other processes for {patience_seconds:g} s; "
                f"the first one makes their {len(missing)} missing shards itself",
                stacklevel=2,
            )
            break
        if missing:
            time.sleep(_LOOK_AGAIN_AFTER_SECONDS)
    return missing


def refuse_left_out(broken: Mapping[str, str]) -> None:
    """Stop at the first page that cannot be used, if there is one."""
    for page_id, reason in broken.items():
        raise DataError(f"page '{page_id}': {reason}; correct it, or skip bad pages, which lists them")
