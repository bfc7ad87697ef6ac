"""manifest.json: everything about a checkpoint that is not a tensor."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

from conceptformer.errors import CheckpointError
from visar import __version__
from visar.tensor_files import write_atomically

MANIFEST_FILE = "manifest.json"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Manifest:
    """What made a checkpoint, and what is needed to use it. All values are what JSON can hold.

    Attributes:
        backbone: :meth:`~conceptformer.backbones.protocol.Backbone.describe`.
        inputs: :meth:`~conceptformer.backbones.protocol.InputProcessor.describe`.
        adaptation: :meth:`~conceptformer.adapters.Adaptation.describe`.
        concepts: Where concepts came from, and how they were read.
        temperature: Tau.
        concept_weight: Lambda.
        projection: Whether pooled concepts were multiplied by a trained matrix; None where it was not written down.
        training_precision: "bf16" (mixed) or "fp32"; None where it was not written down.
        data_fingerprint: Of the training set.
        step: Optimiser steps done; 0 for a model that was not trained.
        metrics: Held-out results at this step, by name.
        package_version: Of the program that wrote the checkpoint.
        probe_tolerance: Largest Euclidean distance between an embedding stored with the model and the same embedding
            computed again (both of length 1). Filled in when the checkpoint is written, like ``files``; the value given
            is the least that it becomes.
        files: What belongs to the checkpoint beside the manifest, as paths relative to it.
        format_version: Of this file's layout.
    """

    backbone: Mapping[str, Any]
    inputs: Mapping[str, Any]
    adaptation: Mapping[str, Any]
    concepts: Mapping[str, Any]
    temperature: float
    concept_weight: float
    data_fingerprint: str
    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    package_version: str = __version__
    probe_tolerance: float = 0.0
    files: tuple[str, ...] = ()
    projection: bool | None = None
    training_precision: str | None = None
    format_version: int = FORMAT_VERSION

    def to_json(self) -> str:
        """The text of manifest.json.

        Raises:
            CheckpointError: It holds something that JSON cannot, such as NaN.
        """
        try:
            return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        except (TypeError, ValueError) as error:
            raise CheckpointError(
                f"the manifest cannot be written ({error}): give plain, finite values from the describe() methods"
            ) from error

    @classmethod
    def from_json(cls, text: str, where: str) -> Manifest:
        """Read the text of manifest.json.

        Args:
            where: What to call the file in messages.

        Raises:
            CheckpointError: No JSON, another format version, or keys that are missing, unknown or of a wrong type.
        """
        try:
            content = json.loads(text)
        except ValueError as error:
            raise CheckpointError(
                f"{where}: not JSON ({error}); expected a manifest, fetch or save it again"
            ) from error
        if not isinstance(content, dict):
            raise CheckpointError(f"{where}: holds {type(content).__name__}, expected an object; save it again")
        if content.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(
                f"{where}: format version is {content.get('format_version')!r}, expected {FORMAT_VERSION}: "
                "use the version of this package that wrote it, or train again"
            )
        names = {entry.name for entry in dataclasses.fields(cls)}
        # Manifests of earlier versions do not have them.
        content = {**dict.fromkeys(_LATER), **content}
        missing, unknown = sorted(names - set(content)), sorted(set(content) - names)
        if missing or unknown:
            problem = f"lacks {', '.join(missing)}" if missing else f"holds unknown {', '.join(unknown)}"
            raise CheckpointError(f"{where}: {problem}; expected {', '.join(sorted(names))}: fetch or save it again")
        for name, kinds in _KINDS.items():
            _check(content[name], kinds, name, where)
        if not isinstance(content["projection"], (bool, NoneType)):
            _refuse(content["projection"], "true, false or null", "projection", where)
        for name in content["files"]:
            _check(name, str, "files", where)
        return cls(**{**content, "files": tuple(content["files"])})

    def write(self, folder: Path) -> None:
        """Write ``folder/manifest.json``, complete or not at all.

        Raises:
            CheckpointError: See :meth:`to_json`.
            StoreError: The file system refuses.
        """
        write_atomically(folder / MANIFEST_FILE, self.to_json().encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read ``folder/manifest.json``.

        Raises:
            CheckpointError: It is missing or wrong, see :meth:`from_json`.
        """
        path = folder / MANIFEST_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise CheckpointError(
                f"{folder} has no {MANIFEST_FILE}: expected a folder that this package's trainer wrote to its end"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error}); fetch or save it again") from error
        return cls.from_json(text, str(path))


_LATER = ("projection", "training_precision")
_NUMBER = (int, float)
_KINDS: dict[str, type | tuple[type, ...]] = {
    "backbone": dict,
    "inputs": dict,
    "adaptation": dict,
    "concepts": dict,
    "temperature": _NUMBER,
    "concept_weight": _NUMBER,
    "data_fingerprint": str,
    "step": int,
    "metrics": dict,
    "package_version": str,
    "probe_tolerance": _NUMBER,
    "files": list,
    "training_precision": (str, NoneType),
}


def _check(value: Any, kinds: type | tuple[type, ...], name: str, where: str) -> None:
    # bool is an int to Python, and no number to anyone else.
    if not isinstance(value, kinds) or isinstance(value, bool):
        expected = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        _refuse(value, expected, name, where)


def _refuse(value: Any, expected: str, name: str, where: str) -> NoReturn:
    raise CheckpointError(f"{where}: {name} is {value!r}, expected {expected}; save it again")
