"""``python -m conceptformer.pairs``: training pairs, or held-out queries, from own documents or any corpus."""

from __future__ import annotations

import shlex
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig

from conceptformer.benchmarks import BenchmarkGroup
from conceptformer.data.pair_files import PAIRS, TRAINING
from conceptformer.data.task_pairs import IMAGES, write_held_out, write_task_pairs
from conceptformer.errors import ConceptFormerError
from conceptformer.records import OnProgress, RetrievalTask
from visar.command_line import result_console, run_command, true_or_false, user_path
from visar.progress import progress_bar

LITERAL_KEYS = (
    "out", "cache", "benchmark.documents", "benchmark.queries", "benchmark.root", "benchmark.folder",
    "benchmark.questions.root",
)  # fmt: skip
"""Arguments that are free text: no sign in them means anything to Hydra."""


def main(config: DictConfig) -> None:
    """Read the pages and queries that the config describes, and write them as pairs or as held out."""
    console = result_console(highlight=False)
    if config.out is None:
        raise ConceptFormerError("out: expected the folder to write to; write out=FOLDER")
    out = user_path(config, "out")
    config.out, config.cache = str(out), str(user_path(config, "cache"))
    benchmark = instantiate(config.benchmark)
    if isinstance(benchmark, BenchmarkGroup):
        raise ConceptFormerError("benchmark: expected a single one, each with an out of its own")
    held_out, skip = true_or_false(config, "held_out"), true_or_false(config, "skip_bad_rows")
    with progress_bar(console, "reading pages") as on_progress:
        task = benchmark.load(on_progress)
    with progress_bar(console, "copying pages") as on_progress:
        write = _write_held_out if held_out else _write_pairs
        refused, lines = write(task, out, Path(config.cache), skip, on_progress)
    if refused:
        console.print(f"[yellow]left out: {len(refused):,}[/]")
    for line in (*refused, *lines):
        console.print(line, markup=False, soft_wrap=True)


def _write_pairs(
    task: RetrievalTask, out: Path, cache: Path, skip: bool, on_progress: OnProgress
) -> tuple[tuple[str, ...], list[str]]:
    """What was left out, and what there is to say of the rest."""
    written = write_task_pairs(task, out, cache=cache, skip_bad_rows=skip, on_progress=on_progress)
    return written.refused, [
        f"{task.name}: queries: {written.queries:,}; pages that answer them: {written.pages:,}; pairs of the two: "
        f"{written.pairs:,}",
        *_images(out, written.copied, written.pages - written.copied),
        f"written: {out / PAIRS}, {out / TRAINING}; a row for each pair",
    ]


def _write_held_out(
    task: RetrievalTask, out: Path, cache: Path, skip: bool, on_progress: OnProgress
) -> tuple[tuple[str, ...], list[str]]:
    """As :func:`_write_pairs`."""
    written = write_held_out(task, out, cache=cache, skip_bad_rows=skip, on_progress=on_progress)
    pages = len(written.task.pages)
    return written.task.refused, [
        f"{task.name}: queries: {len(written.task.queries):,}; pages, all of the corpus: {pages:,}",
        *_images(out, written.copied, pages - written.copied),
        f"written: {out / 'pages.jsonl'}, {out / 'queries.jsonl'}; train with {shlex.quote(f'data.held_out={out}')}",
    ]


def _images(out: Path, copied: int, others: int) -> list[str]:
    """Where the images of the pages are; only what there is."""
    lines = (
        (copied, f"page images copied to {out / IMAGES}: {copied:,}"),
        (others, f"page images used where they lie, so leave them there: {others:,}"),
    )
    return [line for number, line in lines if number]


if __name__ == "__main__":
    run_command(main, config="pairs", literal=LITERAL_KEYS, package="conceptformer")
