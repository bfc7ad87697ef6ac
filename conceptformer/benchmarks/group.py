"""Several benchmarks, each searched in its own corpus, as one choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conceptformer.benchmarks.hub_corpus import ParquetCorpus
from conceptformer.benchmarks.protocol import Benchmark
from conceptformer.errors import DataError


@dataclass(frozen=True)
class BenchmarkGroup:
    """Benchmarks to be run in turn; the mean of their figures counts each of them once (Table 1).

    Attributes:
        members: By the name of each, in the order of the table. None of them is loaded before its turn.

    Raises:
        DataError: There is none.
    """

    members: Mapping[str, Benchmark]

    def __post_init__(self) -> None:
        if not self.members:
            raise DataError("benchmark.members: expected at least one benchmark, got none")


def corpora_of_one_release(
    root: Path | str | None, hub: Mapping[str, str | None], members: Mapping[str, ParquetCorpus]
) -> BenchmarkGroup:
    """A group whose members lie in one place.

    Args:
        root: The user's folder, for members that name none.
        hub: Its ``revision``, the commit on the hub, for members that name none.
    """
    revision = hub["revision"]
    return BenchmarkGroup(
        {
            name: dataclasses.replace(
                member,
                root=member.root or root,
                hub=dataclasses.replace(member.hub, revision=member.hub.revision or revision),
            )
            for name, member in members.items()
        }
    )
