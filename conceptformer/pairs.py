"""``python -m conceptformer.pairs``: training pairs from own documents, or from any corpus with queries."""

from __future__ import annotations

import sys
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console

from conceptformer.benchmarks import BenchmarkGroup
from conceptformer.data.pair_files import PAIRS, TRAINING
from conceptformer.data.task_pairs import IMAGES, write_task_pairs
from conceptformer.errors import ConceptFormerError
from visar.command_line import run_command, true_or_false, user_path
from visar.progress import progress_bar

LITERAL_KEYS = (
    "out", "cache", "benchmark.documents", "benchmark.queries", "benchmark.root", "benchmark.folder",
    "benchmark.questions.root",
)  # fmt: skip
"""Arguments that are free text: no sign in them means anything to Hydra."""


def main(config: DictConfig) -> None:
    """Read the pages and queries that the config describes, and write them as pairs."""
    console = Console(width=None if sys.stdout.isatty() else 160, emoji=False, highlight=False)
    if config.out is None:
        raise ConceptFormerError("out: expected the folder to write to; write out=FOLDER")
    out = user_path(config, "out")
    config.out, config.cache = str(out), str(user_path(config, "cache"))
    benchmark = instantiate(config.benchmark)
    if isinstance(benchmark, BenchmarkGroup):
        raise ConceptFormerError("benchmark: expected a single one, each with an out of its own")
    with progress_bar(console, "reading pages") as on_progress:
        task = benchmark.load(on_progress)
    with progress_bar(console, "copying pages") as on_progress:
        written = write_task_pairs(
            task,
            out,
            cache=Path(config.cache),
            skip_bad_rows=true_or_false(config, "skip_bad_rows"),
            on_progress=on_progress,
        )
    lines = [
        f"{task.name}: queries: {written.queries:,}; pages that answer them: {written.pages:,}; pairs of the two: "
        f"{written.pairs:,}",
        f"page images: {written.copied:,} in {out / IMAGES}; {written.pages - written.copied:,} where they were",
        f"written: {out / PAIRS}, {out / TRAINING}; a row for each pair",
    ]
    if written.refused:
        console.print(f"[yellow]left out: {len(written.refused):,}[/]")
    for line in (*written.refused, *lines):
        console.print(line, markup=False, soft_wrap=True)


if __name__ == "__main__":
    run_command(main, config="pairs", literal=LITERAL_KEYS, package="conceptformer")
