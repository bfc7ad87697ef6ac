"""Training variants of a method with several seeds, measuring their checkpoints and writing the comparison down."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conceptformer.errors import TrainingError
from conceptformer.records import RetrievalTask
from conceptformer.report.comparison_page import write_comparison_page
from conceptformer.report.comparison_table import comparison_markdown
from conceptformer.report.series import evaluations_of, series
from conceptformer.retrieval.evaluation import METRICS, RANKS, query_groups, query_metrics
from conceptformer.retrieval.search import search
from conceptformer.retriever import ConceptFormer
from conceptformer.training.comparison import (
    CHECKPOINTS,
    CheckpointResult,
    Comparison,
    ComparisonPlan,
    RunResult,
    compare,
)
from conceptformer.training.held_out_vectors import held_out_vectors
from conceptformer.training.log import read_log
from conceptformer.training.run import LOG_FILE
from conceptformer.training.run_checkpoints import RETRIEVER, checkpoints, progress_of
from visar.tensor_files import write_atomically

COMPARISON_FILES = ("comparison.json", "per_query.jsonl", "table.md", "comparison.html")

TrainOne = Callable[[str, int, Path], None]
"""Trains a variant with a seed in a folder, or goes on with what is there, and returns when the run is finished."""

Measure = Callable[[str, int, Path], RunResult]
"""Measures the finished run of a variant and a seed in a folder."""


def run_comparison(
    plan: ComparisonPlan, task: RetrievalTask, folder: Path, *, train_one: TrainOne, measure: Measure
) -> Comparison:
    """Train and measure all runs, seed after seed, and write the files anew whenever a seed is complete.

    After a kill the same call goes on: ``train_one`` finds what is there of each run.

    Args:
        task: The held-out set.
        folder: Gets a folder for each run, and ``comparison.json``, ``per_query.jsonl``, ``table.md`` and
            ``comparison.html``.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    groups = query_groups(task.relevant)
    runs: dict[tuple[str, int], RunResult] = {}
    for seed in plan.seeds:
        for variant in plan.variants:
            run_folder = folder / plan.folder_name(variant, seed)
            train_one(variant, seed, run_folder)
            runs[variant, seed] = measure(variant, seed, run_folder)
        comparison = compare(plan, runs, groups, len(task.pages))
        write_comparison(comparison, folder)
    return comparison


def measure_run(variant: str, seed: int, folder: Path, *, task: RetrievalTask) -> RunResult:
    """Load the last and the best retriever of a finished run, and search with each held-out query.

    Raises:
        TrainingError: The run is not finished, or was never measured on the way.
        CheckpointError: A checkpoint is not complete, or does not give its embeddings.
        DataError: A page cannot be read.
    """
    done = checkpoints(folder)
    if not done or not progress_of(done[-1]).finished or not (folder / RETRIEVER).is_dir():
        raise TrainingError(f"{folder}: holds no finished run; train it to its end before it is compared")
    last = progress_of(done[-1])
    if last.best_step is None:
        raise TrainingError(f"{folder}: no checkpoint was evaluated; set training.evaluate_every above 0")
    places = {"last": (done[-1], last.step), "best": (folder / RETRIEVER, last.best_step)}
    found: dict[int, CheckpointResult] = {}
    for path, step in places.values():
        if step not in found:
            found[step] = CheckpointResult(step, _query_results(task, path))
    evaluations = evaluations_of(read_log(folder / LOG_FILE))
    history = {int(step): value for step, value in series(evaluations, "eval_ndcg_at_10")}
    return RunResult(variant, seed, {name: found[step] for name, (_, step) in places.items()}, history)


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Write the four files, each complete or not at all.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    facts = json.dumps(_facts(comparison), indent=2, ensure_ascii=False) + "\n"
    rows = [
        {"variant": run.variant, "seed": run.seed, "checkpoint": name, "query_id": query_id, **metrics}
        for run in comparison.runs.values()
        for name, result in run.checkpoints.items()
        for query_id, metrics in result.queries.items()
    ]
    write_atomically(folder / "comparison.json", facts.encode())
    write_atomically(folder / "per_query.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows).encode())
    write_atomically(folder / "table.md", comparison_markdown(comparison).encode())
    write_comparison_page(folder / "comparison.html", comparison)


def _query_results(task: RetrievalTask, checkpoint: Path) -> dict[str, dict[str, float]]:
    queries, pages = held_out_vectors(task, ConceptFormer.from_pretrained(checkpoint))
    rankings = search(list(task.queries), queries, [pages], depth=RANKS)
    return {
        query_id: query_metrics(ranking.page_ids, task.relevant[query_id])
        for query_id, ranking in zip(task.queries, rankings, strict=True)
    }


def _facts(comparison: Comparison) -> dict[str, Any]:
    """Everything but the single queries, as JSON holds it."""
    return {
        "variants": list(comparison.plan.variants),
        "planned_seeds": list(comparison.plan.seeds),
        "seeds": list(comparison.seeds),
        "queries": comparison.query_count,
        "pages": comparison.page_count,
        "runs": [
            {
                "variant": run.variant,
                "seed": run.seed,
                "folder": comparison.plan.folder_name(run.variant, run.seed),
                **{name: _means(run.checkpoints[name]) for name in CHECKPOINTS},
                "history": {str(step): value for step, value in run.history.items()},
            }
            for run in comparison.runs.values()
        ],
        "differences": [asdict(difference) for difference in comparison.differences],
    }


def _means(result: CheckpointResult) -> dict[str, float]:
    return {"step": result.step, **{metric: result.mean(metric) for metric in METRICS}}
