"""A clean end on SIGTERM, as schedulers send it before they kill: finish the step, save, stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

import torch
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import TrainerCallback


def outlive_sigterm(begin: Callable[[int], None], worker: int) -> None:
    """Begin a worker of a data loader that goes on when SIGTERM comes to all processes of a job: the step needs it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin(worker)


class StopOnSignal(TrainerCallback):
    """Saves a checkpoint and stops after the step in which SIGTERM came, to whichever process.

    Attributes:
        stopped: Whether that happened.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._asked = False
        self._before: object = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Listen. Signals reach the main thread alone."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._ask)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """All processes agree, since a step needs all of them."""
        asked = self._asked
        if args.world_size > 1:
            flag = torch.tensor([int(asked)], device=args.device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            asked = bool(flag.item())
        if asked:
            self.stopped = True
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Listen no more."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)  # type: ignore[arg-type]
            self._before = None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
