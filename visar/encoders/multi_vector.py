"""ColPali, ColQwen2.5, ColModernVBERT and ColBERTv2 through sentence-transformers' MultiVectorEncoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from PIL import Image

from visar.encoders import checkpoints, colpali_engine
from visar.encoders.inputs import image_of, text_of, valid_question
from visar.encoders.marked_text import MarkedText, mark
from visar.encoders.protocol import RULES_VERSION, PageContent
from visar.errors import EmbeddingError
from visar.records import PageEmbedding, PageText, QueryEmbedding

if TYPE_CHECKING:
    from visar.encoders.multi_vector_model import MultiVectorModel


class MultiVector:
    """Late-interaction checkpoints over page images or page text.

    Page images: one vector per image patch and per token of the visual prompt; prompt tokens have no box (NaN). Page
    text: one vector per scored token, boxes those of the words; pages longer than the encoder takes are read in
    overlapping windows, each token taken from the window in which it stands most central, and the marker tokens
    around the text ([CLS], [D], [SEP]) kept from the first window only.

    Args:
        model: A local folder, or a name on the hub.
        needs: ``"image"`` or ``"text"``: what the checkpoint reads of a page.
        revision: The hub's commit, 40 hex digits; only with a hub name.
        base: For a LoRA adapter in colpali-engine's layout, the model it belongs to. The two are merged once into
            a checkpoint of transformers' own classes, which is kept under ``cache`` (as large as the base model).
        base_revision: As ``revision``, for ``base``.
        dtype: ``"float32"``, ``"bfloat16"`` or ``"float16"``: in what the network computes.
        batch_size: Pages per forward pass.
        overlap: Tokens that consecutive windows of page text share at least.
        device: ``"cpu"``, ``"cuda"``, or None for a GPU where there is one.
        cache: Folder for merged checkpoints; None for ``visar/checkpoints`` in the user's cache folder.

    Raises:
        EmbeddingError: A setting is not among those above.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        needs: Literal["image", "text"],
        revision: str | None = None,
        base: str | Path | None = None,
        base_revision: str | None = None,
        dtype: str = "float32",
        batch_size: int = 4,
        overlap: int = 32,
        device: str | None = None,
        cache: str | Path | None = None,
    ) -> None:
        if needs not in ("image", "text"):
            raise EmbeddingError(f"needs is {needs!r}, expected 'image' or 'text'")
        if dtype not in ("float32", "bfloat16", "float16"):
            raise EmbeddingError(f"dtype is {dtype!r}, expected 'float32', 'bfloat16' or 'float16'")
        if batch_size < 1 or overlap < 0:
            raise EmbeddingError(f"batch_size is {batch_size} and overlap {overlap}, expected at least 1 and 0")
        self.model = model
        self.needs = needs
        self.revision = revision
        self.base = base
        self.base_revision = base_revision
        self.dtype = dtype
        self.batch_size = batch_size
        self.overlap = overlap
        self.device = device
        self.cache = cache
        self._loaded: MultiVectorModel | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Weights stay out of pickles: another process loads its own at first use.
        return {**self.__dict__, "_loaded": None}

    def fingerprint(self) -> dict[str, str]:
        """Weights, settings and library versions; see :meth:`visar.encoders.Encoder.fingerprint`.

        Raises:
            EmbeddingError: The model or its base is neither a folder nor a hub name with a pinned commit.
        """
        parts = {
            "class": type(self).__name__,
            "model": checkpoints.display_name(self.model),
            "weights": checkpoints.identity(self.model, self.revision),
            "needs": self.needs,
            "dtype": self.dtype,
            "rules": RULES_VERSION,
        }
        if self.base is not None:
            parts["base"] = checkpoints.display_name(self.base)
            parts["base_weights"] = checkpoints.identity(self.base, self.base_revision)
            parts["merging"] = colpali_engine.MERGING_VERSION
        if self.needs == "text":
            parts["overlap"] = str(self.overlap)
        # transformers resizes images through torchvision where it is installed and through Pillow where it is not.
        libraries = ("torch", "transformers", "sentence-transformers", "torchvision")
        return {**parts, **checkpoints.library_versions(*libraries)}

    def encode_query(self, text: str) -> QueryEmbedding:
        """Embed one question: [m, D], the checkpoint's own augmentation tokens included.

        Raises:
            EmbeddingError: The question is blank or no valid text, the checkpoint cannot be had, or the GPU ran out of
                memory.
            MissingExtraError: A package of the ``encoders`` extra is missing.
        """
        question = valid_question(text)
        model = self._load()
        features, dropped = model.query_features(question)
        (row,) = model.embed(features, "query")
        names = model.tokenizer.convert_ids_to_tokens(features["input_ids"][0, row.kept].tolist())
        return QueryEmbedding(row.vectors, tuple(names), dropped)

    def encode_pages(self, pages: Sequence[PageContent]) -> list[PageEmbedding]:
        """Embed pages: [n, D] vectors and [n, 4] boxes, NaN where a vector has no place or the layout is unclear.

        NaN or Inf from the network stays in the vectors, for the caller to refuse.

        Raises:
            EmbeddingError: A page lacks the half that :attr:`needs` names, the checkpoint cannot be had, or the GPU ran
                out of memory.
            MissingExtraError: A package of the ``encoders`` extra is missing.
        """
        if self.needs == "image":
            images = [image_of(page, number) for number, page in enumerate(pages)]
            return self._encode_images(images)
        texts = [text_of(page, number) for number, page in enumerate(pages)]
        return self._encode_texts(texts)

    def _load(self) -> MultiVectorModel:
        if self._loaded is None:
            from visar.encoders.multi_vector_model import MultiVectorModel

            folder = checkpoints.locate(self.model, self.revision)
            if (folder / colpali_engine.ADAPTER_CONFIG).is_file():
                folder = self._merged(folder)
            self._loaded = MultiVectorModel.load(folder, getattr(torch, self.dtype), self.device)
            self._loaded.require(self.needs)
        return self._loaded

    def _merged(self, adapter: Path) -> Path:
        if self.base is None:
            named = colpali_engine.base_name(adapter)
            raise EmbeddingError(f"{self.model} is a LoRA adapter: give its base ({named}) and base_revision")
        weights = (
            checkpoints.identity(self.model, self.revision),
            checkpoints.identity(self.base, self.base_revision),
        )
        base = checkpoints.locate(self.base, self.base_revision)
        return colpali_engine.merged(adapter, base, weights, self.cache)

    def _encode_images(self, images: list[Image.Image]) -> list[PageEmbedding]:
        model = self._load()
        pages = []
        for first in range(0, len(images), self.batch_size):
            features = model.image_features(images[first : first + self.batch_size])
            for row, found in enumerate(model.embed(features, "document")):
                boxes = model.boxes(features, row)
                nowhere = torch.full((len(found.kept), 4), float("nan"))
                pages.append(PageEmbedding(found.vectors, nowhere if boxes is None else boxes[found.kept]))
        return pages

    def _encode_texts(self, texts: list[PageText]) -> list[PageEmbedding]:
        model = self._load()
        marked = [mark(model.tokenizer, model.prompt("document"), [word.text for word in text.words]) for text in texts]
        limit = model.document_limit
        windows = [window for number, text in enumerate(marked) for window in text.windows(number, limit, self.overlap)]
        # Windows of like length share a batch, so that little is spent on padding.
        windows.sort(key=lambda window: len(window.ids), reverse=True)
        places: list[list[torch.Tensor]] = [[] for _ in texts]
        vectors: list[list[torch.Tensor]] = [[] for _ in texts]
        for first in range(0, len(windows), self.batch_size):
            batch = windows[first : first + self.batch_size]
            found = model.embed(model.text_features(batch), "document")
            for window, row in zip(batch, found, strict=True):
                mine = window.taken[row.kept]
                places[window.text].append(window.places[row.kept][mine])
                vectors[window.text].append(row.vectors[mine])
        return [
            _in_order(text, marks, torch.cat(place), torch.cat(vector))
            for text, marks, place, vector in zip(texts, marked, places, vectors, strict=True)
        ]


def _in_order(text: PageText, marked: MarkedText, places: torch.Tensor, vectors: torch.Tensor) -> PageEmbedding:
    """Vectors of all windows of a page in the order of its tokens, with the boxes of their words."""
    order = places.argsort()
    boxes = torch.full((len(places), 4), float("nan"))
    words = torch.tensor([word.box for word in text.words], dtype=torch.float32).reshape(-1, 4)
    for row, place in enumerate(places[order].tolist()):
        if 0 <= place < len(marked.words):
            boxes[row] = words[marked.words[place]]
    return PageEmbedding(vectors[order], boxes)
