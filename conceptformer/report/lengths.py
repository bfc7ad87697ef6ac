"""How many concept tokens the training pairs have (the paper's Figure 3a)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from conceptformer.backbones.protocol import InputProcessor
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.errors import DataError
from conceptformer.records import TrainingExample

# The fixed lengths of Figure 3b, which part the range of Figure 3a; the last group is open.
_DOUBLING = (8, 16, 32, 64, 128, 256)
_DOUBLING_BEYOND = 64
_MOST_GROUPS = 16


@dataclass(frozen=True)
class LengthGroup:
    """Pairs whose numbers of tokens lie close together.

    Attributes:
        first, last: Of the numbers, both included; ``last`` None where the group is open.
        count: Pairs in it.
        share: Of all pairs that have a concept.
    """

    first: int
    last: int | None
    count: int
    share: float

    @property
    def name(self) -> str:
        """``17–32``, ``12`` or ``257 and more``."""
        if self.last is None:
            return f"{self.first} and more"
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True)
class LengthSummary:
    """The distribution of the numbers of concept tokens over training pairs.

    Attributes:
        pairs: That have a concept.
        without: Pairs that have none.
        mean, median, p90, longest: In tokens, over the former.
        groups: Ascending and without gaps, empty ones included.
    """

    pairs: int
    without: int
    mean: float
    median: float
    p90: float
    longest: int
    groups: tuple[LengthGroup, ...]


def concept_lengths(
    examples: Iterable[TrainingExample], inputs: InputProcessor, concepts: ConceptSource
) -> tuple[int, ...]:
    """Number of concept tokens of each pair that the model can take, from the images' sizes alone; 0 without any."""
    lengths = []
    for example in examples:
        try:
            grid = inputs.grid_of(example.image_size)
        except DataError:  # counted and listed where the run left it out
            continue
        lengths.append(concepts.prepare(example, grid, inputs).slots)
    return tuple(lengths)


def summarise_lengths(lengths: Sequence[int], *, papers_groups: bool = False) -> LengthSummary | None:
    """The distribution; None where no pair has a concept token.

    Args:
        papers_groups: All groups of Figure 3a, whatever the lengths; otherwise groups that suit them.
    """
    found = np.array([length for length in lengths if length > 0])
    if not len(found):
        return None
    median, p90 = np.percentile(found, [50, 90])
    return LengthSummary(
        pairs=len(found),
        without=len(lengths) - len(found),
        mean=float(found.mean()),
        median=float(median),
        p90=float(p90),
        longest=int(found.max()),
        groups=_groups(found, papers_groups),
    )


def _groups(found: np.ndarray, papers: bool) -> tuple[LengthGroup, ...]:
    longest = int(found.max())
    ends: list[int]
    last: int | None
    if papers:
        ends, last = list(_DOUBLING), None
    elif longest > _DOUBLING_BEYOND:
        ends = [end for end in _DOUBLING if end < longest]
        last = None if longest > _DOUBLING[-1] else next(end for end in _DOUBLING if end >= longest)
    else:
        width = math.ceil(longest / _MOST_GROUPS)
        ends = list(range(width, longest, width))
        last = (len(ends) + 1) * width
    edges = [0, *ends, longest if last is None else last]
    groups = []
    for place, (before, end) in enumerate(pairwise(edges), start=1):
        count = int(((found > before) & (found <= end)).sum())
        open_end = last is None and place == len(edges) - 1
        groups.append(LengthGroup(before + 1, None if open_end else end, count, count / len(found)))
    return tuple(groups)
