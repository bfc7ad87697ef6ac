"""The training stage: from a backbone and pairs to a run folder with checkpoints, a log and a retriever."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import set_seed

from conceptformer.adapters import Adaptation
from conceptformer.backbones.protocol import Backbone
from conceptformer.checkpoint import save_checkpoint
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.errors import DataError, TrainingError
from conceptformer.manifest import Manifest
from conceptformer.probe import TOLERANCES
from conceptformer.records import OnProgress, TrainingExample
from conceptformer.step.batches import RowSize, row_size
from conceptformer.step.model import TrainingModel
from conceptformer.step.objective import Objective
from conceptformer.step.passes import Passes
from conceptformer.training.checkpoints import SaveRetriever, Tensors
from conceptformer.training.data import TrainingData
from conceptformer.training.held_out import HeldOutEvaluation
from conceptformer.training.log import JsonLog, RefusedList
from conceptformer.training.progress import StepProgress
from conceptformer.training.rows import TrainingRows
from conceptformer.training.run_checkpoints import (
    RETRIEVER,
    best_of,
    check_data,
    checkpoints,
    export_retriever,
    progress_of,
    remove_incomplete,
)
from conceptformer.training.settings import TrainingSettings
from conceptformer.training.step_counts import StepCounts
from conceptformer.training.stopping import StopOnSignal
from conceptformer.training.trainer import ConceptFormerTrainer, Order

LOG_FILE = "log.jsonl"
REFUSED_FILE = "refused.txt"
"""In a run folder, where rows, boxes or pages were left out: one line for each, with the reason."""

_HELD_OUT_BATCH = 8


@dataclass(frozen=True)
class Method:
    """What is trained, and towards what.

    Attributes:
        projection: See :class:`~conceptformer.step.model.TrainingModel`.

    Raises:
        TrainingError: The projection would not be trained.
    """

    adaptation: Adaptation
    concepts: ConceptSource
    passes: Passes
    objective: Objective
    projection: bool

    def __post_init__(self) -> None:
        if self.projection and not self.objective.concept_weight:
            raise TrainingError(
                "projection: only the concepts' loss trains it: give a concept_weight above 0, or false"
            )


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        steps: Done in all, earlier parts of the run included.
        stopped: A signal ended it early; the same call goes on from there.
        retriever: Folder of the best checkpoint's retriever, or of the last's without a held-out set; None where the
            run was stopped.
        best: The best checkpoint's held-out nDCG@10, if there is a held-out set.
        refused: Rows that were left out, with reasons.
    """

    steps: int
    stopped: bool
    retriever: Path | None
    best: float | None
    refused: tuple[str, ...]


@dataclass(frozen=True)
class LongestRow:
    """The training pair with the most tokens, with which a run needs the most memory.

    Attributes:
        pair: (query id, page id).
        tokens: Of page and concept together.
        concept_tokens: T, those of the concept among them.
    """

    pair: tuple[str, str]
    tokens: int
    concept_tokens: int


def train(
    backbone: Backbone,
    method: Method,
    data: TrainingData,
    settings: TrainingSettings,
    folder: Path,
    *,
    skip_bad_rows: bool,
    on_progress: OnProgress = lambda done, total: None,
    on_longest: Callable[[LongestRow], None] = lambda row: None,
) -> Outcome:
    """Train, or go on with a run that was killed or stopped in this folder.

    Args:
        backbone: Changed in place.
        folder: Checkpoints, logs and, in the end, the retriever.
        skip_bad_rows: Leave rows out that the model cannot take or whose image cannot be read, and list them.
        on_progress: Called with (steps done, all steps).
        on_longest: Called before the first step.

    Raises:
        TrainingError: The loss is not finite, or there are fewer rows than one step needs.
        DataError: A row cannot be used, and may not be left out; or a held-out page cannot.
        CheckpointError: The folder holds a run on other data or with other trained parameters, or a checkpoint cannot
            be written.
        StoreError: Another file cannot be written.
    """
    set_seed(settings.seed)
    arguments = settings.arguments(folder, evaluates=data.held_out is not None)
    examples, sizes, refused = usable_rows(data.train.examples, backbone, method.concepts, skip=skip_bad_rows)
    _check_enough(len(examples), arguments.train_batch_size * arguments.world_size)
    _check_concepts(sum(size.has_concept for size in sizes), len(sizes), method.objective.concept_weight)
    _check_evaluation(data, settings)
    method.adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    model = TrainingModel(backbone, method.concepts, method.passes, method.projection)
    stop, counts = StopOnSignal(), StepCounts()
    left_out = RefusedList(folder / REFUSED_FILE, (*data.refused, *refused), counts)
    trainer = ConceptFormerTrainer(
        model,
        arguments,
        TrainingRows(examples, backbone.inputs, method.concepts),
        objective=method.objective,
        order=Order(tuple(size.tokens for size in sizes), settings.bucket),
        chunk_size=settings.batch_size,
        skip_unreadable=skip_bad_rows,
        counts=counts,
        save_retriever=_saver(model, method, data, settings),
        evaluate=_held_out(data, backbone, arguments.process_index, arguments.world_size),
        callbacks=[JsonLog(folder / LOG_FILE), left_out, stop, StepProgress(on_progress)],
    )
    if arguments.process_index == 0:
        remove_incomplete(folder)
    trainer.accelerator.wait_for_everyone()
    earlier = checkpoints(folder)
    if earlier:
        check_data(earlier[-1], data.train.fingerprint)
    if not earlier or not progress_of(earlier[-1]).finished:
        on_longest(longest_row(examples, sizes, backbone, method.concepts))
        with stop:
            trainer.train(resume_from_checkpoint=str(earlier[-1]) if earlier else None)
    trainer.accelerator.wait_for_everyone()
    last = checkpoints(folder)[-1]
    if arguments.process_index == 0 and not stop.stopped:
        export_retriever(best_of(last), folder / RETRIEVER)
    return Outcome(
        steps=progress_of(last).step,
        stopped=stop.stopped,
        retriever=None if stop.stopped else folder / RETRIEVER,
        best=progress_of(last).best,
        refused=left_out.lines(),
    )


