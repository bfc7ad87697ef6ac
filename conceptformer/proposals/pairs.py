"""The pairs of a query and a page for which evidence is to be proposed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from conceptformer.data.images import read_image_facts
from conceptformer.data.json_rows import JsonRow, Refusals, read_json_rows
from conceptformer.data.one_line import one_line
from conceptformer.data.training_files import PairRow, pair_rows
from conceptformer.errors import DataError
from conceptformer.proposals.box_file import PairKey
from conceptformer.proposals.failures import Failure
from conceptformer.records import OnProgress
from visar.report.wording import counted

_NEEDED = ("query_id", "query", "page_id", "image")
_POSSIBLE = ("other_positives",)


@dataclass(frozen=True)
class Pair(PairRow):
    """A query and a page that answers it. The ``other_positives`` of its row only pass through: none is asked for."""

    @property
    def key(self) -> PairKey:
        """What a box file has once."""
        return self.query_id, self.page_id

    def failure(self, reason: object, tries: int = 0) -> Failure:
        """This pair as a failure."""
        return Failure(self.query_id, self.page_id, self.place, one_line(str(reason)), tries)


@dataclass(frozen=True)
class PairList:
    """The pairs of a file, and the rows that cannot be asked for."""

    pairs: tuple[Pair, ...]
    refused: tuple[Failure, ...]


def read_pairs(path: Path) -> PairList:
    """The pairs of a JSONL file with the keys query_id, query, page_id, image and possibly other_positives.

    Refused are rows that are no such objects, empty texts, a pair for the second time, and what contradicts an
    earlier row: another text of the same query, another image of the same page.

    Raises:
        DataError: The file is missing, cannot be read, is a Parquet file, or holds no such row.
    """
    if path.suffix.lower() == ".parquet":
        raise DataError(
            f"{path}: expected pairs in JSONL; python -m conceptformer.opendocvqa makes them of the training set's "
            "Parquet files, python -m conceptformer.pairs of other corpora"
        )
    refused = _Refused(path)
    pairs: list[Pair] = []
    for row, pair, fault in pair_rows(read_json_rows(path, _NEEDED, _POSSIBLE, refused), path.parent):
        if pair is not None and fault is None:
            pairs.append(Pair(row, pair.query_id, pair.query, pair.page_id, pair.image, pair.other_positives))
        else:
            refused.refuse_row(row, fault)
    if not pairs:
        count, first = len(refused.failures), next((f"{one.place}: {one.reason}" for one in refused.failures), "")
        found = f"none in {counted(count, 'row')}, the first: {first}" if count else "it is empty"
        raise DataError(
            f"{path}: expected pairs, one JSON object per line with {', '.join(_NEEDED)}, such as pairs.jsonl of "
            f"python -m conceptformer.pairs; {found}"
        )
    return PairList(tuple(pairs), tuple(refused.failures))


def without_bad_images(
    pairs: Iterable[Pair], on_progress: OnProgress | None = None
) -> tuple[list[Pair], list[Failure]]:
    """Leave out pairs whose image is missing or, as far as its header tells, none that can be used.

    Args:
        on_progress: Called with (done, all) after each image.
    """
    pairs = list(pairs)
    facts = read_image_facts(list(dict.fromkeys(pair.image for pair in pairs)), on_progress)
    faults = {image: fact for image, fact in facts.items() if isinstance(fact, DataError)}
    usable = [pair for pair in pairs if pair.image not in faults]
    return usable, [pair.failure(faults[pair.image]) for pair in pairs if pair.image in faults]


class _Refused(Refusals):
    """Collects rows that cannot be asked for, with what is known of them."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, skip=True)
        self.failures: list[Failure] = []

    def refuse(self, place: str, reason: object) -> None:
        self.failures.append(Failure(None, None, place, one_line(str(reason))))

    def refuse_row(self, row: JsonRow, reason: object) -> None:
        query_id, page_id = (
            one_line(value) if isinstance(value := row.values[key], str) else None for key in ("query_id", "page_id")
        )
        self.failures.append(Failure(query_id, page_id, row.place, one_line(str(reason))))
