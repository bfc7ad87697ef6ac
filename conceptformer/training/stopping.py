"""A clean end on SIGTERM, as schedulers send it before they kill: finish the step, save, stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

import torch
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import TrainerCallback


def outlive_sigterm(begin: Callable[[int], None], worker: int) -> None:
    """Begin a worker of a data loader that goes on when SIGTERM comes to all processes of a job: the step needs it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    begin(worker)


class StopOnSignal(TrainerCallback):
    """Saves a checkpoint and stops after the step in which SIGTERM came, to whichever process.

    It listens within ``with``, and afterwards the signal does what it did before, however training ended.

    Attributes:
        stopped: Whether that happened.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._asked = False
        self._listens = False
        self._before: object = None

    def __enter__(self) -> StopOnSignal:
        # Signals reach the main thread alone.
        self._listens = threading.current_thread() is threading.main_thread()
        if self._listens:
            self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._listens:
            # None stands for a handler that is not Python's, which cannot be brought back.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)  # type: ignore[arg-type]

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

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
