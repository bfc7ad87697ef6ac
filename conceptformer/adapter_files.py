"""Adapters on disk: PEFT's two files, read whatever class of the model they were made for, and audited.

PEFT loads an adapter by the names of its tensors and passes over every name that it does not find: an adapter made for
another class of the same model (the one with an output head, or that of an older version of transformers) then loads
nothing and raises nothing. Here the names are brought to those of the model at hand, and every one must match.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from conceptformer.errors import CheckpointError

ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_NAME = "default"
FILE_PREFIX = "base_model.model."
_MATRICES = (".lora_A.weight", ".lora_B.weight")
_ROWS = ".token_adapter.trainable_tokens_delta"
# What would change the result and is not done here, by the value that leaves it out.
_NOT_SUPPORTED = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication", "lora_bias")
_SHOWN = 3


@dataclass(frozen=True)
class AdapterFiles:
    """An adapter as it lies on disk.

    Attributes:
        folder: Where it lies.
        settings: adapter_config.json.
        tensors: By their names in the file, without PEFT's prefix.
    """

    folder: Path
    settings: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]

    @property
    def scaling(self) -> float:
        """What the product of the two matrices is multiplied by."""
        rank = self.settings["r"]
        return self.settings["lora_alpha"] / (rank**0.5 if self.settings.get("use_rslora") else rank)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens whose rows were trained, in the order of the rows; empty where none was."""
        indices = self.settings.get("trainable_token_indices") or ()
        if isinstance(indices, Mapping):
            indices = next(iter(indices.values()), ()) if len(indices) == 1 else ()
        return tuple(indices)


def stated_base(folder: Path) -> str | None:
    """The name of the weights that an adapter was trained on, as its settings have it; None where they say nothing.

    Raises:
        CheckpointError: The settings are missing or damaged.
    """
    name = _settings(folder).get("base_model_name_or_path")
    return name if isinstance(name, str) and name else None


def read_adapter(folder: Path) -> AdapterFiles:
    """Read an adapter from a local folder.

    Raises:
        CheckpointError: A file is missing or damaged, the weights are there as a pickle only, or the adapter is of a
            kind that cannot be loaded.
    """
    weights, config = folder / ADAPTER_WEIGHTS, folder / ADAPTER_CONFIG
    if not weights.is_file():
        pickled = "only adapter_model.bin, a pickle, which can run code when it is read, " * (
            (folder / "adapter_model.bin").is_file()
        )
        raise CheckpointError(
            f"{folder} has {pickled or 'no adapter: '}expected {ADAPTER_WEIGHTS}; convert or save it as safetensors"
        )
    settings = _settings(folder)
    try:
        tensors = load_file(weights)
    except (OSError, SafetensorError) as error:
        raise _unreadable(folder, error) from error
    if settings.get("peft_type") != "LORA":
        raise CheckpointError(f"{config}: expected a LoRA adapter of PEFT (peft_type LORA); this holds another kind")
    beyond = [name for name in _NOT_SUPPORTED if settings.get(name)]
    if beyond or settings.get("bias", "none") != "none":
        raise CheckpointError(
            f"{config}: sets {', '.join(beyond) or 'bias'}, which is not supported; expected plain LoRA"
        )
    if not isinstance(settings.get("r"), int) or not isinstance(settings.get("lora_alpha"), (int, float)):
        raise CheckpointError(f"{config}: expected numbers r and lora_alpha; fetch or save it again")
    return AdapterFiles(folder, settings, {name.removeprefix(FILE_PREFIX): tensor for name, tensor in tensors.items()})


def fitted_tensors(files: AdapterFiles, model: nn.Module, token_table: str) -> dict[str, torch.Tensor]:
    """Bring the names of an adapter to those of a model.

    A module is looked for under its own name, without a leading ``model.`` (classes with an output head have it), and
    within the language model (where older versions of transformers have the layers at the top).

    Args:
        token_table: Name of the module that embeds token ids; the language model is what it lies in.

    Returns:
        Tensors by ``<name of a module of the model>.lora_A.weight`` and so on.

    Raises:
        CheckpointError: A tensor fits no module, or two of them fit the same; the message lists the first.
    """
    modules = {name for name, _ in model.named_modules()}
    language_model = token_table.rpartition(".")[0]
    fitted: dict[str, torch.Tensor] = {}
    unmatched = []
    for name, tensor in files.tensors.items():
        module, suffix = _split(name)
        bare = module.removeprefix("model.")
        candidates = [module, bare, *(f"{language_model}.{path}" for path in (module, bare) if language_model)]
        found = next((path for path in candidates if path in modules), None)
        if found is None or not suffix or found + suffix in fitted:
            unmatched.append(name)
        else:
            fitted[found + suffix] = tensor
    if unmatched or not fitted:
        raise CheckpointError(
            f"{files.folder}: {len(unmatched)} of {len(files.tensors)} tensors fit no module of the backbone "
            f"({_some(unmatched) or 'the file is empty'}); check for which model it was made"
        )
    return fitted


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The adapter's parameters of a model, by the names that :func:`fitted_tensors` uses."""
    ours = re.compile(rf"(.*\.lora_[AB])\.{ADAPTER_NAME}(\.weight)|(.*{re.escape(_ROWS)})\.{ADAPTER_NAME}")
    found = {}
    for name, parameter in model.named_parameters():
        match = ours.fullmatch(name)
        if match:
            found["".join(part for part in match.groups() if part)] = parameter
    return found


