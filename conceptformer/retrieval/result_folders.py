"""Where the results of a run go: a folder that holds no results of another run, and says which run it belongs to.

A folder belongs to the run whose results it holds, or which is on its way to them. A run that ended before its results,
by an error or a kill, has no claim to its folder: what it has made lies in the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from conceptformer.data.file_locks import is_held, lock_file
from conceptformer.data.page_files import corpus_stamp
from conceptformer.data.parquet_pages import ParquetImage
from conceptformer.errors import DataError
from conceptformer.records import ImageSource, RetrievalTask
from conceptformer.retrieval.finished_runs import IDENTITY_FILE, METRICS_FILE
from visar.tensor_files import write_atomically

# Locked by a process that has its results to write: a kill leaves the file and no lock.
_LOCK_FILE = "running.lock"


@dataclass(frozen=True)
class RunIdentity:
    """What results are of. A run with the same identity gives the same rankings, and takes the place of an earlier one.

    Attributes:
        benchmark, retriever: Names.
        data: See :func:`data_fingerprint`.
        fingerprint: The retriever's.
    """

    benchmark: str
    data: str
    retriever: str
    fingerprint: str


_UNKNOWN = RunIdentity("", "", "", "")


def data_fingerprint(task: RetrievalTask) -> str:
    """Changes with queries, answers, page ids and the sizes of image files, or of Parquet files and their names.

    No image is read.

    Raises:
        DataError: A Parquet file is gone.
    """
    digest = hashlib.sha256()
    for query_id, text in task.queries.items():
        digest.update(json.dumps([query_id, text, sorted(task.relevant.get(query_id, ()))]).encode())
    for page in task.pages:
        digest.update(json.dumps([page.page_id, _size(page.image)]).encode())
    stored = dict.fromkeys(page.image.path for page in task.pages if isinstance(page.image, ParquetImage))
    if stored:
        digest.update(corpus_stamp(stored).encode())
    return digest.hexdigest()


@contextmanager
def claimed_below(root: Path, benchmark: str, retriever: str, identity: RunIdentity) -> Iterator[Path]:
    """Keep ``root/benchmark/retriever`` as :func:`claimed` does, or that with a number behind one of the two.

    Folders of one benchmark hold results on the same data: where its name is taken by other data of the same name, the
    number stands behind the benchmark, and else, where the retriever was another, behind the retriever. Results of the
    same run keep their folder.

    Args:
        benchmark, retriever: Names for folders.

    Raises:
        DataError: Another process is at the same run.
        StoreError: The folder cannot be written.
    """
    with contextlib.ExitStack() as held:
        # One process at a time chooses, so that no two choose the same.
        with lock_file(root / "choosing.lock", wait=True, what="output folder"):
            folder = _own_folder_below(root, benchmark, retriever, identity)
            held.enter_context(claimed(folder, identity, setting="output"))
        yield folder


@contextmanager
def claimed(folder: Path, identity: RunIdentity, *, setting: str) -> Iterator[Path]:
    """Keep a folder for the results of this run until the block ends, and note down in it whose they are.

    Args:
        setting: What chose the folder, for messages.

    Raises:
        DataError: It holds those of another run, or another process is about to write its own there.
        StoreError: The folder cannot be written.
    """
    with lock_file(folder / _LOCK_FILE, wait=False, what="output folder") as ours:
        if not ours:
            raise DataError(
                f"{setting}: another process is at work on results for {folder}; wait for its end, or choose another "
                f"folder, {setting}=FOLDER"
            )
        found = _identity_in(folder) if _has_results(folder) else None
        if found not in (None, identity):
            raise DataError(
                f"{setting}: {folder} holds results of {_described(found, identity)}; choose another folder, "
                f"{setting}=FOLDER, or remove that one"
            )
        write_atomically(folder / IDENTITY_FILE, f"{json.dumps(asdict(identity), indent=2)}\n".encode())
        yield folder


def _own_folder_below(root: Path, benchmark: str, retriever: str, identity: RunIdentity) -> Path:
    for home in _numbered_ones(root / benchmark):
        for folder in _numbered_ones(home / retriever):
            if _owner(folder) == identity:
                return folder
    home = next(
        home
        for home in _numbered(root / benchmark)
        if all(found is None or found.data == identity.data for found in map(_owner, _folders(home)))
    )
    return next(folder for folder in _numbered(home / retriever) if _owner(folder) is None)


def _described(found: RunIdentity, identity: RunIdentity) -> str:
    if found == _UNKNOWN:
        return "another run"
    if found.benchmark != identity.benchmark:
        return f"another benchmark, {found.benchmark}"
    if found.data != identity.data:
        return f"other pages or queries, called {found.benchmark} too"
    if found.retriever != identity.retriever:
        return f"another retriever, {found.retriever}"
    return f"{found.retriever} with other settings or weights"


def _owner(folder: Path) -> RunIdentity | None:
    """The run whose results a folder holds, or one that is on its way to them; None where it is free."""
    return _identity_in(folder) if _has_results(folder) or is_held(folder / _LOCK_FILE) else None


def _has_results(folder: Path) -> bool:
    return os.path.exists(folder / METRICS_FILE)


def _identity_in(folder: Path) -> RunIdentity:
    try:
        return RunIdentity(**json.loads((folder / IDENTITY_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return _UNKNOWN


def _folders(home: Path) -> list[Path]:
    return [path for path in home.iterdir() if path.is_dir()] if home.is_dir() else []


def _numbered(path: Path) -> Iterator[Path]:
    """The path, then ``path-2``, ``path-3`` and so on."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


def _numbered_ones(path: Path) -> list[Path]:
    """The folders of these names that are there."""
    name = re.compile(rf"{re.escape(path.name)}(?:-(\d+))?")
    found = [(int(match[1] or 1), home) for home in _folders(path.parent) if (match := name.fullmatch(home.name))]
    return [home for _, home in sorted(found)]


def _size(image: ImageSource) -> int | None:
    """Bytes of an image; None where it lies within a larger file, or cannot be looked at."""
    if isinstance(image, bytes):
        return len(image)
    try:
        return image.stat().st_size if isinstance(image, Path) else None
    except OSError:
        return None
