"""The training loop: transformers' Trainer with our loss, our order of rows, and checkpoints that are retrievers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback, TrainerCallback

from conceptformer.errors import DataError, TrainingError
from conceptformer.step.batch import TrainingBatch
from conceptformer.step.gradient_cache import cached_backward
from conceptformer.step.model import Embeddings, TrainingModel
from conceptformer.step.objective import LossTerms, Marks, Objective
from conceptformer.training.bucketing import LengthBuckets
from conceptformer.training.checkpoints import CheckpointingTrainer, SaveRetriever
from conceptformer.training.rows import Chunks, MakeChunks, TrainingRows
from conceptformer.training.sharded import outermost_gathered, whole
from conceptformer.training.step_counts import StepCounts
from conceptformer.training.stopping import outlive_sigterm
from visar.tensor_files import write_atomically

Evaluate = Callable[[], dict[str, float]]
"""Retrieval on held-out queries with the model as it is now; metrics by name, fractions."""

_NOT_FINITE_ADVICE = (
    "look at these rows, or begin anew in another output folder with a lower learning rate or in float32"
)


@dataclass(frozen=True)
class Order:
    """In which order rows come.

    Attributes:
        lengths: Tokens of each row.
        bucket: Batches sorted by length together, see :class:`~conceptformer.training.bucketing.LengthBuckets`.
    """

    lengths: tuple[int, ...]
    bucket: int


class ConceptFormerTrainer(CheckpointingTrainer):
    """Trains a :class:`TrainingModel`.

    Args:
        model: Moved to the device by the trainer.
        arguments: Its batch size is that of one process and step, ``chunk_size`` notwithstanding.
        chunk_size: Rows embedded at a time; fewer than the batch size turns gradient caching on.
        skip_unreadable: Go on without rows whose image cannot be read, and count them.
        counts: Of what a line of the log tells.
        evaluate: Called every ``eval_steps``; None for no evaluation.

    Raises:
        TrainingError: The model is to be sharded and accelerate does not do it.
    """

    def __init__(
        self,
        model: TrainingModel,
        arguments: TrainingArguments,
        rows: TrainingRows,
        *,
        objective: Objective,
        order: Order,
        chunk_size: int,
        skip_unreadable: bool,
        counts: StepCounts,
        save_retriever: SaveRetriever,
        evaluate: Evaluate | None,
        callbacks: list[TrainerCallback],
    ) -> None:
        # The trainer only asks whether there is something to evaluate on.
        held_out = None if evaluate is None else rows
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=rows,
            eval_dataset=held_out,
            data_collator=MakeChunks(chunk_size),
            callbacks=callbacks,
            save_retriever=save_retriever,
        )
        self._objective = objective
        self._order = order
        self._retrieval = evaluate
        self._skip_unreadable = skip_unreadable
        self._counts = counts
        self._sampler: LengthBuckets | None = None
        self._since_step: list[tuple[str, str]] = []
        if arguments.fsdp and not self.is_fsdp_enabled:
            raise TrainingError("FSDP shards models over GPUs only, and there are none here: write sharding=none")
        self.add_callback(_Turns(self))
        # It prints what the log holds.
        self.remove_callback(PrinterCallback)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of rows of an epoch. The data loader's own way does not reach a sampler within shards."""
        if self._sampler is not None:
            self._sampler.set_epoch(epoch)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Chunks], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """One forward and backward over this process' rows."""
        self._counts.begin_step()
        model.train()
        chunks = inputs["chunks"]
        self._refuse_unreadable(chunks)
        batches = [batch.to(self.args.device) for batch in chunks.batches]
        self._since_step += [pair for batch in batches for pair in batch.pairs]
        objective = functools.partial(self._objective, marks=_marks(batches))

        def embed(batch: TrainingBatch) -> Embeddings:
            with self.compute_loss_context_manager():
                return model(batch)

        if len(batches) == 1:
            terms = objective(embed(batches[0]))
            self._refuse_not_finite(terms, batches)
            self._backward(terms.total)
        else:

            def loss(embeddings: Embeddings) -> LossTerms:
                terms = objective(embeddings)
                self._refuse_not_finite(terms, batches)
                return terms

            terms = cached_backward(batches, embed, loss, self._backward, lambda: self._not_yet(model))
        self._counts.add(terms, chunks)
        return terms.total.detach() / self.current_gradient_accumulation_steps

    @contextmanager
    def _not_yet(self, model: nn.Module) -> Iterator[None]:
        """Gradients are added up and not yet exchanged."""
        if not self.is_deepspeed_enabled:
            with self.accelerator.no_sync(model):
                yield
            return
        # Its optimiser would make a step after each backward pass.
        self.accelerator.gradient_state._set_sync_gradients(False)
        yield
        self.accelerator.gradient_state._set_sync_gradients(True)

    def _backward(self, loss: torch.Tensor) -> None:
        scaled = loss / self.current_gradient_accumulation_steps
        if self.is_deepspeed_enabled:
            self.accelerator.backward(scaled, scale_wrt_gas=False)
        else:
            self.accelerator.backward(scaled)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """Called before each step of the optimiser, in all processes, with the norm over all of them."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        pairs, self._since_step = self._since_step, []
        if norm is not None and not math.isfinite(whole(norm) if isinstance(norm, torch.Tensor) else norm):
            # A step would make all parameters NaN, and a checkpoint of them might follow.
            raise TrainingError(
                f"step {self.state.global_step}: the gradient is not finite ({norm}), the losses are; the query and "
                f"page ids of the step are in {self._write_pairs(pairs)}; {_NOT_FINITE_ADVICE}"
            )
        return norm

    def _write_pairs(self, pairs: Sequence[tuple[str, str]]) -> Path:
        path = Path(self.args.output_dir) / f"not-finite-step-{self.state.global_step}-{self.args.process_index}.txt"
        write_atomically(path, "".join(f"{query}\t{page}\n" for query, page in pairs).encode())
        return path

    def _refuse_unreadable(self, chunks: Chunks) -> None:
        if chunks.unreadable and not self._skip_unreadable:
            (query, page), reason = chunks.unreadable[0].pair, chunks.unreadable[0].reason
            raise DataError(
                f"query {query}, page {page}: {reason}; or skip_bad_rows=true, which leaves them out and lists them"
            )
        if not chunks.batches:
            raise TrainingError(
                f"{len(chunks.unreadable)} of the {chunks.rows} rows of a batch cannot be read, which leaves too few; "
                f"the first: {chunks.unreadable[0].reason}"
            )

    def _refuse_not_finite(self, terms: LossTerms, batches: list[TrainingBatch]) -> None:
        # Together, since the others would wait for a process that stops.
        finite = torch.isfinite(terms.total)
        if self.accelerator.reduce(finite.long()) == self.accelerator.num_processes:
            return
        path = self._write_pairs([pair for batch in batches for pair in batch.pairs])
        raise TrainingError(
            f"step {self.state.global_step}: the loss{' of another process' if finite else ''} is not finite; here it "
            f"is {terms.total.item()} (InfoNCE {terms.info_nce.item()}, alignment {terms.alignment.item()}); the query "
            f"and page ids of the batch are in {path}; {_NOT_FINITE_ADVICE}"
        )

    def get_train_dataloader(self) -> DataLoader:
        """Called by the trainer."""
        loader = super().get_train_dataloader()
        # What accelerate returns hands everything on to the loader that it wraps.
        wrapped = getattr(loader, "base_dataloader", loader)
        wrapped.worker_init_fn = functools.partial(outlive_sigterm, wrapped.worker_init_fn)
        return loader

    def _get_train_sampler(self, train_dataset: object = None) -> Sampler[int]:
        self._sampler = LengthBuckets(
            self._order.lengths,
            batch=self.args.per_device_train_batch_size * self.args.world_size,
            bucket=self._order.bucket,
            seed=self.args.seed,
        )
        return self._sampler

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with the terms of the loss and what was counted since the last time."""
        if "loss" in logs:
            logs.update(self._counts.drain(self.accelerator))
        # The first is of the steps since the run was last continued, the second is not counted.
        for misleading in ("train_loss", "total_flos"):
            logs.pop(misleading, None)
        super().log(logs, start_time)

    def _save_checkpoint(self, model: nn.Module, trial: object) -> None:
        with self._counts.paused():
            super()._save_checkpoint(model, trial)

    def evaluate(self, *_: object, metric_key_prefix: str = "eval", **__: object) -> dict[str, float]:
        """Retrieval on the held-out set."""
        if self._retrieval is None:
            raise TrainingError("there is no held-out set to evaluate on")
        with self._counts.paused(), outermost_gathered(self.model):
            found = self._retrieval()
        self.metrics = (self.state.global_step, found)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class _Turns(TrainerCallback):
    """Tells the sampler which epoch begins, and logs where a checkpoint is written."""

    def __init__(self, trainer: ConceptFormerTrainer) -> None:
        self._trainer = trainer

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Epochs count in whole numbers; a resumed run begins within one."""
        self._trainer.set_epoch(int(state.epoch or 0))

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """What is logged since a checkpoint must not depend on what was before it."""
        if control.should_save:
            control.should_log = True


def _marks(batches: list[TrainingBatch]) -> Marks:
    width = max(batch.other_keys.shape[1] for batch in batches)
    others = [
        nn.functional.pad(batch.other_keys, (0, width - batch.other_keys.shape[1]), value=-1) for batch in batches
    ]
    return Marks(
        has_concept=torch.cat([batch.has_concept for batch in batches]),
        page_keys=torch.cat([batch.page_keys for batch in batches]),
        other_keys=torch.cat(others),
    )
