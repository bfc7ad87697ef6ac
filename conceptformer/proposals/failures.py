"""What failed, in a file beside the box file, so that people see it and the next run tries it again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from conceptformer.data.json_rows import read_json_rows, write_json_rows
from conceptformer.proposals.box_file import NothingRefused, PairKey, remove_file
from conceptformer.proposals.row_file import RowFile

FORMAT = "evidence-boxes-failed/1"
_KEYS = ("format", "query_id", "page_id", "place", "reason", "tries")


@dataclass(frozen=True)
class Failure:
    """Why a pair has no row in the box file.

    Attributes:
        query_id, page_id: None where the row of the pair does not say them.
        place: Of the pair: file and line.
        tries: How many replies were asked for.
    """

    query_id: str | None
    page_id: str | None
    place: str
    reason: str
    tries: int = 0


class FailureFile:
    """The failures of a box file. Between :meth:`begin` and :meth:`finish` they are appended as they happen."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            DataError: The file is there and holds something else.
            StoreError: It cannot be written.
        """
        self.path = path
        self._refused: tuple[Failure, ...] = ()
        self._failed: dict[PairKey, Failure] = {}
        self._open: RowFile | None = None
        if path.exists():
            RowFile(path).close()  # mends its last line
            for row in read_json_rows(path, _KEYS, (), NothingRefused(path)):
                failure = Failure(*(row.values[key] for key in _KEYS[1:]))
                if isinstance(failure.query_id, str) and isinstance(failure.page_id, str):
                    self._failed[failure.query_id, failure.page_id] = failure

    @property
    def failed(self) -> Collection[PairKey]:
        """The pairs that have failed and may succeed when they are asked for again."""
        return self._failed.keys()

    @property
    def all(self) -> Sequence[Failure]:
        """Those that cannot be asked for, then those that failed."""
        return (*self._refused, *self._failed.values())

    def begin(self, refused: Sequence[Failure], pending: Collection[PairKey]) -> None:
        """List what cannot be asked for, and keep of earlier failures those that are still to be asked for.

        Raises:
            StoreError: The file cannot be written.
        """
        self._refused = tuple(refused)
        self._failed = {key: failure for key, failure in self._failed.items() if key in pending}
        self._write()

    def add(self, key: PairKey, failure: Failure) -> None:
        """Write a failure now.

        Raises:
            StoreError: The file cannot be written.
        """
        self._failed[key] = failure
        if self._open is None:
            self._open = RowFile(self.path)
        self._open.append({"format": FORMAT, **asdict(failure)})

    def remove(self, key: PairKey) -> None:
        """Forget a failure: the pair has succeeded. The file is told in the end."""
        self._failed.pop(key, None)

    def finish(self) -> None:
        """Write the failures that are left, each once; without any there is no file.

        Raises:
            StoreError: The file cannot be written.
        """
        if self._open is not None:
            self._open.close()
            self._open = None
        self._write()

    def _write(self) -> None:
        if self.all:
            write_json_rows(self.path, [{"format": FORMAT, **asdict(failure)} for failure in self.all])
            return
        remove_file(self.path, "nothing failed")
