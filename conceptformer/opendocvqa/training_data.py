"""Queries, pages and boxes merged into one training file (Table 4), with the pages as image files beside it.

Training reads pages in random order, which Parquet files do not allow: the pages that a query names are copied out of
them, byte for byte (about 11 GB for the paper's 38,000 pairs). Copied pages are found again by the next run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from conceptformer.data.json_rows import JsonRow, Refusals, shown
from conceptformer.data.page_files import CopiedPage, PageFiles, copy_pages, corpus_stamp, page_of_size
from conceptformer.data.pair_files import write_pair_files
from conceptformer.errors import DataError
from conceptformer.opendocvqa.corpus import Corpus, WantedPages, find_pages
from conceptformer.opendocvqa.queries import SOURCES, Evidence, QuerySource, TrainingQuery
from conceptformer.opendocvqa.table4 import SourceCount, beside_table4
from conceptformer.proposals.box_file import read_done
from conceptformer.records import EvidenceBox, OnProgress, Page, TrainingExample
from visar.tensor_files import write_atomically

IMAGES, SUMMARY = "images", "summary.json"


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        pairs: Rows of the files.
        without_boxes: How many of them have no box.
        sources: Beside Table 4.
        other_sources: Queries of other data sets, which were left out.
        repeated_pages: Rows of the corpus whose id an earlier row has.
        unused_boxes: Rows of the box file that belong to no pair.
        refused: One line for each row or box that was left out, with its reason.
    """

    pairs: int
    without_boxes: int
    sources: tuple[SourceCount, ...]
    other_sources: Mapping[str, int]
    repeated_pages: int
    unused_boxes: int
    refused: tuple[str, ...]


def write_training_data(
    queries: QuerySource,
    corpus: Corpus,
    out: Path,
    *,
    boxes: Path | None,
    all_pages: bool,
    skip_bad_rows: bool,
    on_progress: OnProgress | None = None,
) -> Written:
    """Write ``train.jsonl``, ``pairs.jsonl``, ``images/`` and ``summary.json`` into a folder.

    Args:
        boxes: A box file of ``python -m conceptformer.propose``. Its boxes stand before those that queries state.
        all_pages: A row for each page that answers a query. Otherwise one row for each query, as in the paper: its
            page is the one that boxes are known of, or the first; the others are listed as other positives.
        skip_bad_rows: Leave rows and boxes that make no sense out and list them; they are an error otherwise.
        on_progress: Called with (done, all) of the pages that have been copied.

    Raises:
        DataError: Data are missing or make no sense, or nothing is left.
        StoreError: The disk is full or the folder cannot be written. What was copied is kept.
        MissingExtraError: pyarrow, or huggingface_hub for a download, is not installed.
    """
    refusals = Refusals(out, skip=skip_bad_rows)
    proposed = _box_rows(boxes)
    known, others = _of_the_sources(queries.read(refusals), refusals)
    files = corpus.paths()
    found = find_pages(files, {page_id for query in known for page_id in query.page_ids}, refusals)
    page_files = PageFiles(out / IMAGES, corpus_stamp(files))
    copied = copy_pages(_candidates(known, found, proposed, all_pages), page_files, refusals, on_progress)
    merge = _Merge(copied, proposed, all_pages, refusals)
    examples, counts = [], Counter()
    for query in known:
        rows = merge.examples(query)
        examples += rows
        counts[query.source] += bool(rows)
    written = Written(
        pairs=len(examples),
        without_boxes=sum(not example.boxes for example in examples),
        sources=tuple(beside_table4(found.counts, counts)),
        other_sources=others,
        repeated_pages=found.repeated,
        unused_boxes=len(proposed.keys() - {(example.query_id, example.page.page_id) for example in examples}),
        refused=refusals.result(len(examples), "training pairs"),
    )
    write_pair_files(out, examples)
    write_atomically(out / SUMMARY, f"{json.dumps(asdict(written), indent=2, ensure_ascii=False)}\n".encode())
    return written


