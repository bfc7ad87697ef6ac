"""LoRA adapters in colpali-engine's layout, merged into checkpoints of transformers' own retrieval classes.

vidore/colpali-v1.2, vidore/colqwen2.5-v0.1 and their kin are adapters on a base model whose classes live in
colpali-engine: the projection is called ``custom_text_proj``, the backbone lies under ``model.`` or, for Qwen, at the
root. A library that does not know this layout initialises at random what it cannot match, and says so in a log at
best. Here the weights are merged (W + alpha / r B A, in float32), renamed, and every tensor is accounted for.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from visar.encoders import checkpoints
from visar.encoders.whole_folders import write_whole
from visar.errors import EmbeddingError, MissingExtraError

ADAPTER_CONFIG = "adapter_config.json"
_ADAPTER_WEIGHTS = "adapter_model.safetensors"
_ADAPTER_PREFIX = "base_model.model."
_LORA = re.compile(r"(?P<module>.+)\.lora_(?P<side>[AB])\.weight")

# Raise it when merging or renaming changes: part of the key of merged checkpoints and of the encoder's fingerprint.
MERGING_VERSION = "1"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Native:
    """The classes of transformers that a backbone belongs to, and how colpali-engine's names become theirs."""

    config: str
    network: str
    processor: str
    renames: tuple[tuple[str, str], ...]

    def name(self, name: str) -> str:
        """The native name of a tensor: the first rename that fits, or the name as it is."""
        for pattern, replacement in self.renames:
            renamed, fits = re.subn(pattern, replacement, name)
            if fits:
                return renamed
        return name


_PROJECTION = (r"^custom_text_proj\.", "embedding_proj_layer.")
_PROJECTION_WEIGHT = "embedding_proj_layer.weight"
_QWEN = _Native(
    "ColQwen2Config",
    "ColQwen2ForRetrieval",
    "ColQwen2Processor",
    (
        _PROJECTION,
        (r"^model\.(language_model|visual)\.", r"vlm.\1."),
        (r"^model\.", "vlm.language_model."),
        (r"^visual\.", "vlm.visual."),
    ),
)
_NATIVE = {
    "paligemma": _Native(
        "ColPaliConfig", "ColPaliForRetrieval", "ColPaliProcessor", (_PROJECTION, (r"^model\.", "vlm."))
    ),
    "modernvbert": _Native(
        "ColModernVBertConfig",
        "ColModernVBertForRetrieval",
        "ColModernVBertProcessor",
        (_PROJECTION, (r"^model\.", "vlm.")),
    ),
    "qwen2_vl": _QWEN,
    "qwen2_5_vl": _QWEN,
}


def base_name(adapter: Path) -> str:
    """The base model that an adapter's own configuration names."""
    return str(checkpoints.read_json(adapter / ADAPTER_CONFIG).get("base_model_name_or_path"))


def merged(adapter: Path, base: Path, identities: Sequence[str], cache: str | Path | None) -> Path:
    """Folder of the checkpoint that adapter and base make together, merged at the first call.

    Processes that merge at the same time each write a copy; the first to finish is kept, the others discard theirs.

    Args:
        adapter: Folder with adapter_config.json and adapter_model.safetensors, tokenizer and image processor.
        base: Folder of the base model.
        identities: What tells these weights from others; part of the key under which the result is kept.
        cache: Where merged checkpoints are kept; None for ``visar/checkpoints`` in the user's cache folder.

    Raises:
        EmbeddingError: The adapter is not plain LoRA, a tensor is left over on either side, the disk is full, or
            ``cache`` is needed since the home folder is unknown.
        MissingExtraError: transformers is missing.
    """
    key = hashlib.sha256("\n".join([MERGING_VERSION, *identities]).encode()).hexdigest()[:32]
    target = (checkpoints.expanded(cache) if cache else _default_cache()) / key
    if target.is_dir():
        return target
    logger.info("merging %s into %s, once", adapter, base)
    try:
        write_whole(target, lambda folder: _write(adapter, base, folder))
    except (OSError, SafetensorError) as error:
        raise EmbeddingError(f"{target} cannot be written: {checkpoints.first_line(error)}") from error
    except (ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError) as error:
        reason = checkpoints.first_line(error)
        raise EmbeddingError(f"{adapter} cannot be merged into {base}: {reason}") from error
    return target


