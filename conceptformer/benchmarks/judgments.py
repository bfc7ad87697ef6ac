"""Queries, judgments and pages of a corpus -> a retrieval task, whatever files they come from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from conceptformer.data.json_rows import JsonRow, Refusals, shown
from conceptformer.data.line_files import placed_lines
from conceptformer.data.table_files import cell_text, identifier
from conceptformer.errors import DataError
from conceptformer.records import Page, RetrievalTask

_TREC_FIELDS = "query id, iteration, page id and relevance"


@dataclass(frozen=True)
class Judgment:
    """How relevant a page is for a query; above 0 it counts as an answer.

    Attributes:
        place: File and line, for messages.
    """

    place: str
    query_id: str
    page_id: str
    relevance: float


def query_texts(rows: Iterable[JsonRow], refusals: Refusals) -> dict[str, str]:
    """Texts by query id, byte for byte as they stand, from rows with ``query_id`` and ``query``."""
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    for row in rows:
        try:
            query_id, text = identifier(row, "query_id"), cell_text(row, "query")
            if query_id in texts:
                raise DataError(f"the same query id {shown(query_id)} as in {places[query_id]}")
        except DataError as error:
            refusals.refuse(row.place, error)
            continue
        texts[query_id], places[query_id] = text, row.place
    return texts


def trec_judgments(path: Path, refusals: Refusals) -> list[Judgment]:
    """The lines of a qrels file of TREC, divided by white space: query id, a number nobody uses, page id, relevance.

    Page ids may hold blanks.

    Raises:
        DataError: The file is missing or no text.
    """
    judgments = []
    for place, content in placed_lines(path, f"{_TREC_FIELDS} in each line"):
        try:
            line = content.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path.parent / place}: no UTF-8 at byte {error.start} of the line; expected qrels"
            ) from error
        try:
            query_id, _, rest = line.split(None, 2)
            page_id, relevance = rest.rsplit(None, 1)
            judgments.append(Judgment(place, query_id, page_id, finite_score(relevance)))
        except ValueError:
            refusals.refuse(place, f"{shown(line.strip())}; expected {_TREC_FIELDS}")
    return judgments


def finite_score(text: str) -> float:
    """The number that a text says.

    Raises:
        ValueError: It says none, or one that is not finite.
    """
    score = float(text)
    if not math.isfinite(score):
        raise ValueError(f"{text} is not finite")
    return score


def relevant_pages(
    judgments: Iterable[Judgment], queries: Mapping[str, str], refusals: Refusals
) -> dict[str, tuple[str, ...]]:
    """The pages that answer each query, in the order of the judgments; queries without one are left out.

    A judgment that says again what an earlier one says counts once, with a warning; one that says otherwise is refused.
    """
    known: dict[tuple[str, str], Judgment] = {}
    relevant: dict[str, list[str]] = {}
    repeated: list[str] = []
    for judgment in judgments:
        pair = judgment.query_id, judgment.page_id
        earlier = known.setdefault(pair, judgment)
        if judgment.query_id not in queries:
            refusals.refuse(judgment.place, f"no query has the id {shown(judgment.query_id)}")
        elif earlier.relevance != judgment.relevance:
            refusals.refuse(
                judgment.place,
                f"says {judgment.relevance:g} of the same query and page as {earlier.place}, which says "
                f"{earlier.relevance:g}",
            )
        elif earlier is not judgment:
            repeated.append(f"{judgment.place}, as {earlier.place}")
        elif judgment.relevance > 0:
            relevant.setdefault(judgment.query_id, []).append(judgment.page_id)
    if repeated:
        warnings.warn(
            f"judgments that repeat an earlier one: {len(repeated):,}, the first: {repeated[0]}; each counts once",
            stacklevel=3,
        )
    return {query_id: tuple(page_ids) for query_id, page_ids in relevant.items()}


def judged_task(
    name: str,
    queries: Mapping[str, str],
    relevant: Mapping[str, tuple[str, ...]],
    pages: tuple[Page, ...],
    refusals: Refusals,
) -> RetrievalTask:
    """The task of those queries whose relevant pages are all in the corpus: others cannot be judged and are refused.

    Raises:
        DataError: There are no pages or no such queries, or something was refused and may not be skipped.
    """
    if not pages:
        refusals.result(0, "pages")
    corpus = {page.page_id for page in pages}
    judged: dict[str, str] = {}
    for query_id, text in queries.items():
        answering = relevant.get(query_id, ())
        absent = [page_id for page_id in answering if page_id not in corpus]
        if not answering:
            refusals.refuse(f"query {shown(query_id)}", "no page is relevant; expected at least one")
        elif absent:
            reason = f"relevant pages that are not in the corpus: {len(absent)}, the first: {shown(absent[0])}"
            refusals.refuse(f"query {shown(query_id)}", reason)
        else:
            judged[query_id] = text
    refused = refusals.result(len(judged), "queries")
    answers = {query_id: frozenset(relevant[query_id]) for query_id in judged}
    return RetrievalTask(name, judged, pages, answers, refused=refused)
