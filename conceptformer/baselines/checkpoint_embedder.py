"""What text embedders from checkpoints have in common: settings, prompts, and what tells their vectors apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from conceptformer.errors import CheckpointError
from visar.encoders import checkpoints

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(eq=False)
class CheckpointEmbedder(ABC):
    """A :class:`~conceptformer.baselines.protocol.TextEmbedder` that loads a checkpoint when it is first used.

    Attributes:
        model: A local folder or a hub name.
        revision: The hub's commit, 40 hex digits; only with a hub name.
        query_prompt: Before each query.
        max_length: Tokens read of a text, prompt and special tokens included.
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``: of the network. Vectors are float32.
        batch_size: Texts in a forward pass.
        device: None for a GPU where there is one.

    Raises:
        CheckpointError: A setting is out of range.
    """

    model: str | Path
    _: KW_ONLY
    revision: str | None
    query_prompt: str
    max_length: int
    dtype: str
    batch_size: int
    device: str | None

    RULES_VERSION: ClassVar[str] = "1"
    """Raised when vectors of the same texts change: it is part of the fingerprint."""

    LIBRARIES: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers")
    """What computes the vectors."""

    def __post_init__(self) -> None:
        for name in ("max_length", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise CheckpointError(f"embedder.{name}: expected a whole number of at least 1, got {value!r}")
        if self.dtype not in _DTYPES:
            raise CheckpointError(f"embedder.dtype: expected one of {', '.join(_DTYPES)}, got {self.dtype!r}")

    @abstractmethod
    def load(self) -> None:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.load`."""

    @abstractmethod
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        """The loaded checkpoint's."""

    @abstractmethod
    def _embed(self, texts: Sequence[str], prompt: str) -> np.ndarray:
        """[len(texts), D] float32 unit rows of texts behind a prompt."""

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the network."""
        return _DTYPES[self.dtype]

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.embed_queries`."""
        return self._embed(texts, self._prompt(queries=True))

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.embed_texts`."""
        return self._embed(texts, self._prompt(queries=False))

    def too_long(self, texts: Sequence[str], *, queries: bool) -> int:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.too_long`."""
        if not texts:
            return 0
        prompt = self._prompt(queries=queries)
        whole = self._tokenizer()([prompt + text for text in texts], truncation=False, verbose=False)
        return sum(len(ids) > self.max_length for ids in whole["input_ids"])

    def fingerprint(self) -> dict[str, str]:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.fingerprint`."""
        return {
            "class": type(self).__name__,
            "weights": self._weights,
            "query prompt": self.query_prompt,
            "max length": str(self.max_length),
            "dtype": str(self.torch_dtype),
            "rules": self.RULES_VERSION,
            **checkpoints.library_versions(*self.LIBRARIES),
        }

    @cached_property
    def _weights(self) -> str:
        """Found out once: of a local folder all files are read."""
        return checkpoints.identity(self.model, self.revision)

    def _folder(self) -> Path:
        return checkpoints.locate(self.model, self.revision)

    def _prompt(self, *, queries: bool) -> str:
        return self.query_prompt if queries else ""


def append_eos(tokenizer: Any) -> None:
    """Make a fast tokenizer end each text with its end-of-sequence token, in front of what is cut off too."""
    ids = tokenizer("a")["input_ids"]
    if ids[-1] == tokenizer.eos_token_id:
        return
    from tokenizers.processors import TemplateProcessing

    begins = ids[0] == tokenizer.bos_token_id
    tokens = {tokenizer.eos_token: tokenizer.eos_token_id}
    if begins:
        tokens[tokenizer.bos_token] = tokenizer.bos_token_id
    template = [*([tokenizer.bos_token] if begins else []), "$A", tokenizer.eos_token]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=template, special_tokens=list(tokens.items())
    )
