"""The order of rows: complete, repeatable, and with rows of like length in one batch."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conceptformer.training.bucketing import LengthBuckets

BATCH = 8


def lengths(rows: int, seed: int = 0) -> list[int]:
    """Pages of some shapes, of which a few are much longer, with concepts of widely different lengths."""
    draw = random.Random(seed)
    return [draw.choice((400, 700, 700, 1200, 2500)) + int(draw.lognormvariate(4, 1)) for _ in range(rows)]


def epoch(sampler: LengthBuckets, number: int = 0) -> list[int]:
    sampler.set_epoch(number)
    return list(sampler)


def padding_share(sampler: LengthBuckets, rows: list[int], number: int = 0) -> float:
    order = epoch(sampler, number)
    batches = [[rows[place] for place in order[start : start + BATCH]] for start in range(0, len(order), BATCH)]
    computed = sum(len(batch) * max(batch) for batch in batches)
    return 1 - sum(rows) / computed


@given(
    rows=st.integers(1, 60), batch=st.integers(1, 9), bucket=st.integers(1, 7), number=st.integers(0, 3), data=st.data()
)
@settings(max_examples=60)
def test_every_row_comes_once(rows, batch, bucket, number, data):
    own = data.draw(st.lists(st.integers(1, 5), min_size=rows, max_size=rows))
    sampler = LengthBuckets(own, batch=batch, bucket=bucket, seed=1)
    assert len(sampler) == rows
    assert sorted(epoch(sampler, number)) == list(range(rows))


def test_the_order_depends_on_seed_and_epoch_alone():
    own = lengths(100)
    first = LengthBuckets(own, batch=BATCH, bucket=4, seed=42)
    again = LengthBuckets(own, batch=BATCH, bucket=4, seed=42)
    orders = [epoch(first, number) for number in range(3)]
    # Neither on what was asked for before nor on how far it was read.
    next(iter(again))
    assert [epoch(again, number) for number in (2, 0, 1)] == [orders[2], orders[0], orders[1]]
    others = [epoch(LengthBuckets(own, batch=BATCH, bucket=4, seed=seed), 0) for seed in (43, 44)]
    assert len({tuple(order) for order in (*orders, *others)}) == 5


def test_sorted_batches_have_a_fraction_of_the_padding_of_shuffled_ones():
    own = lengths(2000)
    shares = {
        bucket: statistics.mean(
            padding_share(LengthBuckets(own, batch=BATCH, bucket=bucket, seed=seed), own) for seed in range(3)
        )
        for bucket in (1, 4, 16, 64)
    }
    assert shares[1] > 0.4
    assert shares[4] < 0.6 * shares[1]
    assert all(longer < shorter for shorter, longer in pairwise(shares.values()))
    assert shares[64] < 0.05


def test_a_bucket_of_one_batch_leaves_together_what_was_drawn_together():
    """Its padding is that of plain shuffling."""
    own = lengths(2000)
    plain = list(range(2000))
    random.Random(5).shuffle(plain)
    batches = [[own[row] for row in plain[start : start + BATCH]] for start in range(0, 2000, BATCH)]
    share = 1 - sum(own) / sum(BATCH * max(batch) for batch in batches)
    assert padding_share(LengthBuckets(own, batch=BATCH, bucket=1, seed=0), own) == pytest.approx(share, abs=0.03)


def test_batches_are_not_sorted_by_length_themselves():
    """Else a run would begin with short pages and end with long ones."""
    own = lengths(800)
    order = epoch(LengthBuckets(own, batch=BATCH, bucket=100, seed=0))
    means = [statistics.mean(own[row] for row in order[start : start + BATCH]) for start in range(0, 800, BATCH)]
    half = len(means) // 2
    assert statistics.mean(means[:half]) == pytest.approx(statistics.mean(means[half:]), rel=0.3)
    rising = sum(after > before for before, after in pairwise(means))
    assert 0.3 < rising / len(means) < 0.7


@pytest.mark.parametrize("bucket", [1, 3, 1000])
def test_what_fills_no_batch_comes_last_and_is_not_the_longest_rows_again_and_again(bucket):
    rows, left = 53, 5
    own = list(range(rows))
    sampler = LengthBuckets(own, batch=BATCH, bucket=bucket, seed=3)
    dropped = [set(epoch(sampler, number)[-left:]) for number in range(30)]
    # In 30 epochs of which each leaves out 5 of 53 rows, no row is left out more than a few times.
    assert max(sum(row in some for some in dropped) for row in own) <= 10
    assert len(set.union(*dropped)) > 40
    for number in range(3):
        full = [own[row] for row in epoch(sampler, number)[:-left]]
        spread = [max(full[start : start + BATCH]) - min(full[start : start + BATCH]) for start in range(0, 48, BATCH)]
        assert all(width < 15 for width in spread) or bucket < 1000


def test_rows_of_equal_length_are_shuffled_too():
    sampler = LengthBuckets([7] * 64, batch=BATCH, bucket=8, seed=0)
    order = epoch(sampler)
    assert order != sorted(order)
    together = [frozenset(order[start : start + BATCH]) for start in range(0, 64, BATCH)]
    assert set(together) != {frozenset(range(start, start + BATCH)) for start in range(0, 64, BATCH)}


def test_fewer_rows_than_a_batch_are_one_that_is_not_full():
    assert sorted(LengthBuckets([3, 1, 2], batch=BATCH, bucket=2, seed=0)) == [0, 1, 2]
