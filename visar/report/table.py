"""The figures of one evaluation run as plain tables: for the terminal, for ``table.md`` and for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from visar.report.wording import NOTHING, counted, number, probability, seconds

Metrics = Mapping[str, Any]

# Header, key in "at_k", digits.
AT_K = (
    ("mean k", "mean_k", 2),
    ("median k", "median_k", 1),
    ("recall", "recall", 3),
    ("precision", "precision", 3),
    ("F1", "f1", 3),
    ("F1 of means", "f1_of_means", 3),
)
_TERMINAL_AT_K = AT_K[:5]
_TERMINAL_RANKING = ("recall@5", "ndcg@5", "mrr@5")


def interval(entry: Mapping[str, float | None] | None, digits: int) -> str:
    """``[0.66, 0.76]``, or nothing where there is none."""
    if entry is None or entry.get("low") is None or entry.get("high") is None:
        return ""
    return f"[{number(entry['low'], digits)}, {number(entry['high'], digits)}]"


def value(entry: Mapping[str, float | None] | None, digits: int) -> str:
    """The value alone; an en dash where it could not be measured."""
    return number(None if entry is None else entry.get("value"), digits)


def ranking_names(metrics: Metrics) -> list[str]:
    """Names of all ranking metrics in the order in which they first appear."""
    return list(dict.fromkeys(name for of in metrics["selectors"].values() for name in of.get("ranking") or {}))


def stage_names(metrics: Metrics) -> list[str]:
    """Names of the timed stages without ``total``, in the order in which they first appear."""
    names = dict.fromkeys(name for of in metrics["selectors"].values() for name in of.get("seconds") or {})
    return [name for name in names if name != "total"]


def table_rows(metrics: Metrics) -> list[list[str]]:
    """Header and one row per selector, short enough for a terminal: without intervals, ranking at 5 only.

    Args:
        metrics: As in ``metrics.json``. What is missing or None is shown as an en dash.
    """
    ranking = [name for name in _TERMINAL_RANKING if name in ranking_names(metrics)]
    rows = [["selector", *(header for header, _, _ in _TERMINAL_AT_K), *ranking, "median time"]]
    for selector, of in metrics["selectors"].items():
        at_k, ranked = of.get("at_k") or {}, of.get("ranking") or {}
        rows.append(
            [
                selector,
                *(value(at_k.get(key), digits) for _, key, digits in _TERMINAL_AT_K),
                *(value(ranked.get(name), 3) for name in ranking),
                time_of(of, "total", "median"),
            ]
        )
    return rows


def time_of(selector: Mapping[str, Any], stage: str, statistic: str) -> str:
    """Median or p95 of a stage, with its unit."""
    return seconds(((selector.get("seconds") or {}).get(stage) or {}).get(statistic))


def summary(metrics: Metrics) -> str:
    """What was measured on how much, in a sentence."""
    evidence = metrics["questions_with_evidence"]
    return (
        f"{counted(len(metrics['selectors']), 'selector')} on {counted(metrics['questions'], 'question')} "
        f"({evidence:,} with known evidence pages) about {counted(metrics['documents'], 'document')} "
        f"of {counted(metrics['pages'], 'page')} in all; encoder: {metrics['encoder']}."
    )


def markdown_table(metrics: Metrics) -> str:
    """All figures of a run as Markdown: at k, ranking, time, paired tests, and what was left out.

    Args:
        metrics: As in ``metrics.json``.
    """
    selectors = metrics["selectors"]
    parts = [
        f"# Page selection on {_cell(metrics['dataset'])}",
        _cell(summary(metrics)),
        "Brackets hold 95 % bootstrap intervals.",
        _table(
            ["selector", *(header for header, _, _ in AT_K)],
            [
                [name, *(_both((of.get("at_k") or {}).get(key), digits) for _, key, digits in AT_K)]
                for name, of in selectors.items()
            ],
        ),
    ]
    if names := ranking_names(metrics):
        rows = [
            [selector, *(_both((of.get("ranking") or {}).get(name), 3) for name in names)]
            for selector, of in selectors.items()
        ]
        parts += ["## Ranking", _table(["selector", *names], rows)]
    stages = ["total", *stage_names(metrics)]
    rows = [
        [name, *(f"{time_of(of, stage, 'median')} / {time_of(of, stage, 'p95')}" for stage in stages)]
        for name, of in selectors.items()
    ]
    parts += [
        "## Time per question, median / 95th percentile",
        "Page selection alone, without encoding.",
        _table(["selector", *stages], rows),
    ]
    if metrics["tests"]:
        rows = [comparison_row(test) for test in metrics["tests"]]
        parts += ["## Paired tests", _table(COMPARISON_HEADER, rows, text_columns=3)]
    for title, lines in (
        ("Refused rows", metrics["refused"]),
        ("Failures", metrics["failures"]),
        ("Warnings", [f"{count:,} × {warning}" for warning, count in metrics["warnings"].items()]),
    ):
        if lines:
            parts += [f"## {title}", "\n".join(f"- {_cell(line)}" for line in lines)]
    return "\n\n".join(parts) + "\n"


COMPARISON_HEADER = ("selector", "baseline", "metric", "difference", "p", "p (Holm)")


def comparison_row(test: Mapping[str, Any]) -> list[str]:
    """One paired test: the difference is selector minus baseline."""
    difference = number(test["difference"])
    sign = "+" if difference not in (NOTHING, "0.000") and not difference.startswith("−") else ""
    return [
        test["selector"],
        test["baseline"],
        test["metric"],
        sign + difference,
        probability(test["p"]),
        probability(test["p_holm"]),
    ]


def _both(entry: Mapping[str, float | None] | None, digits: int) -> str:
    return f"{value(entry, digits)} {interval(entry, digits)}".rstrip()


def _cell(text: str) -> str:
    """Text that cannot end a cell or a line, nor become markup."""
    flat = " ".join(str(text).split())
    for sign in "\\|<*`[]!&":
        flat = flat.replace(sign, f"\\{sign}")
    return flat


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], *, text_columns: int = 1) -> str:
    rules = [":--" if column < text_columns else "--:" for column in range(len(header))]
    lines = [[_cell(name) for name in header], rules]
    # Figures need no escaping: they hold no sign that could end a cell.
    lines += [[_cell(cell) if column < text_columns else cell for column, cell in enumerate(row)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
