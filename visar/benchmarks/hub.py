"""Benchmarks on the Hugging Face hub -> a local folder, at one fixed revision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from visar.benchmarks.question_files import looking_into
from visar.errors import DatasetError, MissingExtraError

_CONNECT_SECONDS = 10


@dataclass(frozen=True)
class HubCopy:
    """A copy of a benchmark in a dataset repository of the hub.

    Attributes:
        repository: ``owner/name``.
        revision: The commit, as 40 hexadecimal digits. A branch would give other questions tomorrow.
        files: Glob patterns of the files to fetch, relative to the repository.
        folder: The benchmark's folder in the repository, ``"."`` where the repository holds nothing else.
    """

    repository: str
    revision: str
    files: Sequence[str]
    folder: str = "."

    def fetch(self, needs: str) -> Path:
        """Download what is not in the hub's local cache yet, and return the benchmark's folder there.

        Args:
            needs: What a folder must contain to stand in for the download, for messages.

        Raises:
            DatasetError: The revision is not a commit, or the repository cannot be reached or has no such files.
            MissingExtraError: huggingface_hub is not installed.
        """
        if not re.fullmatch(r"[0-9a-f]{40}", str(self.revision)):
            raise DatasetError(
                f"revision {self.revision!r} of {self.repository} is not fixed, expected the 40 hexadecimal digits of "
                "a commit: set dataset.hub.revision"
            )
        try:
            import huggingface_hub
            from huggingface_hub.errors import HTTPError
        except ImportError as error:
            raise MissingExtraError("huggingface_hub", "offline", f"downloading {self.repository}") from error
        try:
            # snapshot_download asks an unreachable hub six times over half a minute; this asks once.
            huggingface_hub.HfApi().dataset_info(self.repository, revision=self.revision, timeout=_CONNECT_SECONDS)
            return self._snapshot(local_files_only=False)
        except (HTTPError, OSError, ValueError) as error:
            reason = error
        try:
            return self._snapshot(local_files_only=True)
        except (OSError, ValueError):
            raise DatasetError(
                f"cannot download {self.repository} at {self.revision}: {_first_line(reason)}; to use a local copy, "
                f"set dataset.root=FOLDER, a folder with {needs}"
            ) from reason

    def _snapshot(self, *, local_files_only: bool) -> Path:
        from huggingface_hub import snapshot_download

        snapshot = snapshot_download(
            self.repository,
            repo_type="dataset",
            revision=self.revision,
            allow_patterns=list(self.files),
            local_files_only=local_files_only,
        )
        return Path(snapshot) / self.folder


def benchmark_folder(root: str | Path | None, hub: HubCopy | None, needs: str) -> Path:
    """The local folder of a benchmark, downloaded where no folder is given.

    Raises:
        DatasetError: There is neither, or the folder does not exist, or the download fails.
    """
    if root is None:
        if hub is None:
            raise DatasetError(f"no data given: set dataset.root=FOLDER, a folder with {needs}")
        return hub.fetch(needs)
    folder = Path(root).expanduser()
    with looking_into(folder):
        if not folder.is_dir():
            raise DatasetError(f"dataset.root={root} is not a folder, expected one with {needs}")
    return folder


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
