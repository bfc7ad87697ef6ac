"""The paper's tables as data, each with its source in its first line."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from conceptformer.errors import DataError

_METRICS = {"recall_at_10": "recall10", "ndcg_at_10": "ndcg10"}
_PERCENT = 100
_TABLES_OF_METHODS = (1, 2)


@dataclass(frozen=True)
class PublishedBenchmark:
    """A benchmark's name in tables, and its size (Table 5)."""

    title: str
    pages: int
    queries: int


def published_benchmarks() -> dict[str, PublishedBenchmark]:
    """The six benchmarks by the names that this project gives them, in the paper's order."""
    return {
        row["benchmark"]: PublishedBenchmark(row["title"], int(row["pages"]), int(row["queries"]))
        for row in _rows("conceptformer_table5.csv")
    }


def published_means(table: int) -> dict[str, Mapping[tuple[str, str], float]]:
    """Means over queries, as fractions, by (benchmark, metric), for each method of Table 1 or 2 in the paper's order.

    Raises:
        DataError: Another table.
    """
    if table not in _TABLES_OF_METHODS:
        raise DataError(f"published: the paper's tables of methods are 1 and 2, got {table!r}; choose one, or null")
    return {
        row["method"]: {
            (benchmark, metric): float(row[f"{benchmark}_{suffix}"]) / _PERCENT
            for benchmark in published_benchmarks()
            for metric, suffix in _METRICS.items()
        }
        for row in _rows(f"conceptformer_table{table}.csv")
    }


def _rows(name: str) -> list[dict[str, str]]:
    _source, *lines = (files(__package__) / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines))
