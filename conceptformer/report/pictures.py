"""Pictures of a training run as inline SVG: curves over steps, and the distribution of concept lengths.

All take their text colour from where they stand and hold no ids; what they show stands in tables too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from conceptformer.report.lengths import LengthGroup, LengthSummary
from conceptformer.report.page import figure, render
from conceptformer.report.series import Point, smoothed, thinned
from visar.report.axes import Scale, ticks
from visar.report.wording import counted

# Middling lightness, so that they stand out from white and from black.
BLUE, ORANGE, GREEN, VIOLET = "#3d7fc4", "#e8590c", "#2c9a6b", "#a05cc5"

_MOST_DOTS = 60
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 286.0, 14.0, 128.0
_FONT_SIZE = 12.5
# Widths in ems, of the widest among the fonts that a reader may have; any other character is as wide as a digit.
_NARROW = {".": 0.32, ",": 0.32, "-": 0.36}
_DIGIT = 0.64


@dataclass(frozen=True)
class Panel:
    """A small picture with its name.

    Attributes:
        note: A sentence below it; may be empty.
    """

    name: str
    colour: str
    picture: Markup
    note: str = ""


@dataclass(frozen=True)
class Level:
    """A horizontal line to compare a curve with."""

    name: str
    value: float


def curve(name: str, points: Sequence[Point], colour: str, *, smooth: bool = False) -> Panel | None:
    """A quantity over steps, from 0 upwards; None without any value.

    Args:
        smooth: Draw the values faintly and a running mean over them.
    """
    if not points:
        return None
    shown, size = thinned(points)
    note = f"Faint: means of {size} log lines each." if size > 1 else ""
    high = max(max(point.value for point in points), 0.0) or 1.0
    return Panel(name, colour, _drawn(name, points, shown, colour, high, smooth=smooth, dotted=smooth), note)


def metric_curve(
    name: str, points: Sequence[Point], colour: str, *, chance: float | None, kept_step: int | None
) -> Panel | None:
    """A held-out metric over steps on an axis from 0 to 1; None without any value.

    Args:
        chance: What shuffled pages would reach.
        kept_step: The step whose checkpoint is the best.
    """
    if not points:
        return None
    level = None if chance is None else Level("chance", chance)
    kept = next((point for point in points if point.step == kept_step), None)
    shown = thinned(points)[0]
    return Panel(name, colour, _drawn(name, points, shown, colour, 1.0, dotted=True, level=level, kept=kept))


def axis_place(labels: Iterable[str], font_size: float, least: float) -> float:
    """Where a y axis stands, from the left edge, such that none of its labels is cut off there.

    Args:
        font_size: Of the labels, which end 6 units before the axis, in the picture's units.
        least: Where it stands if labels are short, so that pictures beside each other are alike.
    """
    longest = max((sum(_NARROW.get(letter, _DIGIT) for letter in label) for label in labels), default=0.0)
    return max(least, longest * font_size + 7)


def _drawn(
    name: str,
    points: Sequence[Point],
    shown: Sequence[Point],
    colour: str,
    high: float,
    *,
    smooth: bool = False,
    dotted: bool = False,
    level: Level | None = None,
    kept: Point | None = None,
) -> Markup:
    y = Scale(0.0, high, _BOTTOM, _TOP)
    y_ticks = [(y(tick), figure(tick)) for tick in ticks(0.0, high, 5)]
    left = axis_place((text for _, text in y_ticks), _FONT_SIZE, _LEFT)
    x = Scale(points[0].step, points[-1].step, left, _RIGHT)
    # A line of a single point cannot be seen.
    dotted = dotted or len(shown) == 1
    line = smoothed(shown) if smooth else shown
    return render(
        "curve",
        colour=colour,
        faint=[(x(point.step), y(point.value)) for point in shown] if smooth else [],
        line=[(x(point.step), y(point.value)) for point in line],
        dots=[(x(point.step), y(point.value), _told(point)) for point in shown if dotted and len(shown) <= _MOST_DOTS],
        dot_size=2 if smooth else 3,
        dot_opacity=0.45 if smooth else 1,
        level=None if level is None else (y(level.value), f"{level.name} {figure(level.value)}"),
        # Beside the curve, not on it: nearly always it begins low and ends high.
        level_above=level is None or y(level.value) > _TOP + 20,
        kept=None if kept is None else (x(kept.step), y(kept.value), f"best checkpoint, {_told(kept)}"),
        x_ticks=[(x(tick), f"{tick:,.0f}") for tick in ticks(x.low, x.high, 6, whole=True)],
        y_ticks=y_ticks,
        font_size=_FONT_SIZE,
        left=left,
        right=_RIGHT,
        bottom=_BOTTOM,
        label=_label(name, points, level, kept),
    )


def _told(point: Point) -> str:
    return f"step {point.step:,.0f}: {figure(point.value)}"


def _label(name: str, points: Sequence[Point], level: Level | None, kept: Point | None) -> str:
    """The picture in words."""
    first, last = points[0], points[-1]
    lowest, highest = min(points, key=lambda point: point.value), max(points, key=lambda point: point.value)
    parts = [f"{name}: {figure(first.value)} at step {first.step:,.0f}"]
    if len(points) > 1:
        parts += [
            f"{figure(last.value)} at step {last.step:,.0f}",
            f"lowest {figure(lowest.value)}, highest {figure(highest.value)}",
        ]
    if kept is not None:
        parts.append(f"best checkpoint at {_told(kept)}")
    if level is not None:
        parts.append(f"{level.name} {figure(level.value)}")
    return "; ".join(parts) + "."


def length_bars(summary: LengthSummary) -> Markup:
    """Share of the pairs in each group of lengths, with median and 90th percentile."""
    groups = summary.groups
    step = (_RIGHT + 102 - _LEFT) / len(groups)
    high = max(group.share for group in groups)
    y = Scale(0.0, high, 150, 30)
    every = max(1, math.ceil(len(groups) * max(len(_short(group)) for group in groups) / 46))
    return render(
        "length_bars",
        bars=[
            (
                _LEFT + place * step,
                y(group.share),
                f"{group.name} {'token' if group.last == 1 else 'tokens'}: {counted(group.count, 'pair')}",
            )
            for place, group in enumerate(groups)
        ],
        width=step * 0.84,
        zero=y(0.0),
        right=_RIGHT + 102,
        left=_LEFT,
        marks=[
            (_LEFT + _place(groups, value) * step, f"{name} {value:.4g}", above)
            for name, value, above in (("median", summary.median, 12), ("P90", summary.p90, 25))
        ],
        x_ticks=[
            (_LEFT + (place + 0.42) * step, _short(group)) for place, group in enumerate(groups) if place % every == 0
        ],
        y_ticks=[(y(tick), f"{100 * tick:.3g}%") for tick in ticks(0.0, high, 5)],
        label=f"Numbers of concept tokens of {counted(summary.pairs, 'pair')}: median {summary.median:.4g}, "
        f"90th percentile {summary.p90:.4g}, longest {summary.longest}. The table holds the groups.",
    )


def _short(group: LengthGroup) -> str:
    return group.name if group.last is not None else f">{group.first - 1}"


def _place(groups: Sequence[LengthGroup], value: float) -> float:
    """Where a length stands on an axis on which every group is 1 wide and its bar 0.84."""
    for place, group in enumerate(groups):
        if group.last is None:
            return place + 0.42
        if value <= group.last + 0.5:
            return place + 0.84 * (value - group.first + 0.5) / (group.last - group.first + 1)
    return float(len(groups))
