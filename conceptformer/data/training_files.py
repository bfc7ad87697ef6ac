"""Training pairs in a JSONL file: one row for each query and a page that answers it.

A row is ``{"query_id", "query", "page_id", "image", "boxes"}`` and, where they apply, ``"frame"``, ``"input_size"``,
``"labels"`` and ``"other_positives"``:

- ``image``: the page's file, relative to the folder of the JSONL file.
- ``boxes``: ``[[x1, y1, x2, y2], ...]``, empty where there is no evidence; ``labels``: a text for each of them.
- ``frame``: what the boxes are measured in, "absolute", "relative" or "relative1000", needed where there are boxes;
  ``input_size``: ``[width, height]`` that absolute boxes refer to, if not to the page's own size.
- ``other_positives``: ids of further pages that answer the query.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conceptformer.data.images import ImageFacts, read_image_facts
from conceptformer.data.json_rows import (
    JsonRow,
    KnownPairs,
    Refusals,
    corners,
    image_path,
    image_reference,
    read_json_rows,
    shown,
    write_json_rows,
)
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, Page, TrainingExample, TrainingSet
from visar.tensor_files import canonical_json

_NEEDED = ("query_id", "query", "page_id", "image", "boxes")
_POSSIBLE = ("labels", "frame", "input_size", "other_positives")
# What a file of proposed boxes says besides, so that it can be trained on as it is.
_OF_PROPOSALS = ("format", "image_size", "model", "prompt_version", "clipped", "dropped")


def read_training_rows(path: Path, *, skip_bad_rows: bool, on_progress: OnProgress | None = None) -> TrainingSet:
    """Training pairs of a JSONL file, in its order. Of the images only the headers are read.

    Args:
        skip_bad_rows: Leave bad rows and bad boxes out and list them in ``refused``; they are an error otherwise. A
            pair whose boxes are all bad stays, without boxes.
        on_progress: Called with (done, all) after each image.

    Returns:
        The pairs. Their fingerprint takes of each image its size and the digest of
        :class:`~conceptformer.data.images.ImageFacts`, and not its path: moved or copied data are the same data.

    Raises:
        DataError: The file is missing or holds no usable pair, or a row or a box is bad and may not be skipped.
    """
    path = Path(path)
    refusals = Refusals(path, skip=skip_bad_rows)
    pairs: list[PairRow] = []
    for row, pair, fault in pair_rows(
        read_json_rows(path, _NEEDED, (*_POSSIBLE, *_OF_PROPOSALS), refusals), path.parent
    ):
        if pair is not None and fault is None:
            pairs.append(pair)
        else:
            refusals.refuse(row.place if pair is None else pair.named_place, fault)
    facts = read_image_facts(list(dict.fromkeys(pair.image for pair in pairs)), on_progress)
    examples = []
    fingerprint = hashlib.sha256()
    for pair in pairs:
        found = facts[pair.image]
        try:
            if isinstance(found, DataError):
                raise found
            example = _example(pair, found.size, refusals)
        except DataError as error:
            refusals.refuse(pair.named_place, error)
            continue
        examples.append(example)
        fingerprint.update(f"{canonical_json(_content(example, found))}\n".encode())
    examples = _with_all_answers(examples)
    refused = refusals.result(len(examples), "training pairs")
    return TrainingSet(path.resolve().parent.name, tuple(examples), refused, fingerprint.hexdigest())


def write_training_rows(path: Path, examples: Iterable[TrainingExample]) -> None:
    """Write what :func:`read_training_rows` reads back as equal examples. Boxes are written as relative.

    Raises:
        DataError: The image of a page is no file.
        StoreError: The file cannot be written.
    """
    path = Path(path)
    write_json_rows(path, [_row(example, path.parent) for example in examples])


@dataclass(frozen=True)
class PairRow:
    """The texts of a row that names a query and a page.

    Attributes:
        row: As it stands in the file.
        image: The page's file.
        other_positives: Ids of further pages that answer the query.
    """

    row: JsonRow
    query_id: str
    query: str
    page_id: str
    image: Path
    other_positives: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """File name and line."""
        return self.row.place

    @property
    def named_place(self) -> str:
        """The place with the ids, for messages about several files."""
        return f"{self.place} (query {shown(self.query_id)}, page {shown(self.page_id)})"


def pair_rows(rows: Iterable[JsonRow], folder: Path) -> Iterator[tuple[JsonRow, PairRow | None, DataError | None]]:
    """Each row, its texts, and what is wrong with them.

    Args:
        rows: With query_id, query, page_id and image, and possibly other_positives.
        folder: Of the file, which names images relative to it.

    Yields:
        The row; its texts, None where they cannot be read; why they cannot, or what they contradict in an earlier row,
        None for a good row.
    """
    known = KnownPairs()
    for row in rows:
        try:
            pair = PairRow(
                row,
                row.text("query_id"),
                row.text("query"),
                row.text("page_id"),
                image_path(row.text("image"), folder),
                row.texts("other_positives"),
            )
        except DataError as error:
            yield row, None, error
            continue
        try:
            known.add(row.place, pair.query_id, pair.query, pair.page_id, pair.image)
        except DataError as error:
            yield row, pair, error
        else:
            yield row, pair, None


def _example(pair: PairRow, image_size: tuple[int, int], refusals: Refusals) -> TrainingExample:
    values = pair.row.values
    labels = values.get("labels")
    if labels is not None and not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
        raise DataError(f"labels are {shown(labels)}; expected a list of texts, one for each box")
    boxes = refusals.usable_boxes(pair.named_place, pair.row, values["boxes"], labels, image_size)
    page = Page(pair.page_id, pair.image)
    return TrainingExample(pair.query_id, pair.query, page, image_size, boxes, pair.other_positives)


def _with_all_answers(examples: Sequence[TrainingExample]) -> list[TrainingExample]:
    """A query in several rows has the pages of all of them as positives."""
    pages: dict[str, list[str]] = {}
    for example in examples:
        pages.setdefault(example.query_id, []).append(example.page.page_id)
    completed = []
    for example in examples:
        others = [*example.other_positives, *pages[example.query_id]]
        known = tuple(name for name in dict.fromkeys(others) if name != example.page.page_id)
        completed.append(example if known == example.other_positives else replace(example, other_positives=known))
    return completed


def _row(example: TrainingExample, folder: Path) -> Mapping[str, object]:
    row: dict[str, object] = {
        "query_id": example.query_id,
        "query": example.query,
        "page_id": example.page.page_id,
        "image": image_reference(example.page, folder),
        "boxes": [corners(box) for box in example.boxes],
    }
    if example.boxes:
        row |= {"frame": "relative", "labels": [box.label for box in example.boxes]}
    if example.other_positives:
        row["other_positives"] = list(example.other_positives)
    return row


def _content(example: TrainingExample, image: ImageFacts) -> Mapping[str, object]:
    """What of a pair the training depends on."""
    return {
        "query_id": example.query_id,
        "query": example.query,
        "page_id": example.page.page_id,
        "image": [*image.size, image.digest],
        "boxes": [[*corners(box), box.label] for box in example.boxes],
        "other_positives": example.other_positives,
    }
