"""Finished runs of ``conceptformer.eval``, read back from their folders."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conceptformer.errors import DataError
from conceptformer.retrieval.evaluation import METRICS

METRICS_FILE = "metrics.json"
"""Written last: a folder with it is a finished run."""

IDENTITY_FILE = "identity.json"
"""Written first; see :mod:`conceptformer.retrieval.result_folders`."""

_ROWS_FILE = "per_query.jsonl"


@dataclass(frozen=True)
class FinishedRun:
    """What one retriever found on one benchmark.

    Attributes:
        folder: Where it was read from.
        fingerprint: Tells retrievers of one name apart.
        pages: Of the whole corpus.
        left_out: Of them, pages that could not be read.
        queries: By query id its metrics.
        relevant: Ids of the pages that answer a query, by query id.
        data: Tells data of one name apart, see :func:`conceptformer.retrieval.result_folders.data_fingerprint`; None
            where the run has not written it down.
    """

    folder: Path
    benchmark: str
    retriever: str
    fingerprint: str
    pages: int
    left_out: int
    queries: Mapping[str, Mapping[str, float]]
    relevant: Mapping[str, frozenset[str]]
    data: str | None = None

    def mean(self, metric: str) -> float:
        """Over queries."""
        return sum(values[metric] for values in self.queries.values()) / len(self.queries)


def find_finished_runs(root: Path) -> tuple[list[FinishedRun], list[Path]]:
    """All runs below a folder, in the order of their paths, and the folders of runs that were not finished.

    Raises:
        DataError: There is no such folder, no finished run in it, or one with damaged files.
    """
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; expected runs of conceptformer.eval in it")
    begun = sorted({path.parent for name in (IDENTITY_FILE, _ROWS_FILE) for path in root.rglob(name)})
    finished = [folder for folder in begun if (folder / METRICS_FILE).is_file()]
    if not finished:
        raise DataError(f"{root}: holds no finished run; expected folders with {METRICS_FILE} and {_ROWS_FILE}")
    return [read_finished_run(folder) for folder in finished], [folder for folder in begun if folder not in finished]


def read_finished_run(folder: Path) -> FinishedRun:
    """One run.

    Raises:
        DataError: A file is missing or damaged, or the two are not of one run.
    """
    try:
        metrics = json.loads((folder / METRICS_FILE).read_bytes())
        identity = json.loads((folder / IDENTITY_FILE).read_bytes()) if (folder / IDENTITY_FILE).exists() else None
        # Bytes, since text has more line ends than JSON Lines.
        lines = (folder / _ROWS_FILE).read_bytes().split(b"\n")
        rows = [json.loads(line) for line in lines if line.strip()]
        run = _run(folder, metrics, rows, None if identity is None else str(identity["data"]))
    except OSError as error:
        raise DataError(f"{folder}: {error.filename or ''} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{folder}: {METRICS_FILE}, {_ROWS_FILE} or {IDENTITY_FILE} is damaged or of another version "
            f"({error!r:.80}); run conceptformer.eval again"
        ) from error
    told = {name: metrics[name]["value"] for name in METRICS}
    if len(rows) != metrics["queries"] or not all(math.isclose(run.mean(name), told[name]) for name in METRICS):
        raise DataError(
            f"{folder}: {METRICS_FILE} and {_ROWS_FILE} are not of the same run; run conceptformer.eval again"
        )
    return run


def _run(folder: Path, metrics: Mapping[str, Any], rows: list[dict[str, Any]], data: str | None) -> FinishedRun:
    queries = {str(row["query_id"]): {name: float(row[name]) for name in METRICS} for row in rows}
    if not queries:
        raise ValueError("no query")
    left_out = len(metrics["left_out"])
    return FinishedRun(
        folder,
        str(metrics["benchmark"]),
        str(metrics["retriever"]),
        str(metrics["retriever_fingerprint"]),
        int(metrics["pages"]) + left_out,
        left_out,
        queries,
        {str(row["query_id"]): frozenset(row["relevant"]) for row in rows},
        data,
    )
