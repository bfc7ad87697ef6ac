"""Own pages and queries, in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conceptformer.data.retrieval_files import read_retrieval_folder
from conceptformer.errors import DataError
from conceptformer.records import OnProgress, RetrievalTask


@dataclass(frozen=True)
class RetrievalFolder:
    """A folder with ``pages.jsonl``, ``queries.jsonl`` and page images.

    Attributes:
        folder: Where it is; None only so that the command can say what is missing.
        skip_bad_rows: Leave rows that make no sense out and list them; they are an error otherwise.
    """

    folder: Path | str | None
    skip_bad_rows: bool

    def load(self, on_progress: OnProgress | None = None) -> RetrievalTask:
        """See :meth:`conceptformer.benchmarks.Benchmark.load`."""
        if self.folder is None:
            raise DataError(
                "benchmark.folder: expected a folder with pages.jsonl and queries.jsonl; write benchmark.folder=FOLDER"
            )
        folder = Path(self.folder).expanduser()
        return read_retrieval_folder(folder, skip_bad_rows=self.skip_bad_rows, on_progress=on_progress)
