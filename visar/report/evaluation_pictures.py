"""Pictures of one evaluation run as inline SVG: trade-offs, how k is distributed, how it follows the oracle's k."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from visar.report.axes import Scale, ticks
from visar.report.page import render
from visar.report.wording import counted, number, short_number

Row = Mapping[str, Any]

# Middling lightness, so that they stand out from white and from black.
_COLOURS = ("#3d7fc4", "#e8590c", "#2c9a6b", "#a05cc5", "#b98a00", "#d4477a", "#1b9aaa", "#8b7a68")
_MOST_K = 20
# Upper ends of the oracle's k that are shown together, as in the paper's Fig. 3; the last group is open.
_GROUPS = (*range(1, 11), 15, 20, 25, 35)


@dataclass(frozen=True)
class Point:
    """One selector in a trade-off: two metrics with their intervals."""

    name: str
    x: Mapping[str, float | None]
    y: Mapping[str, float | None]


@dataclass(frozen=True)
class Panel:
    """A small picture of one selector."""

    name: str
    colour: str
    picture: Markup


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each selector; they repeat after eight, so names always stand beside them."""
    return {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}


def trade_off(points: Sequence[Point], x_name: str, y_name: str, *, within_one: bool) -> Markup:
    """Two metrics against each other, with intervals as crosses and names at the right.

    Args:
        within_one: The x axis ends at 1 (a share) or is open (a number of pages).
    """
    colour = colours([point.name for point in points])
    points = [point for point in points if point.x.get("value") is not None and point.y.get("value") is not None]
    if not points:
        return Markup("")
    x = Scale(*_range([point.x for point in points], 1.0 if within_one else None), 46, 240)
    y = Scale(*_range([point.y for point in points], 1.0), 252, 14)
    by_height = sorted(points, key=lambda point: -point.y["value"])
    places = _spread([y(point.y["value"]) for point in by_height], 18, 14, 262)
    return render(
        "trade_off",
        points=[
            {
                "name": point.name,
                "shown": _shortened(point.name, 17),
                "colour": colour[point.name],
                "x": x(point.x["value"]),
                "y": y(point.y["value"]),
                "x_ends": _ends(point.x, x),
                "y_ends": _ends(point.y, y),
                "place": place,
                "text": f"{point.name}: {x_name} {short_number(point.x['value'])}, "
                f"{y_name} {short_number(point.y['value'])}",
            }
            for point, place in zip(by_height, places, strict=True)
        ],
        x_name=x_name,
        y_name=y_name,
        x_ticks=[(x(tick), f"{tick:g}") for tick in ticks(x.low, x.high, 5)],
        y_ticks=[(y(tick), f"{tick:g}") for tick in ticks(y.low, y.high, 6)],
        height=max(300, round(max(places)) + 20),
        label=f"{y_name} against {x_name} of {counted(len(points), 'selector')}; the table holds the figures.",
    )


