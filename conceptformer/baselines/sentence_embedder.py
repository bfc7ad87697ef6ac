"""Text embeddings through sentence-transformers, each checkpoint with its own pooling and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from safetensors import SafetensorError

from conceptformer.baselines.checkpoint_embedder import CheckpointEmbedder, append_eos
from conceptformer.errors import CheckpointError, MissingExtraError
from visar.encoders import checkpoints

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What the loaders of the libraries raise on a checkpoint that is damaged, incomplete or of an unknown kind.
_LOADING_FAILURES = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError)


@dataclass(eq=False)
class SentenceEmbedder(CheckpointEmbedder):
    """A checkpoint in the layout of sentence-transformers. No code of a checkpoint is ever run.

    What that library would pass over is an error here: a checkpoint without ``modules.json``, for which it makes up
    mean pooling; other pooling than was said; weights that are missing, which would be random. Where ``model`` is None,
    it is all-MiniLM-L6-v2 from the package of the ``offline`` extra.

    Attributes:
        pooling: ``"cls"``, ``"mean"`` or ``"lasttoken"``: what the checkpoint must be made for.
        page_prompt: Before the text of each page.
        append_eos: Each text must end with the end-of-sequence token, also where it is cut; its state is what
            ``"lasttoken"`` means for some checkpoints. Added where the tokenizer does not do so by itself.
    """

    model: str | Path | None
    _: KW_ONLY
    pooling: str
    page_prompt: str
    append_eos: bool
    _loaded: SentenceTransformer | None = field(default=None, init=False, repr=False)

    LIBRARIES: ClassVar[tuple[str, ...]] = (*CheckpointEmbedder.LIBRARIES, "sentence-transformers")

    def load(self) -> None:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.load`."""
        self._model()

    def fingerprint(self) -> dict[str, str]:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.fingerprint`."""
        return super().fingerprint() | {
            "pooling": self.pooling,
            "page prompt": self.page_prompt,
            "append eos": str(self.append_eos),
        }

    @cached_property
    def _weights(self) -> str:
        return super()._weights if self.model is not None else f"sha256:{checkpoints.MINILM_SHA256}"

    def _folder(self) -> Path:
        return super()._folder() if self.model is not None else checkpoints.packaged_minilm()

    def _prompt(self, *, queries: bool) -> str:
        return self.query_prompt if queries else self.page_prompt

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        return self._model().tokenizer

    def _embed(self, texts: Sequence[str], prompt: str) -> np.ndarray:
        model = self._model()
        try:
            vectors = model.encode(
                list(texts), prompt=prompt, batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False
            )
        except torch.OutOfMemoryError:
            # Not chained: the traceback would keep the tensors alive that fill the memory.
            raise CheckpointError(
                f"{model.device} ran out of memory; lower retriever.embedder.batch_size or set "
                "retriever.embedder.device=cpu"
            ) from None
        # Once more in float32, since the checkpoint's own normalisation is as exact as its dtype.
        return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()

    def _model(self) -> SentenceTransformer:
        if self._loaded is None:
            self._loaded = self._load(self._folder())
        return self._loaded

    def _load(self, folder: Path) -> SentenceTransformer:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise MissingExtraError("sentence-transformers", "encoders", "a text embedder") from None
        if not (folder / "modules.json").is_file():
            raise CheckpointError(f"{folder}: has no modules.json; expected a checkpoint of sentence-transformers")
        try:
            with checkpoints.quiet_loading():
                model = SentenceTransformer(
                    str(folder),
                    device=self.device,
                    local_files_only=True,
                    trust_remote_code=False,
                    model_kwargs={"dtype": self.torch_dtype, "use_safetensors": True},
                )
                where = folder / checkpoints.read_json(folder / "modules.json")[0]["path"]
                _require_all_weights(model.transformers_model, where)
                model[0].processor = file_tokenizer(where, model.tokenizer)
        except _LOADING_FAILURES as error:
            reason = checkpoints.first_line(error)
            raise CheckpointError(f"{folder}: cannot be loaded as a text embedder ({reason})") from error
        self._check(model, folder)
        if self.append_eos:
            append_eos(model.tokenizer)
        model.max_seq_length = self.max_length
        return model.eval()

    def _check(self, model: SentenceTransformer, folder: Path) -> None:
        """Refuse a checkpoint that is another one than was said."""
        from sentence_transformers.sentence_transformer.modules import Pooling

        poolings = [module.pooling_mode for module in model if isinstance(module, Pooling)]
        if poolings != [self.pooling]:
            raise CheckpointError(
                f"{folder}: pools by {', '.join(map(str, poolings)) or 'nothing known'}; expected {self.pooling}: give "
                "another checkpoint, or state its own pooling"
            )
        longest = getattr(model.transformers_model.config, "max_position_embeddings", self.max_length)
        if self.max_length > longest:
            raise CheckpointError(
                f"{folder}: reads {longest} tokens at most; expected max_length of {longest} or less, got "
                f"{self.max_length}"
            )


def file_tokenizer(folder: Path, rebuilt: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer as ``tokenizer.json`` has it; ``rebuilt`` where there is no such file.

    transformers 5 rebuilds the tokenizers of some models from parts of that file, and then reads texts otherwise that
    begin with a blank or hold special tokens.
    """
    from transformers import PreTrainedTokenizerFast

    if not (folder / "tokenizer.json").is_file():
        return rebuilt
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    # Some checkpoints leave it to the class to know them.
    for name in ("pad_token", "bos_token", "eos_token"):
        if getattr(tokenizer, name) is None:
            setattr(tokenizer, name, getattr(rebuilt, name))
    return tokenizer


def _require_all_weights(network: PreTrainedModel, folder: Path) -> None:
    """Ask transformers for its report by loading once more, since sentence-transformers keeps it to itself.

    That costs little: the file is mapped into memory, and in its own dtype nothing of it is read or copied.
    """
    _, report = type(network).from_pretrained(
        folder,
        dtype="auto",
        local_files_only=True,
        use_safetensors=True,
        output_loading_info=True,
        trust_remote_code=False,
    )
    checkpoints.refuse_gaps(folder, type(network).__name__, report)