def usable_rows(
    examples: tuple[TrainingExample, ...], backbone: Backbone, concepts: ConceptSource, *, skip: bool
) -> tuple[tuple[TrainingExample, ...], tuple[RowSize, ...], tuple[str, ...]]:
    """Rows that the model can take, their sizes, and a line with the reason for each of the others.

    Raises:
        DataError: There is one of the others, and ``skip`` is off.
    """
    usable, sizes, refused = [], [], []
    for example in examples:
        try:
            sizes.append(row_size(example, backbone.inputs, concepts))
        except DataError as error:
            line = f"query {example.query_id}, page {example.page.page_id}: {error}"
            if not skip:
                raise DataError(line) from error
            refused.append(line)
            continue
        usable.append(example)
    return tuple(usable), tuple(sizes), tuple(refused)


def longest_row(
    examples: Sequence[TrainingExample], sizes: Sequence[RowSize], backbone: Backbone, concepts: ConceptSource
) -> LongestRow:
    """The first of the longest rows, given their sizes from :func:`usable_rows`."""
    size, example = max(zip(sizes, examples, strict=True), key=lambda row: row[0].tokens)
    concept = concepts.prepare(example, backbone.inputs.grid_of(example.image_size), backbone.inputs)
    return LongestRow((example.query_id, example.page.page_id), size.tokens, concept.slots)


def _check_enough(rows: int, step: int) -> None:
    if step < 2:
        raise TrainingError("one pair a batch has no page to be told apart from: give a training.batch_size above 1")
    if rows < step:
        raise TrainingError(
            f"{rows} usable training pairs are fewer than the {step} of one batch over all processes: "
            "give more, or a smaller training.batch_size"
        )


def _check_concepts(having: int, rows: int, weight: float) -> None:
    """A wrong file or frame must not turn the method into InfoNCE alone without a word."""
    if weight and not having:
        raise TrainingError(
            f"none of the {rows} training pairs has a concept (boxes, or labels for text concepts), and its loss has "
            f"the weight {weight:g}: give boxes, or train without by concepts=none objective.concept_weight=0"
        )
    if weight and having < rows:
        warnings.warn(f"{rows - having:,} of {rows:,} training pairs have no concept: InfoNCE alone", stacklevel=3)


def _check_evaluation(data: TrainingData, settings: TrainingSettings) -> None:
    if data.held_out is not None and not settings.evaluate_every:
        warnings.warn(
            "the held-out queries are not used, the last checkpoint counts as the best: training.evaluate_every is 0",
            stacklevel=3,
        )
    if data.held_out is None and settings.evaluate_every:
        warnings.warn("no held-out queries: nothing is evaluated, the last checkpoint counts as the best", stacklevel=3)


def _held_out(data: TrainingData, backbone: Backbone, rank: int, world: int) -> HeldOutEvaluation | None:
    if data.held_out is None:
        return None
    return HeldOutEvaluation(data.held_out, backbone, batch_pages=_HELD_OUT_BATCH, rank=rank, world=world)


def _saver(model: TrainingModel, method: Method, data: TrainingData, settings: TrainingSettings) -> SaveRetriever:
    """Writes checkpoints that load as retrievers."""
    backbone = model.backbone
    # A sharded model gathers its weights in the precision of training, and knows no other for its embeddings.
    precision = torch.bfloat16 if settings.sharding.any and settings.precision == "bf16" else backbone.model.dtype

    def save(folder: Path, tensors: Tensors, probe: Tensors, step: int, metrics: Mapping[str, float]) -> None:
        manifest = Manifest(
            backbone=backbone.describe(),
            inputs=backbone.inputs.describe(),
            adaptation=method.adaptation.describe(),
            concepts={**method.concepts.describe(), "alignment": repr(method.objective.alignment)},
            temperature=method.objective.temperature,
            concept_weight=method.objective.concept_weight,
            projection=method.projection,
            training_precision=settings.precision,
            data_fingerprint=data.train.fingerprint,
            step=step,
            metrics=dict(metrics),
            probe_tolerance=TOLERANCES[precision],
        )
        prefix = "network."
        state = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        save_checkpoint(folder, backbone, method.adaptation, manifest, state_dict=state, probe=probe)

    return save
