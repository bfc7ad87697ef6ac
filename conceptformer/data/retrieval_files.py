"""Retrieval tasks in a folder of two JSONL files: a corpus, and queries with the pages that answer them.

- ``pages.jsonl``: ``{"page_id", "image"}``, the image's file relative to the folder.
- ``queries.jsonl``: ``{"query_id", "query", "relevant": [page ids]}`` and, where the evidence is known,
  ``"boxes": {page id: [[x1, y1, x2, y2], ...]}`` with ``"frame"`` and perhaps ``"input_size"``, as in
  :mod:`conceptformer.data.training_files`.

Texts are kept byte for byte: a backslash followed by n stays those two characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from conceptformer.data.images import ImageFacts, read_image_facts
from conceptformer.data.json_rows import (
    JsonRow,
    Refusals,
    corners,
    image_path,
    image_reference,
    read_json_rows,
    shown,
    write_json_rows,
)
from conceptformer.errors import DataError
from conceptformer.records import EvidenceBox, OnProgress, Page, RetrievalTask


def read_retrieval_folder(folder: Path, *, skip_bad_rows: bool, on_progress: OnProgress | None = None) -> RetrievalTask:
    """The task in a folder, in the order of its files. Of the images only the headers are read.

    A query whose relevant pages are not all in the corpus cannot be judged and is bad.

    Args:
        skip_bad_rows: Leave bad rows and bad boxes out and list them in ``refused``; they are an error otherwise.
        on_progress: Called with (done, all) after each image.

    Raises:
        DataError: A file is missing, no page or no query can be used, or a row or a box is bad and may not be skipped.
    """
    folder = Path(folder)
    refusals = Refusals(folder, skip=skip_bad_rows)
    pages, sizes = _read_pages(folder, refusals, on_progress)
    if not pages:
        refusals.result(0, "pages")
    queries: dict[str, str] = {}
    relevant: dict[str, frozenset[str]] = {}
    boxes: dict[tuple[str, str], tuple[EvidenceBox, ...]] = {}
    places: dict[str, str] = {}
    possible = ("boxes", "frame", "input_size")
    for row in read_json_rows(folder / "queries.jsonl", ("query_id", "query", "relevant"), possible, refusals):
        try:
            query_id = row.text("query_id")
            if query_id in places:
                raise DataError(f"the same query_id {shown(query_id)} as in {places[query_id]}")
            text, answering = row.text("query"), _answering_pages(row, sizes)
            found = _boxes(row, f"{row.place} (query {shown(query_id)})", answering, sizes, refusals)
        except DataError as error:
            refusals.refuse(row.place, error)
            continue
        places[query_id], queries[query_id], relevant[query_id] = row.place, text, answering
        boxes |= {(query_id, page_id): evidence for page_id, evidence in found.items()}
    refused = refusals.result(len(queries), "queries")
    return RetrievalTask(folder.resolve().name, queries, pages, relevant, boxes, refused)


def write_retrieval_folder(folder: Path, task: RetrievalTask) -> None:
    """Write what :func:`read_retrieval_folder` reads back as an equal task. Boxes are written as relative.

    Labels of boxes are not kept: a task has no use for them.

    Raises:
        DataError: The image of a page is no file.
        StoreError: The folder cannot be written.
    """
    folder = Path(folder)
    pages = [{"page_id": page.page_id, "image": image_reference(page, folder)} for page in task.pages]
    write_json_rows(folder / "pages.jsonl", pages)
    write_json_rows(folder / "queries.jsonl", [_query_row(task, query_id) for query_id in task.queries])


def _read_pages(
    folder: Path, refusals: Refusals, on_progress: OnProgress | None
) -> tuple[tuple[Page, ...], dict[str, tuple[int, int]]]:
    """The corpus, and the image sizes by page id."""
    places: dict[str, JsonRow] = {}
    images: dict[str, Path] = {}
    for row in read_json_rows(folder / "pages.jsonl", ("page_id", "image"), (), refusals):
        try:
            page_id = row.text("page_id")
            if page_id in places:
                raise DataError(f"the same page_id {shown(page_id)} as in {places[page_id].place}")
            images[page_id] = image_path(row.text("image"), folder)
            places[page_id] = row
        except DataError as error:
            refusals.refuse(row.place, error)
    facts = read_image_facts(list(dict.fromkeys(images.values())), on_progress)
    sizes: dict[str, tuple[int, int]] = {}
    for page_id, path in images.items():
        found = facts[path]
        if isinstance(found, ImageFacts):
            sizes[page_id] = found.size
        else:
            refusals.refuse(f"{places[page_id].place} (page {shown(page_id)})", found)
    return tuple(Page(page_id, images[page_id]) for page_id in sizes), sizes


def _answering_pages(row: JsonRow, sizes: Mapping[str, tuple[int, int]]) -> frozenset[str]:
    answering = row.texts("relevant")
    if not answering:
        raise DataError("no page is relevant; expected at least one")
    absent = [page_id for page_id in answering if page_id not in sizes]
    if absent:
        raise DataError(f"relevant pages that are not in the corpus: {len(absent)}, the first: {shown(absent[0])}")
    return frozenset(answering)


def _boxes(
    row: JsonRow, place: str, answering: frozenset[str], sizes: Mapping[str, tuple[int, int]], refusals: Refusals
) -> dict[str, tuple[EvidenceBox, ...]]:
    """Usable boxes by page id; pages without any are left out."""
    stated = row.values.get("boxes", {})
    if not isinstance(stated, dict):
        raise DataError(f"boxes are {shown(stated)}; expected an object of page ids and lists of [x1, y1, x2, y2]")
    others = [page_id for page_id in stated if page_id not in answering]
    if others:
        raise DataError(f"boxes on a page that is not relevant: {shown(others[0])}")
    found = {
        page_id: refusals.usable_boxes(f"{place}, page {shown(page_id)}", row, boxes, None, sizes[page_id])
        for page_id, boxes in stated.items()
    }
    return {page_id: evidence for page_id, evidence in found.items() if evidence}


def _query_row(task: RetrievalTask, query_id: str) -> Mapping[str, object]:
    answering = sorted(task.relevant[query_id])
    row: dict[str, object] = {"query_id": query_id, "query": task.queries[query_id], "relevant": answering}
    boxes = {
        page_id: [corners(box) for box in task.boxes[query_id, page_id]]
        for page_id in answering
        if task.boxes.get((query_id, page_id))
    }
    return row | {"boxes": boxes, "frame": "relative"} if boxes else row
