"""``python -m conceptformer.train``: train a retriever, compare such runs, or say what a run would be."""

from __future__ import annotations

import gc
import logging
import os
import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
import transformers
from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from conceptformer.backbones.protocol import Backbone
from conceptformer.errors import CheckpointError, TrainingError
from conceptformer.plan.data_plan import PAPER_DATA
from conceptformer.plan.printed import plan_lines, write_plan
from conceptformer.plan.run_plan import plan_run
from conceptformer.processes import rank_and_world
from conceptformer.report.comparison_table import conclusions, difference_table, figure_table
from conceptformer.report.lengths import concept_lengths
from conceptformer.report.training_report import write_training_report
from conceptformer.retriever import ConceptFormer
from conceptformer.run_config import keep_config
from conceptformer.training.compare import measure_run, run_comparison
from conceptformer.training.comparison import ComparisonPlan
from conceptformer.training.data import TrainingData
from conceptformer.training.run import REFUSED_FILE, LongestRow, Method, Outcome, train
from visar.command_line import result_console, run_command, true_or_false, user_path, whole_number
from visar.progress import progress_bar

LITERAL_KEYS = ("output", "cache", "tokenizer", "backbone.pretrained.name_or_folder", "data.train", "data.held_out")
"""Arguments that are free text: no sign in them means anything to Hydra."""

STOPPED_STATUS = 143
"""Exit status of a run that SIGTERM stopped: 128 + 15, as shells have it."""

_GROUPS = ("backbone", "data", "adaptation", "concepts", "objective", "training", "sharding")


