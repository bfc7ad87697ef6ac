"""``report.html`` of one evaluation run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from visar.report.evaluation_pictures import Point, Row, k_histograms, oracle_curves, trade_off
from visar.report.page import render, write_page
from visar.report.table import (
    AT_K,
    COMPARISON_HEADER,
    Metrics,
    comparison_row,
    interval,
    ranking_names,
    stage_names,
    summary,
    time_of,
    value,
)

_MOST_ROWS = 300
_MOST_PAGES = 20
_MOST_LINES = 200
_SIGNIFICANT = 0.05


def write_evaluation_page(path: Path, metrics: Metrics, rows: Sequence[Row], settings: Mapping[str, str]) -> None:
    """Write one self-contained HTML file (no script, no outside request), atomically.

    Args:
        metrics: As in ``metrics.json``.
        rows: As in ``per_query.jsonl``: one per question and selector.
        settings: Name and value of what was used, in the order to be shown.

    Raises:
        StoreError: The file cannot be written.
    """
    names = list(metrics["selectors"])
    at_k = {name: of.get("at_k") or {} for name, of in metrics["selectors"].items()}
    page = render(
        "evaluation",
        metrics=metrics,
        summary=summary(metrics),
        settings=settings,
        at_k_table=_figures(metrics, "at_k", [(key, header, digits) for header, key, digits in AT_K]),
        ranking_table=_figures(metrics, "ranking", [(name, name, 3) for name in ranking_names(metrics)]),
        test_header=COMPARISON_HEADER,
        tests=[(comparison_row(test), _is_sure(test)) for test in _surest_first(metrics["tests"])],
        precision_recall=trade_off(
            [Point(name, of.get("precision") or {}, of.get("recall") or {}) for name, of in at_k.items()],
            "precision",
            "recall",
            within_one=True,
        ),
        pages_f1=trade_off(
            [Point(name, of.get("mean_k") or {}, of.get("f1") or {}) for name, of in at_k.items()],
            "mean k",
            "F1",
            within_one=False,
        ),
        histograms=k_histograms(rows, names),
        difference=oracle_curves(rows, names, lambda row: row["k"] - row["k_oracle"], "mean k − k(oracle)", 1),
        f1=oracle_curves(rows, names, lambda row: row["f1"], "mean F1", 2),
        times=_times(metrics),
        stages=stage_names(metrics),
        questions=_questions(rows, names),
        most_lines=_MOST_LINES,
    )
    write_page(path, page)


def _surest_first(tests: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Smallest corrected p first; tests without one last."""
    return sorted(tests, key=lambda test: (test["p_holm"] is None, test["p_holm"] or 0))


def _is_sure(test: Mapping[str, Any]) -> bool:
    return test["p_holm"] is not None and test["p_holm"] < _SIGNIFICANT


def _figures(metrics: Metrics, group: str, columns: Sequence[tuple[str, str, int]]) -> dict[str, Any]:
    """A table of values with their intervals."""
    rows = []
    for name, of in metrics["selectors"].items():
        entries = of.get(group) or {}
        cells = [(value(entries.get(key), digits), interval(entries.get(key), digits)) for key, _, digits in columns]
        rows.append((name, cells))
    return {"header": [header for _, header, _ in columns], "rows": rows}


def _times(metrics: Metrics) -> list[dict[str, Any]]:
    """For each selector the medians of its stages as shares of the longest 95th percentile, and all in words."""
    totals = {name: (of.get("seconds") or {}).get("total") or {} for name, of in metrics["selectors"].items()}
    longest = max((figure for total in totals.values() for figure in total.values() if figure), default=0.0)
    if not longest:
        return []
    times = []
    for name, of in metrics["selectors"].items():
        stages = [
            (stage, 100 * (((of.get("seconds") or {}).get(stage) or {}).get("median") or 0) / longest)
            for stage in stage_names(metrics)
        ]
        times.append(
            {
                "name": name,
                "median": time_of(of, "total", "median"),
                "p95": time_of(of, "total", "p95"),
                "p95_share": 100 * (totals[name].get("p95") or 0) / longest,
                "total_share": 100 * (totals[name].get("median") or 0) / longest,
                "stages": stages,
                "figures": [(time_of(of, stage, "median"), time_of(of, stage, "p95")) for stage, _ in stages],
            }
        )
    return times


def _questions(rows: Sequence[Row], names: Sequence[str]) -> list[dict[str, Any]]:
    """The worst questions of each selector; all selectors share the rows that a page can hold."""
    most = max(1, _MOST_ROWS // max(1, len(names)))
    tables = []
    for name in names:
        own = sorted((row for row in rows if row["selector"] == name), key=_badness)
        if own:
            tables.append({"name": name, "count": len(own), "rows": [_question(row) for row in own[:most]]})
    return tables


def _badness(row: Row) -> tuple[bool, float, float, int]:
    """Sorts the worst first; questions without evidence pages, which cannot be judged, come last."""
    return row["f1"] is None, row["f1"] or 0.0, row["recall"] or 0.0, -abs(row["k"] - (row.get("k_oracle") or row["k"]))


def _question(row: Row) -> dict[str, Any]:
    first_label, evidence = row["first_label"], set(row["evidence_pages"])

    def label(page: int) -> int:
        return page + first_label

    read = row["order"][: row["k"]]
    return {
        "row": row,
        "evidence": [(label(page), page in read) for page in sorted(evidence)],
        "read": [(label(page), page in evidence) for page in read[:_MOST_PAGES]],
        "more": len(read) - min(len(read), _MOST_PAGES),
    }
