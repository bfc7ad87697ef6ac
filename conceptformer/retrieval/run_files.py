r"""Run files and relevance files of TREC, which trec_eval and pytrec_eval read.

Their fields are parted by white space, so white space, control signs and backslashes within an id are written as
``\u0020`` and the like; all other ids stand as they are.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from conceptformer.errors import DataError
from conceptformer.retrieval.search import Ranking
from visar.tensor_files import write_atomically

# Surrogates: names of files that are no text, which UTF-8 cannot hold.
_ESCAPED = re.compile(r"[\s\\\x00-\x1f\x7f\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def write_run(path: Path, rankings: Mapping[str, Ranking], tag: str) -> None:
    """Write ``query Q0 page rank score tag`` for each page found.

    trec_eval goes by score alone, in float32, and orders equal scores by id. Hence a score that is not below the one
    before it is written as the next smaller float32: the file has the order of the ranking for every reader.

    Args:
        rankings: By query id.
        tag: Names the run.

    Raises:
        DataError: An empty id.
        StoreError: The file cannot be written.
    """
    lines: list[str] = []
    for query_id, ranking in rankings.items():
        before = np.float32(np.inf)
        for rank, (page_id, score) in enumerate(zip(ranking.page_ids, ranking.scores, strict=True), start=1):
            before = min(np.float32(score), np.nextafter(before, np.float32(-np.inf)))
            # The shortest decimal that only this float32 is nearest to.
            lines.append(f"{escape(query_id)} Q0 {escape(page_id)} {rank} {before!s} {escape(tag)}\n")
    write_atomically(path, "".join(lines).encode())


def read_run(path: Path) -> dict[str, Ranking]:
    """Rankings by query id, in trec_eval's order: by falling score in float32, equal scores by falling id.

    Raises:
        DataError: The file cannot be read or a line of it makes no sense.
    """
    found: dict[str, dict[str, float]] = {}
    for place, (query_id, _, page_id, _, score, _) in _lines(path, "query Q0 page rank score tag"):
        pages = found.setdefault(query_id, {})
        if page_id in pages:
            raise DataError(f"{place}: page '{page_id}' stands twice for query '{query_id}'; remove one of them")
        pages[page_id] = float(np.float32(_number(score, place, "score")))
    return {query_id: _by_score(pages) for query_id, pages in found.items()}


def write_qrels(path: Path, relevant: Mapping[str, frozenset[str]]) -> None:
    """Write ``query 0 page 1`` for each relevant page, those of a query in the order of their ids.

    Raises:
        DataError: An empty id.
        StoreError: The file cannot be written.
    """
    pairs = [(query_id, page_id) for query_id, page_ids in relevant.items() for page_id in sorted(page_ids)]
    write_atomically(path, "".join(f"{escape(query)} 0 {escape(page)} 1\n" for query, page in pairs).encode())


def read_qrels(path: Path) -> dict[str, frozenset[str]]:
    """The relevant pages of each query that has any, graded above 0. Grades above 1 count as 1, with a warning.

    Raises:
        DataError: The file cannot be read or a line of it makes no sense.
    """
    relevant: dict[str, dict[str, float]] = {}
    for place, (query_id, _, page_id, grade) in _lines(path, "query 0 page grade"):
        pages = relevant.setdefault(query_id, {})
        if page_id in pages:
            raise DataError(f"{place}: page '{page_id}' stands twice for query '{query_id}'; remove one of them")
        pages[page_id] = _number(grade, place, "grade")
    graded = sum(grade > 1 for pages in relevant.values() for grade in pages.values())
    if graded:
        warnings.warn(f"{path}: {graded} grades above 1 count as 1; relevance is binary here", stacklevel=2)
    kept = {
        query_id: frozenset(page for page, grade in pages.items() if grade > 0) for query_id, pages in relevant.items()
    }
    return {query_id: pages for query_id, pages in kept.items() if pages}


def escape(identifier: str) -> str:
    """An id as one field of a line; :func:`unescape` gives it back.

    Raises:
        DataError: It is empty.
    """
    if not identifier:
        raise DataError("run files: an id is empty; expected at least one character")
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", identifier)


def unescape(field: str) -> str:
    """The id that stands in a field. A backslash that begins no escape is one, as in files of other programs."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), field)


def _by_score(pages: Mapping[str, float]) -> Ranking:
    ordered = sorted(pages.items(), key=lambda item: (item[1], item[0]), reverse=True)
    return Ranking(tuple(page_id for page_id, _ in ordered), tuple(score for _, score in ordered))


def _lines(path: Path, form: str) -> Iterator[tuple[str, list[str]]]:
    """Place and unescaped fields of each line that is not empty."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected lines '{form}'") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text ({error.reason}); expected lines '{form}'") from error
    # Not splitlines, which also parts at signs that stand within a field of other programs' files.
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split()
        if not fields:
            continue
        place = f"{path}, line {number}"
        if len(fields) != len(form.split()):
            raise DataError(f"{place}: {len(fields)} fields; expected '{form}', parted by white space")
        yield place, [unescape(field) for field in fields]


def _number(field: str, place: str, name: str) -> float:
    try:
        value = float(field)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{place}: {name} '{field}'; expected a finite number")
    return value
