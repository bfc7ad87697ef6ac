"""What every benchmark offers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from visar.records import QuestionSet


@runtime_checkable
class Benchmark(Protocol):
    """Questions and the documents that they are asked about."""

    def load(self) -> QuestionSet:
        """Read the questions, find their documents and check every page number against them.

        Rows that contradict the documents are left out and listed in :attr:`QuestionSet.refused`; page numbers are
        never clamped.

        Raises:
            DatasetError: Files are missing or unreadable, no row is left, or more than half of the rows are refused.
        """
        ...
