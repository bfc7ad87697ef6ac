"""A loaded checkpoint of sentence-transformers' MultiVectorEncoder, with what that library leaves undone put right.

Four things are (as of 6.2, transformers 5.24), each held by a test:

- Its native ColQwen2 path passes no position ids, so that image tokens get 1-D positions. They are computed here.
- It calls processors without the visual prompt, so that ColModernVBERT gets no token ids for images and no
  augmentation tokens for questions. Native processors are asked through ``process_images`` and ``process_queries``.
- For a checkpoint without a projection it makes up a random one. Such a checkpoint is refused.
- It keeps to itself which weights transformers did not find and filled at random. Such a checkpoint is refused, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from safetensors import SafetensorError

from visar.encoders import checkpoints, patch_grid
from visar.encoders.device_memory import WHILE_ENCODING, WHILE_LOADING, one_line_when_exhausted
from visar.encoders.marked_text import TextWindow, pad
from visar.errors import EmbeddingError, MissingExtraError

if TYPE_CHECKING:
    from sentence_transformers import MultiVectorEncoder
    from transformers import PreTrainedModel

Features = dict[str, Any]

# What the loaders of both libraries raise on a checkpoint that is damaged, incomplete or of an unknown kind.
_LOADING_FAILURES = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
    SafetensorError,
)


@dataclass(frozen=True)
class Row:
    """One input after the forward pass, padding and unscored tokens removed.

    Attributes:
        kept: [n] positions in the padded input that the vectors stand for.
        vectors: [n, D] float32 unit rows on the CPU; NaN or Inf from the network stays as it is.
    """

    kept: torch.Tensor
    vectors: torch.Tensor


class MultiVectorModel:
    """The network, its processor and its tokenizer."""

    def __init__(self, encoder: MultiVectorEncoder) -> None:
        self.encoder = encoder
        self.transformer = encoder[0]
        self.processor = self.transformer.processor
        self.tokenizer = self.transformer.tokenizer
        # A *ForRetrieval class of transformers: it projects and normalises, its processor writes the prompts.
        self.native = self.transformer.transformer_task == "retrieval"

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype, device: str | None) -> MultiVectorModel:
        """Load a checkpoint from a folder.

        Raises:
            MissingExtraError: sentence-transformers or transformers is missing, or too old to know the class.
            EmbeddingError: The folder holds no multi-vector checkpoint, or one that cannot be loaded or lacks weights.
        """
        try:
            from sentence_transformers import MultiVectorEncoder
        except ImportError:
            raise MissingExtraError("sentence-transformers>=6.2", "encoders", "a multi-vector encoder") from None
        try:
            require_projection(folder)
            with one_line_when_exhausted(device or "the GPU", WHILE_LOADING):
                encoder = MultiVectorEncoder(
                    str(folder),
                    device=device,
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"dtype": dtype, "use_safetensors": True},
                )
            _require_all_weights(encoder[0].model, folder)
        except _LOADING_FAILURES as error:
            reason = checkpoints.first_line(error)
            raise EmbeddingError(f"{folder} cannot be loaded as a multi-vector encoder: {reason}") from error
        return cls(encoder.eval())

    def image_features(self, images: Sequence[Image.Image]) -> Features:
        """Processor output for page images, with position ids where the network would not find them itself."""
        if not self.native:
            features = self.encoder.preprocess(list(images), prompt=self.prompt("document"), task="document")
            if "image_grid_thw" in features and "mm_token_type_ids" not in features:
                raise EmbeddingError(
                    "the processor gives no mm_token_type_ids, so image tokens would silently get 1-D positions: "
                    "use a newer transformers"
                )
            return features
        features = self.processor.process_images(list(images))
        features["modality"] = "image"
        # Left in, training labels would be passed through to the network.
        features.pop("labels", None)
        backbone = self.transformer.model.vlm
        if "image_grid_thw" in features and hasattr(backbone, "get_rope_index"):
            features["position_ids"], _ = backbone.get_rope_index(
                input_ids=features["input_ids"],
                mm_token_type_ids=self.is_image_token(features["input_ids"]).int(),
                image_grid_thw=features["image_grid_thw"],
                attention_mask=features["attention_mask"],
            )
        return features

    def query_features(self, text: str) -> tuple[Features, int]:
        """Processor output for one question, and how many of its tokens did not fit."""
        if self.native:
            features = self.processor.process_queries([text])
            features["modality"] = "text"
            return features, 0
        prompt = self.prompt("query")
        features = self.encoder.preprocess([text], prompt=prompt, task="query")
        whole = self.tokenizer(prompt + text, truncation=False, padding=False, verbose=False)["input_ids"]
        read = features["attention_mask"].bool()
        if "query_expansion_positions" in features:
            read = read & ~features["query_expansion_positions"].bool()
        return features, max(0, len(whole) - int(read.sum()))

    def text_features(self, windows: Sequence[TextWindow]) -> Features:
        """Padded features of windows of page text."""
        ids, mask = pad(windows, self.tokenizer.pad_token_id)
        return {"input_ids": ids, "attention_mask": mask, "modality": "text"}

    @torch.inference_mode()
    def embed(self, features: Features, task: str) -> list[Row]:
        """Forward pass; ``task`` is ``"query"`` or ``"document"``, which decides what is scored.

        Raises:
            EmbeddingError: The GPU ran out of memory.
        """
        from sentence_transformers.util import batch_to_device

        with one_line_when_exhausted(self.encoder.device, WHILE_ENCODING):
            output = self.encoder(batch_to_device(dict(features), self.encoder.device), task=task)
            states = output["token_embeddings"].float().cpu()
        scored = output["attention_mask"].bool().cpu()
        rows = []
        for row in range(len(states)):
            kept = scored[row].nonzero().flatten()
            rows.append(Row(kept, torch.nn.functional.normalize(states[row, kept], dim=-1)))
        # Clones made outside inference mode are ordinary tensors, which callers may change in place.
        with torch.inference_mode(False):
            return [Row(row.kept.clone(), row.vectors.clone()) for row in rows]

    def is_image_token(self, ids: torch.Tensor) -> torch.Tensor:
        """Mask of the tokens that stand for patches, in the shape of ``ids``."""
        return ids == self.tokenizer.convert_tokens_to_ids(self.processor.image_token)

    def boxes(self, features: Features, row: int) -> torch.Tensor | None:
        """[L, 4] boxes of the padded input ``row``, NaN at tokens without a place; None where the layout is unclear."""
        ids = features["input_ids"][row]
        image = self.is_image_token(ids)
        count = int(image.sum())
        pixels = features["pixel_values"]
        patch_size = _patch_size(self.transformer.model.config)
        if "image_grid_thw" in features:
            grid = features["image_grid_thw"][row].tolist()
            placed = patch_grid.merged_grid(count, grid, self.processor.image_processor.merge_size)
        elif pixels.ndim == 4 and patch_size:
            placed = patch_grid.fixed_grid(count, pixels.shape[-2], pixels.shape[-1], patch_size)
        else:
            tokens = self.tokenizer.convert_ids_to_tokens(ids.tolist())
            placed = patch_grid.tiled(count, tokens, self.processor.image_token)
        if placed is None:
            return None
        boxes = torch.full((len(ids), 4), float("nan"))
        boxes[image] = placed
        return boxes

    def prompt(self, task: str) -> str:
        """What the checkpoint puts before a ``"query"`` or a ``"document"``."""
        return self.encoder.prompts.get(task) or ""

    @property
    def document_limit(self) -> int:
        """How many tokens of page text the encoder takes at once, markers included."""
        return self.transformer.document_length or self.tokenizer.model_max_length

    def require(self, needs: str) -> None:
        """Refuse a checkpoint that cannot read what the settings say it shall.

        Raises:
            EmbeddingError: It reads the other half of a page.
        """
        reads_text = self.processor is self.tokenizer
        if (needs == "text") != reads_text:
            other = "text" if reads_text else "image"
            raise EmbeddingError(f"this checkpoint reads page {other}, but needs is {needs!r}: set needs to {other!r}")


def _patch_size(config: Any) -> int | None:
    """Side of a patch in pixels, where the vision tower's configuration states one."""
    vision = getattr(getattr(config, "vlm_config", config), "vision_config", None)
    return getattr(vision, "patch_size", None)


