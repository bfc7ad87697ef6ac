"""How a run goes: batches, steps, optimiser, precision. One record, and its translation for transformers' Trainer."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.integrations import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations
from transformers.training_args import ParallelMode

from conceptformer.errors import MissingExtraError, TrainingError

# Of transformers' schedules those that need nothing but the warm-up.
_SCHEDULES = ("linear", "cosine", "constant", "constant_with_warmup")
_LEAST = {
    "max_steps": 1,
    "batch_size": 1,
    "accumulation": 1,
    "log_every": 1,
    "evaluate_every": 0,
    "save_every": 1,
    "keep": 1,
    "seed": 0,
    "workers": 0,
    "bucket": 1,
}
_RANGES = {
    "epochs": (0, math.inf),
    "learning_rate": (0, math.inf),
    "warm_up": (0, 1),
    "weight_decay": (0, math.inf),
    "max_gradient_norm": (0, math.inf),
}

BEST_METRIC = "ndcg_at_10"
"""What the best checkpoint is chosen by."""


@dataclass(frozen=True)
class Sharding:
    """How a model is spread over GPUs; nothing for one process, or for DDP.

    Attributes:
        fsdp, fsdp_config, deepspeed: The arguments of transformers' ``TrainingArguments`` of the same names.
    """

    fsdp: bool = False
    fsdp_config: Mapping[str, Any] | None = None
    deepspeed: Mapping[str, Any] | None = None

    @property
    def any(self) -> bool:
        """Whether each process holds a part of the model only."""
        return bool(self.fsdp or self.deepspeed)


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of one run.

    Attributes:
        epochs: Passes over the training pairs; fractions are possible.
        max_steps: Optimiser steps, instead of epochs; None for epochs.
        batch_size: Rows that one process embeds at a time.
        accumulation: Such batches that one process adds up for a step.
        cache_gradients: Let all rows of a step be each other's candidates, as one batch, with gradient caching; without
            it each accumulated batch has its own candidates.
        warm_up: Share of the steps in which the learning rate rises from 0; below 1.
        max_gradient_norm: Gradients are scaled down to this norm; 0 for never.
        precision: "bf16" (mixed) or "fp32".
        checkpoint_activations: Compute the layers' states again on the way back instead of keeping them.
        log_every, evaluate_every, save_every: In steps; ``evaluate_every`` 0 for never.
        keep: Checkpoints that stay besides the best.
        workers: Data-loader processes for each training process.
        bucket: See :class:`~conceptformer.training.bucketing.LengthBuckets`.
        loggers: Names that transformers has for them; the JSONL log is always written.
    """

    epochs: float
    batch_size: int
    accumulation: int
    cache_gradients: bool
    learning_rate: float
    warm_up: float
    weight_decay: float
    max_gradient_norm: float
    precision: str
    checkpoint_activations: bool
    log_every: int
    evaluate_every: int
    save_every: int
    keep: int
    seed: int
    workers: int
    bucket: int
    max_steps: int | None = None
    schedule: str = "linear"
    loggers: tuple[str, ...] = ("tensorboard",)
    sharding: Sharding = field(default_factory=Sharding)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loggers", tuple(self.loggers))
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not (name == "max_steps" and value is None):
                _require_whole(name, value, least)
        for name, (least, below) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < below:
                raise TrainingError(f"training.{name}: expected a number {_range(least, below)}, got {value!r}")
        if self.epochs == 0 or self.learning_rate == 0:
            name = "epochs" if self.epochs == 0 else "learning_rate"
            raise TrainingError(f"training.{name}: expected a number above 0, got 0: nothing would be trained")
        if self.evaluate_every % self.save_every:
            raise TrainingError(
                f"training.evaluate_every: expected a multiple of save_every ({self.save_every}), got "
                f"{self.evaluate_every}: the best checkpoint is chosen among those that are saved"
            )
        if self.precision not in ("bf16", "fp32"):
            raise TrainingError(f"training.precision: expected bf16 or fp32, got {self.precision!r}")
        if self.schedule not in _SCHEDULES:
            raise TrainingError(f"training.schedule: expected one of {', '.join(_SCHEDULES)}, got {self.schedule!r}")

    @property
    def rows_per_backward(self) -> int:
        """Rows of one process whose pages are candidates for each other."""
        return self.batch_size * self.accumulation if self.cache_gradients else self.batch_size

    def arguments(self, folder: Path, *, evaluates: bool) -> TrainingArguments:
        """The settings as transformers takes them.

        Args:
            folder: Of checkpoints and logs.
            evaluates: Whether there is a held-out set.

        Raises:
            MissingExtraError: A logger is not installed, or DeepSpeed is to be used and is not.
            TrainingError: There is no such logger, or only one process to shard a model over.
        """
        _check_loggers(self.loggers)
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tensorboard")
        if self.sharding.deepspeed:
            _require_deepspeed()
        arguments = TrainingArguments(
            output_dir=str(folder),
            **self._steps(),
            **self._reports(evaluates and self.evaluate_every > 0),
            bf16=self.precision == "bf16",
            activation_checkpointing=self.checkpoint_activations,
            activation_checkpointing_kwargs={"use_reentrant": False} if self.checkpoint_activations else None,
            seed=self.seed,
            data_seed=self.seed,
            dataloader_num_workers=self.workers,
            # Workers that stay draw no seed in later epochs, where those of a resumed run do: dropout would differ.
            dataloader_persistent_workers=False,
            dataloader_drop_last=True,
            dataloader_pin_memory=False,
            ddp_find_unused_parameters=False,
            remove_unused_columns=False,
            use_cpu=not torch.cuda.is_available(),
            fsdp=self.sharding.fsdp or None,
            fsdp_config=dict(self.sharding.fsdp_config) if self.sharding.fsdp_config else None,
            deepspeed=dict(self.sharding.deepspeed) if self.sharding.deepspeed else None,
        )
        _check_processes(arguments)
        return arguments

    def _steps(self) -> dict[str, Any]:
        """How many steps there are, and what each is."""
        return {
            "num_train_epochs": self.epochs,
            "max_steps": self.max_steps or -1,
            "per_device_train_batch_size": self.rows_per_backward,
            "gradient_accumulation_steps": 1 if self.cache_gradients else self.accumulation,
            "learning_rate": self.learning_rate,
            "lr_scheduler_type": self.schedule,
            "warmup_steps": self.warm_up,
            "weight_decay": self.weight_decay,
            "max_grad_norm": self.max_gradient_norm,
            "optim": "adamw_torch",
        }

    def _reports(self, evaluates: bool) -> dict[str, Any]:
        """When something is logged, measured and saved."""
        return {
            "logging_steps": self.log_every,
            "logging_first_step": True,
            "report_to": list(self.loggers),
            "disable_tqdm": True,
            "eval_strategy": "steps" if evaluates else "no",
            "eval_steps": self.evaluate_every if evaluates else None,
            "metric_for_best_model": BEST_METRIC if evaluates else None,
            "greater_is_better": True if evaluates else None,
            "save_strategy": "steps",
            "save_steps": self.save_every,
            # The best one is kept besides.
            "save_total_limit": self.keep + 1 if evaluates else self.keep,
        }


