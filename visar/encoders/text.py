"""Token states of a small text encoder as multi-vector embeddings: the default that needs no network and no GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from visar.encoders import checkpoints
from visar.encoders.device_memory import WHILE_ENCODING, WHILE_LOADING, one_line_when_exhausted
from visar.encoders.inputs import text_of, valid_question
from visar.encoders.marked_text import MarkedText, TextWindow, mark, pad
from visar.encoders.protocol import RULES_VERSION, PageContent
from visar.errors import EmbeddingError, MissingExtraError
from visar.records import PageEmbedding, PageText, QueryEmbedding

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class _Loaded:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device


class TokenStates:
    """Last hidden states of a BERT-like encoder over the page's text, L2-normalised: one vector per wordpiece.

    Pages longer than a window are read in overlapping windows, and each token is taken from the window in which it
    stands most central. Every wordpiece of the page yields exactly one vector, and each vector carries the box of its
    word. Questions are read in one window; what goes beyond it is cut off and counted. The markers around a window,
    [CLS] and [SEP], are no word of the page and get no vector, save for a page without text, which the [CLS] state
    alone stands for.

    Measured with the packaged MiniLM on one core of a 2.8 GHz Xeon: 0.3 s for a page of 500 words (667 wordpieces), in
    a process that peaks at 0.6 GB with 16 windows per forward pass.

    Args:
        model: None for all-MiniLM-L6-v2 from the package of the ``offline`` extra, else a local folder or a hub name.
        revision: The hub's commit, 40 hex digits; only with a hub name.
        window: Wordpieces that the encoder reads at once, its markers included.
        overlap: Wordpieces that consecutive windows share at least.
        batch_size: Windows per forward pass. Does not change the embeddings.
        device: ``"cpu"``, ``"cuda"``, or None for a GPU where there is one.
        threads: CPU threads while encoding; None leaves torch's own setting.

    Raises:
        EmbeddingError: ``window`` and ``overlap`` do not fit together, or a size is below 1.
    """

    needs = "text"

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        revision: str | None = None,
        window: int = 256,
        overlap: int = 64,
        batch_size: int = 32,
        device: str | None = None,
        threads: int | None = None,
    ) -> None:
        if not 0 <= overlap < window:
            raise EmbeddingError(f"overlap is {overlap}, expected 0 <= overlap < window where window is {window}")
        if batch_size < 1 or (threads is not None and threads < 1):
            raise EmbeddingError(f"batch_size is {batch_size} and threads is {threads}, expected at least 1 for each")
        self.model = model
        self.revision = revision
        self.window = window
        self.overlap = overlap
        self.batch_size = batch_size
        self.device = device
        self.threads = threads
        self._loaded: _Loaded | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Weights stay out of pickles: another process loads its own at first use.
        return {**self.__dict__, "_loaded": None}

    def fingerprint(self) -> dict[str, str]:
        """Weights, windows and library versions; see :meth:`visar.encoders.Encoder.fingerprint`.

        Raises:
            EmbeddingError: The model is neither a folder nor a hub name with a pinned commit.
        """
        if self.model is None:
            weights = f"sha256:{checkpoints.MINILM_SHA256}"
        else:
            weights = checkpoints.identity(self.model, self.revision)
        return {
            "class": type(self).__name__,
            "model": checkpoints.MINILM if self.model is None else checkpoints.display_name(self.model),
            "weights": weights,
            "window": str(self.window),
            "overlap": str(self.overlap),
            "rules": RULES_VERSION,
            **checkpoints.library_versions("torch", "transformers", "tokenizers"),
        }

    def encode_query(self, text: str) -> QueryEmbedding:
        """Embed one question: [m, D] states of its wordpieces.

        Raises:
            EmbeddingError: The question is blank or no valid text, the weights cannot be had, or the GPU ran out of
                memory.
            MissingExtraError: A package of the ``offline`` extra is missing.
        """
        (marked,) = self._mark([[valid_question(text)]])
        if not marked.ids:
            raise EmbeddingError("the question is empty: give at least one word")
        room = self.window - len(marked.before) - len(marked.after)
        kept = replace(marked, ids=marked.ids[:room], words=marked.words[:room])
        (vectors,) = self._states([kept])
        names = self._load().tokenizer.convert_ids_to_tokens(kept.ids)
        return QueryEmbedding(vectors, tuple(names), dropped_tokens=len(marked.ids) - len(kept.ids))

    def encode_pages(self, pages: Sequence[PageContent]) -> list[PageEmbedding]:
        """Embed pages: [n, D] states of each page's wordpieces, and [n, 4] boxes of the words they belong to.

        A page without text has one vector, the [CLS] state of the empty text, and no box (NaN).

        Raises:
            EmbeddingError: A page comes without :class:`PageText`, the weights cannot be had, or the GPU ran out of
                memory.
            MissingExtraError: A package of the ``offline`` extra is missing.
        """
        texts = [text_of(page, number) for number, page in enumerate(pages)]
        marked = self._mark([[word.text for word in text.words] for text in texts])
        return [
            PageEmbedding(vectors, _boxes(text, found.words))
            for vectors, text, found in zip(self._states(marked), texts, marked, strict=True)
        ]

    def _load(self) -> _Loaded:
        if self._loaded is None:
            self._loaded = _load(self.model, self.revision, self.device, self.window)
        return self._loaded

    def _mark(self, texts: Sequence[list[str]]) -> list[MarkedText]:
        tokenizer = self._load().tokenizer
        return [mark(tokenizer, "", words) for words in texts]

    def _states(self, texts: Sequence[MarkedText]) -> list[torch.Tensor]:
        """For each text [n, D] unit rows, [1, D] for one without tokens."""
        loaded = self._load()
        states = [torch.empty(max(len(text.ids), 1), loaded.model.config.hidden_size) for text in texts]
        windows = [w for index, text in enumerate(texts) for w in text.windows(index, self.window, self.overlap)]
        # Windows of like length share a batch, so that little is spent on padding.
        windows.sort(key=lambda window: len(window.ids), reverse=True)
        with _torch_threads(self.threads):
            for first in range(0, len(windows), self.batch_size):
                batch = windows[first : first + self.batch_size]
                for window, hidden in zip(batch, _forward(loaded, batch), strict=True):
                    if texts[window.text].ids:
                        inside = window.taken & (window.places >= 0) & (window.places < len(texts[window.text].ids))
                        states[window.text][window.places[inside]] = hidden[: len(window.ids)][inside]
                    else:
                        states[window.text][0] = hidden[0]
        return states


def _boxes(text: PageText, words: list[int]) -> torch.Tensor:
    """[n, 4] boxes of the words that the vectors belong to; one NaN row where there are none."""
    if not words:
        return torch.full((1, 4), float("nan"))
    return torch.tensor([word.box for word in text.words], dtype=torch.float32)[words]


@torch.inference_mode()
def _forward(loaded: _Loaded, windows: Sequence[TextWindow]) -> torch.Tensor:
    """[B, L, D] unit states of padded windows, on the CPU."""
    ids, mask = pad(windows, loaded.tokenizer.pad_token_id)
    with one_line_when_exhausted(loaded.device, WHILE_ENCODING):
        output = loaded.model(input_ids=ids.to(loaded.device), attention_mask=mask.to(loaded.device))
        return torch.nn.functional.normalize(output.last_hidden_state.float(), dim=-1).cpu()


@contextmanager
def _torch_threads(threads: int | None) -> Iterator[None]:
    """torch's thread count belongs to the whole process: set it for the block only."""
    if threads is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _load(model: str | Path | None, revision: str | None, device: str | None, window: int) -> _Loaded:
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError:
        raise MissingExtraError("transformers", "offline", "the text encoder") from None
    folder = checkpoints.packaged_minilm() if model is None else checkpoints.locate(model, revision)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        with checkpoints.quiet_loading():
            network, report = AutoModel.from_pretrained(
                folder, trust_remote_code=False, use_safetensors=True, dtype=torch.float32, output_loading_info=True
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise EmbeddingError(f"{folder} cannot be loaded as a text encoder: {checkpoints.first_line(error)}") from error
    checkpoints.refuse_gaps(folder, "a text encoder", report)
    if not tokenizer.is_fast or tokenizer.pad_token_id is None:
        raise EmbeddingError(f"{folder} has no fast tokenizer with a padding token: give a BERT-like encoder")
    longest = getattr(network.config, "max_position_embeddings", window)
    if window > longest:
        raise EmbeddingError(
            f"window is {window}, but this encoder has {longest} positions: choose window <= {longest}"
        )
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with one_line_when_exhausted(target, WHILE_LOADING):
        return _Loaded(network.eval().to(target), tokenizer, target)
