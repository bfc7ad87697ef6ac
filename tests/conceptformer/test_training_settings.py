"""Settings of a run: what is refused, and what transformers gets of them."""

from __future__ import annotations

import math

import pytest

from conceptformer.errors import TrainingError
from conceptformer.training.settings import Sharding
from tests.conceptformer.training_parts import method, settings


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 0}, "training.batch_size: expected a whole number of at least 1, got 0"),
        ({"accumulation": 1.5}, "training.accumulation: expected a whole number of at least 1, got 1.5"),
        ({"keep": True}, "training.keep: expected a whole number of at least 1, got True"),
        ({"workers": -1}, "training.workers: expected a whole number of at least 0, got -1"),
        ({"max_steps": 0}, "training.max_steps: expected a whole number of at least 1, got 0"),
        ({"seed": "a"}, "training.seed: expected a whole number of at least 0, got 'a'"),
        ({"epochs": 0}, "training.epochs: expected a number above 0"),
        ({"epochs": math.inf}, "training.epochs: expected a number of at least 0, got inf"),
        ({"learning_rate": 0.0}, "training.learning_rate: expected a number above 0"),
        ({"learning_rate": "1e-4"}, "training.learning_rate: expected a number of at least 0, got '1e-4'"),
        ({"weight_decay": math.nan}, "training.weight_decay: expected a number of at least 0, got nan"),
        ({"warm_up": 1}, "training.warm_up: expected a number from 0 to below 1, got 1"),
        ({"max_gradient_norm": -1.0}, "training.max_gradient_norm: expected a number of at least 0, got -1.0"),
        ({"evaluate_every": 4}, "training.evaluate_every: expected a multiple of save_every (3), got 4"),
        ({"precision": "fp16"}, "training.precision: expected bf16 or fp32, got 'fp16'"),
        ({"schedule": "linaer"}, "training.schedule: expected one of linear, cosine"),
    ],
)
def test_values_that_make_no_sense_are_refused(changes, said):
    with pytest.raises(TrainingError) as raised:
        settings(**changes)
    assert str(raised.value).startswith(said) and "\n" not in str(raised.value)


def test_rows_accumulate_or_become_one_set_of_candidates(tmp_path):
    chosen = {"batch_size": 8, "accumulation": 4}
    apart = settings(**chosen).arguments(tmp_path, evaluates=False)
    assert (apart.per_device_train_batch_size, apart.gradient_accumulation_steps) == (8, 4)
    together = settings(**chosen, cache_gradients=True).arguments(tmp_path, evaluates=False)
    assert (together.per_device_train_batch_size, together.gradient_accumulation_steps) == (32, 1)


@pytest.mark.parametrize(("evaluates", "every", "expected"), [(True, 3, 3), (True, 0, 2), (False, 3, 2)])
def test_the_best_checkpoint_is_kept_besides_where_there_is_one(tmp_path, evaluates, every, expected):
    arguments = settings(keep=2, evaluate_every=every).arguments(tmp_path, evaluates=evaluates)
    assert arguments.save_total_limit == expected
    assert arguments.eval_strategy == ("steps" if expected == 3 else "no")
    assert arguments.metric_for_best_model == ("ndcg_at_10" if expected == 3 else None)


@pytest.mark.parametrize(("warm_up", "steps"), [(0.0, 0), (0.1, 2), (0.5, 8)])
def test_warm_up_is_a_share_of_the_steps(tmp_path, warm_up, steps):
    assert settings(warm_up=warm_up).arguments(tmp_path, evaluates=False).get_warmup_steps(15) == steps


def test_no_more_than_one_gpu_is_used_by_one_process(tmp_path, monkeypatch):
    """The trainer would spread batches over all GPUs that it sees, and cannot."""
    monkeypatch.setattr("conceptformer.training.settings.TrainingArguments.n_gpu", 4)
    with pytest.raises(TrainingError, match="4 GPUs and one process: use torchrun --nproc-per-node=4"):
        settings().arguments(tmp_path, evaluates=False)


@pytest.mark.parametrize(
    ("logger", "said"),
    [("wandb", "training.loggers: wandb is not installed"), ("nothing", "training.loggers: expected some of ")],
)
def test_loggers_that_cannot_be_used_are_named(tmp_path, logger, said):
    with pytest.raises(TrainingError, match=said):
        settings(loggers=[logger]).arguments(tmp_path, evaluates=False)


def test_sharding_needs_other_processes(tmp_path):
    with pytest.raises(TrainingError, match="use torchrun, or sharding=none"):
        settings(sharding=Sharding(fsdp=True)).arguments(tmp_path, evaluates=False)


def test_a_projection_that_nothing_would_train_is_refused():
    from conceptformer.step.objective import Objective, RankingAlignment

    objective = Objective(0.05, 0.0, RankingAlignment(), mask_false_negatives=False)
    assert method(objective=objective).projection is False
    with pytest.raises(TrainingError, match="projection: only the concepts' loss trains it"):
        method(objective=objective, projection=True)
