"""Checkpoints of transformers: written file by file without half files, loaded with every key accounted for."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError
from transformers import AutoTokenizer, BaseImageProcessor, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from conceptformer.errors import CheckpointError
from visar.tensor_files import StoreError, write_atomically

# Bounds the memory that writing takes beside the model itself.
_SHARD = "1GB"
# A folder cannot be loaded without it: removed first and written last, it says that the rest is complete.
_CONFIG = "config.json"
# Where the files are put together; what a kill leaves of it goes at the next writing.
_WRITING = ".writing-"
_PREPROCESSOR = "preprocessor_config.json"
_SHOWN_KEYS = 3

_Model = TypeVar("_Model", bound=PreTrainedModel)
_Processor = TypeVar("_Processor", bound=BaseImageProcessor)


class Saved(Protocol):
    """What transformers writes into a folder: a model, a tokenizer, an image processor."""

    def save_pretrained(self, folder: str) -> object:
        """Write the files."""


def write_checkpoint(folder: Path, model: PreTrainedModel, *parts: Saved, hub_keys: bool) -> None:
    """Write a model and what belongs to it, as ``from_pretrained`` of transformers reads it.

    A kill leaves a folder that is complete, or one without ``config.json``, which cannot be loaded.

    Args:
        folder: Made where it is missing; the weights that stood in it go, files of other names stay.
        model: Its weights go into safetensors files.
        hub_keys: Rename them as older checkpoints on the hub have them, where transformers knows how.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"{_WRITING}*"):
            shutil.rmtree(leftover)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_WRITING) as name:
            model.save_pretrained(name, max_shard_size=_SHARD, save_original_format=hub_keys)
            for part in parts:
                part.save_pretrained(name)
            (folder / _CONFIG).unlink(missing_ok=True)
            # One file would be preferred to the many that replace it.
            for stale in folder.glob("model*.safetensors*"):
                stale.unlink()
            for file in sorted(Path(name).iterdir(), key=lambda file: file.name == _CONFIG):
                write_atomically(folder / file.name, file.read_bytes())
                file.unlink()
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise StoreError(
            f"{folder}: cannot write a checkpoint ({reason}); make room there or choose another"
        ) from error


@dataclass(frozen=True)
class Source:
    """A local folder or a hub repository at a revision, from which the parts of a checkpoint are loaded.

    Neither pickled weights nor code are ever loaded.
    """

    name: str
    revision: str | None

    @property
    def is_folder(self) -> bool:
        """Whether it lies on this machine; then nothing is fetched."""
        return Path(self.name).is_dir()

    def pinned(self, model_type: str) -> Source:
        """The same source at the commit that its revision means now, so that all parts come from one commit.

        Raises:
            CheckpointError: ``config.json`` is missing, cannot be had or names another model.
        """
        with self._explained("its config"):
            # None where there is no such file.
            file = Path(cached_file(self.name, _CONFIG, **self._where) or Path(self.name, _CONFIG))
            config = json.loads(file.read_bytes())
        found = config.get("model_type") if isinstance(config, dict) else None
        if found != model_type:
            raise CheckpointError(f"{self.name}: expected a checkpoint of model type {model_type}, got {found}")
        # The hub's cache keeps the files of a commit in a folder of its name.
        return self if self.is_folder else Source(self.name, file.parent.name)

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer; raises a CheckpointError."""
        with self._explained("its tokenizer"):
            return AutoTokenizer.from_pretrained(self.name, trust_remote_code=False, **self._where)

    def image_processor(self, kind: type[_Processor]) -> _Processor:
        """The image processor, with its class's own values where a folder says nothing of it; or a CheckpointError."""
        if self.is_folder and not (Path(self.name) / _PREPROCESSOR).is_file():
            return kind()
        with self._explained("its image processor"):
            return kind.from_pretrained(self.name, **self._where)

    def model(
        self,
        kind: type[_Model],
        dtype: torch.dtype,
        attention: str,
        *,
        renamed: Mapping[str, str],
        unused: Collection[str],
    ) -> _Model:
        """The weights, in safetensors.

        Args:
            renamed: Patterns of keys and their replacements, for layouts that transformers does not know by itself.
            unused: Keys of the checkpoint that the model may leave aside.

        Raises:
            CheckpointError: They cannot be read, or a key is missing, left over or of another shape.
        """
        with self._explained("its weights"), _own_audit():
            model, report = kind.from_pretrained(
                self.name,
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=True,
                key_mapping=dict(renamed),
                trust_remote_code=False,
                # All faults come back in the report, which is looked at below.
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **self._where,
            )
        faults = {
            "missing": sorted(report["missing_keys"]),
            "left over": sorted(set(report["unexpected_keys"]) - set(unused)),
            "of another shape": sorted(key for key, *_ in report["mismatched_keys"]),
        }
        for fault, keys in faults.items():
            if keys:
                shown = ", ".join(keys[:_SHOWN_KEYS])
                raise CheckpointError(
                    f"{self.name}: expected the keys of {kind.__name__}, {len(keys)} are {fault} ({shown}); "
                    "the checkpoint is incomplete or of another model"
                )
        return model

    @property
    def _where(self) -> dict[str, object]:
        return {"revision": self.revision, "local_files_only": self.is_folder}

    @contextmanager
    def _explained(self, part: str) -> Iterator[None]:
        """Errors of transformers, whose messages have many lines, as one line."""
        try:
            yield
        except (OSError, ValueError, RuntimeError, HFValidationError, SafetensorError) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(f"{self.name}: {part} cannot be loaded ({reason:.300})") from error


@contextmanager
def _own_audit() -> Iterator[None]:
    """Keeps transformers from printing its table of keys: it lists the head that is left aside, as if at fault."""
    logger = logging.getLogger("transformers.modeling_utils")
    logger.addFilter(_is_no_key_table)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_key_table)


def _is_no_key_table(record: logging.LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()


def source(name_or_folder: str | Path, revision: str | None) -> Source:
    """Where a checkpoint lies.

    Raises:
        CheckpointError: A path that is no folder, or a revision of one.
    """
    name = str(name_or_folder)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if revision is not None:
            raise CheckpointError(f"{name}: a folder has no revision {revision}; leave the revision out (null)")
        return Source(str(folder), None)
    if isinstance(name_or_folder, Path) or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(f"{name}: neither a folder nor a hub name 'owner/model'; give one of the two")
    return Source(name, revision)
