"""BM25 over the text of pages, through bm25s."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from conceptformer.baselines.page_text import PageTextReader
from conceptformer.errors import DataError, MissingExtraError
from conceptformer.questions import question_of
from conceptformer.records import RetrievalTask
from conceptformer.retrieval.filling import Encoding, OnStage, Place
from conceptformer.retrieval.protocol import Found
from conceptformer.retrieval.search import Ranking
from conceptformer.retrieval.vector_search import refuse_unreadable
from visar.documents.ocr import installed_version

# Raise it when rankings of the same texts change: it is part of the fingerprint.
_RULES_VERSION = "1"


class Bm25:
    """Ranks pages by the words that they share with a query, as Lucene weighs them.

    A page scores, summed over the words of the query, idf * tf / (tf + k1 * (1 - b + b * length / mean length)) with
    idf = ln(1 + (N - n + 0.5) / (n + 0.5)), n of N pages having the word. Words are runs of two and more letters,
    digits and underscores in lower case. A page that shares no word with the query is not found; pages of equal score
    stand in corpus order.

    Args:
        page_text: Gives the text of pages.
        k1: How soon further occurrences of a word on a page stop to count.
        b: How much a page's length counts, from 0 to 1.
        stop_words: Language whose stop words are left out, e.g. ``"english"``; None for none.
        stemmer: Language of the Snowball stemmer, e.g. ``"english"``; None for words as they are.
        question_only: Search with the question alone, without the instruction that queries begin with.

    Raises:
        DataError: ``k1`` or ``b`` is out of range.
    """

    name = "BM25"

    def __init__(
        self,
        *,
        page_text: PageTextReader,
        k1: float,
        b: float,
        stop_words: str | None,
        stemmer: str | None,
        question_only: bool,
    ) -> None:
        if not (k1 >= 0 and 0 <= b <= 1):
            raise DataError(f"BM25: k1 is {k1} and b is {b}; expected k1 >= 0 and 0 <= b <= 1")
        self.page_text = page_text
        self.k1 = k1
        self.b = b
        self.stop_words = stop_words
        self.stemmer = stemmer
        self.question_only = question_only

    def rank(self, task: RetrievalTask, encoding: Encoding, *, depth: int, on_stage: OnStage) -> Found | None:
        """See :meth:`conceptformer.retrieval.protocol.PageRanker.rank`. Only the process of rank 0 works, on all cores.

        Raises:
            MissingExtraError: bm25s, or PyStemmer where there is a stemmer, is not installed.
            DataError: bm25s knows no such stop words, PyStemmer no such language, or no page has any text.
        """
        if encoding.place.rank != 0:
            return None
        stem = self._stem()
        self._words(["to be found out before pages are read"], stem)
        read = self.page_text.read(task.pages, replace(encoding, place=Place()), on_stage("texts of pages"))
        refuse_unreadable(task, read.left_out)
        page_ids = list(read.texts)
        words = self._words(list(read.texts.values()), stem)
        if not any(words):
            raise DataError(
                f"{task.name}: none of {len(page_ids)} pages has a word; expected pages with text, read by "
                "page_text=rapidocr or page_text=tesseract"
            )
        scorer = _bm25s().BM25(k1=self.k1, b=self.b, method="lucene")
        scorer.index(words, show_progress=False)
        on_progress = on_stage("queries")
        rankings = {}
        for query_id, query in task.queries.items():
            (asked,) = self._words([question_of(query) if self.question_only else query], stem)
            # It cannot be asked with no word at all.
            scores = scorer.get_scores(asked) if asked else np.zeros(len(page_ids), np.float32)
            rankings[query_id] = _best(scores, page_ids, depth)
            on_progress(len(rankings), len(task.queries))
        return Found(rankings, read.left_out)

    def fingerprint(self) -> str:
        """See :meth:`conceptformer.retrieval.protocol.PageRanker.fingerprint`."""
        settings = {
            "class": type(self).__name__,
            "k1": self.k1,
            "b": self.b,
            "stop words": self.stop_words,
            "stemmer": self.stemmer,
            "question only": self.question_only,
            "bm25s": installed_version("bm25s"),
            "PyStemmer": installed_version("PyStemmer") if self.stemmer else None,
            "rules": _RULES_VERSION,
            "page text": self.page_text.fingerprint(),
        }
        return json.dumps(settings, sort_keys=True)

    def _words(self, texts: Sequence[str], stem: Any) -> list[list[str]]:
        """The words of each text."""
        try:
            return _bm25s().tokenize(
                list(texts), stopwords=self.stop_words or [], stemmer=stem, return_ids=False, show_progress=False
            )
        except ValueError as error:
            raise DataError(
                f"BM25: stop_words is {self.stop_words!r}, which bm25s does not know; expected a language that it "
                "knows, such as english, or null"
            ) from error

    def _stem(self) -> Any:
        """PyStemmer's stemmer; None for none."""
        if self.stemmer is None:
            return None
        try:
            import Stemmer
        except ImportError:
            raise MissingExtraError("PyStemmer", "text", "stemming") from None
        try:
            return Stemmer.Stemmer(self.stemmer)
        except KeyError as error:
            raise DataError(
                f"BM25: stemmer is {self.stemmer!r}; expected null or one of {', '.join(Stemmer.algorithms())}"
            ) from error


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError:
        raise MissingExtraError("bm25s", "text", "BM25") from None
    return bm25s


def _best(scores: np.ndarray, page_ids: Sequence[str], depth: int) -> Ranking:
    """The pages of the highest scores above 0, equal ones in corpus order."""
    order = np.argsort(-scores, kind="stable")[:depth]
    order = order[scores[order] > 0]
    return Ranking(tuple(page_ids[place] for place in order), tuple(scores[order].tolist()))