def _require_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TrainingError(f"training.{name}: expected a whole number of at least {least}, got {value!r}")


def _range(least: float, below: float) -> str:
    return f"of at least {least}" if below == math.inf else f"from {least} to below {below}"


def _check_processes(arguments: TrainingArguments) -> None:
    if (arguments.fsdp or arguments.deepspeed) and arguments.parallel_mode != ParallelMode.DISTRIBUTED:
        raise TrainingError("sharding: a process of its own has nobody to share with; use torchrun, or sharding=none")
    # The trainer would cut batches up for them, of which it knows nothing.
    if arguments.n_gpu > 1:
        raise TrainingError(
            f"{arguments.n_gpu} GPUs and one process: use torchrun --nproc-per-node={arguments.n_gpu}, or set "
            "CUDA_VISIBLE_DEVICES to one of them"
        )


def _check_loggers(names: Sequence[str]) -> None:
    known = sorted(INTEGRATION_TO_CALLBACK)
    for name in names:
        if name not in known:
            raise TrainingError(f"training.loggers: expected some of {', '.join(known)}, got {name!r}")
        if name == "tensorboard":
            _require_tensorboard()
        elif name not in get_available_reporting_integrations():
            raise TrainingError(f"training.loggers: {name} is not installed: pip install {name}, or leave it out")


def _require_tensorboard() -> None:
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtraError("tensorboard", "train", "training.loggers=[tensorboard]")


def _require_deepspeed() -> None:
    # No extra of ours: it is built for the machine's GPUs.
    if importlib.util.find_spec("deepspeed") is None:
        raise TrainingError("sharding=zero3 needs the package 'deepspeed': pip install deepspeed, or sharding=fsdp")
