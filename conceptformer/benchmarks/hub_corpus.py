"""The six benchmarks of the paper (Table 5), and any other corpus in the layout of their release.

A folder holds

- ``query.parquet``: ``query_id``, ``query`` and perhaps ``relevant_doc_ids``;
- ``qrels.txt``: judgments as TREC writes them; without it ``relevant_doc_ids`` are the pages that answer;
- ``corpus-*.parquet``: ``doc_id`` and ``image``, the bytes of an image file, alone or in a struct ``{bytes, path}``;
- ``manifest.json``: names and numbers of rows; only a published corpus has to have one.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conceptformer.benchmarks.corpora import parquet_pages
from conceptformer.benchmarks.corpus_manifest import CorpusManifest, read_manifest
from conceptformer.benchmarks.judgments import (
    Judgment,
    judged_task,
    query_texts,
    relevant_pages,
    trec_judgments,
)
from conceptformer.data.folder import HubData, data_folder
from conceptformer.data.json_rows import JsonRow, Refusals, shown
from conceptformer.data.parquet_pages import row_count
from conceptformer.data.table_files import identifier, one_table, read_table
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, RetrievalTask

_QUERY_FILES = ("query.parquet", "queries.parquet")
_QRELS = "qrels.txt"
_MANIFEST = "manifest.json"
_NEEDED = {"query_id": ("query_id",), "query": ("query",)}
_POSSIBLE = {"relevant": ("relevant_doc_ids",)}
_UNUSED = ("answers", "dataset_names")
_PAGE_IDS = ("doc_id",)


@dataclass(frozen=True)
class PublishedQueries:
    """The queries of a corpus, without its pages.

    Attributes:
        texts: By query id, byte for byte as published.
        relevant: Ids of the pages that answer a query, in the order of the file, by query id.
        rows, judgments: How many rows the files have, those that were refused included.
    """

    texts: Mapping[str, str]
    relevant: Mapping[str, tuple[str, ...]]
    rows: int
    judgments: int


@dataclass(frozen=True)
class ParquetCorpus:
    """A corpus in Parquet files, with queries.

    Attributes:
        name: How tables call it; None for the name of its folder.
        root: The user's folder; None to download.
        folder: Where the corpus lies below ``root``.
        hub: Where to download it from.
        sha256: What the published files of queries and judgments add up to, by file name. Others are used with a
            warning: scores would be of other queries. Where it is stated the corpus is a published one: these files
            and the manifest have to be there.
        pages: How many pages the published corpus has (Table 5); None where none was published.
        skip_bad_rows: Leave rows that make no sense out and list them; they are an error otherwise.
    """

    name: str | None
    root: Path | str | None
    folder: str
    hub: HubData
    skip_bad_rows: bool
    sha256: Mapping[str, str] = field(default_factory=dict)
    pages: int | None = None

    def load(self, on_progress: OnProgress | None = None) -> RetrievalTask:
        """See :meth:`conceptformer.benchmarks.Benchmark.load`; of the pages only the ids are read.

        Raises:
            DataError: Besides, a file of a published corpus is missing, or the files hold other numbers of rows than
                were published or than their manifest says.
            MissingExtraError: pyarrow, or huggingface_hub for a download, is not installed.
        """
        needs = f"{self.folder}/ in it" if self.folder != "." else "query.parquet, qrels.txt and corpus-*.parquet"
        folder = data_folder(self.root, self.hub, below=self.folder, setting="benchmark", needs=needs)
        _check_published(folder, self.sha256, self._where_to_get())
        refusals = Refusals(folder, skip=self.skip_bad_rows)
        queries = read_published_queries(folder, refusals)
        manifest = read_manifest(folder / _MANIFEST)
        files = _corpus_files(folder, manifest, self._where_to_get())
        self._check_pages(folder, files)
        pages = parquet_pages(files, _PAGE_IDS, refusals, on_progress)
        if manifest is not None:
            answering = {page_id for page_ids in queries.relevant.values() for page_id in page_ids}
            manifest.check_size(files)
            manifest.check_counts(
                {
                    "query_rows": queries.rows,
                    "qrels_rows": queries.judgments,
                    "corpus_rows": sum(map(row_count, files)),
                    "corpus_positive_docs": sum(page.page_id in answering for page in pages),
                }
            )
        return judged_task(self.name or folder.resolve().name, queries.texts, queries.relevant, pages, refusals)

    def _check_pages(self, folder: Path, files: Sequence[Path]) -> None:
        """Fewer pages to choose from are an easier search, whatever a manifest says of them."""
        found = sum(map(row_count, files))
        if self.pages is not None and found != self.pages:
            raise DataError(
                f"{folder}: the corpus has {found:,} pages, the published one {self.pages:,}: scores would not be "
                f"comparable; {self._where_to_get()}, or search these under a name of their own: "
                "benchmark=parquet benchmark.name=NAME"
            )

    def _where_to_get(self) -> str:
        """What to do where files are missing."""
        if self.hub.repository is None:
            return "fetch them from where the others came from, into that folder"
        if self.root is None:
            return (
                f"{self.hub.repository} lacks them at {self.hub.revision}, or not all is downloaded yet: run again "
                "with a connection, or state another benchmark.hub.revision"
            )
        source = self.hub.repository if self.folder == "." else f"{self.hub.repository}, {self.folder}/"
        return (
            f"fetch them from the hub ({source}) into that folder, or have all files downloaded: write "
            "benchmark.hub.revision=COMMIT in place of benchmark.root"
        )


def read_published_queries(folder: Path, refusals: Refusals) -> PublishedQueries:
    """Queries and judgments of a corpus in a folder; its pages need not be there.

    Raises:
        DataError: A file is missing or cannot be read, or the two tell different relevant pages.
        MissingExtraError: pyarrow is not installed.
    """
    path = one_table(folder, _QUERY_FILES)
    if path is None:
        raise DataError(f"{folder}: has no {' or '.join(_QUERY_FILES)}; expected query_id and query in it")
    rows = read_table(path, _NEEDED, _POSSIBLE, _UNUSED)
    texts = query_texts(rows, refusals)
    if not (folder / _QRELS).is_file():
        stated = _stated_judgments(rows, refusals)
        if not stated:
            raise DataError(f"{folder}: has neither {_QRELS} nor relevant_doc_ids; expected the pages that answer")
        return PublishedQueries(texts, relevant_pages(stated, texts, refusals), len(rows), len(stated))
    judgments = trec_judgments(folder / _QRELS, refusals)
    relevant = relevant_pages(judgments, texts, refusals)
    unused = Refusals(path, skip=True)  # here they are only looked at to see that they say the same
    _check_agreement(folder, relevant, relevant_pages(_stated_judgments(rows, unused), texts, unused))
    return PublishedQueries(texts, relevant, len(rows), len(judgments))


def _stated_judgments(rows: Sequence[JsonRow], refusals: Refusals) -> list[Judgment]:
    """What the table of queries itself says of the pages that answer."""
    judgments = []
    for row in rows:
        try:
            query_id, page_ids = identifier(row, "query_id"), row.texts("relevant")
        except DataError as error:
            refusals.refuse(row.place, error)
        else:
            judgments += (Judgment(row.place, query_id, page_id, 1) for page_id in page_ids)
    return judgments


def _check_agreement(
    folder: Path, judged: Mapping[str, tuple[str, ...]], stated: Mapping[str, tuple[str, ...]]
) -> None:
    other = [query_id for query_id, page_ids in stated.items() if set(page_ids) != set(judged.get(query_id, ()))]
    if other:
        raise DataError(
            f"{folder}: {_QRELS} and relevant_doc_ids name different pages for {len(other)} queries, the first: "
            f"{shown(other[0])}; expected files of one version: fetch them again"
        )


def _corpus_files(folder: Path, manifest: CorpusManifest | None, where_to_get: str) -> list[Path]:
    # Beside the other files, or in a folder of their own.
    homes = (folder, folder / "corpus")
    if manifest is None:
        files = [path for home in homes for path in sorted(home.glob("*.parquet")) if path.name not in _QUERY_FILES]
        if not files:
            raise DataError(f"{folder}: has no Parquet files of a corpus; expected corpus-*.parquet: {where_to_get}")
        return files
    found = {name: one_table(folder, (name, f"corpus/{name}")) for name in manifest.corpus_shards}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise DataError(
            f"{folder}: corpus files that are not there: {len(missing)} of {len(found)}, the first: {missing[0]}; "
            f"{where_to_get}"
        )
    return [path for path in found.values() if path is not None]


def _check_published(folder: Path, sha256: Mapping[str, str], where_to_get: str) -> None:
    if not sha256:
        return
    missing = [name for name in dict.fromkeys((*sha256, _MANIFEST)) if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder}: published files that are not there: {', '.join(missing)}; {where_to_get}")
    for name, expected in sha256.items():
        path = folder / name
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            warnings.warn(
                f"{path}: is not the file that was published (another SHA-256); scores may not be comparable",
                stacklevel=3,
            )
