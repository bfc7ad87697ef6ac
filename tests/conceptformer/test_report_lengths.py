"""How concept lengths are distributed, on counts worked by hand and on real examples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conceptformer.concepts.latent import DynamicLength, FixedLength, LatentConcepts, MeanPooling, TokenSlots
from conceptformer.concepts.proxies import NoConcepts
from conceptformer.records import EvidenceBox, Page, TrainingExample
from conceptformer.report.lengths import concept_lengths, summarise_lengths
from tests.conceptformer.tiny_models import tiny_backbone


def latent(length: DynamicLength | FixedLength) -> LatentConcepts:
    return LatentConcepts(length, TokenSlots(), MeanPooling())


def example(number: int, size: tuple[int, int], *boxes: tuple[float, float, float, float]) -> TrainingExample:
    evidence = tuple(EvidenceBox(*box) for box in boxes)
    return TrainingExample(f"q{number}", "the red square", Page(f"p{number}", b""), size, evidence)


def test_small_lengths_have_a_group_each() -> None:
    summary = summarise_lengths([0, 2, 2, 3, 5, 0])
    assert summary is not None
    assert (summary.pairs, summary.without, summary.longest) == (4, 2, 5)
    assert (summary.mean, summary.median) == (3.0, 2.5)
    assert [(group.name, group.count, group.share) for group in summary.groups] == [
        ("1", 0, 0.0), ("2", 2, 0.5), ("3", 1, 0.25), ("4", 0, 0.0), ("5", 1, 0.25)
    ]  # fmt: skip


def test_lengths_up_to_64_have_groups_of_equal_width() -> None:
    summary = summarise_lengths([4, 5, 50])
    assert summary is not None
    assert [group.name for group in summary.groups][:2] == ["1–4", "5–8"]
    assert {group.last - group.first for group in summary.groups if group.last} == {3}
    assert [group.count for group in summary.groups] == [1, 1, *[0] * 10, 1]


def test_longer_ones_have_the_groups_of_the_paper() -> None:
    summary = summarise_lengths([8, 9, 64, 65, 128, 129, 256, 257, 900, 900])
    assert summary is not None
    assert [(group.name, group.count) for group in summary.groups] == [
        ("1–8", 1), ("9–16", 1), ("17–32", 0), ("33–64", 1), ("65–128", 2), ("129–256", 2), ("257 and more", 3)
    ]  # fmt: skip


def test_no_group_lies_beyond_the_longest() -> None:
    summary = summarise_lengths([3, 100])
    assert summary is not None and [group.name for group in summary.groups][-1] == "65–128"


def test_without_concept_tokens_there_is_no_distribution() -> None:
    assert summarise_lengths([]) is None and summarise_lengths([0, 0]) is None


@given(st.lists(st.integers(0, 700), min_size=1, max_size=80).filter(any))
def test_every_pair_is_in_one_group_and_groups_have_no_gaps(lengths: list[int]) -> None:
    summary = summarise_lengths(lengths)
    assert summary is not None
    found = [length for length in lengths if length]
    assert sum(group.count for group in summary.groups) == summary.pairs == len(found)
    assert summary.pairs + summary.without == len(lengths)
    assert summary.groups[0].first == 1
    for before, group in zip(summary.groups, summary.groups[1:], strict=False):
        assert before.last is not None and group.first == before.last + 1
    for group in summary.groups:
        assert group.count == sum(group.first <= n and (group.last is None or n <= group.last) for n in found)
    assert summary.median == np.median(found) and summary.p90 == pytest.approx(np.quantile(found, 0.9))


def test_lengths_are_those_of_training() -> None:
    """A page of 84 x 56 pixels has 3 x 2 tokens of 28 pixels: a box over two thirds of the width covers 2 x 2."""
    inputs = tiny_backbone().inputs
    examples = [
        example(0, (84, 56), (0.0, 0.0, 2 / 3, 1.0)),
        example(1, (84, 56)),
        example(2, (84, 56), (0.0, 0.0, 1 / 3, 0.5), (0.0, 0.0, 1 / 3, 0.5)),
        example(3, (90_000, 3), (0.0, 0.0, 1.0, 1.0)),  # no model takes this shape
    ]
    assert concept_lengths(examples, inputs, latent(DynamicLength())) == (4, 0, 2)
    assert concept_lengths(examples, inputs, latent(FixedLength(7))) == (7, 0, 7)
    assert concept_lengths(examples, inputs, NoConcepts()) == (0, 0, 0)
