"""Retrieval on held-out queries while a run goes on, the best checkpoint, and the retriever that is left behind."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed

from conceptformer.data.retrieval_files import read_retrieval_folder
from conceptformer.retriever import ConceptFormer
from conceptformer.training.held_out import HeldOutEvaluation
from conceptformer.training.run_checkpoints import best_of
from tests.conceptformer.tiny_models import tiny_backbone
from tests.conceptformer.training_parts import examples, task_of
from tests.conceptformer.training_runs import HELD_OUT, log_of, run, steps_of, write_data
from visar.metrics import ndcg_at, recall_at, reciprocal_rank_at

MEASURES = {"recall_at_10": recall_at, "ndcg_at_10": ndcg_at, "mrr_at_10": reciprocal_rank_at}
SETTINGS = (*HELD_OUT, "training.evaluate_every=1", "training.save_every=1", "training.keep=1", "training.seed=1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Of a finished run that looked at the held-out queries after each of its six steps."""
    folder = write_data(tmp_path_factory.mktemp("runs"))
    run(*SETTINGS, folder=folder)
    return folder


def measured(folder: Path) -> dict[int, dict[str, float]]:
    """By step, from the log."""
    rows = [row for row in log_of(folder) if "eval_ndcg_at_10" in row]
    return {row["step"]: {name: row[f"eval_{name}"] for name in MEASURES} for row in rows}


def measured_by_hand(checkpoint: Path, held_out: Path) -> dict[str, float]:
    """From the files alone, one query at a time."""
    retriever, task = (
        ConceptFormer.from_pretrained(checkpoint, device="cpu"),
        read_retrieval_folder(held_out, skip_bad_rows=False),
    )
    pages = np.concatenate([retriever.encode_pages([page.image]) for page in task.pages])
    values = {name: [] for name in MEASURES}
    for query_id, text in task.queries.items():
        scores = pages @ retriever.encode_queries([text])[0]
        order = [task.pages[place].page_id for place in np.argsort(-scores, kind="stable")]
        for name, measure in MEASURES.items():
            values[name].append(measure(order, task.relevant[query_id], 10))
    return {name: float(np.mean(found)) for name, found in values.items()}


def test_figures_are_those_of_the_saved_retriever(folder):
    found = measured(folder / "out")
    assert list(found) == [1, 2, 3, 4, 5, 6] and len({one["ndcg_at_10"] for one in found.values()}) > 2
    for step in steps_of(folder / "out"):
        checkpoint = folder / "out" / f"checkpoint-{step}"
        assert measured_by_hand(checkpoint, folder / "data" / "held_out") == pytest.approx(found[step])
        assert json.loads((checkpoint / "manifest.json").read_text())["metrics"] == found[step]


def test_the_best_checkpoint_outlives_the_others_and_becomes_the_retriever(folder):
    found = measured(folder / "out")
    best = max(found, key=lambda step: found[step]["ndcg_at_10"])
    assert best < 5, "an earlier checkpoint has to be the best, or nothing is tested"
    assert steps_of(folder / "out") == [best, 6]
    retriever, checkpoint = folder / "out" / "retriever", folder / "out" / f"checkpoint-{best}"
    files = {path.relative_to(retriever) for path in retriever.rglob("*") if path.is_file()}
    assert {str(name) for name in files} >= {"manifest.json", "probe.safetensors", "backbone/model.safetensors"}
    assert not [name for name in files if name.suffix in {".pt", ".pth"}]
    for name in files:
        assert (retriever / name).read_bytes() == (checkpoint / name).read_bytes()
    assert ConceptFormer.from_pretrained(retriever, device="cpu").encode_queries(["red"]).shape == (1, 32)
    again = run(*SETTINGS, folder=folder)
    assert f"best nDCG@10 on held-out queries: {found[best]['ndcg_at_10']:.3f}" in again.out


@pytest.mark.parametrize(("steps", "looked"), [(3, [2, 3]), (4, [2, 4])])
def test_the_last_step_is_measured_once_wherever_it_falls(tmp_path, steps, looked):
    changed = (f"training.max_steps={steps}", "training.evaluate_every=2", "training.save_every=2")
    run(*HELD_OUT, *changed, folder=write_data(tmp_path))
    rows = [row["step"] for row in log_of(tmp_path / "out") if "eval_ndcg_at_10" in row]
    assert rows == looked
    manifest = json.loads((tmp_path / "out" / "retriever" / "manifest.json").read_text())
    assert (manifest["projection"], manifest["training_precision"]) == (False, "fp32")


def test_the_last_checkpoint_takes_the_place_of_a_best_one_that_is_gone(folder, tmp_path):
    shutil.copytree(folder / "out", tmp_path / "out")
    first, last = steps_of(tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / f"checkpoint-{first}")
    with pytest.warns(UserWarning, match=f"checkpoint-{first}: the best checkpoint is gone"):
        assert best_of(tmp_path / "out" / f"checkpoint-{last}").name == "checkpoint-6"


def test_without_held_out_queries_the_last_checkpoint_is_the_retriever(tmp_path):
    ended = run("training.evaluate_every=3", folder=write_data(tmp_path))
    assert "nDCG" not in ended.out and steps_of(tmp_path / "out") == [6]
    assert not (tmp_path / "out" / "refused.txt").exists()
    manifests = [tmp_path / "out" / name / "manifest.json" for name in ("retriever", "checkpoint-6")]
    assert manifests[0].read_bytes() == manifests[1].read_bytes()


def test_more_processes_than_pages_measure_what_one_does(tmp_path):
    task, backbone = task_of(examples(tmp_path, 2)), tiny_backbone()

    def measure(rank: int) -> None:
        torch.set_num_threads(1)
        distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=rank, world_size=3)
        evaluation = HeldOutEvaluation(task, backbone, batch_pages=2, rank=rank, world=3)
        (tmp_path / f"{rank}.json").write_text(json.dumps(evaluation()))
        distributed.destroy_process_group()

    started = [multiprocessing.get_context("fork").Process(target=measure, args=(rank,)) for rank in range(3)]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
        assert process.exitcode == 0
    alone = HeldOutEvaluation(task, backbone, batch_pages=2, rank=0, world=1)()
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)] == [alone] * 3
