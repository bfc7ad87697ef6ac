"""``report.html`` of one training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conceptformer.report.lengths import LengthSummary
from conceptformer.report.page import METRIC_NAMES, figure, render
from conceptformer.report.pictures import BLUE, GREEN, ORANGE, VIOLET, Panel, curve, length_bars, metric_curve
from conceptformer.report.series import LogRow, evaluations_of, series, steps_of, value_of
from conceptformer.report.thumbnails import CardGroup
from visar.report.page import write_page
from visar.report.wording import counted, number

# Name in the log, header.
_LOGGED = (
    ("loss", "loss"),
    ("info_nce", "InfoNCE"),
    ("alignment", "alignment"),
    ("grad_norm", "gradient norm"),
    ("learning_rate", "learning rate"),
    ("tokens_per_second", "tokens/s"),
    ("padding_share", "padding"),
    ("concept_tokens_mean", "concept tokens, mean"),
    ("concept_tokens_max", "longest"),
    ("masked_pairs", "masked pairs"),
    ("without_concept", "without concept"),
    ("unreadable", "unreadable"),
)
_COLOURS = {"ndcg_at_10": BLUE, "recall_at_10": GREEN, "mrr_at_10": VIOLET}
_MOST_ROWS = 100
_MOST_LINES = 1000


@dataclass(frozen=True)
class TrainingFigures:
    """What is known of a run.

    Attributes:
        title: The run's name.
        source: Name of the training set.
        log: Lines of ``log.jsonl``; of a run that is not finished, those so far.
        finished: Whether the run came to its end.
        pairs: Training pairs that were used.
        chance: What shuffled pages would reach, by metric; empty without held-out queries.
        held_out: Numbers of held-out queries and pages; None without them.
        lengths: Of the concept sequences; None where there are none.
        gallery: Retrieval examples; empty where none were made.
        refused: A line with the reason for each row, box or page that was left out.
        settings: Name and value of what was used, in the order to be shown.
    """

    title: str
    source: str
    log: Sequence[LogRow]
    finished: bool
    pairs: int
    chance: Mapping[str, float] = field(default_factory=dict)
    held_out: tuple[int, int] | None = None
    lengths: LengthSummary | None = None
    gallery: Sequence[CardGroup] = ()
    refused: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def write_training_page(path: Path, figures: TrainingFigures) -> None:
    """Write one self-contained HTML file (no script, no outside request), atomically.

    Raises:
        StoreError: The file cannot be written.
    """
    steps, evaluations = steps_of(figures.log), evaluations_of(figures.log)
    best = max(evaluations, key=lambda row: value_of(row, "eval_ndcg_at_10") or 0.0, default=None)
    page = render(
        "training",
        figures=figures,
        summary=_summary(figures, steps, best),
        best=_best(figures, best),
        losses=_losses(steps),
        metrics=_metrics(figures, evaluations, None if best is None else best["step"]),
        pace=_pace(steps),
        evaluations=_evaluation_table(figures, evaluations, best),
        steps=_step_table(steps),
        lengths=None if figures.lengths is None else length_bars(figures.lengths),
        counts=_counts(steps),
        most_lines=_MOST_LINES,
    )
    write_page(path, page)


def _summary(figures: TrainingFigures, steps: Sequence[LogRow], best: LogRow | None) -> str:
    last = max((row["step"] for row in (*steps, *([best] if best is not None else []))), default=0)
    state = "finished after" if figures.finished else "not finished; so far"
    parts = [f"The run is {state} {counted(last, 'step')} on {counted(figures.pairs, 'pair')} ({figures.source})"]
    if figures.held_out is None:
        parts.append("there is no held-out set")
    else:
        queries, pages = figures.held_out
        asked = "query searches" if queries == 1 else "queries search"
        parts.append(f"{queries:,} held-out {asked} {counted(pages, 'page')}")
    if best is not None:
        told = "its retriever is the best checkpoint, that of" if figures.finished else "best checkpoint so far:"
        parts.append(f"{told} step {best['step']:,}")
    return "; ".join(parts) + "."


def _best(figures: TrainingFigures, best: LogRow | None) -> list[tuple[str, str, str]]:
    """Name, value and chance of each metric at the best checkpoint."""
    if best is None:
        return []
    return [
        (name, number(value_of(best, f"eval_{key}")), number(figures.chance.get(key)))
        for key, name in METRIC_NAMES.items()
    ]


def _losses(steps: Sequence[LogRow]) -> list[Panel]:
    alignment = series(steps, "alignment")
    panels = [curve("InfoNCE (Eq. 5)", series(steps, "info_nce"), BLUE, smooth=True)]
    # Without concepts, or without weight on them, the log says 0 throughout.
    if any(point.value for point in alignment):
        panels.append(curve("Alignment (Eq. 16)", alignment, ORANGE, smooth=True))
    return [panel for panel in panels if panel is not None]


def _metrics(figures: TrainingFigures, evaluations: Sequence[LogRow], kept_step: int | None) -> list[Panel]:
    panels = [
        metric_curve(
            name, series(evaluations, f"eval_{key}"), _COLOURS[key], chance=figures.chance.get(key), kept_step=kept_step
        )
        for key, name in METRIC_NAMES.items()
    ]
    return [panel for panel in panels if panel is not None]


def _pace(steps: Sequence[LogRow]) -> list[Panel]:
    panels = [
        curve("Learning rate", series(steps, "learning_rate"), VIOLET),
        curve("Tokens per second", series(steps, "tokens_per_second"), GREEN, smooth=True),
    ]
    return [panel for panel in panels if panel is not None]


def _evaluation_table(
    figures: TrainingFigures, evaluations: Sequence[LogRow], best: LogRow | None
) -> list[tuple[str, list[str], bool]]:
    """Name, figures and whether it is the best of each row; chance comes first."""
    rows = [
        (f"{row['step']:,}", [number(value_of(row, f"eval_{key}")) for key in METRIC_NAMES], row is best)
        for row in evaluations
    ]
    if rows and figures.chance:
        rows.insert(0, ("chance", [number(figures.chance.get(key)) for key in METRIC_NAMES], False))
    return rows


def _step_table(steps: Sequence[LogRow]) -> dict[str, Any]:
    """Evenly chosen lines of the log, first and last among them, without columns that hold nothing."""
    every = max(1, -(-len(steps) // _MOST_ROWS))
    shown = [row for place, row in enumerate(steps) if place % every == 0 or place == len(steps) - 1]
    columns = [(name, header) for name, header in _LOGGED if any(value_of(row, name) is not None for row in shown)]
    cells: list[tuple[str, list[str]]] = []
    for row in shown:
        values = [value_of(row, name) for name, _ in columns]
        cells.append((f"{row['step']:,}", ["–" if value is None else figure(value) for value in values]))
    return {"header": [header for _, header in columns], "rows": cells, "every": every, "lines": len(steps)}


def _counts(steps: Sequence[LogRow]) -> list[str]:
    """What happened to pairs while training, in words; only what happened."""
    told: tuple[tuple[str, Callable[[int], str]], ...] = (
        (
            "masked_pairs",
            lambda n: f"{counted(n, 'time')} a page of the batch answered the query and was no negative",
        ),
        ("without_concept", lambda n: f"{counted(n, 'sample')} without evidence boxes, in InfoNCE alone"),
        ("unreadable", lambda n: f"{counted(n, 'sample')} left out, since the image could not be read"),
    )
    sums = {name: round(sum(value_of(row, name) or 0.0 for row in steps)) for name, _ in told}
    return [tell(sums[name]) for name, tell in told if sums[name]]
