"""A small OpenDocVQA: queries, pages, and the released boxes, in their schemas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conceptformer.data.folder import HubData
from conceptformer.opendocvqa import Corpus, OpenDocVqaQueries, ReleasedTrainset, TrainingQuery
from tests.conceptformer.parquet_files import CORPUS, QUERIES, TRAINSET, corpus_rows, write_table

NOWHERE = HubData(None, None, [])
DOCVQA = [f"docvqa/{number}.png" for number in range(7)]
INFOVQA = [f"infovqa/{number}.jpeg" for number in range(5)]
WIDTH = 40  # of pages; their height is 21
"""Pages of docvqa are 40 wide, those of infovqa 60."""


def write_pages(folder: Path) -> Corpus:
    """Twelve pages of two data sets in three files, one of which repeats a page."""
    first = corpus_rows(DOCVQA, "docvqa", width=WIDTH)
    second = corpus_rows(INFOVQA, "infovqa", first=20, width=60)
    write_table(folder / "data" / "train-00000-of-00003.parquet", first[:4], CORPUS, 3)
    write_table(folder / "data" / "train-00001-of-00003.parquet", first[4:] + second[:2], CORPUS, 3)
    write_table(folder / "data" / "train-00002-of-00003.parquet", [*second[2:], first[0]], CORPUS, 3)
    return Corpus(folder, ["data/train-*.parquet"], NOWHERE)


def query_row(query_id: str, page_ids: Sequence[str], names: Sequence[str] = (), **changes: Any) -> dict[str, Any]:
    """A row of OpenDocVQA."""
    text = f"Instruct: find it.\nQuery: {query_id}?"
    return {"query_id": query_id, "query": text, "relevant_doc_ids": page_ids, "dataset_names": names} | changes


def write_queries(folder: Path, *rows: dict[str, Any]) -> OpenDocVqaQueries:
    """The training split of OpenDocVQA."""
    write_table(folder / "data" / "train-00000-of-00001.parquet", rows, QUERIES)
    return OpenDocVqaQueries(folder, ["data/train-*.parquet"], NOWHERE)


def released_row(query_id: str, page_ids: Sequence[str], boxes: object, **changes: Any) -> dict[str, Any]:
    """A row of the release, its sizes those of a page of docvqa seen at double size."""
    row = {
        "query_id": query_id,
        "query_text": f"Instruct: find it.\\nQuery: {query_id}?",
        "query_type": "text",
        "relevant_doc_ids": page_ids,
        "describe": "the stripe",
        "bbox_2d": boxes if isinstance(boxes, str) else json.dumps(boxes),
        "image_size": "[40, 21]",
        "input_size": "[80, 42]",
        "answers": '["red"]',
        "dataset_names": '["docvqa"]',
    }
    return row | changes


def write_released(folder: Path, *rows: dict[str, Any], frame: str = "absolute") -> ReleasedTrainset:
    """The released training set."""
    write_table(folder / "train.parquet", rows, TRAINSET)
    return ReleasedTrainset(folder, ["*.parquet"], NOWHERE, frame)


def brief(query: TrainingQuery) -> tuple[str, tuple[str, ...], str]:
    """What most tests look at."""
    return query.query_id, query.page_ids, query.source
