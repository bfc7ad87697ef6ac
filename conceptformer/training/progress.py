"""Steps done, for a progress bar."""

from __future__ import annotations

from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import TrainerCallback

from conceptformer.records import OnProgress


class StepProgress(TrainerCallback):
    """Calls ``report`` with (steps done, all steps) in the main process."""

    def __init__(self, report: OnProgress) -> None:
        self._report = report

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """The steps that an earlier part of the run did."""
        self.on_step_end(args, state, control)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """One more."""
        if state.is_world_process_zero:
            self._report(state.global_step, state.max_steps)
