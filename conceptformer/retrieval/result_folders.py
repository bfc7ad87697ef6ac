"""Where the results of a run go: a folder that holds no results of another run, and says which run it belongs to."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from conceptformer.errors import DataError
from conceptformer.records import ImageSource, RetrievalTask
from conceptformer.retrieval.finished_runs import IDENTITY_FILE, METRICS_FILE
from visar.tensor_files import write_atomically


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
    """Changes with queries, answers, page ids and the sizes of image files. No image is read."""
    digest = hashlib.sha256()
    for query_id, text in task.queries.items():
        digest.update(json.dumps([query_id, text, sorted(task.relevant.get(query_id, ()))]).encode())
    for page in task.pages:
        digest.update(json.dumps([page.page_id, _size(page.image)]).encode())
    return digest.hexdigest()


def own_folder_below(root: Path, benchmark: str, retriever: str, identity: RunIdentity) -> Path:
    """``root/benchmark/retriever``, or with a number behind one of the two where that is taken by others.

    Folders of one benchmark hold results on the same data: where its name is taken by other data of the same name, the
    number stands behind the benchmark, and else, where the retriever was another, behind the retriever.

    Args:
        benchmark, retriever: Names for folders.
    """
    home = next(
        home
        for home in _numbered(root / benchmark)
        if all(found is None or found.data == identity.data for found in map(_identity_in, _folders(home)))
    )
    return next(folder for folder in _numbered(home / retriever) if _identity_in(folder) in (None, identity))


def claim(folder: Path, identity: RunIdentity, *, setting: str) -> None:
    """Note down that a folder is for the results of this run.

    Args:
        setting: What chose the folder, for messages.

    Raises:
        DataError: It holds those of another run.
        StoreError: The folder cannot be written.
    """
    found = _identity_in(folder)
    if found not in (None, identity):
        raise DataError(
            f"{setting}: {folder} holds results of {_described(found, identity)}; choose another folder, "
            f"{setting}=FOLDER, or remove that one"
        )
    write_atomically(folder / IDENTITY_FILE, f"{json.dumps(asdict(identity), indent=2)}\n".encode())


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


def _identity_in(folder: Path) -> RunIdentity | None:
    """What the results in a folder are of; None where it holds none."""
    try:
        return RunIdentity(**json.loads((folder / IDENTITY_FILE).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return _UNKNOWN if (folder / METRICS_FILE).exists() else None
    except (OSError, ValueError, TypeError):
        return _UNKNOWN


def _folders(home: Path) -> list[Path]:
    return [path for path in home.iterdir() if path.is_dir()] if home.is_dir() else []


def _numbered(path: Path) -> Iterator[Path]:
    """The path, then ``path-2``, ``path-3`` and so on."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name}-{number}")


def _size(image: ImageSource) -> int | None:
    """Bytes of an image; None where it lies within a larger file, or cannot be looked at."""
    if isinstance(image, bytes):
        return len(image)
    try:
        return image.stat().st_size if isinstance(image, Path) else None
    except OSError:
        return None