@torch.no_grad()
def load_tensors(
    model: nn.Module, tensors: Mapping[str, torch.Tensor], where: Path, *, fresh: bool, rows: bool
) -> None:
    """Copy an adapter's tensors into the model, all or none.

    Args:
        fresh: The adapter was not trained: its B matrices may be zero.
        rows: Token rows that the model trains must be among the tensors.

    Raises:
        CheckpointError: Names or shapes do not match one to one, values are not finite, or a B matrix is zero.
    """
    parameters = adapter_parameters(model)
    missing = [name for name in parameters if name not in tensors and (rows or not name.endswith(_ROWS))]
    unexpected = [name for name in tensors if name not in parameters]
    if missing or unexpected:
        raise CheckpointError(
            f"{where}: the adapter does not match the model: {len(missing)} tensors are missing ({_some(missing)}), "
            f"{len(unexpected)} have no place ({_some(unexpected)}); use the settings that it was trained with"
        )
    shapes = [
        f"{name} is {list(tensor.shape)}, expected {list(parameters[name].shape)}"
        for name, tensor in tensors.items()
        if tensor.shape != parameters[name].shape
    ]
    if shapes:
        raise CheckpointError(
            f"{where}: {len(shapes)} tensors have a wrong shape ({_some(shapes)}); check rank and model"
        )
    broken = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if broken:
        raise CheckpointError(
            f"{where}: {len(broken)} tensors hold NaN or Inf ({_some(broken)}); use another checkpoint"
        )
    zero = [name for name, tensor in tensors.items() if name.endswith(_MATRICES[1]) and not tensor.any()]
    if zero and not fresh:
        raise CheckpointError(
            f"{where}: {len(zero)} of the adapter's B matrices are all zero ({_some(zero)}), as before any training; "
            "expected a trained adapter, use another checkpoint"
        )
    for name, tensor in tensors.items():
        parameters[name].copy_(tensor)


def state_of(model: nn.Module, state_dict: Mapping[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
    """An adapter's tensors by the names of the file, on the CPU.

    Args:
        state_dict: The model's whole state by its own parameter names, where it is spread over processes and was
            gathered; else None.

    Raises:
        CheckpointError: The state lacks a tensor, or holds a part of it only.
    """
    live = {id(parameter): name for name, parameter in model.named_parameters()}
    state = {}
    for name, parameter in adapter_parameters(model).items():
        own_name = live[id(parameter)]
        tensor = parameter if state_dict is None else state_dict.get(own_name)
        if tensor is None:
            raise CheckpointError(f"the state to save lacks {own_name}; expected the names of the backbone's model")
        if tensor.ndim != 2 or not tensor.numel():
            raise CheckpointError(
                f"{own_name} to be saved has shape {list(tensor.shape)}, a part of it only; gather it first"
            )
        # A copy: the original goes on being trained.
        state[FILE_PREFIX + name] = tensor.detach().to("cpu", copy=True).contiguous()
    return state


def modules_of(tensors: Iterable[str]) -> list[str]:
    """Names of the modules that an adapter changes by matrices, sorted."""
    counts = Counter(name.removesuffix(suffix) for name in tensors for suffix in _MATRICES if name.endswith(suffix))
    return sorted(counts)


def has_rows(tensors: Iterable[str]) -> bool:
    """Whether trained token rows are among these names."""
    return any(name.endswith(_ROWS) for name in tensors)


def _settings(folder: Path) -> Mapping[str, Any]:
    try:
        settings = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(folder, error) from error
    if not isinstance(settings, dict):
        raise _unreadable(folder, f"{ADAPTER_CONFIG} holds no object")
    return settings


def _unreadable(folder: Path, reason: object) -> CheckpointError:
    return CheckpointError(f"{folder}: the adapter cannot be read ({reason}); fetch or save it again")


def _split(name: str) -> tuple[str, str]:
    """Name of a module, and what of an adapter it carries; the latter is empty where it is nothing known."""
    for suffix in (*_MATRICES, _ROWS):
        if name.endswith(suffix):
            return name.removesuffix(suffix), suffix
    return name, ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
