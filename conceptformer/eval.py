"""``python -m conceptformer.eval``: how well a retriever finds the pages that answer queries."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conceptformer import __version__
from conceptformer.benchmarks import Benchmark, BenchmarkGroup
from conceptformer.errors import ConceptFormerError
from conceptformer.processes import rank_and_world
from conceptformer.records import OnProgress, RetrievalTask
from conceptformer.retrieval.evaluation import Evaluation, evaluate_retrieval
from conceptformer.retrieval.filling import Encoding, Place
from conceptformer.retrieval.protocol import PageRanker, PageRetriever
from conceptformer.retrieval.result_folders import RunIdentity, claimed, claimed_below, data_fingerprint
from conceptformer.retrieval.run_files import write_qrels, write_run
from conceptformer.retrieval.tables import markdown_table, mean_rows, metric_rows
from visar.command_line import result_console, run_command, true_or_false, user_path, whole_number
from visar.progress import progress_bar
from visar.run_folder import RunFolder

LITERAL_KEYS = (
    "checkpoint",
    "output",
    "cache",
    "retriever.backbone.name_or_folder",
    "benchmark.documents",
    "benchmark.folder",
    "benchmark.queries",
    "benchmark.root",
    "benchmark.questions.root",
)
"""Arguments that are free text: no sign in them means anything to Hydra."""

_RESULTS = Path("runs", "conceptformer", "eval")
_LONGEST_NAME = 100
_COMMIT = re.compile(r"[0-9a-f]{40}")


def main(config: DictConfig) -> None:
    """Build the objects that the config describes, run, and write the run folder."""
    place = Place(*rank_and_world(os.environ))
    console = result_console(quiet=place.rank != 0)
    config.cache = str(user_path(config, "cache"))
    encoding = _encoding(config, place)
    benchmarks, retriever = _benchmarks(config), _retriever(config, console)
    resampling, depth = instantiate(config.resampling), whole_number(config, "depth")
    results = []
    for name, benchmark in benchmarks.items():
        with progress_bar(console, "reading pages") as on_progress:
            task = benchmark.load(on_progress)
        claim = _result_folder(config, task, name, retriever, console) if place.rank == 0 else nullcontext()
        with claim as folder:
            with ExitStack() as bars:
                begin = _bar_by_bar(bars, console)
                evaluation = evaluate_retrieval(
                    task, retriever, encoding, depth=depth, resampling=resampling, on_progress=begin
                )
            if evaluation is not None and folder is not None:
                metrics = _metrics(task, retriever, evaluation)
                _write(folder, config, task, evaluation, metrics)
                _print_results(metrics, folder, console)
                results.append(metrics)
    if len(results) > 1:
        console.print(_table(mean_rows(results)))


def _bar_by_bar(bars: ExitStack, console: Console) -> Callable[[str], OnProgress]:
    """A bar for each stage, which ends the one before it."""

    def begin(what: str) -> OnProgress:
        bars.close()
        return bars.enter_context(progress_bar(console, what))

    return begin


def _benchmarks(config: DictConfig) -> Mapping[str | None, Benchmark]:
    """What is chosen: one benchmark, which names itself, or several by their names."""
    chosen = instantiate(config.benchmark)
    return chosen.members if isinstance(chosen, BenchmarkGroup) else {None: chosen}


def _encoding(config: DictConfig, place: Place) -> Encoding:
    return Encoding(
        cache=Path(config.cache),
        shard_items=whole_number(config, "shard_items"),
        batch_pages=whole_number(config, "batch_pages"),
        batch_queries=whole_number(config, "batch_queries"),
        skip_bad_pages=true_or_false(config, "skip_bad_rows"),
        patience_seconds=whole_number(config, "patience_seconds"),
        place=place,
    )


def _retriever(config: DictConfig, console: Console) -> PageRetriever | PageRanker:
    """The retriever of the config, on this process's own GPU where there are several."""
    local_rank = os.environ.get("LOCAL_RANK", "")
    if local_rank.isdigit() and torch.cuda.is_available():
        torch.cuda.set_device(int(local_rank) % torch.cuda.device_count())
    if _is_trained(config):
        import transformers

        _check_checkpoint(config)
        console.print(f"loading {config.checkpoint}", markup=False, highlight=False, soft_wrap=True)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
    elif config.checkpoint is not None:
        raise ConceptFormerError("checkpoint: this retriever has none; leave it out, or choose retriever=conceptformer")
    return instantiate(config.retriever)


