"""From a run folder and its data to ``report.html``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from conceptformer.records import OnProgress
from conceptformer.report.chance import chance_levels
from conceptformer.report.examples import retrieval_examples
from conceptformer.report.lengths import summarise_lengths
from conceptformer.report.thumbnails import gallery
from conceptformer.report.training_page import TrainingFigures, write_training_page
from conceptformer.retrieval.protocol import PageRetriever
from conceptformer.training.data import TrainingData
from conceptformer.training.log import read_log
from conceptformer.training.run import LOG_FILE

REPORT_FILE = "report.html"

_EXAMPLES = 3


def write_training_report(
    folder: Path,
    data: TrainingData,
    *,
    lengths: Sequence[int],
    refused: Sequence[str],
    settings: Mapping[str, str],
    finished: bool,
    retriever: PageRetriever | None = None,
    on_progress: OnProgress = lambda done, total: None,
) -> Path:
    """Write the report of a run, as far as it has come, and say where.

    Args:
        folder: Of the run; its ``log.jsonl`` is read.
        lengths: Number of concept tokens of each pair that is used, see
            :func:`~conceptformer.report.lengths.concept_lengths`.
        refused: A line with the reason for each row, box or page that was left out.
        settings: Name and value of what was used, in the order to be shown.
        finished: Whether the run came to its end.
        retriever: Searches the held-out pages for the gallery; None for no gallery.
        on_progress: Called with (held-out pages encoded, all of them).

    Raises:
        DataError: A held-out page cannot be read.
        StoreError: The log cannot be read, or the report not be written.
    """
    task = data.held_out
    examples = () if task is None or retriever is None else retrieval_examples(task, retriever, _EXAMPLES, on_progress)
    figures = TrainingFigures(
        title=folder.resolve().name,
        source=data.train.name,
        log=read_log(folder / LOG_FILE),
        finished=finished,
        pairs=len(lengths),
        chance={} if task is None else chance_levels(len(task.pages), map(len, task.relevant.values())),
        held_out=None if task is None else (len(task.queries), len(task.pages)),
        lengths=summarise_lengths(lengths),
        gallery=() if task is None else gallery(task, examples),
        refused=refused,
        settings=settings,
    )
    write_training_page(folder / REPORT_FILE, figures)
    return folder / REPORT_FILE