def require_projection(folder: Path) -> None:
    """Refuse a checkpoint that brings no projection: MultiVectorEncoder would add a random one and only log it.

    Raises:
        EmbeddingError: The folder is no multi-vector checkpoint.
    """
    architectures = checkpoints.read_json(folder / "config.json").get("architectures") or []
    if any(name == "HF_ColBERT" or name.endswith("ForRetrieval") for name in architectures):
        return
    modules = checkpoints.read_json(folder / "modules.json")
    saved_as = checkpoints.read_json(folder / "config_sentence_transformers.json").get("model_type")
    if modules and (saved_as == "MultiVectorEncoder" or any(str(m.get("type")).endswith("Dense") for m in modules)):
        return
    raise EmbeddingError(
        f"{folder} is no multi-vector checkpoint: it has neither a projection (Dense module) nor a class "
        "*ForRetrieval or HF_ColBERT; give a ColBERT-like or ColPali-like model"
    )


def _require_all_weights(network: PreTrainedModel, folder: Path) -> None:
    """Ask transformers for its report by loading once more: names alone do not tell, since it renames and ties weights.

    That costs little: the file is mapped into memory, and in its own dtype nothing of it is read or copied.
    """
    modules = checkpoints.read_json(folder / "modules.json")
    where = folder / modules[0]["path"] if modules else folder
    with checkpoints.quiet_loading():
        _, report = type(network).from_pretrained(
            where, dtype="auto", local_files_only=True, use_safetensors=True, output_loading_info=True
        )
    checkpoints.refuse_gaps(folder, type(network).__name__, report)