def _is_trained(config: DictConfig) -> bool:
    """Whether the retriever is loaded from a checkpoint."""
    return "path" in config.retriever


def _check_checkpoint(config: DictConfig) -> None:
    """A folder, or a name on the hub with its commit: a branch would be another retriever tomorrow."""
    if config.checkpoint is None:
        raise ConceptFormerError(
            "checkpoint: expected the folder of a trained retriever; write checkpoint=FOLDER (python -m "
            "conceptformer.train +exp=tiny makes one), or choose a retriever without one, such as retriever=bm25"
        )
    config.checkpoint = str(user_path(config, "checkpoint"))
    if not Path(config.checkpoint).is_dir() and not _COMMIT.fullmatch(str(config.retriever.get("revision"))):
        raise ConceptFormerError(
            f"checkpoint: {config.checkpoint}: no such folder; expected one, or a name on the hub and its commit, "
            "retriever.revision=COMMIT, 40 hexadecimal digits"
        )


@contextmanager
def _result_folder(
    config: DictConfig, task: RetrievalTask, member: str | None, retriever: PageRetriever | PageRanker, console: Console
) -> Iterator[RunFolder]:
    """The folder that was chosen, or one that holds no results of other data or of another retriever. It is kept."""
    identity = RunIdentity(task.name, data_fingerprint(task), retriever.name, retriever.fingerprint())
    if config.output is not None:
        expected = user_path(config, "output") / (member or "")
        claim = claimed(expected, identity, setting="output")
    else:
        # Each once: the paper's benchmarks are chosen by their names.
        benchmark = dict.fromkeys((member or HydraConfig.get().runtime.choices["benchmark"], task.name))
        names = (re.sub(r"[^\w.]+", "-", name) for name in ("-".join(benchmark), config.checkpoint or retriever.name))
        names = [name[-_LONGEST_NAME:].strip("-.") for name in names]
        expected = _RESULTS.joinpath(*names)
        claim = claimed_below(_RESULTS, *names, identity)
    with claim as path:
        if path != expected:
            told = f"{expected} was taken by other data or other settings: results go to {path}"
            console.print(told, markup=False, highlight=False, soft_wrap=True)
        yield RunFolder(path)


def _metrics(task: RetrievalTask, retriever: PageRetriever | PageRanker, evaluation: Evaluation) -> dict[str, Any]:
    """The run's figures, as ``metrics.json`` holds them."""
    return {
        "conceptformer": __version__,
        "benchmark": task.name,
        "retriever": retriever.name,
        "retriever_fingerprint": retriever.fingerprint(),
        "queries": len(task.queries),
        "pages": len(task.pages) - len(evaluation.left_out),
        **evaluation.means,
        "refused": list(task.refused),
        "left_out": [f"{page_id}: {reason}" for page_id, reason in evaluation.left_out.items()],
    }


def _write(
    folder: RunFolder, config: DictConfig, task: RetrievalTask, evaluation: Evaluation, metrics: Mapping[str, Any]
) -> None:
    folder.finish(evaluation.rows)
    write_run(folder.path / "run.trec", evaluation.rankings, str(metrics["retriever"]))
    write_qrels(folder.path / "qrels.trec", task.relevant)
    folder.write("config.yaml", OmegaConf.to_yaml(config, resolve=True))
    folder.write("table.md", markdown_table([metrics]))
    folder.write("metrics.json", json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")


def _print_results(metrics: Mapping[str, Any], folder: RunFolder, console: Console) -> None:
    told = f"{metrics['benchmark']}, retriever {metrics['retriever']}: {metrics['queries']:,} queries, "
    console.print(Text(f"{told}{metrics['pages']:,} pages"), soft_wrap=True)
    console.print(_table(metric_rows(metrics)))
    for name, what in (("refused", "rows refused"), ("left_out", "pages left out")):
        if metrics[name]:
            console.print(f"[yellow]{what}: {len(metrics[name])}[/], listed in metrics.json; the first:")
            console.print(metrics[name][0], markup=False, highlight=False, soft_wrap=True)
    console.print(f"results: {folder.path}", markup=False, highlight=False, soft_wrap=True)


def _table(rows: Sequence[Sequence[str]]) -> Table:
    """A header and rows, for the terminal."""
    table = Table(*rows[0])
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


if __name__ == "__main__":
    run_command(main, config="eval", literal=LITERAL_KEYS, package="conceptformer")
