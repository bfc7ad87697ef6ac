"""The checkpoints of a run: which one to go on from, and the retriever that the run leaves behind."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

from conceptformer.errors import CheckpointError
from conceptformer.manifest import MANIFEST_FILE, Manifest
from conceptformer.training.checkpoints import TRAINED_TENSORS

RETRIEVER = "retriever"
"""Folder of the finished retriever in a run folder."""

_NAME = re.compile(r"checkpoint-(\d+)")
# Written last by the trainer.
_STATE = "trainer_state.json"
_SCHEDULE = "scheduler.pt"


def checkpoints(folder: Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    return [path for path in _all(folder) if _is_complete(path)]


def remove_incomplete(folder: Path) -> None:
    """Remove what a kill left of a checkpoint that was being written."""
    for path in _all(folder):
        if not _is_complete(path):
            warnings.warn(f"{path}: was not written to its end; removed", stacklevel=2)
            shutil.rmtree(path)


@dataclass(frozen=True)
class Progress:
    """How far a run was when it wrote a checkpoint.

    Attributes:
        step: Optimiser steps done.
        finished: It was the last one.
        best: The best held-out metric so far; None without a held-out set.
        best_step: Where that was.
    """

    step: int
    finished: bool
    best: float | None
    best_step: int | None


def progress_of(checkpoint: Path) -> Progress:
    """Read it off the trainer's own state."""
    state = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
    step, total = state["global_step"], state["max_steps"]
    return Progress(step, step >= total, state["best_metric"], state["best_global_step"])


def best_of(checkpoint: Path) -> Path:
    """The best checkpoint, as the trainer knew it when it wrote this one; this one where nothing was measured.

    Where the best one is gone, that is said and this one taken.
    """
    step = progress_of(checkpoint).best_step
    if step is None:
        return checkpoint
    path = checkpoint.parent / f"checkpoint-{step}"
    if not _is_complete(path):
        warnings.warn(f"{path}: the best checkpoint is gone; {checkpoint.name} becomes the retriever", stacklevel=2)
        return checkpoint
    return path


def check_data(checkpoint: Path, fingerprint: str) -> None:
    """Refuse to go on with other training pairs.

    Raises:
        CheckpointError: The checkpoint was trained on others.
    """
    if Manifest.read(checkpoint).data_fingerprint != fingerprint:
        raise CheckpointError(
            f"{checkpoint}: was trained on other pairs, images or boxes than there are now: bring those back, or "
            "choose another output"
        )


def export_retriever(checkpoint: Path, target: Path) -> None:
    """Copy what a retriever needs of a checkpoint, and nothing that only the trainer needs.

    The target is replaced as a whole.

    Raises:
        CheckpointError: The checkpoint is not complete, or the copy cannot be written.
    """
    manifest = Manifest.read(checkpoint)
    fresh = target.with_name(f".{target.name}.new")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        for name in (*manifest.files, MANIFEST_FILE):
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkpoint / name, fresh / name)
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise CheckpointError(
            f"{target}: cannot be written ({error.strerror or error}); make room there, then run again"
        ) from error


def _all(folder: Path) -> list[Path]:
    found = [path for path in folder.glob("checkpoint-*") if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def _is_complete(path: Path) -> bool:
    # Not the state alone: a kill may also come while an old checkpoint is being removed, in any order.
    if not all((path / name).is_file() for name in (MANIFEST_FILE, TRAINED_TENSORS, _SCHEDULE)):
        return False
    if not any(path.glob("rng_state*")) or not (any(path.glob("optimizer*")) or any(path.glob("global_step*"))):
        return False
    try:
        return "global_step" in json.loads((path / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
