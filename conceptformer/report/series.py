"""Curves out of a training log: which lines hold a value, fewer points where there are many, and a light smoothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

LogRow = Mapping[str, Any]
"""A line of ``log.jsonl``."""

MOST_POINTS = 200
WINDOW = 5
"""Points that a smoothed value is the mean of."""


class Point(NamedTuple):
    """A value at a step; the step of several points together is their mean."""

    step: float
    value: float


def steps_of(rows: Sequence[LogRow]) -> list[LogRow]:
    """The lines on training steps, one for each step; of equal steps the last, which a continued run wrote."""
    return _by_step([row for row in rows if "loss" in row])


def evaluations_of(rows: Sequence[LogRow]) -> list[LogRow]:
    """The lines on held-out queries, one for each step."""
    return _by_step([row for row in rows if "eval_ndcg_at_10" in row])


def value_of(row: LogRow, name: str) -> float | None:
    """A finite number, or None."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def series(rows: Sequence[LogRow], name: str) -> list[Point]:
    """The values that are there."""
    found = [(row["step"], value_of(row, name)) for row in rows]
    return [Point(step, value) for step, value in found if value is not None]


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> tuple[list[Point], int]:
    """Means of consecutive points, and of how many at a time, such that at most ``most`` are left."""
    size = max(1, math.ceil(len(points) / most))
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    means = [
        Point(sum(point.step for point in group) / len(group), sum(point.value for point in group) / len(group))
        for group in groups
    ]
    return means, size


def smoothed(points: Sequence[Point], window: int = WINDOW) -> list[Point]:
    """Each value replaced by the mean of the ``window`` ones around it; of fewer, as many on each side, at the ends.

    A mean around a point does not lag behind as one of the past would.
    """
    result = []
    for place, point in enumerate(points):
        reach = min(window // 2, place, len(points) - 1 - place)
        around = points[place - reach : place + reach + 1]
        result.append(Point(point.step, sum(near.value for near in around) / len(around)))
    return result


def _by_step(rows: Sequence[LogRow]) -> list[LogRow]:
    latest = {row["step"]: row for row in rows}
    return [latest[step] for step in sorted(latest)]