def main(config: DictConfig) -> None:
    """Do what the config asks for."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    rank, _ = rank_and_world(os.environ)
    console = result_console(quiet=rank != 0)
    if true_or_false(config, "dry_run"):
        _plan(config, console)
    elif config.compare:
        _compare(config, console)
    else:
        _train(config, console)


def _train(config: DictConfig, console: Console) -> None:
    """Build the objects that the config describes, and train."""
    folder = user_path(config, "output")
    settings = instantiate(config.training, _convert_="all")
    # Joins the processes, and must live while weights are loaded, or DeepSpeed's ZeRO-3 would not know of itself.
    arguments = settings.arguments(folder, evaluates=False)
    if arguments.process_index == 0:
        keep_config(folder, config, arguments.world_size)
    else:
        _be_quiet()
    with arguments.distributed_state.main_process_first(), progress_bar(console, "reading pages") as on_progress:
        data = instantiate(config.data).load(on_progress)
    # ZeRO-3 loads weights in all processes together.
    with nullcontext() if arguments.deepspeed else arguments.distributed_state.main_process_first():
        backbone = _backbone(config)
    method = _method(config)
    skip = true_or_false(config, "skip_bad_rows")
    with progress_bar(console, "training") as on_progress:
        outcome = train(
            backbone,
            method,
            data,
            settings,
            folder,
            skip_bad_rows=skip,
            on_progress=on_progress,
            on_longest=lambda row: _print_longest(row, console),
        )
    # Else NCCL complains at the end.
    arguments.distributed_state.destroy_process_group()
    if arguments.process_index == 0:
        lengths = concept_lengths(data.train.examples, backbone.inputs, method.concepts)
        # Its memory is needed for the finished retriever; trainer and callbacks hold it in a circle.
        del backbone
        gc.collect()
        torch.cuda.empty_cache()
        _report(config, data, outcome, lengths, console)
        _print_outcome(outcome, folder, console)
    if outcome.stopped:
        raise SystemExit(STOPPED_STATUS)


def _backbone(config: DictConfig) -> Backbone:
    """The backbone with its weights."""
    try:
        return instantiate(config.backbone.pretrained)
    except InstantiationException as error:
        name = config.backbone.pretrained.get("name_or_folder")
        if name is None or Path(str(name)).expanduser().is_dir() or not isinstance(error.__cause__, CheckpointError):
            raise
        raise CheckpointError(
            f"{error.__cause__}; a copy on this machine is given by backbone.pretrained.name_or_folder=FOLDER "
            "backbone.pretrained.revision=null"
        ) from error


def _print_longest(row: LongestRow, console: Console) -> None:
    query, page = row.pair
    told = f"longest row, which needs the most memory: {row.tokens:,} tokens with T = {row.concept_tokens:,} of concept"
    console.print(f"{told} (query {query}, page {page})", markup=False, highlight=False, soft_wrap=True)


def _method(config: DictConfig) -> Method:
    return Method(
        adaptation=instantiate(config.adaptation, _convert_="all"),
        concepts=instantiate(config.concepts),
        passes=instantiate(config.passes),
        objective=instantiate(config.objective),
        projection=true_or_false(config, "projection"),
    )


def _report(config: DictConfig, data: TrainingData, outcome: Outcome, lengths: object, console: Console) -> None:
    retriever = None
    # This process alone loads a model now: ZeRO-3 would wait for the others.
    unset_hf_deepspeed_config()
    if outcome.retriever is not None and data.held_out is not None:
        retriever = ConceptFormer.from_pretrained(outcome.retriever)
    choices = HydraConfig.get().runtime.choices
    settings = {name: str(choices[name]) for name in _GROUPS} | {
        "temperature": str(config.objective.temperature),
        "concept weight": str(config.objective.concept_weight),
        "seed": str(config.training.seed),
    }
    with progress_bar(console, "writing the report") as on_progress:
        write_training_report(
            user_path(config, "output"),
            data,
            lengths=lengths,
            refused=outcome.refused,
            settings=settings,
            finished=not outcome.stopped,
            retriever=retriever,
            on_progress=on_progress,
        )


def _plan(config: DictConfig, console: Console) -> None:
    """Say what the run would be."""
    if config.backbone.get("without_weights") is None:
        raise TrainingError("dry_run: this backbone is made on the spot; start the run instead, it says what it does")
    if config.tokenizer is None:
        raise TrainingError("tokenizer: expected a folder with the backbone's tokenizer files; write tokenizer=FOLDER")
    config.tokenizer = str(user_path(config, "tokenizer"))
    settings = instantiate(config.training, _convert_="all")
    data = PAPER_DATA
    if config.data.get("train") is not None:
        with progress_bar(console, "reading pages") as on_progress:
            data = instantiate(config.data).load(on_progress).train
    backbone = instantiate(config.backbone.without_weights)
    with progress_bar(console, "planning") as on_progress:
        plan = plan_run(
            backbone, _method(config), data, settings, gpus=whole_number(config, "gpus"), on_progress=on_progress
        )
    for line in plan_lines(plan):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    path = write_plan(plan, user_path(config, "output"))
    console.print(f"\nplan: {path}", markup=False, highlight=False, soft_wrap=True)


def _compare(config: DictConfig, console: Console) -> None:
    """Train each variant with each seed, and compare what comes out."""
    if rank_and_world(os.environ)[1] != 1:
        raise TrainingError("compare: expected one process; start it without torchrun")
    with progress_bar(console, "reading pages") as on_progress:
        data = instantiate(config.data).load(on_progress)
    if data.held_out is None:
        raise TrainingError("compare: expected held-out queries; write data.held_out=FOLDER")
    variants = config.compare.variants

    def train_one(variant: str, seed: int, folder: Path) -> None:
        console.print(f"{variant}, seed {seed}", markup=False, highlight=False)
        changes = OmegaConf.from_dotlist([*variants[variant], f"training.seed={seed}"])
        _train(OmegaConf.merge(config, changes, {"output": str(folder), "compare": None}), console)

    comparison = run_comparison(
        ComparisonPlan(tuple(variants), tuple(config.compare.seeds)),
        data.held_out,
        user_path(config, "output"),
        train_one=train_one,
        measure=partial(measure_run, task=data.held_out),
    )
    for figures in (figure_table(comparison), difference_table(comparison)):
        table = Table(title=figures.title)
        for column, name in enumerate(figures.header):
            table.add_column(name, justify="left" if column < figures.text_columns else "right", no_wrap=True)
        for row in figures.rows:
            table.add_row(*row)
        console.print(table)
    for sentence in conclusions(comparison):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _be_quiet() -> None:
    """The main process says the same; errors are shown all the same."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def _print_outcome(outcome: Outcome, folder: Path, console: Console) -> None:
    if outcome.refused:
        console.print(f"[yellow]left out: {len(outcome.refused)} rows, boxes or pages[/]; the first:")
        console.print(outcome.refused[0], markup=False, highlight=False, soft_wrap=True)
        console.print(f"all of them: {folder / REFUSED_FILE}", markup=False, highlight=False, soft_wrap=True)
    if outcome.stopped:
        console.print(f"stopped at step {outcome.steps}; the same command goes on from there")
        return
    if outcome.best is not None:
        console.print(f"best nDCG@10 on held-out queries: {outcome.best:.3f}")
    console.print(
        f"{outcome.steps} steps; retriever: {outcome.retriever}", markup=False, highlight=False, soft_wrap=True
    )


if __name__ == "__main__":
    run_command(main, config="train", literal=LITERAL_KEYS, package="conceptformer")
