"""What of a backbone is trained, and how that is saved and restored: low-rank matrices, or everything."""

from __future__ import annotations

import copy
import json
import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save
from torch import nn

from conceptformer.adapter_files import (
    ADAPTER_CONFIG,
    ADAPTER_NAME,
    ADAPTER_WEIGHTS,
    AdapterFiles,
    adapter_parameters,
    fitted_tensors,
    has_rows,
    load_tensors,
    modules_of,
    read_adapter,
    state_of,
)
from conceptformer.backbones.protocol import Backbone
from conceptformer.errors import CheckpointError, MissingExtraError, TrainingError
from conceptformer.hub import local_folder
from visar.tensor_files import write_atomically

BACKBONE_FOLDER = "backbone"
"""In a checkpoint's folder: the whole model, where all of it was trained."""

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainableParameters:
    """What training changes.

    Attributes:
        names: Within the backbone's model.
        values: Their numbers, added up.
    """

    names: tuple[str, ...]
    values: int


class Adaptation(Protocol):
    """Decides which parameters of a backbone are trained."""

    def attach(self, backbone: Backbone, token_ids: Sequence[int]) -> TrainableParameters:
        """Prepare the backbone's model for training, in place.

        Args:
            token_ids: The concept tokens: their rows of the token table are trained in any case.
        """

    def trained_state(
        self, backbone: Backbone, state_dict: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """The tensors that training may have changed, on the CPU.

        Args:
            state_dict: The state of the backbone's model, gathered, where it is spread over processes (FSDP, ZeRO).
        """

    def save(self, folder: Path, backbone: Backbone, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write :meth:`trained_state` and what is needed to read it into a folder that exists."""

    def describe(self) -> dict[str, Any]:
        """The settings, as the manifest holds them (JSON values)."""


@dataclass(frozen=True)
class LowRankAdaptation:
    """LoRA on linear modules by PEFT, and the concept tokens' own rows of the token table; all else is frozen.

    Attributes:
        rank, alpha, dropout: Of LoRA: products of rank-``rank`` matrices are multiplied by ``alpha / rank``.
        modules: Last parts of the names of the modules that get it.
        language_model_only: Leave out the vision tower, where modules may have the same names (the authors' release
            does not leave it out).
        start: Folder or hub name of an adapter of the same shape to start from instead of from zero.
        start_revision: Commit of the hub, for a hub name.
    """

    rank: int = 8
    alpha: float = 64
    dropout: float = 0.1
    modules: Sequence[str] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    language_model_only: bool = False
    start: str | Path | None = None
    start_revision: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "modules", tuple(self.modules))
        if self.rank < 1 or self.alpha <= 0 or not 0 <= self.dropout < 1:
            raise TrainingError(
                f"LoRA has rank {self.rank}, alpha {self.alpha}, dropout {self.dropout}; "
                "expected rank >= 1, alpha > 0 and 0 <= dropout < 1"
            )

    def attach(self, backbone: Backbone, token_ids: Sequence[int]) -> TrainableParameters:
        """See :class:`Adaptation`.

        Raises:
            TrainingError: No module has one of the names, or the model has an adapter already.
            CheckpointError: ``start`` does not fit.
            MissingExtraError: PEFT is not installed.
        """
        _refuse_second(backbone.model)
        settings = {
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": self.dropout,
            "target_modules": self._targets(backbone),
            "trainable_token_indices": {backbone.token_table: list(token_ids)},
        }
        _inject(backbone.model, settings)
        if self.start is not None:
            self._load_start(backbone, token_ids)
        return _trainable(backbone.model)

    def trained_state(
        self, backbone: Backbone, state_dict: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """See :class:`Adaptation`; by PEFT's names in an adapter file."""
        return state_of(backbone.model, state_dict)

    def save(self, folder: Path, backbone: Backbone, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write an adapter that PEFT can open as well."""
        config = backbone.model.peft_config[ADAPTER_NAME].to_dict()
        config = {name: sorted(value) if isinstance(value, set) else value for name, value in config.items()}
        described = backbone.describe()
        config |= {
            "inference_mode": True,
            "base_model_name_or_path": described.get("name"),
            "revision": described.get("revision"),
        }
        write_atomically(folder / ADAPTER_CONFIG, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
        write_atomically(folder / ADAPTER_WEIGHTS, save(self.trained_state(backbone, state_dict), {"format": "pt"}))

    def describe(self) -> dict[str, Any]:
        """See :class:`Adaptation`."""
        described = asdict(self) | {"modules": list(self.modules), "start": self.start and str(self.start)}
        return {"kind": "low rank"} | described

    def _targets(self, backbone: Backbone) -> list[str] | str:
        """What PEFT is to look for: names, or an expression that keeps to the language model."""
        names = [name for name, module in backbone.model.named_modules() if isinstance(module, nn.Linear)]
        if self.language_model_only:
            names = [name for name in names if re.fullmatch(backbone.language_modules, name)]
        hit = {name.rpartition(".")[2] for name in names} & set(self.modules)
        absent = [module for module in self.modules if module not in hit]
        if not hit:
            raise TrainingError(f"no linear module is named {', '.join(absent)}: give names of this backbone's modules")
        if absent:
            _LOGGER.warning("LoRA: the backbone has no linear module named %s; it goes without", ", ".join(absent))
        if not self.language_model_only:
            return sorted(hit)
        return rf"(?=(?:{backbone.language_modules})$)(?:.*\.)?(?:{'|'.join(map(re.escape, sorted(hit)))})"

    def _load_start(self, backbone: Backbone, token_ids: Sequence[int]) -> None:
        files = read_adapter(local_folder(str(self.start), self.start_revision))
        if files.settings["r"] != self.rank or files.scaling != self.alpha / self.rank:
            raise CheckpointError(
                f"{files.folder}: rank {files.settings['r']} and scaling {files.scaling:g}, expected {self.rank} and "
                f"{self.alpha / self.rank:g}: set rank and alpha as the adapter has them"
            )
        tensors = fitted_tensors(files, backbone.model, backbone.token_table)
        if has_rows(tensors):
            _same_tokens(files, token_ids)
        load_tensors(backbone.model, tensors, files.folder, fresh=False, rows=False)


@dataclass(frozen=True)
class FullTraining:
    """Every parameter is trained."""

    def attach(self, backbone: Backbone, token_ids: Sequence[int]) -> TrainableParameters:
        """See :class:`Adaptation`; the concept tokens' rows are part of the table."""
        backbone.model.requires_grad_(True)
        return _trainable(backbone.model)

    def trained_state(
        self, backbone: Backbone, state_dict: Mapping[str, torch.Tensor] | None = None
    ) -> dict[str, torch.Tensor]:
        """See :class:`Adaptation`; the whole model by its own names."""
        state = backbone.model.state_dict() if state_dict is None else state_dict
        return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}

    def save(self, folder: Path, backbone: Backbone, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write the model, tokenizer and image processor to ``folder/backbone``.

        Raises:
            CheckpointError: The state given is not that of the whole model.
        """
        saved = backbone if state_dict is None else _with_state(backbone, state_dict)
        saved.save_pretrained(folder / BACKBONE_FOLDER)

    def describe(self) -> dict[str, Any]:
        """See :class:`Adaptation`."""
        return {"kind": "full"}


def load_adapter(
    backbone: Backbone, folder: Path, token_ids: Sequence[int] | None = None, *, fresh: bool = False
) -> None:
    """Put a trained adapter onto a backbone, for inference: its parameters are frozen.

    Args:
        folder: Local, with PEFT's two files; made for this class of the model or for one with other names.
        token_ids: Tokens whose trained rows the adapter must hold; None where it need not hold any.
        fresh: The adapter was saved before any training.

    Raises:
        CheckpointError: Not everything in the adapter matches, or it does not hold what it must.
        TrainingError: The model has an adapter already.
        MissingExtraError: PEFT is not installed.
    """
    _refuse_second(backbone.model)
    files = read_adapter(folder)
    tensors = fitted_tensors(files, backbone.model, backbone.token_table)
    rows = has_rows(tensors)
    if token_ids is not None and not rows:
        raise CheckpointError(
            f"{folder}: the adapter has no rows for the concept tokens; expected those of {list(token_ids)}"
        )
    if token_ids is not None:
        _same_tokens(files, token_ids)
    settings = {
        "r": files.settings["r"],
        "lora_alpha": files.settings["lora_alpha"],
        "use_rslora": bool(files.settings.get("use_rslora")),
        "target_modules": modules_of(tensors),
        "trainable_token_indices": {backbone.token_table: list(files.token_ids)} if rows else None,
        "inference_mode": True,
    }
    _inject(backbone.model, settings)
    load_tensors(backbone.model, tensors, folder, fresh=fresh, rows=True)


def _inject(model: nn.Module, settings: Mapping[str, Any]) -> None:
    """Let PEFT change a model in place; the wrapper that it returns is not needed, nor any of its names."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError:
        raise MissingExtraError("peft", "train", "LoRA") from None
    with warnings.catch_warnings():
        # PEFT asks the model for something by a name that transformers is about to drop; users can do nothing about it.
        warnings.filterwarnings("ignore", ".*is_gradient_checkpointing", FutureWarning)
        get_peft_model(model, LoraConfig(task_type="FEATURE_EXTRACTION", bias="none", **settings), ADAPTER_NAME)


def _refuse_second(model: nn.Module) -> None:
    if adapter_parameters(model):
        raise TrainingError("the backbone has an adapter already: load it anew before another is attached")


def _same_tokens(files: AdapterFiles, token_ids: Sequence[int]) -> None:
    if files.token_ids != tuple(token_ids):
        raise CheckpointError(
            f"{files.folder}: the adapter has rows for the tokens {list(files.token_ids)}, expected {list(token_ids)}; "
            "the tokenizer is not the one that it was trained with"
        )


def _trainable(model: nn.Module) -> TrainableParameters:
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    return TrainableParameters(tuple(trained), sum(parameter.numel() for parameter in trained.values()))


def _with_state(backbone: Backbone, state_dict: Mapping[str, torch.Tensor]) -> Backbone:
    """A backbone whose model holds this state; the given one, whose parameters may be shards, stays as it is."""
    model = backbone.model
    with torch.device("meta"):
        whole = type(model)._from_config(model.config, dtype=model.dtype)
    try:
        whole.load_state_dict(state_dict, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"the state to save is not that of the whole model ({reason:.200})") from error
    copied = copy.copy(backbone)
    copied.model = whole
    return copied
