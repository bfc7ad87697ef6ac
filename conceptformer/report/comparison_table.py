"""A comparison as tables and sentences: for the terminal, for ``table.md`` and for the page."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import stdev

from conceptformer.report.page import METRIC_NAMES
from conceptformer.training.comparison import CHECKPOINTS, Comparison, Difference, smallest_seed_p
from visar.report.wording import NOTHING, counted, number, probability

# Below it a corrected p-value counts as a difference.
_LEVEL = 0.05
_MAIN_CHECKPOINT, _MAIN_METRIC = CHECKPOINTS[0], next(iter(METRIC_NAMES))


@dataclass(frozen=True)
class FigureTable:
    """A table as texts.

    Attributes:
        text_columns: How many columns, from the left, hold words.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int

    group_columns = 2
    """Checkpoint and metric, in which rows that stand together agree."""

    def groups(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """The rows without these columns, and what the columns say, for where there is little room."""
        found: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for row in self.rows:
            found.setdefault(row[: self.group_columns], []).append(row[self.group_columns :])
        return [(f"{metric}, {checkpoint} checkpoint", rows) for (checkpoint, metric), rows in found.items()]


def figure_table(comparison: Comparison) -> FigureTable:
    """Each variant's metrics: every seed, mean and standard deviation over seeds."""
    rows = []
    for checkpoint in CHECKPOINTS:
        for metric, name in METRIC_NAMES.items():
            for variant in comparison.plan.variants:
                values = comparison.values(variant, checkpoint, metric)
                spread = number(stdev(values)) if len(values) > 1 else NOTHING
                means = (number(sum(values) / len(values)), spread)
                rows.append((checkpoint, name, variant, *map(number, values), *means))
    header = ("checkpoint", "metric", "variant", *map(_seed_name, comparison.seeds), "mean", "SD of seeds")
    return FigureTable("Held-out queries", header, tuple(rows), 3)


def difference_table(comparison: Comparison) -> FigureTable:
    """Each variant minus the first one: every seed, mean, and what tests say of it."""
    rows = [
        (
            difference.checkpoint,
            METRIC_NAMES[difference.metric],
            f"{difference.variant} − {comparison.plan.variants[0]}",
            *map(_signed, difference.by_seed),
            _signed(difference.mean),
            *map(probability, (difference.p_queries, difference.p_holm, difference.p_seeds)),
        )
        for difference in _in_order(comparison)
    ]
    header = ("checkpoint", "metric", "difference", *map(_seed_name, comparison.seeds), "mean")
    return FigureTable("Differences", (*header, "p, queries", "p, queries (Holm)", "p, seeds"), tuple(rows), 3)


def scope(comparison: Comparison) -> str:
    """What was measured, in a sentence."""
    seeds = counted(len(comparison.seeds), "seed")
    if not comparison.complete:
        seeds = f"{len(comparison.seeds)} of {counted(len(comparison.plan.seeds), 'seed')} so far"
    asked = "query" if comparison.query_count == 1 else "queries"
    return (
        f"{counted(len(comparison.plan.variants), 'variant')}, {seeds}; {comparison.query_count:,} held-out {asked} "
        f"over {counted(comparison.page_count, 'page')}."
    )


def conclusions(comparison: Comparison) -> list[str]:
    """What follows for each variant from the main metric of the last checkpoints, and what does not."""
    sentences = []
    for difference in comparison.differences:
        if (difference.checkpoint, difference.metric) == (_MAIN_CHECKPOINT, _MAIN_METRIC):
            sentences += [_outcome(comparison, difference), _over_queries(comparison, difference)]
            sentences.append(_over_seeds(difference))
    return [
        *sentences,
        "The best checkpoints were chosen by the queries that they are measured on, which flatters them; the last ones "
        "were not, so the above rests on these.",
    ]


def comparison_markdown(comparison: Comparison) -> str:
    """All of it as Markdown."""
    parts = ["# Comparison of training variants", scope(comparison)]
    for table in (figure_table(comparison), difference_table(comparison)):
        rules = [":--" if column < table.text_columns else "--:" for column in range(len(table.header))]
        lines = [table.header, rules, *table.rows]
        parts += [f"## {table.title}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    parts += [
        "p, queries: paired permutation test over queries, those of all seeds pooled, for these trained models; Holm: "
        "corrected for all differences of the table. p, seeds: the same test over seeds, for training anew.",
        "## What follows",
        "\n".join(f"- {sentence}" for sentence in conclusions(comparison)),
    ]
    return "\n\n".join(parts) + "\n"


def _in_order(comparison: Comparison) -> list[Difference]:
    """As in the table of figures: by variant, the main checkpoint and metric first."""
    order = list(METRIC_NAMES)
    return sorted(
        comparison.differences,
        key=lambda one: (
            comparison.plan.variants.index(one.variant),
            CHECKPOINTS.index(one.checkpoint),
            order.index(one.metric),
        ),
    )


def _outcome(comparison: Comparison, difference: Difference) -> str:
    baseline = comparison.plan.variants[0]
    means = []
    for variant in (difference.variant, baseline):
        values = comparison.values(variant, difference.checkpoint, difference.metric)
        means.append(f"{variant}: {number(sum(values) / len(values))}")
    told = (
        f"{METRIC_NAMES[difference.metric]} of the {difference.checkpoint} checkpoints: {means[0]}; {means[1]}; "
        f"difference: {_signed(difference.mean)}"
    )
    if len(difference.by_seed) == 1:
        return f"{told}, with a single seed."
    positive = sum(value > 0 for value in difference.by_seed)
    negative = sum(value < 0 for value in difference.by_seed)
    return f"{told}; above 0 with {positive} and below 0 with {negative} of {len(difference.by_seed)} seeds."


def _over_queries(comparison: Comparison, difference: Difference) -> str:
    tested = f"p = {probability(difference.p_queries)}, {probability(difference.p_holm)} after correction"
    tested = tested.replace("= <", "<")
    if difference.p_holm >= _LEVEL:
        return f"Over queries no difference between these trained models is shown ({tested})."
    better = difference.variant if difference.mean > 0 else comparison.plan.variants[0]
    return f"On such queries these trained models differ, in favour of {better} ({tested})."


def _over_seeds(difference: Difference) -> str:
    count, least = len(difference.by_seed), smallest_seed_p(len(difference.by_seed))
    tested = f"p = {probability(difference.p_seeds)}".replace("= <", "<")
    if difference.p_seeds < _LEVEL:
        return f"Other seeds can be expected to differ in the same direction (over {count} seeds {tested})."
    told = f"Whether other seeds would differ is not shown (over {counted(count, 'seed')} {tested})"
    if least >= _LEVEL:
        return f"{told}, and cannot be with so few: no outcome of theirs has p below {least:g}."
    return f"{told}."


def _seed_name(seed: int) -> str:
    return f"seed {seed}"


def _signed(value: float) -> str:
    text = number(value)
    return text if text.startswith("−") or text == "0.000" else f"+{text}"
