"""Vectors of the text of pages, searched like those of page images."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence

import numpy as np

from conceptformer.baselines.page_text import PageTextReader
from conceptformer.baselines.protocol import TextEmbedder
from conceptformer.questions import question_of
from conceptformer.records import RetrievalTask
from conceptformer.retrieval.encoding import encode_queries, page_stamps
from conceptformer.retrieval.filling import Encoded, Encoding, OnProgress, OnStage, fill
from conceptformer.retrieval.protocol import Found
from conceptformer.retrieval.search import checked_vectors
from conceptformer.retrieval.shards import Shard, VectorFolder
from conceptformer.retrieval.vector_search import rank_encoded

# Raise it when vectors of the same texts change: it is part of the fingerprint.
_RULES_VERSION = "1"


class DenseText:
    """Ranks pages by the inner products of text embeddings: a :class:`~conceptformer.retrieval.protocol.PageRanker`.

    Vectors are kept like those of page images and made by several processes if there are: each reads and embeds its
    share of the pages. A page without text is embedded like any other.

    Args:
        name: How tables and run files call it.
        embedder: Turns texts into vectors.
        page_text: Gives the text of pages.
        question_only: Search with the question alone, without the instruction that queries begin with. The embedder's
            own prompt stands before it in any case.
    """

    def __init__(self, *, name: str, embedder: TextEmbedder, page_text: PageTextReader, question_only: bool) -> None:
        self.name = name
        self.embedder = embedder
        self.page_text = page_text
        self.question_only = question_only

    def rank(self, task: RetrievalTask, encoding: Encoding, *, depth: int, on_stage: OnStage) -> Found | None:
        """See :meth:`conceptformer.retrieval.protocol.PageRanker.rank`.

        Warns where the embedder reads only the beginning of texts.

        Raises:
            VisarError: The weights cannot be loaded, or the GPU ran out of memory.
        """
        pages = self._encode_pages(task, encoding, on_stage)
        queries = encode_queries(task.queries, self, encoding, on_stage("queries"))
        return rank_encoded(task, queries, pages, depth=depth) if encoding.place.rank == 0 else None

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Vectors [len(queries), D] float32 of queries or of the questions in them."""
        texts = [question_of(query) if self.question_only else query for query in queries]
        self._tell_too_long("queries", self.embedder.too_long(texts, queries=True), len(texts))
        return self.embedder.embed_queries(texts)

    def fingerprint(self) -> str:
        """See :meth:`conceptformer.retrieval.protocol.PageRanker.fingerprint`."""
        settings = {
            "class": type(self).__name__,
            "embedder": self.embedder.fingerprint(),
            "page text": self.page_text.fingerprint(),
            "question only": self.question_only,
            "rules": _RULES_VERSION,
        }
        return json.dumps(settings, sort_keys=True)

    def _encode_pages(self, task: RetrievalTask, encoding: Encoding, on_stage: OnStage) -> Encoded:
        stamps = page_stamps(task.pages)
        vectors = VectorFolder(encoding.cache / "pages", self.fingerprint(), stamps, encoding.shard_items)
        mine = range(encoding.place.rank, vectors.count, encoding.place.world)
        missing = [place for shard in mine if not vectors.has(shard) for place in vectors.places(shard)]
        if missing:
            self.embedder.load()
            self.page_text.read([task.pages[place] for place in missing], encoding, on_stage("texts of pages"))
        too_long = embedded = 0

        def make(places: range) -> Shard:
            nonlocal too_long, embedded
            read = self.page_text.read([task.pages[place] for place in places], encoding, _silent)
            texts = list(read.texts.values())
            rows = (
                checked_vectors(self.embedder.embed_texts(texts), list(read.texts), "page").numpy() if texts else None
            )
            too_long, embedded = too_long + self.embedder.too_long(texts, queries=False), embedded + len(texts)
            return Shard(tuple(read.texts), np.empty((0, 0), np.float32) if rows is None else rows, read.left_out)

        left_out = fill(vectors, make, encoding, on_stage("pages"))
        self._tell_too_long("page texts", too_long, embedded)
        return Encoded(vectors, left_out)

    def _tell_too_long(self, kind: str, count: int, of: int) -> None:
        if count:
            warnings.warn(
                f"{self.name}: {count:,} of {of:,} {kind} are longer than the model reads; their ends are left out",
                stacklevel=3,
            )


_silent: OnProgress = lambda done, total: None  # noqa: E731
