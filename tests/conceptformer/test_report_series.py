"""Curves out of training logs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conceptformer.report.series import Point, evaluations_of, series, smoothed, steps_of, thinned, value_of

ROWS = [
    {"step": 1, "loss": 4.0, "info_nce": 3.5},
    {"step": 10, "loss": 3.0, "info_nce": None},
    {"step": 10, "eval_ndcg_at_10": 0.25},
    {"step": 20, "loss": 2.0, "info_nce": float("nan")},
    {"step": 20, "loss": 2.5, "info_nce": 2.0},
    {"step": 20, "train_runtime": 12.0},
]


def test_lines_are_told_apart_and_a_repeated_step_counts_once() -> None:
    assert [row["step"] for row in steps_of(ROWS)] == [1, 10, 20]
    assert steps_of(ROWS)[-1]["loss"] == 2.5
    assert evaluations_of(ROWS) == [{"step": 10, "eval_ndcg_at_10": 0.25}]


def test_steps_come_in_their_order() -> None:
    assert [row["step"] for row in steps_of(list(reversed(ROWS)))] == [1, 10, 20]


def test_only_finite_numbers_are_points() -> None:
    assert series(steps_of(ROWS), "info_nce") == [Point(1, 3.5), Point(20, 2.0)]
    for value in (None, "3", True, float("inf"), float("nan"), [1.0]):
        assert value_of({"x": value}, "x") is None
    assert value_of({}, "x") is None and value_of({"x": 2}, "x") == 2.0


def test_smoothing_by_hand() -> None:
    points = [Point(step, value) for step, value in enumerate([1.0, 5.0, 3.0, 2.0, 9.0, 4.0, 6.0])]
    values = [point.value for point in smoothed(points)]
    # Alone at the ends, three around their neighbours, five elsewhere.
    assert values == pytest.approx([1, 3, 4, 4.6, 4.8, 19 / 3, 6])


@given(st.lists(st.floats(-1e6, 1e6), max_size=60))
def test_smoothing_keeps_steps_ends_and_range(values: list[float]) -> None:
    points = [Point(step, value) for step, value in enumerate(values)]
    smooth = smoothed(points)
    assert [point.step for point in smooth] == [point.step for point in points]
    if points:
        assert smooth[0] == points[0] and smooth[-1] == points[-1]
        low, high = min(values), max(values)
        slack = 1e-9 * max(abs(low), abs(high), 1)
        assert all(low - slack <= point.value <= high + slack for point in smooth)


def test_a_line_is_smoothed_to_itself() -> None:
    points = [Point(step, 3 - 0.5 * step) for step in range(23)]
    assert [point.value for point in smoothed(points)] == pytest.approx([point.value for point in points])


@pytest.mark.parametrize("count", [0, 1, 7, 13, 200, 201, 1009])
def test_thinning_keeps_the_weight_of_every_point(count: int) -> None:
    values = np.random.default_rng(0).normal(size=count)
    points = [Point(step, float(value)) for step, value in enumerate(values)]
    few, size = thinned(points)
    assert len(few) <= 200 and len(few) == -(-count // size)
    assert few == points if count <= 200 else size > 1
    sizes = [len(points[start : start + size]) for start in range(0, count, size)]
    total = sum(point.value * weight for point, weight in zip(few, sizes, strict=True))
    assert total == pytest.approx(values.sum(), abs=1e-9)
    assert [point.step for point in few] == sorted(point.step for point in few)
