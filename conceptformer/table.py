"""``python -m conceptformer.table``: the retrievers of finished runs side by side, and beside the paper's figures."""

from __future__ import annotations

from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.table import Table
from rich.text import Text

from conceptformer.published import published_benchmarks, published_means
from conceptformer.report.comparison_table import FigureTable
from conceptformer.report.retriever_page import write_retriever_page
from conceptformer.report.retriever_tables import (
    difference_table,
    explanation,
    figure_tables,
    notes,
    retriever_markdown,
)
from conceptformer.retrieval.comparison import compare_retrievers
from conceptformer.retrieval.finished_runs import find_finished_runs
from visar.command_line import result_console, run_command, user_path
from visar.tensor_files import write_atomically

LITERAL_KEYS = ("runs", "output", "reference")
"""Arguments that are free text: no sign in them means anything to Hydra."""


def main(config: DictConfig) -> None:
    """Read the runs, compare them, and write the tables."""
    console = result_console()
    known = published_benchmarks()
    published = {} if config.published is None else published_means(config.published)
    runs, unfinished = find_finished_runs(user_path(config, "runs"))
    comparison = compare_retrievers(
        runs, order=tuple(known), reference=config.reference, resampling=instantiate(config.resampling)
    )
    tables = [*figure_tables(comparison, published, known), difference_table(comparison, known)]
    told, lines = explanation(comparison), notes(comparison, known, unfinished)
    folder = user_path(config, "output")
    write_atomically(folder / "table.md", retriever_markdown(tables, told, lines).encode(errors="backslashreplace"))
    write_retriever_page(folder / "table.html", tables, told, lines)
    for table in tables:
        if table.rows:
            console.print(_for_terminal(table))
    for line in (told, *lines):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"tables: {folder}", markup=False, highlight=False, soft_wrap=True)


def _for_terminal(table: FigureTable) -> Table:
    shown = Table(title=table.title)
    for place, header in enumerate(table.header):
        shown.add_column(header, justify="left" if place < table.text_columns else "right")
    for row in table.rows:
        shown.add_row(*map(Text, row))
    return shown


if __name__ == "__main__":
    run_command(main, config="table", literal=LITERAL_KEYS, package="conceptformer")
