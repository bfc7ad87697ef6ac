"""The figures of evaluation runs as tables: of one run for the terminal, of one or many for ``table.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conceptformer.retrieval.evaluation import METRICS

Metrics = Mapping[str, Any]
"""The figures of one run, as ``metrics.json`` holds them."""

_TITLES = dict(zip(METRICS, ("recall@10", "nDCG@10", "MRR@10"), strict=True))


def metric_rows(run: Metrics) -> list[list[str]]:
    """A header, and a row for each metric of a run: its mean and its interval."""
    return [
        ["", "mean", "95 % interval"],
        *([title, f"{run[name]['value']:.3f}", _interval(run[name])] for name, title in _TITLES.items()),
    ]


def mean_rows(runs: Sequence[Metrics]) -> list[list[str]]:
    """A header, a row for each run, and their mean, in which each benchmark counts once (paper, Sec. 4.1)."""
    return [
        ["", *_TITLES.values()],
        *([run["benchmark"], *(f"{run[name]['value']:.3f}" for name in METRICS)] for run in runs),
        ["mean", *(f"{sum(run[name]['value'] for run in runs) / len(runs):.3f}" for name in METRICS)],
    ]


def markdown_table(runs: Sequence[Metrics]) -> str:
    """A row for each run as Markdown, and everything that was left out."""
    header = ["benchmark", "retriever", "queries", "pages", *_TITLES.values()]
    rows = [
        [_cell(run["benchmark"]), _cell(run["retriever"]), f"{run['queries']:,}", f"{run['pages']:,}"]
        + [f"{run[name]['value']:.3f} {_interval(run[name])}".rstrip() for name in METRICS]
        for run in runs
    ]
    rules = [":--", ":--", *["--:"] * (len(header) - 2)]
    parts = [
        "# Page retrieval",
        "Means over queries. Brackets hold 95 % bootstrap intervals; queries about one page are resampled together.",
        "\n".join(f"| {' | '.join(row)} |" for row in (header, rules, *rows)),
    ]
    for run in runs:
        for title, name in (("Refused rows", "refused"), ("Pages left out", "left_out")):
            if run[name]:
                lines = "\n".join(f"- {_cell(line)}" for line in run[name])
                parts += [f"## {title} of {_cell(run['benchmark'])}: {len(run[name]):,}", lines]
    return "\n\n".join(parts) + "\n"


def _interval(entry: Mapping[str, float | None]) -> str:
    """``[0.663, 0.761]``; empty where no interval is known."""
    return "" if entry["low"] is None else f"[{entry['low']:.3f}, {entry['high']:.3f}]"


def _cell(text: str) -> str:
    """Text that cannot end a cell or a line, nor become markup."""
    flat = " ".join(text.split())
    for sign in "\\|<*`!&":
        flat = flat.replace(sign, f"\\{sign}")
    return flat
