"""Retrievers side by side as tables: for the terminal, for ``table.md`` and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from conceptformer.published import PublishedBenchmark
from conceptformer.report.comparison_table import FigureTable
from conceptformer.report.page import METRIC_NAMES
from conceptformer.retrieval.comparison import COMPARED_METRICS, RetrieverComparison
from visar.report.wording import NOTHING, counted, number, probability

PublishedMeans = Mapping[str, Mapping[tuple[str, str], float]]
"""The paper's figures by (benchmark, metric), for each method."""

_PERCENT = 100
_NO_MARKUP = str.maketrans({sign: f"\\{sign}" for sign in "\\|<*`!&_[]"})


def figure_tables(
    comparison: RetrieverComparison, published: PublishedMeans, known: Mapping[str, PublishedBenchmark]
) -> list[FigureTable]:
    """One table for each metric: retrievers in rows, behind them the paper's, where the benchmark is one of its own.
    Where there are several benchmarks, a last column has their average.

    Args:
        known: The paper's benchmarks by name.
    """
    tables, several = [], len(comparison.benchmarks) > 1
    for metric in COMPARED_METRICS:
        rows = [
            (
                retriever,
                *(
                    _percent(run.mean(metric)) if (run := comparison.runs.get((retriever, benchmark))) else NOTHING
                    for benchmark in comparison.benchmarks
                ),
                *([_percent(comparison.average(retriever, metric))] if several else []),
            )
            for retriever in comparison.retrievers
        ]
        if any(benchmark in known for benchmark in comparison.benchmarks):
            rows += [_published_row(name, means, metric, comparison) for name, means in published.items()]
        titles = [known[name].title if name in known else name for name in comparison.benchmarks]
        header = ("retriever", *titles, *(["average"] if several else []))
        tables.append(FigureTable(f"{METRIC_NAMES[metric]} in %", header, tuple(rows), 1))
    return tables


def difference_table(comparison: RetrieverComparison, known: Mapping[str, PublishedBenchmark]) -> FigureTable:
    """The reference minus each other retriever, benchmark by benchmark, and what the test says of it."""
    rows = [
        (
            known[one.benchmark].title if one.benchmark in known else one.benchmark,
            f"{comparison.reference} − {one.other}",
            METRIC_NAMES[one.metric],
            _signed(one.value),
            probability(one.p),
            probability(one.p_holm),
        )
        for one in comparison.differences
    ]
    header = ("benchmark", "difference", "metric", "points", "p", "p (Holm)")
    return FigureTable("Differences", header, tuple(rows), 3)


def notes(
    comparison: RetrieverComparison, known: Mapping[str, PublishedBenchmark], unfinished: Sequence[Path]
) -> list[str]:
    """What a reader has to know of the data before comparing: sizes, what was left out, and where that is not the
    paper's.

    Args:
        unfinished: Folders of runs that were not finished.
    """
    lines = []
    for benchmark in comparison.benchmarks:
        run = next(run for (_, name), run in comparison.runs.items() if name == benchmark)
        told = f"{benchmark}: {_queries(len(run.queries))}, {counted(run.pages, 'page')}"
        paper = known.get(benchmark)
        if paper is not None and (paper.queries, paper.pages) != (len(run.queries), run.pages):
            told += (
                f"; the paper's has {_queries(paper.queries)} and {counted(paper.pages, 'page')}: its figures are of "
                "other data"
            )
        lines.append(f"{told}.")
    lines += [
        f"{retriever} on {benchmark}: pages that could not be read, which count as missed: {run.left_out:,}."
        for (retriever, benchmark), run in comparison.runs.items()
        if run.left_out
    ]
    if unfinished:
        lines.append(f"Not finished and left out: {', '.join(map(str, unfinished))}.")
    return lines


def explanation(comparison: RetrieverComparison) -> str:
    """What the figures in the tables are, as far as there are such."""
    sentences = ["Means over queries."]
    if len(comparison.benchmarks) > 1:
        sentences.append(
            "Average: over all benchmarks of the table, each counting once; none where a retriever lacks one of them."
        )
    if comparison.differences:
        sentences.append(
            "Points: difference in %. p: paired permutation test over queries, those about one page counting as one. "
            "Holm: corrected for all differences here."
        )
    return " ".join(sentences)


def retriever_markdown(tables: Sequence[FigureTable], told: str, lines: Sequence[str]) -> str:
    """Everything as Markdown.

    Args:
        told: See :func:`explanation`.
        lines: See :func:`notes`.
    """
    parts = ["# Retrievers", told]
    for table in tables:
        if not table.rows:
            continue
        rules = [":--" if column < table.text_columns else "--:" for column in range(len(table.header))]
        rows = [[" ".join(cell.split()).translate(_NO_MARKUP) for cell in row] for row in (table.header, *table.rows)]
        lined = [rows[0], rules, *rows[1:]]
        parts += [f"## {table.title}", "\n".join(f"| {' | '.join(row)} |" for row in lined)]
    parts += ["## Data", "\n".join(f"- {line}".translate(_NO_MARKUP) for line in lines)]
    return "\n\n".join(parts) + "\n"


def _published_row(
    name: str, means: Mapping[tuple[str, str], float], metric: str, comparison: RetrieverComparison
) -> tuple[str, ...]:
    found = [means.get((benchmark, metric)) for benchmark in comparison.benchmarks]
    given = [value for value in found if value is not None]
    average = sum(given) / len(given) if len(given) == len(found) else None
    return (f"paper: {name}", *map(_percent, found), *([_percent(average)] if len(found) > 1 else []))


def _queries(count: int) -> str:
    return f"{count:,} {'query' if count == 1 else 'queries'}"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else number(_PERCENT * value, 2)


def _signed(value: float) -> str:
    text = number(_PERCENT * value, 2)
    return text if text.startswith("−") or text == "0.00" else f"+{text}"
