"""``python -m conceptformer.opendocvqa``: the paper's training data as one file with its page images beside it."""

from __future__ import annotations

from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from conceptformer.data.pair_files import PAIRS, TRAINING
from conceptformer.errors import ConceptFormerError
from conceptformer.opendocvqa.training_data import SUMMARY, Written, write_training_data
from visar.command_line import result_console, run_command, true_or_false, user_path
from visar.progress import progress_bar

LITERAL_KEYS = ("out", "boxes", "queries.root", "corpus.root")
"""Arguments that are free text: no sign in them means anything to Hydra."""


def main(config: DictConfig) -> None:
    """Build the objects that the config describes, write the files, and show the counts beside the paper's."""
    console = result_console(highlight=False)
    if config.out is None:
        raise ConceptFormerError("out: expected the folder to write to; write out=FOLDER")
    out = user_path(config, "out")
    with progress_bar(console, "copying pages") as on_progress:
        written = write_training_data(
            instantiate(config.queries),
            instantiate(config.corpus),
            out,
            boxes=None if config.boxes is None else user_path(config, "boxes"),
            all_pages=true_or_false(config, "all_pages"),
            skip_bad_rows=true_or_false(config, "skip_bad_rows"),
            on_progress=on_progress,
        )
    _print_result(written, out, console)


def _print_result(written: Written, out: Path, console: Console) -> None:
    table = Table("source", "images", "in Table 4", "queries", "in Table 4", "")
    for row in written.sources:
        counts = (row.images, row.published_images, row.queries, row.published_queries)
        table.add_row(row.source, *(f"{count:,}" for count in counts), "differs" if row.differs else "")
    console.print(table)
    console.print(f"pairs: {written.pairs:,}, without boxes: {written.without_boxes:,}")
    notes = {
        "rows or boxes left out": len(written.refused),
        "rows of the corpus with the id of an earlier one": written.repeated_pages,
        "rows of the box file that belong to no pair": written.unused_boxes,
        **{f"queries of {name}, which is none of the sources": count for name, count in written.other_sources.items()},
    }
    for what, count in notes.items():
        if count:
            console.print(f"{what}: {count:,}", markup=False)
    if written.refused:
        console.print(f"the first that was left out: {written.refused[0]}", markup=False, soft_wrap=True)
    console.print(f"written: {out} ({TRAINING}, {PAIRS}, {SUMMARY})", markup=False, soft_wrap=True)


if __name__ == "__main__":
    run_command(main, config="opendocvqa", literal=LITERAL_KEYS, package="conceptformer")
