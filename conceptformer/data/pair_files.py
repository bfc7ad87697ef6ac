"""Training pairs on their way to evidence: the file that proposals are asked for, beside the training file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from conceptformer.data.json_rows import image_reference, write_json_rows
from conceptformer.data.training_files import write_training_rows
from conceptformer.records import TrainingExample

PAIRS, TRAINING = "pairs.jsonl", "train.jsonl"


def write_pair_files(folder: Path, examples: Iterable[TrainingExample]) -> None:
    """Write ``pairs.jsonl`` (query_id, query, page_id, image, perhaps other_positives), which
    ``python -m conceptformer.propose`` reads, and ``train.jsonl`` (see :mod:`conceptformer.data.training_files`), which
    training reads, with the boxes that are known.

    Raises:
        DataError: The image of a page is no file.
        StoreError: A file cannot be written.
    """
    examples = list(examples)
    write_json_rows(folder / PAIRS, [_pair(example, folder) for example in examples])
    write_training_rows(folder / TRAINING, examples)


def _pair(example: TrainingExample, folder: Path) -> Mapping[str, object]:
    row: dict[str, object] = {
        "query_id": example.query_id,
        "query": example.query,
        "page_id": example.page.page_id,
        "image": image_reference(example.page, folder),
    }
    return row | {"other_positives": list(example.other_positives)} if example.other_positives else row