def _box_rows(path: Path | None) -> Mapping[tuple[str, str], JsonRow]:
    if path is None:
        return {}
    if not path.is_file():
        raise DataError(f"boxes: {path}: no such file; expected one that conceptformer.propose has written")
    return read_done(path)


def _of_the_sources(
    queries: Sequence[TrainingQuery], refusals: Refusals
) -> tuple[list[TrainingQuery], Mapping[str, int]]:
    """The queries of the six sources with distinct ids, and the number of others by source."""
    known: dict[str, TrainingQuery] = {}
    others: Counter[str] = Counter()
    for query in queries:
        if query.source not in SOURCES:
            others[query.source] += 1
        elif query.query_id in known:
            reason = f"the same query id {shown(query.query_id)} as in {known[query.query_id].place}"
            refusals.refuse(query.place, reason)
        else:
            known[query.query_id] = query
    return list(known.values()), dict(others)


def _candidates(
    queries: Sequence[TrainingQuery], found: WantedPages, proposed: Collection[tuple[str, str]], all_pages: bool
) -> list[Page]:
    """The pages that a row may need, in the order of the corpus."""
    needed: set[str] = set()
    for query in queries:
        there = [page_id for page_id in query.page_ids if page_id in found.pages]
        # Which of several pages the boxes lie on is told by their sizes.
        needed.update(there if all_pages or query.evidence is not None else there[:1])
        needed.update(page_id for page_id in there if (query.query_id, page_id) in proposed)
    return [page for page_id, page in found.pages.items() if page_id in needed]


@dataclass(frozen=True)
class _Merge:
    """Makes rows of queries."""

    copied: Mapping[str, CopiedPage]
    proposed: Mapping[tuple[str, str], JsonRow]
    all_pages: bool
    refusals: Refusals

    def examples(self, query: TrainingQuery) -> list[TrainingExample]:
        """One for the query, or one for each of its pages; none where no page is there."""
        there = [page_id for page_id in query.page_ids if page_id in self.copied]
        if not there:
            reason = f"none of its {len(query.page_ids)} pages can be used, e.g. {shown(query.page_ids[0])}"
            self.refusals.refuse(f"{query.place} (query {shown(query.query_id)})", reason)
            return []
        marked = self._marked_page(query, there)
        if self.all_pages:
            return [self._example(query, page_id, marked) for page_id in there]
        # A proposal without a box says of its page that the evidence lies elsewhere.
        rows = {page_id: self.proposed.get((query.query_id, page_id)) for page_id in there}
        proposed = [page_id for page_id, row in rows.items() if row is not None and row.values["boxes"]]
        return [self._example(query, next(iter(proposed), marked or there[0]), marked)]

    def _marked_page(self, query: TrainingQuery, there: Sequence[str]) -> str | None:
        """The page that the query's own boxes lie on."""
        if query.evidence is None:
            return None
        try:
            return page_of_size([self.copied[page_id] for page_id in there], query.evidence.image_size).page.page_id
        except DataError as error:
            self.refusals.refuse(f"{query.place} (query {shown(query.query_id)})", f"{error}; no boxes")
            return None

    def _example(self, query: TrainingQuery, page_id: str, marked: str | None) -> TrainingExample:
        others = tuple(other for other in query.page_ids if other != page_id)
        copied = self.copied[page_id]
        evidence = self._evidence(query, page_id, marked)
        boxes: tuple[EvidenceBox, ...] = ()
        if evidence is not None:
            place = f"{evidence.row.place} (query {shown(query.query_id)}, page {shown(page_id)})"
            try:
                usable = self.refusals.usable_boxes(place, evidence.row, evidence.boxes, evidence.labels, copied.size)
                boxes = evidence.described(usable)
            except DataError as error:
                self.refusals.refuse(place, f"{error}; no boxes")
        return TrainingExample(query.query_id, query.text, copied.page, copied.size, boxes, others)

    def _evidence(self, query: TrainingQuery, page_id: str, marked: str | None) -> Evidence | None:
        row = self.proposed.get((query.query_id, page_id))
        if row is not None:
            return Evidence(row, row.values["boxes"], row.values["labels"])
        return query.evidence if page_id == marked else None
