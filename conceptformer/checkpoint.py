"""A trained retriever on disk: what was trained, the manifest, and embeddings that it has to reproduce.

Layout of a checkpoint's folder, in which other files may lie as well::

    adapter_model.safetensors, adapter_config.json   low-rank training: an adapter that PEFT can open
    backbone/                                        full training: the model as transformers saves it
    tokenizer.json, ...                              the tokenizer with the concept tokens
    probe.safetensors                                see conceptformer.probe
    manifest.json                                    written last: a folder without it is not complete
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from conceptformer.adapter_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from conceptformer.adapters import BACKBONE_FOLDER, Adaptation, load_adapter
from conceptformer.backbones.protocol import Backbone
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.errors import CheckpointError
from conceptformer.manifest import MANIFEST_FILE, Manifest
from conceptformer.probe import PROBE_FILE, TOLERANCES, check_probe, probe_embeddings, write_probe

_INCOMING = ".incoming"
# Left by an earlier checkpoint in the same folder, these would be taken for parts of the new one.
_OURS = (ADAPTER_WEIGHTS, ADAPTER_CONFIG, BACKBONE_FOLDER, PROBE_FILE)
_BACKBONES = "conceptformer.backbones."


def save_checkpoint(
    folder: Path,
    backbone: Backbone,
    adaptation: Adaptation,
    manifest: Manifest,
    *,
    state_dict: Mapping[str, torch.Tensor] | None = None,
    probe: Mapping[str, torch.Tensor] | None = None,
) -> Manifest:
    """Write a checkpoint.

    All files are written beside their places, and moved when they are complete. A kill or a full disk before that
    leaves an earlier checkpoint as it was; one between the moves a folder without a manifest, which no loader takes.

    Args:
        folder: Made where it is missing; an earlier checkpoint in it is replaced, other files stay.
        state_dict: The state of the backbone's model by its own names, gathered, where it is spread over processes.
        probe: :func:`~conceptformer.probe.probe_embeddings`, where all processes have to compute it together.

    Returns:
        The manifest as written.

    Raises:
        CheckpointError: The state is not complete, or the manifest holds what JSON cannot.
        StoreError: The disk is full or the folder cannot be written.
    """
    incoming = folder / _INCOMING
    try:
        shutil.rmtree(incoming, ignore_errors=True)
        incoming.mkdir(parents=True)
        adaptation.save(incoming, backbone, state_dict)
        backbone.inputs.tokenizer.save_pretrained(incoming)
        write_probe(incoming, probe_embeddings(backbone) if probe is None else probe)
        tolerance = max(manifest.probe_tolerance, TOLERANCES[backbone.model.dtype])
        manifest = _completed(manifest, incoming, folder, tolerance)
        # Tried before anything is moved: a manifest that cannot be written must not cost the earlier checkpoint.
        manifest.to_json()
        _publish(incoming, folder)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: the checkpoint cannot be written ({error.strerror or error}); "
            "make room there or choose another folder"
        ) from error
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    manifest.write(folder)
    return manifest


def load_checkpoint(
    folder: Path, *, dtype: str | None = None, device: torch.device | str = "cpu"
) -> tuple[Backbone, Manifest]:
    """Load a checkpoint and compare its embeddings with those that it was saved with.

    Args:
        folder: Local.
        dtype: Of the weights; None for that of the training.

    Returns:
        The backbone, its weights frozen and in evaluation mode, and the manifest.

    Raises:
        CheckpointError: Something is missing or does not match.
    """
    manifest = Manifest.read(folder)
    absent = [name for name in manifest.files if not (folder / name).is_file()]
    if absent or PROBE_FILE not in manifest.files:
        missing = ", ".join(absent[:3]) or PROBE_FILE
        raise CheckpointError(f"{folder}: {missing} is missing; fetch or save the checkpoint again")
    backbone = _load_backbone(folder, manifest, dtype)
    if dict(backbone.inputs.describe()) != dict(manifest.inputs):
        raise CheckpointError(
            f"{folder}: the inputs are {backbone.inputs.describe()}, the manifest has {dict(manifest.inputs)}; "
            "use the version of this package that wrote it"
        )
    if ADAPTER_WEIGHTS in manifest.files:
        token_ids = concept_token_ids(backbone.inputs.tokenizer)
        # In the first step of a warm-up the learning rate is 0.
        load_adapter(backbone, folder, token_ids, fresh=manifest.step <= 1)
    backbone.model.requires_grad_(False).eval().to(device)
    # Where fewer digits are kept than in training, fewer can be asked for.
    check_probe(folder, backbone, max(manifest.probe_tolerance, TOLERANCES[backbone.model.dtype]))
    return backbone, manifest


def _completed(manifest: Manifest, incoming: Path, folder: Path, tolerance: float) -> Manifest:
    """With what is known only when all other files are written."""
    written = sorted(path.relative_to(incoming).as_posix() for path in incoming.rglob("*") if path.is_file())
    backbone = _with_relative_path(manifest.backbone, folder)
    return dataclasses.replace(manifest, backbone=backbone, probe_tolerance=tolerance, files=tuple(written))


def _load_backbone(folder: Path, manifest: Manifest, dtype: str | None) -> Backbone:
    described = manifest.backbone
    kind, settings = _backbone_class(folder, described)
    try:
        inputs = settings(**manifest.inputs)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder}: the manifest's inputs are of no use ({error}); save the checkpoint again"
        ) from error
    if (folder / BACKBONE_FOLDER).is_dir() and ADAPTER_WEIGHTS not in manifest.files:
        name, revision = folder / BACKBONE_FOLDER, None
    else:
        name, revision = _base(folder, described)
    return kind.from_pretrained(
        name,
        revision=revision,
        dtype=dtype or described.get("dtype"),
        attention=described.get("attention"),
        settings=inputs,
    )


def _base(folder: Path, described: Mapping[str, Any]) -> tuple[str | Path, str | None]:
    """Where the weights are that the adapter was trained on: beside the checkpoint as before, in their old place, or on
    the hub, at the commit that was used."""
    relative = described.get("relative_path")
    if isinstance(relative, str) and (folder / relative).is_dir():
        return folder / relative, None
    name = described.get("name")
    if not isinstance(name, str):
        raise CheckpointError(f"{folder}: the manifest names no base weights; save the checkpoint again")
    if relative is not None and not Path(name).is_dir():
        raise CheckpointError(
            f"{folder}: its base weights are neither in {folder / relative} nor in {name}; "
            "put them in one of the two places"
        )
    return name, described.get("commit") or described.get("revision")


def _with_relative_path(described: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """With the way from the checkpoint to its base weights, for folders that are moved together."""
    name = described.get("name")
    if not isinstance(name, str) or not Path(name).expanduser().is_dir():
        return dict(described)
    path = os.path.relpath(Path(name).expanduser().resolve(), folder.resolve())
    return {**described, "relative_path": Path(path).as_posix()}


def _backbone_class(folder: Path, described: Mapping[str, Any]) -> tuple[Any, Any]:
    """The class that a manifest names, and its module's ``InputSettings``.

    Only classes among this package's backbones: a manifest may come from anywhere, and importing runs code.
    """
    module_name, _, class_name = str(described.get("class")).rpartition(".")
    if module_name.startswith(_BACKBONES):
        try:
            module = importlib.import_module(module_name)
            return getattr(module, class_name), module.InputSettings
        except (ImportError, AttributeError):
            pass
    raise CheckpointError(
        f"{folder}: the manifest names the backbone {described.get('class')!r}, expected a class in {_BACKBONES}*; "
        "use the version of this package that wrote it"
    )


def _publish(incoming: Path, folder: Path) -> None:
    """Move complete files to their places, after the old manifest is gone that would vouch for them."""
    (folder / MANIFEST_FILE).unlink(missing_ok=True)
    arriving = {path.name: path for path in incoming.iterdir()}
    for name in {*_OURS, *arriving}:
        place = folder / name
        if place.is_dir():
            shutil.rmtree(place)
        elif name not in arriving:
            place.unlink(missing_ok=True)
        if name in arriving:
            os.replace(arriving[name], place)
