"""Vectors on disk in parts: found by everything that made them, each part there complete or not at all.

Layout below the cache folder::

    pages/<digest of the key>/key.json                what made these vectors, to be read by people
    pages/<digest of the key>/shard-00012.safetensors the vectors of 256 pages, say
    queries/<digest of the key>/...                   the same for queries
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from conceptformer.errors import DataError
from conceptformer.retrieval.search import PageBlock
from visar import tensor_files

# Part of every key: files of another version are made anew, never misread.
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Shard:
    """Vectors of consecutive items.

    Attributes:
        ids: Of the items that have a vector.
        vectors: [len(ids), D] float32; D may be 0 where there are no ids.
        left_out: Why an item has no vector, by id.
        passing: Those of ``left_out`` that may well have one another time, such as a page that a time limit ended.
    """

    ids: tuple[str, ...]
    vectors: np.ndarray
    left_out: Mapping[str, str] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class VectorFolder:
    """The vectors of some items, made by one retriever.

    Attributes:
        root: The cache's folder for this kind of items.
        retriever: Its fingerprint.
        stamps: By the id of each item, in the order of the shards: a text that changes with the item's content.
        shard_items: Items in a shard.
    """

    root: Path
    retriever: str
    stamps: Mapping[str, str]
    shard_items: int

    @cached_property
    def path(self) -> Path:
        """Where the shards lie. Delete it to have everything encoded again."""
        return self.root / self._digest

    @property
    def count(self) -> int:
        """Number of shards."""
        return -(-len(self.stamps) // self.shard_items)

    def places(self, shard: int) -> range:
        """Positions, among all items, of those in a shard."""
        return range(shard * self.shard_items, min(len(self.stamps), (shard + 1) * self.shard_items))

    def write(self, shard: int, content: Shard) -> None:
        """Keep a shard.

        Raises:
            StoreError: The disk is full or the folder cannot be written.
        """
        description = self.path / "key.json"
        if not description.exists():
            readable = json.dumps({**self._facts, "first item": next(iter(self.stamps))}, indent=2)
            tensor_files.write_atomically(description, f"{readable}\n".encode())
        # A text within the header, since JSON's escapes also hold ids that UTF-8 cannot.
        header = {"key": self._digest, "items": json.dumps([content.ids, dict(content.left_out)])}
        if content.passing:
            header["passing"] = json.dumps(sorted(content.passing))
        tensors = {"vectors": torch.from_numpy(content.vectors)} if content.ids else {}
        tensor_files.write_atomically(self._file(shard), tensor_files.to_bytes(header, tensors))

    def has(self, shard: int) -> bool:
        """Whether a shard is there, complete or damaged."""
        return self._file(shard).exists()

    def read(self, shard: int) -> Shard | None:
        """A shard, its vectors mapped into memory: do not write to them.

        Returns:
            None where it is not there yet, or is damaged or not of this key, with a warning.

        Raises:
            StoreError: The file system refuses to read the file.
        """
        loaded = tensor_files.load(self._file(shard))
        if loaded is None:
            return None
        header, tensors = loaded
        if header.get("key") != self._digest:
            tensor_files.warn(f"{self._file(shard)}: holds vectors of another key and is not used; made anew")
            return None
        ids, left_out = json.loads(str(header["items"]))
        vectors = tensors["vectors"].numpy() if ids else np.empty((0, 0), np.float32)
        return Shard(tuple(ids), vectors, left_out, frozenset(json.loads(str(header.get("passing", "[]")))))

    def forget_passing(self, shards: Iterable[int]) -> None:
        """Remove those of the shards that lack an item for a reason that may have passed.

        Raises:
            StoreError: The file system refuses to read or remove a file.
        """
        for shard in shards:
            content = self.read(shard) if self.has(shard) else None
            if content is not None and content.passing:
                tensor_files.remove([self._file(shard)])

    def blocks(self) -> Iterator[PageBlock]:
        """All vectors, shard after shard.

        Raises:
            DataError: A shard that was there is gone.
            StoreError: The file system refuses to read a file.
        """
        for shard in range(self.count):
            content = self.read(shard)
            if content is None:
                raise DataError(f"{self._file(shard)}: was removed or damaged while the run was on; run again")
            if content.ids:
                yield PageBlock(content.ids, content.vectors)

    def remove_leftovers(self) -> None:
        """Remove the half-written files of processes that were killed."""
        tensor_files.remove_leftovers(self.path)

    @cached_property
    def _facts(self) -> dict[str, object]:
        items = hashlib.sha256(json.dumps(list(self.stamps.items())).encode()).hexdigest()
        return {
            "retriever": self.retriever,
            "items": len(self.stamps),
            "items sha256": items,
            "items in a shard": self.shard_items,
            "format": FORMAT_VERSION,
        }

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self._facts, sort_keys=True).encode()).hexdigest()

    def _file(self, shard: int) -> Path:
        return self.path / f"shard-{shard:05d}.safetensors"
