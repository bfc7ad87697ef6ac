"""Runs that were killed or stopped, and go on as if nothing had happened."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.conceptformer.training_runs import (
    FILES,
    HELD_OUT,
    LORA,
    SMALL,
    assert_same_training,
    log_of,
    noise,
    run,
    start,
    steps_of,
    write_data,
)

ROOT = Path(__file__).parents[2]
LAST = "checkpoint-6/trained.safetensors"
# Lines of the log tell of four steps each, and checkpoints come in between.
SETTINGS = (*LORA, *HELD_OUT, "training.evaluate_every=2", "training.log_every=4", "training.keep=9")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_data(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def whole(folder) -> Path:
    """A run with dropout that nothing interrupted, with all its checkpoints."""
    run(*SETTINGS, "training.save_every=1", "output=whole", folder=folder)
    assert steps_of(folder / "whole") == [1, 2, 3, 4, 5, 6]
    return folder / "whole"


def as_killed_after(whole: Path, step: int, name: str) -> Path:
    """The folder as a kill after a checkpoint, before the next, would have left it."""
    copy = whole.parent / name
    shutil.copytree(whole, copy, ignore=shutil.ignore_patterns("retriever"))
    for later in range(step + 1, 7):
        shutil.rmtree(copy / f"checkpoint-{later}")
    return copy


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    """Files of a run with the time of their last change."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


# An epoch has three steps: within the first, at its end, within the second.
@pytest.mark.parametrize(("step", "workers"), [(1, 1), (3, 1)])
def test_a_killed_run_goes_on_to_the_same_weights_and_the_same_log(whole, step, workers):
    killed = as_killed_after(whole, step, f"killed {step} {workers}")
    arguments = (*SETTINGS, "training.save_every=1", f"output={killed}", f"training.workers={workers}")
    run(*arguments, folder=whole.parent)
    assert_same_training(killed, whole)


def test_the_real_command_killed_at_any_moment_ends_as_if_it_had_not_been(folder, whole):
    arguments = (*SETTINGS, "training.save_every=2", "output=killed")
    killed = folder / "killed"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    real = [sys.executable, "-m", "conceptformer.train", *FILES, *SMALL, *arguments]
    process = subprocess.Popen(real, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 100
    while not (killed / "checkpoint-2").exists() and time.monotonic() < end and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    running = start(*arguments, folder=folder)
    running.wait_for((killed / "checkpoint-4").exists)
    # While the checkpoint is being written, or somewhat later.
    time.sleep(random.Random(0).uniform(0, 0.1))
    running.process.kill()
    running.process.join()
    run(*arguments, folder=folder)
    assert steps_of(killed) == [2, 4, 6]
    # Without the checkpoints of the odd steps there are other lines; the weights are the same.
    measured = [[row for row in log_of(one) if "eval_ndcg_at_10" in row] for one in (whole, killed)]
    assert measured[0] == measured[1] and len(measured[0]) == 3
    assert (killed / LAST).read_bytes() == (whole / LAST).read_bytes()


def test_a_checkpoint_that_was_not_written_to_its_end_is_removed_with_a_warning(whole):
    killed = as_killed_after(whole, 2, "half written")
    for number, missing in ((4, "trainer_state.json"), (5, "optimizer.pt")):
        shutil.copytree(whole / f"checkpoint-{number}", killed / f"checkpoint-{number}")
        (killed / f"checkpoint-{number}" / missing).unlink()
    state = killed / "checkpoint-2" / "trainer_state.json"
    shutil.copytree(killed / "checkpoint-2", killed / "checkpoint-3")
    (killed / "checkpoint-3" / "trainer_state.json").write_bytes(state.read_bytes()[:200])
    ended = run(*SETTINGS, "training.save_every=1", f"output={killed}", folder=whole.parent)
    assert [line.split("/")[-1] for line in ended.surprises] == [
        f"checkpoint-{number}: was not written to its end; removed" for number in (3, 4, 5)
    ]
    assert_same_training(killed, whole)


@pytest.mark.parametrize(
    ("name", "said"),
    [("trained.safetensors", "damaged"), ("optimizer.pt", "cannot be read"), ("rng_state.pth", "read")],
)
def test_a_checkpoint_with_a_damaged_file_is_named(whole, name, said):
    killed = as_killed_after(whole, 2, f"damaged {name}")
    path = killed / "checkpoint-2" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 3 :] = bytes(len(content) // 3)
    path.write_bytes(content)
    ended = run(*SETTINGS, "training.save_every=1", f"output={killed}", folder=whole.parent, status=2)
    assert "checkpoint-2" in ended.error and said in ended.error and "goes on from an earlier one" in ended.error


def test_a_finished_run_does_nothing_when_called_again(whole):
    before = contents(whole)
    ended = run(*SETTINGS, "training.save_every=1", "output=whole", folder=whole.parent)
    assert "6 steps; retriever: whole/retriever" in ended.out and ended.surprises == []
    after = contents(whole)
    assert {path: content for path, (content, _) in after.items()} == {
        path: content for path, (content, _) in before.items()
    }
    written = {path for path in after if after[path] != before[path]}
    assert {path.relative_to(whole).parts[0] for path in written} <= {"base", "report.html", "retriever"}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("training.learning_rate=0.5", "training.learning_rate"),
        ("concepts=none", "concepts"),
        ("data.held_out=null", "data.held_out"),
    ],
)
def test_a_run_with_another_config_is_refused_by_the_name_of_the_key(whole, change, key):
    before = contents(whole)
    ended = run(*SETTINGS, "training.save_every=1", "output=whole", change, folder=whole.parent, status=2)
    assert f"holds a run with another {key}" in ended.error.split(":")[1]
    assert contents(whole) == before


