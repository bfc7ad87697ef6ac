"""Which rows of a file are worth looking at: chosen by rules that can be stated."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conceptformer.box_files.rows import BoxFile, BoxRow
from conceptformer.box_files.statistics import coverage
from conceptformer.data.json_rows import shown
from conceptformer.errors import ConceptFormerError

EXTREMES = 3
"""So many rows are taken for each of the rules that look for what stands out."""


@dataclass(frozen=True)
class ChosenRow:
    """A row and the rules that chose it."""

    row: BoxRow
    reasons: tuple[str, ...]


def named_queries(file: BoxFile, text: str) -> list[str]:
    """The ids in a list such as ``a,b`` or ``[a, b]``. An id may hold commas and brackets itself, if it stands alone.

    Raises:
        ConceptFormerError: There is none.
    """
    if any(row.query_id == text for row in file.rows):
        return [text]
    text = text.strip()
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    names = [name.strip() for name in inner.split(",") if name.strip()]
    if not names:
        raise ConceptFormerError("query_ids: expected ids of queries; write query_ids=ID,ID")
    return names


def asked_rows(file: BoxFile, query_ids: Sequence[str]) -> list[ChosenRow]:
    """All rows of these queries.

    Raises:
        ConceptFormerError: The file has no row of one of them.
    """
    chosen = []
    for query_id in query_ids:
        found = [row for row in file.rows if row.query_id == query_id]
        if not found:
            raise ConceptFormerError(
                f"query_ids: {file.path.name} has no row of the query {shown(query_id)}; expected ids of its rows, as "
                "query_ids=ID,ID"
            )
        chosen += [ChosenRow(row, ("asked for",)) for row in found]
    return chosen


def chosen_rows(file: BoxFile, count: int, seed: int) -> list[ChosenRow]:
    """Rows with faults, extremes, and others at random; each once, with all rules that chose it.

    Args:
        count: Most rows with faults, and rows drawn at random from the usable ones.
    """
    pairs = file.pairs
    marked = [row for row in pairs if row.boxes]
    covered = {id(row): coverage(row.boxes)[0] for row in marked}

    def first(key: Callable[[BoxRow], float]) -> list[BoxRow]:
        return sorted(marked, key=key)[:EXTREMES]  # equal ones in the order of the file

    drawn = random.Random(seed).sample(range(len(pairs)), min(count, len(pairs)))
    rules = {
        "invalid": [row for row in file.rows if row.fault is not None][:count],
        "with a box that cannot be used": [row for row in pairs if row.dropped][:count],
        "with a box beyond its page": [row for row in pairs if row.clipped][:EXTREMES],
        "with boxes lost when they were proposed": [row for row in pairs if any(row.lost_before)][:EXTREMES],
        "largest area": first(lambda row: -covered[id(row)]),
        "smallest area": first(lambda row: covered[id(row)]),
        "most boxes": [row for row in first(lambda row: -len(row.boxes)) if len(row.boxes) > 1],
        "at random": [pairs[number] for number in sorted(drawn)],
    }
    reasons: dict[int, list[str]] = {}
    rows: dict[int, BoxRow] = {}
    for rule, found in rules.items():
        for row in found:
            rows[id(row)] = row
            reasons.setdefault(id(row), []).append(rule)
    return [ChosenRow(row, tuple(reasons[key])) for key, row in rows.items()]
