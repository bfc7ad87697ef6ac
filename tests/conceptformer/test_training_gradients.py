"""What a step of the trainer adds up: accumulated batches, and batches cut up for gradient caching."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from conceptformer.step.batches import make_batch, read_example, row_size
from conceptformer.step.model import TrainingModel
from conceptformer.step.objective import Marks
from conceptformer.training.bucketing import LengthBuckets
from conceptformer.training.run import train
from tests.conceptformer.tiny_models import tiny_backbone
from tests.conceptformer.training_parts import data_of, examples, method, settings, small_trainer
from tests.conceptformer.training_runs import largest_difference, relative_difference, trained

METHOD = method()


class Gradients(TrainerCallback):
    """Keeps the gradients of each step as the optimiser is about to see them."""

    def __init__(self) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        self.steps.append({name: value.grad.clone() for name, value in model.named_parameters()})


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return examples(tmp_path_factory.mktemp("images"))


def gradients_of_trainer(folder: Path, pairs, **changes: Any) -> list[dict[str, torch.Tensor]]:
    """Of each step of a run that trains nothing, so that they belong to the weights that it begins with."""
    kept = Gradients()
    trainer = small_trainer(folder, pairs, callbacks=[kept], learning_rate=1e-30, max_steps=2, **changes)
    trainer.train()
    return kept.steps


def gradients_by_hand(pairs, batches: list[list[int]]) -> dict[str, torch.Tensor]:
    """Of the mean of the losses of batches, each with its own candidates."""
    backbone = tiny_backbone()
    backbone.model.train().requires_grad_(True)
    model = TrainingModel(backbone, METHOD.concepts, METHOD.passes)
    losses = []
    for rows in batches:
        batch = make_batch([read_example(pairs[row], backbone.inputs, METHOD.concepts) for row in rows])
        terms = METHOD.objective(model(batch), Marks(batch.has_concept, batch.page_keys, batch.other_keys))
        losses.append(terms.total)
    (sum(losses) / len(losses)).backward()
    return {name: value.grad for name, value in model.named_parameters()}


def order_of(pairs, batch: int) -> list[list[int]]:
    """Rows of each batch of the first epoch."""
    inputs = tiny_backbone().inputs
    lengths = [row_size(pair, inputs, METHOD.concepts).tokens for pair in pairs]
    rows = list(LengthBuckets(lengths, batch=batch, bucket=2, seed=3))
    return [rows[start : start + batch] for start in range(0, len(rows) - batch + 1, batch)]


def assert_close(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    largest = max(float(value.abs().max()) for value in expected.values())
    assert largest > 1e-2
    assert largest_difference(found, expected) < 1e-5 * largest


def test_accumulated_batches_give_the_gradient_of_their_mean_loss(tmp_path, pairs):
    first, second = gradients_of_trainer(tmp_path, pairs, batch_size=3, accumulation=2)
    batches = order_of(pairs, 3)
    assert_close(first, gradients_by_hand(pairs, batches[:2]))
    assert_close(second, gradients_by_hand(pairs, batches[2:4]))


def test_the_last_step_of_an_epoch_with_fewer_batches_is_their_mean_too(tmp_path, pairs):
    """Of four batches of three rows, three make the first step and the fourth the second."""
    first, second = gradients_of_trainer(tmp_path, pairs, batch_size=3, accumulation=3)
    batches = order_of(pairs, 3)
    assert len(batches) == 4
    assert_close(first, gradients_by_hand(pairs, batches[:3]))
    assert_close(second, gradients_by_hand(pairs, batches[3:]))


def test_cached_gradients_are_those_of_one_large_batch(tmp_path, pairs):
    first, second = gradients_of_trainer(tmp_path, pairs, batch_size=3, accumulation=2, cache_gradients=True)
    batches = order_of(pairs, 6)
    assert_close(first, gradients_by_hand(pairs, batches[:1]))
    assert_close(second, gradients_by_hand(pairs, batches[1:2]))


def test_states_computed_again_on_the_way_back_give_the_same_gradients(tmp_path, pairs):
    first, second = gradients_of_trainer(tmp_path, pairs, batch_size=3, checkpoint_activations=True)
    batches = order_of(pairs, 3)
    assert_close(first, gradients_by_hand(pairs, batches[:1]))
    assert_close(second, gradients_by_hand(pairs, batches[1:2]))


def test_mixed_precision_gives_nearly_the_same_gradients_and_keeps_them_in_float32(tmp_path, pairs):
    first, _ = gradients_of_trainer(tmp_path, pairs, batch_size=3, precision="bf16", checkpoint_activations=True)
    expected = gradients_by_hand(pairs, order_of(pairs, 3)[:1])
    assert {value.dtype for value in first.values()} == {torch.float32}
    found, exact = (torch.cat([value.flatten() for value in one.values()]) for one in (first, expected))
    assert 1e-4 < float((found - exact).norm() / exact.norm()) < 0.1


def test_training_with_cached_gradients_is_training_with_large_batches_and_not_accumulation(tmp_path, pairs):
    weights = {}
    for name, changes in {
        "large": {"batch_size": 6},
        "cached": {"batch_size": 3, "accumulation": 2, "cache_gradients": True},
        "accumulated": {"batch_size": 3, "accumulation": 2},
    }.items():
        train(tiny_backbone(), METHOD, data_of(pairs), settings(**changes), tmp_path / name, skip_bad_rows=False)
        weights[name] = trained(tmp_path / name, 3)
    start = {f"network.{name}": value for name, value in tiny_backbone().model.named_parameters()}
    assert relative_difference(weights["cached"], weights["large"], start) < 1e-3
    assert relative_difference(weights["accumulated"], weights["large"], start) > 0.1
