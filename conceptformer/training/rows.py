"""What the data loader reads: examples opened in workers, bad ones left out and counted, batches cut into chunks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch.utils.data import Dataset

from conceptformer.backbones.protocol import InputProcessor
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.errors import DataError
from conceptformer.records import TrainingExample
from conceptformer.step.batch import TrainingBatch
from conceptformer.step.batches import ReadExample, make_batch, read_example


@dataclass(frozen=True)
class Unreadable:
    """A row whose image could not be opened."""

    pair: tuple[str, str]
    reason: str


class TrainingRows(Dataset[ReadExample | Unreadable]):
    """The examples of a training set, read when they are asked for.

    An image that cannot be read is no error here: those of the data loader's workers arrive with a traceback in their
    message.
    """

    def __init__(self, examples: Sequence[TrainingExample], inputs: InputProcessor, concepts: ConceptSource) -> None:
        self._examples = examples
        self._inputs = inputs
        self._concepts = concepts

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> ReadExample | Unreadable:
        example = self._examples[index]
        try:
            return read_example(example, self._inputs, self._concepts)
        except DataError as error:
            return Unreadable((example.query_id, example.page.page_id), str(error))


@dataclass(frozen=True)
class Chunks:
    """One process' rows of a step.

    Attributes:
        batches: Cut for gradient caching; a single one without it. None where too few rows could be read.
        unreadable: Rows that were left out.
        rows: Those and the others.
    """

    batches: tuple[TrainingBatch, ...]
    unreadable: tuple[Unreadable, ...]
    rows: int


@dataclass(frozen=True)
class MakeChunks:
    """Collates rows (the data loader's ``collate_fn``).

    Attributes:
        size: Rows of a chunk.
    """

    size: int

    def __call__(self, rows: Sequence[ReadExample | Unreadable]) -> dict[str, Chunks]:
        """The rows as ``{"chunks": Chunks}``; as many chunks as if all rows had been read.

        Processes exchange something in every pass of the model, so all must make equally many of them.
        """
        good = [row for row in rows if isinstance(row, ReadExample)]
        bad = tuple(row for row in rows if isinstance(row, Unreadable))
        chunks = math.ceil(len(rows) / self.size)
        if len(good) < chunks:
            return {"chunks": Chunks((), bad, len(rows))}
        # Rows of like length share a chunk, so that little is padded.
        good.sort(key=lambda row: len(row.prefix_ids) + len(row.concept.suffix_ids))
        starts = [len(good) * chunk // chunks for chunk in range(chunks + 1)]
        batches = [make_batch(good[start:end]) for start, end in itertools.pairwise(starts)]
        return {"chunks": Chunks(tuple(batches), bad, len(rows))}
