"""From values to places in a picture, and where the ticks of an axis stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator


@dataclass(frozen=True)
class Scale:
    """Linear or logarithmic map from [low, high] to [start, end]; start may be above end, as y runs downwards in SVG.

    A range of zero length maps everything to the middle.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, most: int = 6, *, whole: bool = False) -> list[float]:
    """Round values within [low, high], at most about ``most``; whole numbers only if asked."""
    if high <= low:
        return [low]
    locator = MaxNLocator(nbins=max(1, most - 1), steps=[1, 2, 2.5, 5, 10], integer=whole)
    slack = (high - low) * 1e-9
    return [float(tick) for tick in locator.tick_values(low, high) if low - slack <= tick <= high + slack]


def logarithmic_ticks(high: float) -> list[float]:
    """1, 2, 5, 10, 20, 50, ... up to ``high`` >= 1."""
    decades = range(int(math.log10(high)) + 1)
    return [float(step * 10**decade) for decade in decades for step in (1, 2, 5) if step * 10**decade <= high]


def page_ticks(labels: Sequence[int], most: int = 8) -> list[tuple[int, int]]:
    """Which pages an axis names, as (page, label): round labels, or evenly spread pages where labels jump."""
    count = len(labels)
    if list(labels) == list(range(labels[0], labels[0] + count)):
        return [(int(tick) - labels[0], int(tick)) for tick in ticks(labels[0], labels[-1], most, whole=True)]
    step = math.ceil(count / most)
    return [(page, labels[page]) for page in range(0, count, step)]