def test_a_run_of_more_processes_is_refused(whole):
    config = yaml.safe_load((whole / "config.yaml").read_text())
    assert config["processes"] == 1
    killed = as_killed_after(whole, 3, "of two processes")
    (killed / "config.yaml").write_text(yaml.safe_dump(config | {"processes": 2}))
    ended = run(*SETTINGS, "training.save_every=1", f"output={killed}", folder=whole.parent, status=2)
    assert "holds a run with another processes" in ended.error


def test_a_run_goes_on_after_it_was_moved_with_its_data_and_not_with_other_data(whole, tmp_path):
    write_data(tmp_path)
    killed = as_killed_after(whole, 3, "moved")
    killed.rename(tmp_path / "moved")
    arguments = (*SETTINGS, "training.save_every=1", f"output={tmp_path / 'moved'}")
    elsewhere = (f"cache={tmp_path / 'cache'}", f"data.train={tmp_path / 'data' / 'train.jsonl'}")
    image = tmp_path / "data" / "images" / "3.png"
    content = image.read_bytes()
    noise(image, (84, 56), 99)
    ended = run(*arguments, *elsewhere, folder=tmp_path, status=2)
    assert "checkpoint-3: was trained on other pairs" in ended.error
    image.write_bytes(content)
    run(*arguments, *elsewhere, folder=tmp_path)
    assert_same_training(tmp_path / "moved", whole)


def test_sigterm_ends_a_run_after_its_step_with_a_checkpoint_from_which_it_goes_on(folder, whole):
    arguments = (*SETTINGS, "training.save_every=6", "training.evaluate_every=6", "training.log_every=1")
    arguments += ("training.workers=1",)
    running = start(*arguments, "output=stopped", folder=folder)
    log = folder / "stopped" / "log.jsonl"
    running.wait_for(lambda: log.is_file() and log.read_bytes())
    # Schedulers send it to all processes of a job, those of the data loader among them.
    os.killpg(running.process.pid, signal.SIGTERM)
    running.finish(143)
    (step,) = steps_of(folder / "stopped")
    assert step < 6 and running.surprises == []
    assert f"stopped at step {step}; the same command goes on from there" in running.out
    assert not (folder / "stopped" / "retriever").exists()
    run(*arguments, "output=stopped", folder=folder)
    assert (folder / "stopped" / "retriever").is_dir()
    assert (folder / "stopped" / LAST).read_bytes() == (whole / LAST).read_bytes()
