"""The config of a run, kept beside its checkpoints: a run goes on with the settings that it began with."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from conceptformer.errors import TrainingError
from conceptformer.training.run_checkpoints import checkpoints
from visar.tensor_files import write_atomically

# What may change between two parts of a run: it changes no result.
_FREE_KEYS = (
    "output",
    "cache",
    "dry_run",
    "gpus",
    "tokenizer",
    "data.drawing.folder",  # follows from the other settings of the drawing
    "data.train",  # its content is compared instead
    "training.workers",
    "training.log_every",
    "training.loggers",
)


def keep_config(folder: Path, config: DictConfig, processes: int) -> None:
    """Write the config into the run's folder, and refuse to go on with a run that had another.

    Raises:
        TrainingError: The folder holds checkpoints of a run with another setting; the message names it.
        StoreError: The disk is full or the folder cannot be written.
    """
    path = folder / "config.yaml"
    now = OmegaConf.merge(OmegaConf.create(OmegaConf.to_container(config, resolve=True)), {"processes": processes})
    if path.is_file() and checkpoints(folder):
        before, now = (_comparable(part) for part in (OmegaConf.load(path), now))
        if before != now:
            key = _first_difference(before, now, "")
            raise TrainingError(
                f"{folder} holds a run with another {key}: choose another output, or remove the folder to begin anew"
            )
    else:
        write_atomically(path, OmegaConf.to_yaml(now).encode())


def _comparable(config: DictConfig) -> object:
    """Without what may change; other values hold the paths of the output and the cache too."""
    places = {str(config[key]): key for key in ("output", "cache")}
    for key in _FREE_KEYS:
        OmegaConf.update(config, key, None, force_add=True)

    def moved(value: object) -> object:
        if isinstance(value, dict):
            return {name: moved(part) for name, part in value.items()}
        if isinstance(value, list):
            return [moved(part) for part in value]
        for place, key in places.items():
            if isinstance(value, str) and value.startswith(place):
                return f"{key}{value[len(place) :]}"
        return value

    return moved(OmegaConf.to_container(config))


def _first_difference(before: object, now: object, key: str) -> str:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                return _first_difference(before.get(name), now.get(name), f"{key}.{name}" if key else str(name))
    return key
