"""``python -m visar.eval``: compare page selectors on a benchmark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from visar import __version__
from visar.benchmarks.protocol import Benchmark
from visar.command_line import chosen_selectors, result_console, run_command, true_or_false, user_path, whole_number
from visar.documents import OcrEngine
from visar.encoders.protocol import Encoder
from visar.errors import DatasetError
from visar.evaluation import Evaluation, Row
from visar.indexing import Failure, IndexReport, index_documents
from visar.progress import progress_bar
from visar.records import QuestionSet
from visar.report.evaluation_page import write_evaluation_page
from visar.report.table import markdown_table, table_rows
from visar.report.wording import counted
from visar.run_folder import RunFolder
from visar.selectors.protocol import PageSelector
from visar.significance import Resampling
from visar.store import EmbeddingStore
from visar.summary import summarise
from visar.worker_processes import usable_cores

LITERAL_KEYS = ("output", "cache", "dataset.root", "dataset.documents", "dataset.questions", "dataset.folder")
"""Arguments that are free text: no sign in them means anything to Hydra."""


@dataclass(frozen=True)
class Setting:
    """The objects that one run is made of.

    Attributes:
        cache: Folder of page texts and embeddings.
        processes: Processes that read and encode documents.
        leave_out_broken: Leave out pages with NaN or Inf instead of failing their document.
        baseline: Name of the selector to test against.
        encoder_name: How the results call the encoder.
    """

    encoder: Encoder
    ocr: OcrEngine
    selectors: Mapping[str, PageSelector]
    cache: Path
    dpi: int
    processes: int
    leave_out_broken: bool
    baseline: str
    resampling: Resampling
    encoder_name: str


def evaluate(benchmark: Benchmark, setting: Setting, folder: RunFolder, console: Console) -> dict[str, Any]:
    """Load, encode, select, summarise; rows go to the folder as they are made.

    Returns:
        The run's figures, as ``metrics.json`` holds them.

    Raises:
        DatasetError: The benchmark cannot be read, or none of its documents could.
    """
    questions = benchmark.load()
    store = EmbeddingStore(setting.cache / "embeddings")
    index = _index(questions, setting, store, console)
    evaluation = Evaluation(questions, setting.encoder, setting.selectors, store, index, setting.leave_out_broken)
    rows, broken = _rows(evaluation, folder, console)
    failures = [f"{failure.document_id}: {failure.reason}" for failure in (*index.failures, *broken)]
    if not rows:
        reason = failures[0] if failures else "it has no questions"
        raise DatasetError(f"{questions.name}: no question could be evaluated: {reason}")
    folder.finish(rows)
    return {
        "visar": __version__,
        "dataset": questions.name,
        "encoder": setting.encoder_name,
        "encoder_fingerprint": setting.encoder.fingerprint(),
        "questions": len({row["question_id"] for row in rows}),
        "questions_with_evidence": len({row["question_id"] for row in rows if row["evidence_pages"]}),
        "documents": len({row["document_id"] for row in rows}),
        "pages": sum(index.page_counts[name] for name in {row["document_id"] for row in rows}),
        "refused": list(questions.refused),
        "failures": failures,
        "warnings": _warnings(rows, setting),
        **summarise(rows, setting.baseline, setting.resampling),
    }


def _index(questions: QuestionSet, setting: Setting, store: EmbeddingStore, console: Console) -> IndexReport:
    with progress_bar(console, "encoding pages") as on_progress:
        return index_documents(
            questions.documents,
            setting.encoder,
            store,
            dpi=setting.dpi,
            ocr=setting.ocr,
            text_cache=setting.cache / "texts",
            processes=setting.processes,
            on_progress=on_progress,
        )


def _rows(evaluation: Evaluation, folder: RunFolder, console: Console) -> tuple[list[Row], list[Failure]]:
    total, done = evaluation.row_count, 0
    with progress_bar(console, "selecting pages") as report:

        def on_row(row: Row, fresh: bool) -> None:
            nonlocal done
            done += 1
            if fresh:
                folder.append(row)
                report(done, total)

        return evaluation.rows(folder.known_rows(), on_row)


def _warnings(rows: Sequence[Row], setting: Setting) -> dict[str, int]:
    """How many questions each warning concerns."""
    seen: set[tuple[str, str]] = set()
    for row in rows:
        seen |= {(warning, row["question_id"]) for warning in row["warnings"]}
        if row["dropped_tokens"]:
            seen.add(("the question is longer than the encoder takes; its end was left out", row["question_id"]))
        if setting.baseline not in setting.selectors:
            warning = f"no paired tests: the baseline {setting.baseline} is not among the selectors"
            seen.add((warning, row["question_id"]))
    return dict(Counter(warning for warning, _ in sorted(seen)))


def default_processes(encoder: Encoder) -> int:
    """One per core; one alone for encoders of images and on a GPU, since each process would load a large model."""
    return 1 if encoder.needs == "image" or torch.cuda.is_available() else usable_cores()


def _setting(config: DictConfig) -> Setting:
    encoder = instantiate(config.encoder)
    return Setting(
        encoder=encoder,
        ocr=instantiate(config.ocr),
        selectors={name: instantiate(selector) for name, selector in chosen_selectors(config).items()},
        cache=user_path(config, "cache"),
        dpi=whole_number(config, "dpi"),
        processes=default_processes(encoder) if config.processes is None else whole_number(config, "processes"),
        leave_out_broken=true_or_false(config, "leave_out_broken"),
        baseline=config.baseline,
        resampling=instantiate(config.resampling),
        encoder_name=HydraConfig.get().runtime.choices["encoder"],
    )


def column_groups(cells: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Columns that fit side by side in a table of ``width`` characters; each group begins with the first column.

    Rich would cut figures to make a table fit, which look like other figures then.
    """
    widths = [max(map(len, column)) + 3 for column in zip(*cells, strict=True)]
    groups: list[list[int]] = [[0]]
    for column in range(1, len(widths)):
        if len(groups[-1]) > 1 and sum(widths[i] for i in groups[-1]) + widths[column] >= width:
            groups.append([0])
        groups[-1].append(column)
    return groups


