"""Checkpoints of a training run, from which it goes on exactly, and each of which is a retriever."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import torch
from accelerate.utils import save_fsdp_optimizer
from torch import nn
from transformers import Trainer
from transformers.trainer import SCHEDULER_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from conceptformer.errors import CheckpointError
from conceptformer.probe import probe_embeddings
from conceptformer.step.model import TrainingModel
from conceptformer.training.sharded import fill, outermost_gathered, whole
from visar.tensor_files import StoreWarning, load, to_bytes, write_atomically

TRAINED_TENSORS = "trained.safetensors"
"""In a checkpoint: the trained parameters by the names that the trainer knows them by, from which a run goes on."""

Tensors: TypeAlias = Mapping[str, torch.Tensor]

SaveRetriever: TypeAlias = Callable[[Path, Tensors, Tensors, int, Mapping[str, float]], None]
"""Writes a checkpoint that loads as a retriever: folder, trained tensors by name, the embeddings of
:func:`~conceptformer.probe.probe_embeddings`, step, held-out metrics. Called in the main process."""

# Part of the message of a RuntimeError.
_TORCH_CANNOT_WRITE = "inline_container"
_GO_BACK = "remove this checkpoint's folder, the run then goes on from an earlier one"


class CheckpointingTrainer(Trainer):
    """transformers' Trainer, as far as it writes and reads checkpoints.

    Attributes:
        metrics: Step and results of the last evaluation.
    """

    def __init__(self, *args: Any, save_retriever: SaveRetriever, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._save_retriever = save_retriever
        self.metrics: tuple[int, dict[str, float]] = (-1, {})

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Called by the trainer, which would gather frozen weights too."""
        if self.is_fsdp_enabled:
            self._save(output_dir)
        else:
            super().save_model(output_dir, _internal_call)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        # Of a sharded model every process holds a part, and all have to ask for the whole.
        if not (self.args.should_save or self.is_fsdp_enabled or self.is_deepspeed_enabled):
            return
        model: TrainingModel = self.accelerator.unwrap_model(self.model)
        tensors = {}
        for name, value in model.trained_tensors().items():
            gathered = whole(value)
            if self.args.should_save:
                tensors[name] = gathered.detach().cpu()
        with outermost_gathered(model):
            probe = probe_embeddings(model.backbone)
        if not self.args.should_save:
            return
        if state_dict is not None:  # gathered by ZeRO-3
            tensors = {name: state_dict[name].detach().cpu() for name in tensors}
        tensors = {name: value.contiguous() for name, value in tensors.items()}
        folder = Path(output_dir or self.args.output_dir)
        step, metrics = self.metrics
        measured = metrics if step == self.state.global_step else {}
        self._save_retriever(folder, tensors, probe, self.state.global_step, measured)
        write_atomically(folder / TRAINED_TENSORS, to_bytes({}, tensors))

    def _save_checkpoint(self, model: nn.Module, trial: object) -> None:
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, RuntimeError) as error:
            # A full disk is no OSError to torch.save.
            if isinstance(error, RuntimeError) and _TORCH_CANNOT_WRITE not in str(error):
                raise
            folder = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            shutil.rmtree(folder, ignore_errors=True)
            reason = error.strerror or error if isinstance(error, OSError) else "writing failed, as on a full disk"
            raise CheckpointError(
                f"{folder}: the checkpoint cannot be written ({reason}); make room there, then run again: earlier "
                "checkpoints are kept"
            ) from error

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.is_fsdp_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        # As the trainer does it, but without another copy of all weights.
        plugin = self.accelerator.state.fsdp_plugin
        save_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, output_dir)
        if self.args.should_save:
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # The trainer's state, which says that the checkpoint is complete, is written next.
        self.accelerator.wait_for_everyone()

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _explained(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _explained(checkpoint):
            super()._load_rng_state(checkpoint)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        path = Path(resume_from_checkpoint) / TRAINED_TENSORS
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)
            found = load(path)
        if found is None:
            raise CheckpointError(f"{path}: damaged; {_GO_BACK}")
        _, tensors = found
        target: TrainingModel = self.accelerator.unwrap_model(model or self.model)
        wanted = target.trained_tensors()
        shapes = [{name: tuple(value.shape) for name, value in part.items()} for part in (wanted, tensors)]
        if shapes[0] != shapes[1]:
            differing = sorted(name for name, _ in shapes[0].items() ^ shapes[1].items())
            raise CheckpointError(
                f"{resume_from_checkpoint}: holds other trained parameters than this run has, e.g. {differing[0]}; "
                "continue with the settings that the run began with, or choose another output folder"
            )
        for name, value in wanted.items():
            fill(value, tensors[name])


# What torch raises of content that it will not load with ``weights_only``.
_REFUSED = torch.serialization.pickle.UnpicklingError


@contextmanager
def _explained(checkpoint: str | None) -> Iterator[None]:
    """What torch raises of files that a crash of the machine left incomplete, as one line."""
    try:
        yield
    except (OSError, RuntimeError, EOFError, ValueError, _REFUSED) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(f"{checkpoint}: cannot be read ({reason:.200}); {_GO_BACK}") from error
