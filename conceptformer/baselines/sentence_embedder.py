"""Text embeddings through sentence-transformers, each checkpoint with its own pooling and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError

from conceptformer.errors import CheckpointError, MissingExtraError
from visar.encoders import checkpoints

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Raise it when vectors of the same texts change: it is part of the fingerprint.
_RULES_VERSION = "1"
# What the loaders of the libraries raise on a checkpoint that is damaged, incomplete or of an unknown kind.
_LOADING_FAILURES = (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError)


class SentenceEmbedder:
    """A checkpoint in the layout of sentence-transformers. No code of a checkpoint is ever run.

    What that library would pass over is an error here: a checkpoint without ``modules.json``, for which it makes up
    mean pooling; other pooling than was said; weights that are missing, which would be random.

    Args:
        model: None for all-MiniLM-L6-v2 from the package of the ``offline`` extra, else a local folder or a hub name.
        revision: The hub's commit, 40 hex digits; only with a hub name.
        pooling: ``"cls"``, ``"mean"`` or ``"lasttoken"``: what the checkpoint must be made for.
        query_prompt: Before each query.
        page_prompt: Before the text of each page.
        max_length: Tokens read of a text, prompt and special tokens included.
        append_eos: Each text must end with the end-of-sequence token, also where it is cut; its state is what
            ``"lasttoken"`` means for some checkpoints. Added where the tokenizer does not do so by itself.
        dtype: ``"float32"``, ``"float16"`` or ``"bfloat16"``: of the network. Vectors are float32.
        batch_size: Texts in a forward pass.
        device: None for a GPU where there is one.

    Raises:
        CheckpointError: A setting is out of range.
    """

    def __init__(
        self,
        model: str | Path | None,
        *,
        revision: str | None,
        pooling: str,
        query_prompt: str,
        page_prompt: str,
        max_length: int,
        append_eos: bool,
        dtype: str,
        batch_size: int,
        device: str | None,
    ) -> None:
        for name, value in {"max_length": max_length, "batch_size": batch_size}.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise CheckpointError(f"embedder.{name}: expected a whole number of at least 1, got {value!r}")
        self.model = model
        self.revision = revision
        self.pooling = pooling
        self.query_prompt = query_prompt
        self.page_prompt = page_prompt
        self.max_length = max_length
        self.append_eos = append_eos
        self.dtype = torch_dtype(dtype)
        self.batch_size = batch_size
        self.device = device
        self._loaded: SentenceTransformer | None = None

    def load(self) -> None:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.load`."""
        self._model()

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.embed_queries`."""
        return self._embed(texts, self.query_prompt)

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.embed_texts`."""
        return self._embed(texts, self.page_prompt)

    def too_long(self, texts: Sequence[str], *, queries: bool) -> int:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.too_long`."""
        if not texts:
            return 0
        prompt = self.query_prompt if queries else self.page_prompt
        whole = self._model().tokenizer([prompt + text for text in texts], truncation=False, verbose=False)
        return sum(len(ids) > self.max_length for ids in whole["input_ids"])

    def fingerprint(self) -> dict[str, str]:
        """See :meth:`conceptformer.baselines.protocol.TextEmbedder.fingerprint`."""
        return {
            "class": type(self).__name__,
            "weights": self._weights,
            "pooling": self.pooling,
            "query prompt": self.query_prompt,
            "page prompt": self.page_prompt,
            "max length": str(self.max_length),
            "append eos": str(self.append_eos),
            "dtype": str(self.dtype),
            "rules": _RULES_VERSION,
            **checkpoints.library_versions("torch", "transformers", "tokenizers", "sentence-transformers"),
        }

    @cached_property
    def _weights(self) -> str:
        """Found out once: of a local folder all files are read."""
        if self.model is None:
            return f"sha256:{checkpoints.MINILM_SHA256}"
        return checkpoints.identity(self.model, self.revision)

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
            folder = (
                checkpoints.packaged_minilm() if self.model is None else checkpoints.locate(self.model, self.revision)
            )
            self._loaded = self._load(folder)
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
                    model_kwargs={"dtype": self.dtype, "use_safetensors": True},
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


def torch_dtype(name: str) -> torch.dtype:
    """A floating-point type by its name.

    Raises:
        CheckpointError: Another name.
    """
    known = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if name not in known:
        raise CheckpointError(f"embedder.dtype: expected one of {', '.join(known)}, got {name!r}")
    return known[name]


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
