"""NV-Embed-v2 as a text embedder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from conceptformer.baselines.checkpoint_embedder import CheckpointEmbedder, append_eos
from conceptformer.errors import CheckpointError, MissingExtraError
from visar.encoders import checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from conceptformer.baselines.nv_embed_model import NvEmbedModel


@dataclass(frozen=True)
class _Loaded:
    model: NvEmbedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device


@dataclass(eq=False)
class NvEmbed(CheckpointEmbedder):
    """NV-Embed-v2, whose pooling sentence-transformers does not have: the network is
    :class:`~conceptformer.baselines.nv_embed_model.NvEmbedModel`, and every name of the checkpoint must match it.

    Texts end with the end-of-sequence token, also where they are cut. The instruction before queries and the token in
    front of it are read, and left out of the mean. Pages have no instruction.
    """

    _parts: _Loaded | None = field(default=None, init=False, repr=False)

    def load(self) -> None:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.load`."""
        self._loaded()

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        return self._loaded().tokenizer

    def _embed(self, texts: Sequence[str], prompt: str) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        rows: dict[int, np.ndarray] = {}
        for first in range(0, len(order), self.batch_size):
            batch = order[first : first + self.batch_size]
            try:
                vectors = self._forward([prompt + texts[index] for index in batch], len(prompt.rstrip()))
            except torch.OutOfMemoryError:
                # Not chained: the traceback would keep the tensors alive that fill the memory.
                raise CheckpointError(
                    f"{self._loaded().device} ran out of memory; lower retriever.embedder.batch_size or "
                    "retriever.embedder.max_length"
                ) from None
            rows |= dict(zip(batch, vectors, strict=True))
        return np.stack([rows[index] for index in range(len(texts))])

    @torch.inference_mode()
    def _forward(self, texts: list[str], prompt_signs: int) -> np.ndarray:
        """[B, D] unit rows; what begins among the first ``prompt_signs`` signs takes no part in the mean."""
        loaded = self._loaded()
        read = loaded.tokenizer(
            texts,
            padding=True,
            padding_side="right",
            truncation=True,
            max_length=self.max_length,
            return_offsets_mapping=prompt_signs > 0,
            return_tensors="pt",
        )
        is_token = read["attention_mask"].bool()
        pooled = is_token
        if prompt_signs:
            starts, ends = read["offset_mapping"].unbind(-1)
            # The token in front of the text has no extent, nor has the one behind it, which stays.
            of_prompt = (starts < prompt_signs) & (ends > starts)
            last = of_prompt.int().cumsum(dim=1) == of_prompt.sum(dim=1, keepdim=True)
            pooled = is_token & last & ~of_prompt
        ids = (read["input_ids"], is_token, pooled)
        vectors = loaded.model(*(tensor.to(loaded.device) for tensor in ids))
        return torch.nn.functional.normalize(vectors, dim=-1).cpu().numpy()

    def _loaded(self) -> _Loaded:
        if self._parts is None:
            self._parts = self._load(self._folder())
        return self._parts

    def _load(self, folder: Path) -> _Loaded:
        try:
            from transformers import PreTrainedTokenizerFast
        except ImportError:
            raise MissingExtraError("transformers", "encoders", "NV-Embed") from None
        from conceptformer.backbones.checkpoint_folder import source
        from conceptformer.baselines.nv_embed_model import NvEmbedModel

        try:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{folder}: its tokenizer cannot be loaded ({checkpoints.first_line(error)})"
            ) from error
        tokenizer.pad_token = tokenizer.eos_token
        append_eos(tokenizer)
        with checkpoints.quiet_loading():
            model = source(folder, None).model(NvEmbedModel, self.torch_dtype, "sdpa", renamed={}, unused=())
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        return _Loaded(model.eval().to(device), tokenizer, device)
