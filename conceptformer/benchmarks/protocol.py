"""What every benchmark offers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from conceptformer.records import OnProgress, RetrievalTask


@runtime_checkable
class Benchmark(Protocol):
    """Queries and the corpus of pages that they are asked of."""

    def load(self, on_progress: OnProgress | None = None) -> RetrievalTask:
        """Read the queries, find the pages and check every relevant page against them.

        Rows that make no sense are left out and listed in :attr:`RetrievalTask.refused`.

        Args:
            on_progress: Called with (done, all) as pages are drawn or looked at.

        Raises:
            DataError: Files are missing or unreadable, or no row is left.
        """
