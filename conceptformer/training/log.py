"""What a training run writes down on the way: its log as JSON Lines, and the list of rows that it left out.

Both outlive kills and continue with the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import TrainerCallback

from conceptformer.training.step_counts import StepCounts
from visar.tensor_files import StoreError, write_atomically


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a line that a kill cut short is left out.

    Raises:
        StoreError: The file is there and cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror}); remove it or mend it") from error
    rows = []
    for line in content.split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


class JsonLog(TrainerCallback):
    """Appends what the trainer logs to a file, from the main process.

    Args:
        path: Lines beyond the step that a run continues from are removed when it begins.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Forget what an earlier run did after the checkpoint that this one continues from."""
        if state.is_world_process_zero:
            kept = [row for row in read_log(self._path) if row["step"] <= state.global_step and state.global_step]
            write_atomically(self._path, b"".join(map(_line, kept)))

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **_: object,
    ) -> None:
        """Add one line."""
        if not state.is_world_process_zero or not logs:
            return
        try:
            with self._path.open("ab") as file:
                file.write(_line({"step": state.global_step, **logs}))
        except OSError as error:
            raise StoreError(
                f"{self._path}: cannot be written ({error.strerror}); make room, then run again"
            ) from error


class RefusedList(TrainerCallback):
    """Keeps the file that lists what was left out, with reasons; there is none where nothing was.

    Args:
        path: Lines of earlier parts of the run stay.
        refused: Known before training begins.
        counts: Where unreadable rows are counted while it goes on.
    """

    def __init__(self, path: Path, refused: Sequence[str], counts: StepCounts) -> None:
        self._path = path
        self._refused = tuple(refused)
        self._counts = counts
        self._earlier: tuple[str, ...] = ()

    def lines(self) -> tuple[str, ...]:
        """All of them, without repetition."""
        unreadable = [
            " ".join(f"query {query}, page {page}: {reason}".splitlines())
            for (query, page), reason in self._counts.unreadable.items()
        ]
        return tuple(dict.fromkeys([*self._refused, *self._earlier, *unreadable]))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Write what is known."""
        if state.is_world_process_zero:
            if state.global_step and self._path.is_file():
                self._earlier = tuple(self._path.read_text(encoding="utf-8", errors="replace").splitlines())
            self._write()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Write what has come to be known; rows of other processes are counted with the log."""
        if state.is_world_process_zero:
            self._write()

    def _write(self) -> None:
        text = "".join(f"{line}\n" for line in self.lines()).encode(errors="backslashreplace")
        if text and not (self._path.is_file() and self._path.read_bytes() == text):
            write_atomically(self._path, text)
        elif not text:
            self._path.unlink(missing_ok=True)


def _line(row: Mapping[str, Any]) -> bytes:
    # JSON has no word for NaN and infinity, which a gradient's norm may be.
    unknown = [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]
    return json.dumps({**row, **dict.fromkeys(unknown)}).encode() + b"\n"