def _print_results(metrics: Mapping[str, Any], folder: RunFolder, console: Console) -> None:
    cells = table_rows(metrics)
    console.print(f"{metrics['dataset']}, encoder {metrics['encoder']}, {counted(metrics['questions'], 'question')}")
    for columns in column_groups(cells, console.width):
        table = Table()
        for column in columns:
            table.add_column(cells[0][column], justify="left" if column == 0 else "right", no_wrap=True)
        for row in cells[1:]:
            table.add_row(*(row[column] for column in columns))
        console.print(table)
    for name in ("refused", "failures", "warnings"):
        if metrics[name]:
            console.print(f"[yellow]{name}: {len(metrics[name])}[/], listed in the report; the first:")
            console.print(next(iter(metrics[name])), markup=False, highlight=False, soft_wrap=True)
    console.print(f"results: {folder.path}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"report:  {folder.path / 'report.html'}", markup=False, highlight=False, soft_wrap=True)


def main(config: DictConfig) -> None:
    """Build the objects that the config describes, run, and write the run folder."""
    console = result_console()
    setting = _setting(config)
    folder = RunFolder(user_path(config, "output"))
    text = OmegaConf.to_yaml(config, resolve=True)
    metrics = evaluate(instantiate(config.dataset), setting, folder, console)
    folder.write("config.yaml", text)
    folder.write("metrics.json", json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")
    folder.write("table.md", markdown_table(metrics))
    choices = HydraConfig.get().runtime.choices
    settings = {name: str(choices[name]) for name in ("dataset", "encoder", "ocr")} | {"dpi": str(config.dpi)}
    rows = list(folder.known_rows().values())
    write_evaluation_page(folder.path / "report.html", metrics, rows, settings)
    _print_results(metrics, folder, console)


if __name__ == "__main__":
    run_command(main, config="eval", literal=LITERAL_KEYS)