def _default_cache() -> Path:
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:
        raise EmbeddingError(
            "the home folder is unknown, so there is no place for the merged checkpoint: set cache to a folder"
        ) from None
    return folder / "visar" / "checkpoints"


def _write(adapter: Path, base: Path, folder: Path) -> None:
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers", "encoders", "an image encoder") from None
    config = transformers.AutoConfig.from_pretrained(base, trust_remote_code=False)
    native = _NATIVE.get(config.model_type)
    if native is None:
        known = ", ".join(sorted(_NATIVE))
        raise EmbeddingError(f"{base} is of type {config.model_type}, expected a base among {known}")
    weights = _merge(_read_base(base, native), adapter, native)
    projection = weights[_PROJECTION_WEIGHT]
    network_class = getattr(transformers, native.network)
    network, report = network_class.from_pretrained(
        None,
        config=getattr(transformers, native.config)(vlm_config=config, embedding_dim=len(projection)),
        state_dict=weights,
        dtype=projection.dtype,
        output_loading_info=True,
    )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(problem):
            some = sorted(map(str, report[problem]))
            raise EmbeddingError(f"{base} does not fit {native.network}: {len(some)} {problem}, such as {some[0]}")
    network.save_pretrained(folder)
    getattr(transformers, native.processor).from_pretrained(adapter).save_pretrained(folder)


def _read_base(folder: Path, native: _Native) -> dict[str, torch.Tensor]:
    """Weights under native names. The head that predicts words is left out: no embedding depends on it."""
    weights: dict[str, torch.Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in _read_file(path).items():
            if "lm_head." not in name:
                weights[native.name(name)] = tensor
    if _PROJECTION_WEIGHT not in weights:
        raise EmbeddingError(f"{folder} has no custom_text_proj: give the base that the adapter was trained on")
    return weights


def _read_file(path: Path) -> dict[str, torch.Tensor]:
    try:
        with safe_open(path, framework="pt") as stream:
            return {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise EmbeddingError(f"{path} cannot be read: {checkpoints.first_line(error)}") from error


def _merge(weights: dict[str, torch.Tensor], adapter: Path, native: _Native) -> dict[str, torch.Tensor]:
    """Add (alpha / r) B A to every weight that the adapter was trained for."""
    settings = checkpoints.read_json(adapter / ADAPTER_CONFIG)
    scale = _scale(settings, adapter)
    sides: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in _read_file(adapter / _ADAPTER_WEIGHTS).items():
        found = _LORA.fullmatch(name.removeprefix(_ADAPTER_PREFIX))
        if found is None:
            raise EmbeddingError(f"{adapter} holds {name}, expected lora_A and lora_B weights alone")
        sides.setdefault(native.name(found["module"] + ".weight"), {})[found["side"]] = tensor.float()
    for name, pair in sides.items():
        target = weights.get(name)
        if target is None or len(pair) < 2:
            raise EmbeddingError(
                f"{adapter} does not fit its base: no weight {name} there, or half of its pair missing"
            )
        weights[name] = (target.float() + scale * pair["B"] @ pair["A"]).to(target.dtype)
    if not any(pair["B"].any() for pair in sides.values()):
        raise EmbeddingError(f"{adapter} changes nothing: all its lora_B weights are zero, as before any training")
    return weights


def _scale(settings: dict[str, Any], adapter: Path) -> float:
    odd = [
        name
        for name in ("use_dora", "fan_in_fan_out", "lora_bias", "rank_pattern", "alpha_pattern", "modules_to_save")
        if settings.get(name)
    ]
    if settings.get("peft_type") != "LORA" or odd:
        raise EmbeddingError(f"{adapter} is not a plain LoRA adapter ({settings.get('peft_type')}, {', '.join(odd)})")
    rank = settings["r"]
    return settings["lora_alpha"] / (rank**0.5 if settings.get("use_rslora") else rank)
