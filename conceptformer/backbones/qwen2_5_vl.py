"""Qwen2.5-VL as transformers has it, without its output head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import PreTrainedTokenizerBase, Qwen2_5_VLConfig, Qwen2_5_VLModel, Qwen2VLImageProcessorPil
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.vision_utils import get_vision_position_ids, get_vision_window_index

from conceptformer.backbones import checkpoint_folder
from conceptformer.backbones.protocol import TokenGrid
from conceptformer.backbones.qwen2_5_vl_inputs import InputSettings, Qwen2_5_VLInputs
from conceptformer.concept_tokens import add_concept_tokens, initialise_rows
from conceptformer.errors import CheckpointError

_MODEL_TYPE = "qwen2_5_vl"
# The head that predicts words is the one part of a checkpoint that no embedding depends on.
_UNUSED_KEYS = frozenset({"lm_head.weight"})
# Whole models that a newer transformers saved keep the tower here, where 5.24 looks for it with the head alone.
_RENAMED_KEYS = {r"^model\.visual\.": "visual."}
_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
_ATTENTIONS = ("sdpa", "eager")


class Qwen2_5_VL:
    """The backbone Qwen2.5-VL; see :class:`conceptformer.backbones.protocol.Backbone`.

    Attributes:
        inputs: The matching processor; its tokenizer holds the concept tokens.
        model: Vision tower and language model.
        hidden_size: D.
    """

    position_axes = 3
    language_modules = r"language_model\..+"
    token_table = "language_model.embed_tokens"

    def __init__(self, model: Qwen2_5_VLModel, inputs: Qwen2_5_VLInputs, origin: Mapping[str, object]) -> None:
        """Join the two halves.

        Args:
            origin: Where the weights came from, for :meth:`describe`.

        Raises:
            CheckpointError: The halves do not fit each other, or the model attends within a sliding window.
        """
        _check_fit(model.config, inputs)
        convolution = model.visual.patch_embed.proj
        convolution.forward = partial(_embed_patches, convolution)
        self.model = model
        self.inputs = inputs
        self.hidden_size: int = model.config.text_config.hidden_size
        self._origin = dict(origin)

    @classmethod
    def from_pretrained(
        cls,
        name_or_folder: str | Path,
        *,
        revision: str | None = None,
        dtype: torch.dtype | str = "bfloat16",
        attention: str = "sdpa",
        settings: InputSettings | None = None,
    ) -> Qwen2_5_VL:
        """Load a checkpoint, in the layout of the hub or of a newer transformers, and give it the concept tokens.

        Tokens that the checkpoint's tokenizer lacks get the mean of the other tokens' embeddings as theirs.

        Args:
            name_or_folder: A local folder, from which nothing else is fetched, or a name on the hub.
            revision: Commit, tag or branch on the hub.
            dtype: Of the weights: bfloat16 or float32.
            attention: ``"sdpa"`` or ``"eager"``.
            settings: Wording and sizes of the inputs.

        Raises:
            CheckpointError: The checkpoint is missing, damaged, of another model, or has other keys than the model.
        """
        number_type, attention = _number_type(dtype), _attention(attention)
        source = checkpoint_folder.source(name_or_folder, revision).pinned(_MODEL_TYPE)
        tokenizer = source.tokenizer()
        processor = source.image_processor(Qwen2VLImageProcessorPil)
        model = source.model(Qwen2_5_VLModel, number_type, attention, renamed=_RENAMED_KEYS, unused=_UNUSED_KEYS)
        _add_concept_tokens(model, tokenizer)
        origin = {"name": str(name_or_folder), "revision": revision, "commit": source.revision}
        return cls(model, Qwen2_5_VLInputs(tokenizer, processor, settings or InputSettings()), origin)

    @classmethod
    def without_weights(
        cls,
        tokenizer_folder: str | Path,
        architecture: Mapping[str, object],
        *,
        dtype: torch.dtype | str = "bfloat16",
        attention: str = "sdpa",
        settings: InputSettings | None = None,
    ) -> Qwen2_5_VL:
        """A model of full size that holds no numbers, on torch's meta device: shapes and names can be looked at.

        Args:
            tokenizer_folder: Tokenizer files, and a ``preprocessor_config.json`` where its values are not Qwen's.
            architecture: Arguments of transformers' ``Qwen2_5_VLConfig``.

        Raises:
            CheckpointError: No tokenizer there, or no model has this architecture.
        """
        number_type, attention = _number_type(dtype), _attention(attention)
        source = checkpoint_folder.source(tokenizer_folder, None)
        tokenizer = source.tokenizer()
        try:
            config = Qwen2_5_VLConfig(**architecture)
            with torch.device("meta"):
                model = Qwen2_5_VLModel._from_config(config, attn_implementation=attention, dtype=number_type)
        except (TypeError, ValueError, StrictDataclassError) as error:
            raise CheckpointError(f"architecture: no Qwen2.5-VL can be made of it ({_one_line(error)})") from error
        _add_concept_tokens(model, tokenizer)
        processor = source.image_processor(Qwen2VLImageProcessorPil)
        origin = {"name": None, "revision": None, "commit": None}
        return cls(model, Qwen2_5_VLInputs(tokenizer, processor, settings or InputSettings()), origin)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write model, tokenizer and image processor, to be loaded by :meth:`from_pretrained` with equal outputs.

        The input settings are not among it: whoever loads the folder gives them again.

        Raises:
            CheckpointError: The model holds adapters, which a plain checkpoint cannot.
            StoreError: The disk is full or the folder cannot be written.
        """
        with torch.device("meta"):
            plain = Qwen2_5_VLModel._from_config(self.model.config)
        if other := sorted(self.model.state_dict().keys() ^ plain.state_dict().keys()):
            raise CheckpointError(
                f"model: expected plain weights, found {other[0]}; merge or unload the adapters first"
            )
        checkpoint_folder.write_checkpoint(
            Path(folder), self.model, self.inputs.tokenizer, self.inputs.image_processor, hub_keys=False
        )

    def embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """[...] token ids to [..., D] input embeddings."""
        return self.model.get_submodule(self.token_table)(ids)

    def embed_images(self, pixels: torch.Tensor, grids: Sequence[TokenGrid]) -> torch.Tensor:
        """The vision tower and its projection: [patches, values] pixels to [sum of len(grid), D]."""
        vision = self.model.config.vision_config
        merge = vision.spatial_merge_size
        # Sizes and bounds are left on the CPU: each layer reads them as numbers, for which it would wait for a GPU.
        sizes = torch.tensor([[1, grid.rows * merge, grid.columns * merge] for grid in grids])
        order, bounds = get_vision_window_index(
            sizes, spatial_merge_size=merge, window_size=vision.window_size, patch_size=vision.patch_size
        )
        features = self.model.get_image_features(
            pixels,
            image_grid_thw=sizes,
            position_ids=get_vision_position_ids(sizes, merge).to(pixels.device),
            window_index=order.to(pixels.device),
            cu_window_seqlens=bounds,
        )
        return torch.cat(features.pooler_output)

    def image_mask(self, ids: torch.Tensor) -> torch.Tensor:
        """[...] token ids to a mask of the image tokens."""
        return ids == self.inputs.image_token_id

    def prefix_positions(self, ids: Sequence[int], grid: TokenGrid) -> tuple[torch.Tensor, int]:
        """[3, len(ids)] positions of a prefix along time, height and width, on the CPU, and the position that follows.

        The model's own rule: text counts up on all axes, an image holds time still and counts rows and columns from
        where it begins, and the text after it goes on from the largest position so far. Positions that count up on
        all axes throughout would give no error and other hidden states.
        """
        merge = self.model.config.vision_config.spatial_merge_size
        tokens = torch.tensor([list(ids)])
        positions, _ = self.model.get_rope_index(
            tokens,
            mm_token_type_ids=self.image_mask(tokens).int(),
            image_grid_thw=torch.tensor([[1, grid.rows * merge, grid.columns * merge]]),
        )
        return positions[:, 0], int(positions.max()) + 1

    def hidden_states(
        self, embeddings: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """States of the last layer after the final norm.

        Args:
            embeddings: [B, L, D].
            positions: [3, B, L].
            mask: [B, 1, L, L], True where a token (third axis) may see another (fourth axis). Every token must see
                one, padding too: some kernels give NaN otherwise. None for causal attention.

        Returns:
            [B, L, D] in the model's dtype.

        Raises:
            ValueError: Positions of another shape, of which transformers would make something without a word.
        """
        expected = (3, *embeddings.shape[:2])
        if tuple(positions.shape) != expected:
            raise ValueError(f"positions: expected shape {list(expected)}, got {list(positions.shape)}")
        if mask is not None and self.model.config._attn_implementation == "eager":
            # Eager attention adds the mask to the scores; sdpa takes it as it is.
            barred = torch.finfo(embeddings.dtype).min
            mask = torch.zeros(mask.shape, dtype=embeddings.dtype, device=mask.device).masked_fill(~mask, barred)
        output = self.model.language_model(
            inputs_embeds=embeddings, position_ids=positions, attention_mask=mask, use_cache=False
        )
        return output.last_hidden_state

    def describe(self) -> dict[str, object]:
        """Class, origin of the weights (the commit as the hub resolved it), number type and attention."""
        return {
            "class": f"{type(self).__module__}.{type(self).__qualname__}",
            **self._origin,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "attention": self.model.config._attn_implementation,
        }


def _add_concept_tokens(model: Qwen2_5_VLModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Add the tokens that are missing and start their rows, growing the table where it has none for them."""
    rows = model.config.text_config.vocab_size
    if max(tokenizer.get_vocab().values()) >= rows:
        raise CheckpointError(
            f"tokenizer: expected ids below the embedding table's {rows} rows, got {len(tokenizer)} tokens; "
            "the tokenizer belongs to another model"
        )
    added = add_concept_tokens(tokenizer)
    if not added:
        return
    if max(added) >= rows:
        model.resize_token_embeddings(max(added) + 1, mean_resizing=False)
    weight = model.get_input_embeddings().weight
    with _gathered(weight):
        if weight.numel():
            initialise_rows(weight, added)


def _embed_patches(convolution: nn.Conv3d, pixels: torch.Tensor) -> torch.Tensor:
    """What the convolution does to single patches [patches, ...], as the matrix product that it is: it is faster."""
    return nn.functional.linear(pixels.flatten(1), convolution.weight.flatten(1), convolution.bias)


@contextmanager
def _gathered(weight: torch.Tensor) -> Iterator[None]:
    """The whole weight, in the main process at least, where ZeRO-3 has shared it out while it was loaded."""
    if not is_deepspeed_zero3_enabled():
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters([weight], modifier_rank=0):
        yield


def _check_fit(config: Qwen2_5_VLConfig, inputs: Qwen2_5_VLInputs) -> None:
    vision, processor = config.vision_config, inputs.image_processor
    pairs = {
        "image token": (config.image_token_id, inputs.image_token_id),
        "patch size": (vision.patch_size, processor.patch_size),
        "merge size": (vision.spatial_merge_size, processor.merge_size),
        "temporal patch size": (vision.temporal_patch_size, processor.temporal_patch_size),
    }
    for name, (of_model, of_inputs) in pairs.items():
        if of_model != of_inputs:
            raise CheckpointError(
                f"{name}: the model has {of_model}, its tokenizer or image processor {of_inputs}; "
                "take all files from one checkpoint"
            )
    if config.text_config.sliding_window is not None:
        raise CheckpointError("use_sliding_window: expected false; masks of whole sequences know no windows")


def _number_type(dtype: torch.dtype | str) -> torch.dtype:
    found = _DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise CheckpointError(f"dtype: expected one of {list(_DTYPES)}, got {dtype}")
    return found


def _attention(name: str) -> str:
    if name not in _ATTENTIONS:
        raise CheckpointError(
            f"attention: expected one of {list(_ATTENTIONS)}, got {name!r}; flash attention takes no mask of pairs of "
            "tokens, which pages and concepts that share a prefix need"
        )
    return name


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
