"""The parts of a training run, without the command around them: a small backbone, pairs, a method, settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from conceptformer.adapters import FullTraining
from conceptformer.concepts.latent import DynamicLength, LatentConcepts, MeanPooling, TokenSlots
from conceptformer.records import EvidenceBox, Page, RetrievalTask, TrainingExample, TrainingSet
from conceptformer.step.batches import row_size
from conceptformer.step.model import TrainingModel
from conceptformer.step.objective import Objective, RankingAlignment
from conceptformer.step.passes import SharedPrefix
from conceptformer.training.data import TrainingData
from conceptformer.training.rows import TrainingRows
from conceptformer.training.run import Method
from conceptformer.training.settings import TrainingSettings
from conceptformer.training.step_counts import StepCounts
from conceptformer.training.trainer import ConceptFormerTrainer, Order
from tests.conceptformer.tiny_models import tiny_backbone
from tests.conceptformer.training_runs import QUERIES, noise

BOXES = (EvidenceBox(0.0, 0.0, 0.6, 0.5), EvidenceBox(0.5, 0.5, 1.0, 1.0))


def method(**changes: Any) -> Method:
    """The paper's, with its softer temperature of small models."""
    parts = {
        "adaptation": FullTraining(),
        "concepts": LatentConcepts(DynamicLength(), TokenSlots(), MeanPooling()),
        "passes": SharedPrefix(),
        "objective": Objective(0.05, 0.2, RankingAlignment(), mask_false_negatives=True),
        "projection": False,
    }
    return Method(**parts | changes)


def settings(**changes: Any) -> TrainingSettings:
    """Three steps of six rows in float32, nothing decayed, clipped or warmed up."""
    values = {
        "epochs": 1,
        "max_steps": 3,
        "batch_size": 6,
        "accumulation": 1,
        "cache_gradients": False,
        "learning_rate": 1e-3,
        "warm_up": 0.0,
        "weight_decay": 0.0,
        "max_gradient_norm": 0.0,
        "precision": "fp32",
        "checkpoint_activations": False,
        "log_every": 1,
        "evaluate_every": 0,
        "save_every": 3,
        "keep": 1,
        "seed": 3,
        "workers": 0,
        "bucket": 2,
        "loggers": (),
    }
    return TrainingSettings(**values | changes)


def examples(
    folder: Path, count: int = 13, without_boxes: Sequence[int] = (0, 4, 8, 12)
) -> tuple[TrainingExample, ...]:
    """Pages of 4 to 12 visual tokens with no, one or two boxes."""
    made = []
    for number in range(count):
        size = (28 * (2 + number % 2), 28 * (2 + number % 3))
        noise(folder / f"{number}.png", size, number)
        boxes = () if number in without_boxes else BOXES[: 1 + number % 2]
        query = f"{QUERIES[number % 3]} {number}"
        made.append(TrainingExample(f"q{number}", query, Page(f"p{number}", folder / f"{number}.png"), size, boxes))
    return tuple(made)


def data_of(pairs: Sequence[TrainingExample], held_out: RetrievalTask | None = None) -> TrainingData:
    return TrainingData(TrainingSet("pairs", tuple(pairs), (), "f" * 64), held_out)


def task_of(pairs: Sequence[TrainingExample]) -> RetrievalTask:
    """Each page's own query."""
    queries = {one.query_id: one.query for one in pairs}
    relevant = {one.query_id: frozenset([one.page.page_id]) for one in pairs}
    return RetrievalTask("held out", queries, tuple(one.page for one in pairs), relevant)


def small_trainer(
    folder: Path, pairs: Sequence[TrainingExample], callbacks: Sequence[TrainerCallback] = (), **changes: Any
) -> ConceptFormerTrainer:
    """A trainer that writes no retrievers."""
    chosen, chosen_method, backbone = settings(**changes), method(), tiny_backbone()
    lengths = tuple(row_size(pair, backbone.inputs, chosen_method.concepts).tokens for pair in pairs)
    return ConceptFormerTrainer(
        TrainingModel(backbone, chosen_method.concepts, chosen_method.passes),
        chosen.arguments(folder, evaluates=False),
        TrainingRows(pairs, backbone.inputs, chosen_method.concepts),
        objective=chosen_method.objective,
        order=Order(lengths, chosen.bucket),
        chunk_size=chosen.batch_size,
        skip_unreadable=False,
        counts=StepCounts(),
        save_retriever=lambda *_: None,
        evaluate=None,
        callbacks=list(callbacks),
    )