def _shortened(name: str, most: int) -> str:
    """A long name without its middle, since families of names differ at the end."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-(most - most // 2 - 1) :]}"


def _range(entries: Sequence[Mapping[str, float | None]], end: float | None) -> tuple[float, float]:
    """All values and interval ends with a margin, cut at 0 and ``end``."""
    values = [entry[key] for entry in entries for key in ("value", "low", "high") if entry.get(key) is not None]
    low, high = min(values), max(values)
    margin = max(0.06 * (high - low), 0.01)
    return max(0.0, low - margin), high + margin if end is None else min(end, high + margin)


def _ends(entry: Mapping[str, float | None], scale: Scale) -> tuple[float, float] | None:
    if entry.get("low") is None or entry.get("high") is None:
        return None
    return scale(entry["low"]), scale(entry["high"])


def _spread(places: Sequence[float], apart: float, first: float, last: float) -> list[float]:
    """Ascending places moved as little as needed to be ``apart``; beyond ``last`` only if there is no room above."""
    spread: list[float] = []
    for place in places:
        spread.append(max(place, spread[-1] + apart if spread else first))
    floor = max(last, first + apart * (len(places) - 1))
    for i in range(len(spread) - 1, -1, -1):
        spread[i] = min(spread[i], floor - apart * (len(spread) - 1 - i))
    return spread


def k_histograms(rows: Sequence[Row], names: Sequence[str]) -> list[Panel]:
    """How many pages each selector reads (the paper's Fig. S1 and S2); the outline is the number of evidence pages."""
    colour = colours(names)
    evidence = _shares(
        {row["question_id"]: len(row["evidence_pages"]) for row in rows if row["evidence_pages"]}.values()
    )
    by_selector = {name: [row["k"] for row in rows if row["selector"] == name] for name in names}
    shares = {name: _shares(found) for name, found in by_selector.items() if found}
    if not shares:
        return []
    last = min(_MOST_K + 1, max(max(share, default=1) for share in (evidence, *shares.values())))
    last = max(last, 5)
    x = Scale(0.5, last + 0.5, 40, 292)
    marks = [(x(k), str(k)) for k in (1, 5, 10, 15, 20) if k <= last and (k < 20 or last == 20)]
    if last > _MOST_K:
        marks.append((x(last), f">{_MOST_K}"))
    heights = {  # one per picture: a fixed k puts all questions into one bar and would flatten the others
        name: Scale(0, max([*share.values(), *evidence.values()]), 112, 10) for name, share in shares.items()
    }
    return [
        Panel(
            name,
            colour[name],
            render(
                "histogram",
                bars=[
                    (x(k - 0.42), x(k + 0.42), heights[name](part), f"{_k_name(k)}: {part:.1%} of the questions")
                    for k, part in sorted(share.items())
                ],
                outline=[
                    (x(k - 0.5), x(k + 0.5), heights[name](evidence.get(k, 0))) for k in range(1, last + 1) if evidence
                ],
                colour=colour[name],
                zero=heights[name](0),
                x_ticks=marks,
                y_ticks=[(heights[name](tick), f"{tick:.0%}") for tick in ticks(0, heights[name].high, 4)],
                label=f"Distribution of k for {name}: most often {_k_name(max(share, key=lambda k: share[k]))}.",
            ),
        )
        for name, share in shares.items()
    ]


def _shares(values: Any) -> dict[int, float]:
    counts = Counter(min(value, _MOST_K + 1) for value in values)
    return {value: count / counts.total() for value, count in counts.items()}


def _k_name(k: int) -> str:
    return f"k = {k}" if k <= _MOST_K else f"k > {_MOST_K}"


@dataclass(frozen=True)
class OracleCurves:
    """A quantity as a function of the oracle's k (the paper's Fig. 3): small pictures and the same as a table.

    Attributes:
        header: Names of the groups of the oracle's k.
        counts: Questions in each group.
        table: One row of values per selector.
    """

    panels: list[Panel]
    header: list[str]
    counts: list[int]
    table: list[tuple[str, list[str]]]


def oracle_curves(
    rows: Sequence[Row], names: Sequence[str], value: Callable[[Row], float | None], what: str, digits: int
) -> OracleCurves | None:
    """Means of ``value`` over the questions of each group of the oracle's k; None where no row knows the oracle's k.

    Args:
        value: Takes a row of ``per_query.jsonl``; None leaves the row out.
        what: What the value is called.
    """
    means: dict[str, dict[int, float]] = {}
    sizes: dict[int, set[str]] = {}
    for name in names:
        groups: dict[int, list[float]] = {}
        for row in rows:
            if row["selector"] == name and row.get("k_oracle") is not None and (found := value(row)) is not None:
                group = _group(row["k_oracle"])
                groups.setdefault(group, []).append(found)
                sizes.setdefault(group, set()).add(row["question_id"])
        if groups:
            means[name] = {group: sum(values) / len(values) for group, values in groups.items()}
    if not means:
        return None
    present = sorted(sizes)
    header = [_group_name(group) for group in present]
    counts = [len(sizes[group]) for group in present]
    table = [(name, [number(of.get(group), digits) for group in present]) for name, of in means.items()]
    return OracleCurves(_curve_panels(means, present, header, counts, colours(names), what), header, counts, table)


def _curve_panels(
    means: Mapping[str, Mapping[int, float]],
    present: Sequence[int],
    header: Sequence[str],
    counts: Sequence[int],
    colour: Mapping[str, str],
    what: str,
) -> list[Panel]:
    everything = [mean for of in means.values() for mean in of.values()]
    x = Scale(0, max(len(present) - 1, 1), 54, 280)
    y = Scale(min(0.0, *everything), max(0.0, *everything, min(everything) + 0.1), 112, 10)
    lines = {
        name: [
            (x(i), y(of[group]), f"{what} {short_number(of[group])} at an oracle's k of {header[i]}")
            for i, group in enumerate(present)
            if group in of
        ]
        for name, of in means.items()
    }
    size = Scale(0, max(counts), 0, 40)
    step = max(1, -(-len(header) // 6))
    return [
        Panel(
            name,
            colour[name],
            render(
                "oracle_curve",
                line=line,
                others=[other for other_name, other in lines.items() if other_name != name],
                colour=colour[name],
                bars=[(x(i), size(count), counted(count, "question")) for i, count in enumerate(counts)],
                x_ticks=[(x(i), text) for i, text in enumerate(header) if i % step == 0],
                y_ticks=[(y(tick), f"{tick:g}".replace("-", "−")) for tick in ticks(y.low, y.high, 5)],
                zero=y(0),
                label=f"{what} of {name} as a function of the oracle's k; the table below holds the figures.",
            ),
        )
        for name, line in lines.items()
    ]


def _group(k: int) -> int:
    """Index of the group that holds ``k``."""
    return next((i for i, end in enumerate(_GROUPS) if k <= end), len(_GROUPS))


def _group_name(group: int) -> str:
    if group == len(_GROUPS):
        return f"{_GROUPS[-1] + 1}+"
    first = _GROUPS[group - 1] + 1 if group else 1
    return str(first) if first == _GROUPS[group] else f"{first}–{_GROUPS[group]}"
