"""Queries with evidence boxes as the authors released them: hmhm1229/ConceptFormer-Trainset.

Columns: query_id, query_text, relevant_doc_ids, describe, bbox_2d (boxes in JSON), image_size and input_size (JSON,
[width, height]), answers, dataset_names (JSON). Pages are OpenDocVQA's.

The frame of the boxes is not a column. That each row states the size of the image that the proposer was sent says
pixels of that image, so ``absolute`` is the default; boxes that do not fit are reported, and another frame can be set.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.data.folder import HubData
from conceptformer.data.json_rows import JsonRow, Refusals, shown
from conceptformer.errors import DataError
from conceptformer.opendocvqa.queries import Evidence, TrainingQuery, from_json, query_rows, training_query
from conceptformer.proposals.frame_watch import FrameWatch
from conceptformer.regions import frame_named

_NEEDED = {
    "query_id": ("query_id",),
    "query": ("query_text",),
    "page_ids": ("relevant_doc_ids",),
    "boxes": ("bbox_2d",),
}
_POSSIBLE = {
    "names": ("dataset_names",),
    "label": ("describe",),
    "image_size": ("image_size",),
    "input_size": ("input_size",),
}
_UNUSED = ("query_image", "query_type", "jsonl_describe", "answers")


@dataclass(frozen=True)
class ReleasedTrainset:
    """The released training set.

    Attributes:
        root: The user's folder; None to download.
        files: Glob patterns of the Parquet files in the folder.
        hub: Where to download it from.
        frame: What the boxes are measured in: "absolute" (pixels of an image of input_size), "relative" or
            "relative1000".
    """

    root: Path | str | None
    files: Sequence[str]
    hub: HubData
    frame: str

    def read(self, refusals: Refusals) -> list[TrainingQuery]:
        """See :class:`conceptformer.opendocvqa.QuerySource`."""
        frame_named(self.frame)  # better now than after the pages have been copied
        watch = FrameWatch(self.frame)
        queries = []
        for row in query_rows(self.root, self.files, self.hub, _NEEDED, _POSSIBLE, _UNUSED):
            try:
                evidence = stated_evidence(row, self.frame)
                queries.append(training_query(row, evidence))
            except DataError as error:
                refusals.refuse(row.place, error)
                continue
            if evidence is not None and evidence.row.values["input_size"] is not None:
                watch.see(evidence.boxes, evidence.row.values["input_size"])
        doubt = watch.doubt()
        if doubt is not None:
            warnings.warn(doubt.replace("frame=", "queries.frame="), stacklevel=2)
        return queries


def stated_evidence(row: JsonRow, frame: str) -> Evidence | None:
    """The evidence of a row, or None where it states no box.

    One description stands for all boxes of a row. A list in JSON gives a label to each.

    Raises:
        DataError: Boxes or sizes are none.
    """
    boxes = from_json(row, "boxes")
    if not isinstance(boxes, list):
        raise DataError(f"bbox_2d is {shown(boxes)}; expected a list of [x1, y1, x2, y2] in JSON")
    if len(boxes) == 4 and not any(isinstance(edge, list) for edge in boxes):
        boxes = [boxes]
    if not boxes:
        return None
    sizes: Mapping[str, tuple[float, float] | None] = {key: _size(row, key) for key in ("image_size", "input_size")}
    stated = JsonRow(row.place, {"frame": frame, "input_size": sizes["input_size"]})
    label = row.values.get("label")
    text = label if isinstance(label, str) else ""
    labels = _labels(text, len(boxes))
    return Evidence(stated, boxes, labels, sizes["image_size"], text if labels is None else None)


def _labels(text: str, count: int) -> list[str] | None:
    """The labels that a text lists in JSON, if it has one for each box."""
    try:
        labels = json.loads(text)
    except ValueError:
        return None
    fits = isinstance(labels, list) and len(labels) == count and all(isinstance(label, str) for label in labels)
    return labels if fits else None


def _size(row: JsonRow, key: str) -> tuple[float, float] | None:
    size = from_json(row, key)
    if not size:
        return None
    if not (
        isinstance(size, list) and len(size) == 2 and all(isinstance(side, (int, float)) and side > 0 for side in size)
    ):
        raise DataError(f"{key} is {shown(size)}; expected [width, height] in JSON")
    return size[0], size[1]
