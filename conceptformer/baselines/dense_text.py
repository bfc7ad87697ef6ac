"""Vectors of the text of pages, searched like those of page images."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from conceptformer.baselines.page_text import PageTextReader, PageTexts
from conceptformer.baselines.protocol import TextEmbedder
from conceptformer.questions import question_of
from conceptformer.records import OnProgress, Page, RetrievalTask
from conceptformer.retrieval.encoding import cut, encode_queries, page_stamps
from conceptformer.retrieval.filling import Encoded, Encoding, OnItems, OnStage, fill
from conceptformer.retrieval.protocol import Found
from conceptformer.retrieval.search import checked_vectors
from conceptformer.retrieval.shards import Shard, VectorFolder
from conceptformer.retrieval.vector_search import rank_encoded

# Raise it when vectors of the same texts change: it is part of the fingerprint.
_RULES_VERSION = "1"


class DenseText:
    """Ranks pages by the inner products of text embeddings: a :class:`~conceptformer.retrieval.protocol.PageRanker`.

    Vectors are kept like those of page images and made by several processes if there are: each reads and embeds its
    share of the pages. A page without text is embedded like any other. Images are looked at once to tell them from
    others, and once more where their text has to be read; texts are held in memory, a kilobyte or two for a page.

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
        vectors.forget_passing(mine)
        missing = [place for shard in mine if not vectors.has(shard) for place in vectors.places(shard)]
        texts = _Texts(self.page_text, task.pages, stamps, encoding)
        if missing:
            on_progress = on_stage("texts of pages")
            on_progress(0, len(missing))
            self.embedder.load()
            texts.of(missing, on_progress)
        too_long = embedded = 0

        def make(places: range, on_items: OnItems) -> Shard:
            nonlocal too_long, embedded
            read = texts.of(places, _silent)
            too_long += self.embedder.too_long(list(read.texts.values()), queries=False)
            embedded += len(read.texts)
            rows = self._vectors(read.texts, encoding.batch_pages, on_items)
            return Shard(tuple(read.texts), rows, read.left_out, read.refused)

        left_out = fill(vectors, make, encoding, on_stage("pages"))
        self._tell_too_long("page texts", too_long, embedded)
        return Encoded(vectors, left_out)

    def _vectors(self, texts: Mapping[str, str], batch: int, on_items: OnItems) -> np.ndarray:
        """Vectors [len(texts), D] of texts by page id."""
        # Texts of like length together, so that little is padded.
        page_ids = sorted(texts, key=lambda page_id: -len(texts[page_id]))
        vectors: dict[str, np.ndarray] = {}
        for part in cut(range(len(page_ids)), batch):
            some = page_ids[part.start : part.stop]
            made = self.embedder.embed_texts([texts[page_id] for page_id in some])
            vectors |= zip(some, checked_vectors(made, some, "page").numpy(), strict=True)
            on_items(len(vectors))
        return np.stack([vectors[page_id] for page_id in texts]) if texts else np.empty((0, 0), np.float32)

    def _tell_too_long(self, kind: str, count: int, of: int) -> None:
        if count:
            warnings.warn(
                f"{self.name}: {count:,} of {of:,} {kind} are longer than the model reads; their ends are left out",
                stacklevel=3,
            )


class _Texts:
    """The texts of a corpus, each found once and then held."""

    def __init__(
        self, reader: PageTextReader, pages: Sequence[Page], stamps: Mapping[str, str], encoding: Encoding
    ) -> None:
        self._reader = reader
        self._pages = pages
        self._stamps = stamps
        self._encoding = encoding
        self._texts: dict[str, str] = {}
        self._left_out: dict[str, str] = {}
        self._refused: frozenset[str] = frozenset()

    def of(self, places: Iterable[int], on_progress: OnProgress) -> PageTexts:
        """The texts of the pages at these places."""
        pages = [self._pages[place] for place in places]
        new = [page for page in pages if page.page_id not in self._texts and page.page_id not in self._left_out]
        if new:
            read = self._reader.read(new, self._encoding, on_progress, self._stamps)
            self._texts |= read.texts
            self._left_out |= read.left_out
            self._refused |= read.refused
        ids = [page.page_id for page in pages]
        return PageTexts(
            {page_id: self._texts[page_id] for page_id in ids if page_id in self._texts},
            {page_id: self._left_out[page_id] for page_id in ids if page_id in self._left_out},
            self._refused.intersection(ids),
        )


_silent: OnProgress = lambda done, total: None  # noqa: E731
