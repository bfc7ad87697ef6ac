"""Where training pairs and held-out queries come from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from conceptformer.data.retrieval_files import read_retrieval_folder
from conceptformer.data.training_files import read_training_rows
from conceptformer.drawn import DrawnPages
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, RetrievalTask, TrainingSet


@dataclass(frozen=True)
class TrainingData:
    """What a run learns from, and what it is looked at on the way with; the latter may be missing."""

    train: TrainingSet
    held_out: RetrievalTask | None

    @property
    def refused(self) -> tuple[str, ...]:
        """What was left out of both, one line each."""
        return (*self.train.refused, *(self.held_out.refused if self.held_out is not None else ()))


class DataSource(Protocol):
    """Reads training data."""

    def load(self, on_progress: OnProgress) -> TrainingData:
        """Read them.

        Args:
            on_progress: Called with (done, all), of images that are drawn or looked at.

        Raises:
            DataError: Something is missing or wrong.
        """


@dataclass(frozen=True)
class DrawnData:
    """The project's own drawings."""

    drawing: DrawnPages

    def load(self, on_progress: OnProgress) -> TrainingData:
        """Draw them unless they are there, and read them."""
        folders = self.drawing.write(on_progress)
        train = read_training_rows(folders.train, skip_bad_rows=False)
        return TrainingData(
            replace(train, name="drawn pages"),
            read_retrieval_folder(folders.held_out, skip_bad_rows=False),
        )


@dataclass(frozen=True)
class FileData:
    """Own files.

    Attributes:
        train: JSONL file, see :mod:`conceptformer.data.training_files`.
        held_out: Folder, see :mod:`conceptformer.data.retrieval_files`; None for no evaluation while training.
        skip_bad_rows: Leave bad rows and boxes out and list them, instead of stopping.
    """

    train: Path | str | None
    held_out: Path | str | None
    skip_bad_rows: bool

    def load(self, on_progress: OnProgress) -> TrainingData:
        """See :class:`DataSource`."""
        if self.train is None:
            raise DataError("data.train: expected a JSONL file of training pairs; write data.train=FILE")
        path = Path(self.train).expanduser()
        train = read_training_rows(path, skip_bad_rows=self.skip_bad_rows, on_progress=on_progress)
        held_out = None
        if self.held_out is not None:
            held_out = read_retrieval_folder(Path(self.held_out).expanduser(), skip_bad_rows=self.skip_bad_rows)
        return TrainingData(replace(train, name="/".join(path.resolve().parts[-2:])), held_out)
