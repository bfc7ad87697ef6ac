"""Parquet files in the schemas of the published data sets, made by the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conceptformer.colour_pages import draw, png

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet")

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
QUERIES = pa.schema(
    [
        ("query_id", pa.string()),
        ("query", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("relevant_doc_ids", pa.list_(pa.string())),
        ("dataset_names", pa.list_(pa.string())),
    ]
)
CORPUS = pa.schema([("doc_id", pa.string()), ("image", IMAGE), ("dataset_name", pa.string())])
BARE_CORPUS = pa.schema([("corpus-id", pa.int64()), ("image", IMAGE)])
TRAINSET = pa.schema(
    [
        ("query_id", pa.string()),
        ("query_text", pa.string()),
        ("query_image", IMAGE),
        ("query_type", pa.string()),
        ("relevant_doc_ids", pa.list_(pa.string())),
        ("describe", pa.string()),
        ("bbox_2d", pa.string()),
        ("image_size", pa.string()),
        ("input_size", pa.string()),
        ("jsonl_describe", pa.string()),
        ("answers", pa.string()),
        ("dataset_names", pa.string()),
    ]
)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema, group: int = 1000) -> Path:
    """A Parquet file with so many rows in a row group; cells that a row lacks are null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    complete = [{name: row.get(name) for name in schema.names} for row in rows]
    pq.write_table(pa.Table.from_pylist(complete, schema=schema), path, row_group_size=group)
    return path


def page_content(number: int, width: int = 12) -> bytes:
    """The PNG file of a page of coloured stripes."""
    return png(draw(number, width)[0])


def corpus_rows(ids: Sequence[str], dataset: str = "made", first: int = 0, width: int = 12) -> list[dict[str, Any]]:
    """Rows with an image each, no two alike."""
    return [
        {"doc_id": name, "image": {"bytes": page_content(first + place, width), "path": name}, "dataset_name": dataset}
        for place, name in enumerate(ids)
    ]


def write_corpus(folder: Path, ids: Sequence[str], shards: int = 3, group: int = 5) -> list[Path]:
    """A corpus in shards of nearly equal size."""
    rows, each = corpus_rows(ids), -(-len(ids) // shards)
    return [
        write_table(
            folder / f"corpus-{shard:05d}-of-{shards:05d}.parquet", rows[shard * each :][:each], CORPUS, group
        )
        for shard in range(shards)
    ]  # fmt: skip


def write_benchmark(
    folder: Path, relevant: Mapping[str, Sequence[str]], ids: Sequence[str], **changes: object
) -> Path:  # fmt: skip
    """A folder in the layout of ConceptFormer-Eval.

    Args:
        relevant: Pages by query id.
        ids: Of the corpus.
        changes: Entries of the manifest that are not as they should be.
    """
    rows = [
        {
            "query_id": query_id,
            "query": f"Instruct: find it.\\nQuery: {query_id}, wörtlich?\nyes",
            "relevant_doc_ids": list(page_ids),
            "dataset_names": ["made"],
        }
        for query_id, page_ids in relevant.items()
    ]
    write_table(folder / "query.parquet", rows, QUERIES)
    lines = [f"{query_id} Q0 {page_id} 1\n" for query_id, page_ids in relevant.items() for page_id in page_ids]
    (folder / "qrels.txt").write_text("".join(lines), encoding="utf-8")
    shards = write_corpus(folder, ids)
    manifest = {
        "dataset": "made",
        "query_rows": len(rows),
        "qrels_rows": len(lines),
        "corpus_rows": len(ids),
        "corpus_positive_docs": len({page_id for page_ids in relevant.values() for page_id in page_ids}),
        "corpus_shards": [path.name for path in shards],
        "corpus_bytes": sum(path.stat().st_size for path in shards),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))
    return folder
