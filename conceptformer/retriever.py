"""A trained retriever: queries and pages to one vector each. No latent token is used here."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image

from conceptformer.adapter_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS, stated_base
from conceptformer.adapters import load_adapter
from conceptformer.backbones.protocol import Backbone, PageInput, TokenGrid
from conceptformer.checkpoint import load_checkpoint
from conceptformer.data.images import image_size, open_image
from conceptformer.errors import DataError
from conceptformer.hub import local_folder
from conceptformer.inference import at_inference
from conceptformer.manifest import MANIFEST_FILE
from conceptformer.probe import PROBE_FILE
from conceptformer.records import ImageSource, OnProgress
from conceptformer.step.passes import embed_pages, embed_queries
from visar import __version__
from visar.documents.images import DAMAGE
from visar.encoders.checkpoints import identity, is_local
from visar.tensor_files import canonical_json

PageImage: TypeAlias = Image.Image | ImageSource | str
"""An image in RGB, an image file, its content, or a handle that reads it."""


# Decoding and resizing release Python's lock: the next batch is made ready while the model is busy with this one.
_READERS = 4
_DECODING = Lock()


class ConceptFormer:
    """Queries and pages as points of one space: the higher their inner product, the better they match.

    Args:
        backbone: May be in training; see :func:`~conceptformer.inference.at_inference`.
        fingerprint: Changes with everything that changes a vector.
        name: What tables and run files call it.
    """

    def __init__(self, backbone: Backbone, fingerprint: str, name: str = "ConceptFormer") -> None:
        self.backbone = backbone
        self.name = name
        self._fingerprint = fingerprint

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        dtype: str | None = None,
        name: str = "ConceptFormer",
    ) -> ConceptFormer:
        """Load what the trainer wrote, and verify it: all names match, and stored embeddings come out again.

        Args:
            path: A checkpoint's folder, or a name on the hub.
            revision: Commit, tag or branch on the hub.
            device: None for a GPU where there is one.
            dtype: ``"bfloat16"`` or ``"float32"``; None for that of the training.

        Raises:
            CheckpointError: The checkpoint is not complete, or does not give its embeddings.
        """
        folder = local_folder(path, revision)
        backbone, _ = load_checkpoint(folder, dtype=dtype, device=_device(device))
        files = (MANIFEST_FILE, PROBE_FILE, ADAPTER_WEIGHTS)
        return cls(backbone, _fingerprint(backbone, [folder / file for file in files]), name)

    @classmethod
    def from_adapter(
        cls,
        path: str | Path,
        backbone: Backbone,
        *,
        revision: str | None = None,
        device: torch.device | str | None = None,
        name: str = "ConceptFormer",
    ) -> ConceptFormer:
        """Load an adapter that another program trained, such as the authors'; only its names can be verified.

        Warns where the adapter says that it was trained on weights of another name on the hub.

        Args:
            path: A folder with PEFT's two files, or a name on the hub.
            backbone: With the weights and the input settings that the adapter was trained with; changed in place. Of
                weights in a local folder all files are read once more, to tell them from others.
            revision: Commit, tag or branch of the adapter on the hub.
            device: None for a GPU where there is one.

        Raises:
            CheckpointError: Not everything in the adapter matches the backbone.
        """
        folder = local_folder(path, revision)
        load_adapter(backbone, folder)
        backbone.model.requires_grad_(False).eval().to(_device(device))
        base, expected = backbone.describe().get("name"), stated_base(folder)
        # On the hub a commit says which weights they are, and a checkpoint of the trainer has its probe.
        weights = identity(str(base), None) if base is not None and is_local(str(base)) else ""
        if not weights and expected not in (None, base) and not is_local(str(expected)):
            warnings.warn(
                f"{path}: says that its base weights are {expected}, not {base}; expected those", stacklevel=2
            )
        files = [folder / file for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)]
        return cls(backbone, _fingerprint(backbone, files, weights), name)

    def encode_queries(
        self, queries: Sequence[str], batch_size: int = 64, on_progress: OnProgress | None = None
    ) -> np.ndarray:
        """Embed queries.

        Args:
            queries: Taken byte for byte; where the training data carried an instruction, it belongs here too.
            on_progress: Called with (done, all) after each batch.

        Returns:
            [N, D] float32, L2-normalised.

        Raises:
            DataError: A query is empty.
        """
        if isinstance(queries, str):
            raise DataError(f"encode_queries: expected a list of texts, got one text: write [{queries!r:.80}]")
        ids = [self._query_ids(index, query) for index, query in enumerate(queries)]
        batches = _batches([len(tokens) for tokens in ids], batch_size)
        return self._embed(
            len(ids), batches, lambda batch: embed_queries(self.backbone, [ids[index] for index in batch]), on_progress
        )

    def encode_pages(
        self, pages: Sequence[PageImage], batch_size: int = 8, on_progress: OnProgress | None = None
    ) -> np.ndarray:
        """Embed pages. Pages with like numbers of tokens share a batch; the result is in the order given.

        Args:
            on_progress: Called with (done, all) after each batch.

        Returns:
            [N, D] float32, L2-normalised.

        Raises:
            DataError: An image cannot be read, is not RGB, or has a shape that the model cannot take.
        """
        if isinstance(pages, (str, bytes, Path, Image.Image)):
            raise DataError("encode_pages: expected a list of pages, got one page: put it into a list")
        tokens = [len(self._grid_of(index, page)) for index, page in enumerate(pages)]
        batches = _batches(tokens, batch_size)
        with ThreadPoolExecutor(_READERS) as readers:
            read = _one_ahead(readers, self._read, pages, batches)
            return self._embed(len(pages), batches, lambda _: embed_pages(self.backbone, next(read)), on_progress)

    def fingerprint(self) -> str:
        """Changes with everything that changes a vector: weights, prompts, pixel budget, precision, code version."""
        return self._fingerprint

    def _embed(
        self,
        count: int,
        batches: Sequence[Sequence[int]],
        embed: Callable[[Sequence[int]], torch.Tensor],
        on_progress: OnProgress | None,
    ) -> np.ndarray:
        """Run over batches of places and put each vector in its place."""
        vectors = np.empty((count, self.backbone.hidden_size), dtype=np.float32)
        done = 0
        with at_inference(self.backbone.model):
            for batch in batches:
                vectors[list(batch)] = embed(batch).float().cpu().numpy()
                done += len(batch)
                if on_progress is not None:
                    on_progress(done, count)
        return vectors

    def _query_ids(self, index: int, query: str) -> list[int]:
        try:
            return self.backbone.inputs.query_ids(query)
        except DataError as error:
            raise DataError(f"query {index} (counted from 0): {error}") from error

    def _grid_of(self, index: int, page: PageImage) -> TokenGrid:
        size = page.size if isinstance(page, Image.Image) else image_size(_source(page))
        try:
            return self.backbone.inputs.grid_of(size)
        except DataError as error:
            raise DataError(f"{_page_name(index, page)}: {error}") from error

    def _read(self, index: int, page: PageImage) -> PageInput:
        image = _decoded(index, page) if isinstance(page, Image.Image) else open_image(_source(page))
        try:
            return self.backbone.inputs.read_page(image)
        except DataError as error:
            raise DataError(f"{_page_name(index, page)}: {error}") from error


def _one_ahead(
    readers: ThreadPoolExecutor,
    read: Callable[[int, PageImage], PageInput],
    pages: Sequence[PageImage],
    batches: Sequence[Sequence[int]],
) -> Iterator[list[PageInput]]:
    """Batches of read pages; while one is used, the next is being read, and no more than that."""
    coming: list[Future[PageInput]] = []
    try:
        for batch in [*batches, []]:
            ready, coming = coming, [readers.submit(read, index, pages[index]) for index in batch]
            if ready:
                yield [page.result() for page in ready]
    finally:
        for page in coming:
            page.cancel()


def _batches(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Places in batches of like length, so that little is padded; the longest first, to run out of memory early."""
    if size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {size}")
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    return [order[start : start + size] for start in range(0, len(order), size)]


def _decoded(index: int, page: Image.Image) -> Image.Image:
    """The image itself, its pixels read from its file if Pillow has not done so yet."""
    try:
        # The same image may stand in several places, and Pillow's own reading is not safe for threads.
        with _DECODING:
            page.load()
    except DAMAGE as error:
        reason = str(error).replace("\n", " ") or type(error).__name__
        raise DataError(f"{_page_name(index, page)}: the image is damaged ({reason}); get another copy") from error
    return page


def _source(page: ImageSource | str) -> ImageSource:
    return Path(page) if isinstance(page, str) else page


def _page_name(index: int, page: PageImage) -> str:
    return f"page {index} (counted from 0)" if isinstance(page, (bytes, Image.Image)) else str(page)


def _device(device: torch.device | str | None) -> torch.device:
    return torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")


def _fingerprint(backbone: Backbone, files: Sequence[Path], weights: str = "") -> str:
    """Over the model's description and these files.

    Args:
        weights: Tells the base weights from others, where neither a commit nor one of the files does.
    """
    described = {"backbone": backbone.describe(), "inputs": backbone.inputs.describe(), "code": __version__}
    digest = hashlib.sha256(f"{canonical_json(described)}{weights}".encode())
    for file in files:
        if file.is_file():
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
