"""``comparison.html``: variants of a method, side by side."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from conceptformer.report.comparison_table import (
    conclusions,
    difference_table,
    figure_table,
    scope,
)
from conceptformer.report.page import METRIC_NAMES, render
from conceptformer.report.pictures import BLUE, GREEN, ORANGE, VIOLET, Panel, axis_place
from conceptformer.training.comparison import CHECKPOINTS, Comparison
from visar.report.axes import Scale, ticks
from visar.report.page import write_page
from visar.report.wording import number

# They repeat after four, so names always stand beside them.
_COLOURS = (BLUE, ORANGE, GREEN, VIOLET)
_MAIN_METRIC, _MAIN_NAME = next(iter(METRIC_NAMES.items()))


def write_comparison_page(path: Path, comparison: Comparison) -> None:
    """Write one self-contained HTML file (no script, no outside request), atomically.

    Raises:
        StoreError: The file cannot be written.
    """
    colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(comparison.plan.variants)}
    page = render(
        "comparison",
        scope=scope(comparison),
        conclusions=conclusions(comparison),
        colours=colours,
        pairs=[_pairs(comparison, checkpoint, colours) for checkpoint in CHECKPOINTS],
        histories=_histories(comparison, colours),
        tables=[figure_table(comparison), difference_table(comparison)],
        main_name=_MAIN_NAME,
    )
    write_page(path, page)


def _pairs(comparison: Comparison, checkpoint: str, colours: dict[str, str]) -> Panel:
    """The main metric of each run, those of one seed joined by a line."""
    values = {name: comparison.values(name, checkpoint, _MAIN_METRIC) for name in colours}
    everything = [value for of in values.values() for value in of]
    margin = max(0.1 * (max(everything) - min(everything)), 0.005)
    y = Scale(max(0.0, min(everything) - margin), min(1.0, max(everything) + margin), 128, 14)
    x = Scale(0, len(colours) - 1, 90, 248)
    lines = [
        [(x(place), y(values[name][which]), colours[name], f"{name}, seed {seed}: {number(values[name][which])}")
         for place, name in enumerate(colours)]
        for which, seed in enumerate(comparison.seeds)
    ]  # fmt: skip
    picture = render(
        "pairs",
        lines=lines,
        x_ticks=[(x(place), name) for place, name in enumerate(colours)],
        y_ticks=[(y(tick), f"{tick:g}") for tick in ticks(y.low, y.high, 6)],
        label=f"{_MAIN_NAME} of the {checkpoint} checkpoints by variant, a line for each seed; the table holds the "
        "figures. The axis does not begin at 0.",
    )
    return Panel(f"{checkpoint.capitalize()} checkpoints", "currentColor", picture)


def _histories(comparison: Comparison, colours: dict[str, str]) -> Markup:
    """The main metric on the way, a line for each run; empty where none was logged."""
    runs = [run for run in comparison.runs.values() if run.history]
    if not runs:
        return Markup("")
    steps = [step for run in runs for step in run.history]
    high = max(value for run in runs for value in run.history.values()) or 1.0
    y = Scale(0.0, high, 168, 12)
    y_ticks = [(y(tick), f"{tick:g}") for tick in ticks(0.0, high, 6)]
    left = axis_place((text for _, text in y_ticks), 13, 48)
    x = Scale(min(steps), max(steps), left, 388)
    return render(
        "histories",
        lines=[
            (
                [(x(step), y(value)) for step, value in sorted(run.history.items())],
                colours[run.variant],
                f"{run.variant}, seed {run.seed}",
            )
            for run in runs
        ],
        x_ticks=[(x(tick), f"{tick:,.0f}") for tick in ticks(x.low, x.high, 7, whole=True)],
        y_ticks=y_ticks,
        left=left,
        label=f"{_MAIN_NAME} on held-out queries over training steps, a line for each run of "
        f"{', '.join(colours)}; comparison.json holds the figures.",
    )
