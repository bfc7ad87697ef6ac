"""Where published data lie: in a folder of the user's, or on the hub at one commit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.errors import DataError
from visar.errors import DatasetError


@dataclass(frozen=True)
class HubData:
    """Files of a dataset repository of the hub.

    Attributes:
        repository: ``owner/name``; None where nothing is published.
        revision: The commit, as 40 hexadecimal digits. A branch would give other data tomorrow.
        files: Glob patterns of what to fetch.
        folder: Where it lies in the repository; ``"."`` for its root.
    """

    repository: str | None
    revision: str | None
    files: Sequence[str]
    folder: str = "."

    def fetch(self, setting: str, needs: str) -> Path:
        """Download what is not in the hub's local cache yet.

        Args:
            setting: Prefix of the settings that a message names, e.g. "benchmark".
            needs: What a folder must hold to stand in for the download, for messages.

        Returns:
            The local copy of :attr:`folder`.

        Raises:
            DataError: There is no commit, the hub cannot be reached and nothing is in its cache, or it refuses.
            MissingExtraError: huggingface_hub is not installed.
        """
        if self.repository is None:
            raise DataError(f"{setting}.root: expected a folder with {needs}; write {setting}.root=FOLDER")
        local = f"set {setting}.root=FOLDER, a folder with {needs}"
        if not re.fullmatch(r"[0-9a-f]{40}", str(self.revision)):
            raise DataError(
                f"{self.repository}: its revision is {self.revision}; {local}, or {setting}.hub.revision=COMMIT, "
                "the 40 hexadecimal digits of a commit on the hub"
            )
        from visar.benchmarks.hub import HubCopy

        try:
            return HubCopy(self.repository, str(self.revision), list(self.files), self.folder).fetch(needs)
        except DatasetError as error:
            lines = str(error.__cause__ or error).split("\n")
            reason = next((line.strip() for line in lines if line.strip()), type(error.__cause__).__name__)
            raise DataError(
                f"{self.repository} at {self.revision}: cannot be downloaded ({reason:.200}); {local}, or see to the "
                "connection and, where the owner asks for that, to the terms and the login"
            ) from error


def data_folder(root: Path | str | None, hub: HubData, *, below: str = ".", setting: str, needs: str) -> Path:
    """The user's folder, or a download where none is given.

    Args:
        below: What of the user's folder is meant.
        setting, needs: See :meth:`HubData.fetch`.

    Raises:
        DataError: There is neither, or the folder cannot be looked into, or the download fails.
        MissingExtraError: huggingface_hub is needed and not installed.
    """
    if root is None:
        return hub.fetch(setting, needs)
    return own_folder(root, below=below, setting=f"{setting}.root", needs=needs)


def own_folder(root: Path | str, *, below: str = ".", setting: str, needs: str) -> Path:
    """A folder of the user's, or one below it.

    Args:
        setting: What named it, for messages.
        needs: What should be in it, for messages.

    Raises:
        DataError: It is missing or cannot be looked into.
    """
    try:
        folder = Path(root).expanduser() / below
        next(folder.iterdir(), None)
    except (OSError, RuntimeError) as error:  # RuntimeError: the home folder is unknown
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{setting}: {Path(root, below)}: {reason}; expected a folder with {needs}") from error
    return folder
