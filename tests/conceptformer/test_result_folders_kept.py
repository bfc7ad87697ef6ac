"""A run keeps its folder from other runs while it lives, and from none when it is dead."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from conceptformer.errors import DataError
from conceptformer.retrieval.result_folders import RunIdentity, claimed, claimed_below
from visar.tensor_files import StoreWarning

OURS = RunIdentity("docs", "data 1", "BM25", "settings 1")


def finished(folder: Path, identity: RunIdentity) -> None:
    """Results in a folder."""
    with claimed(folder, identity, setting="output"):
        (folder / "metrics.json").write_text("{}")


def chosen(root: Path, benchmark: str, retriever: str, identity: RunIdentity) -> Path:
    """The folder that a run gets, which then ends without results."""
    with claimed_below(root, benchmark, retriever, identity) as folder:
        return folder


@contextmanager
def another_process(folder: Path, identity: RunIdentity) -> Iterator[subprocess.Popen]:
    """A process that is at work on results of a folder."""
    code = (
        "import sys, json\nfrom pathlib import Path\n"
        "from conceptformer.retrieval.result_folders import RunIdentity, claimed\n"
        "with claimed(Path(sys.argv[1]), RunIdentity(**json.loads(sys.argv[2])), setting='output'):\n"
        "    print('claimed', flush=True)\n    sys.stdin.read()\n"
    )
    arguments = [sys.executable, "-c", code, str(folder), json.dumps(dataclasses.asdict(identity))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, cwd=Path(__file__).parents[2], **pipes) as process:
        try:
            assert process.stdout.readline() == "claimed\n"
            yield process
        finally:
            process.kill()


def test_a_run_that_has_begun_keeps_its_folder_from_others_before_it_has_results(tmp_path):
    others = {
        tmp_path / "docs" / "BM25": OURS,
        tmp_path / "docs" / "BM25-2": dataclasses.replace(OURS, fingerprint="settings 2"),
        tmp_path / "docs-2" / "BM25": dataclasses.replace(OURS, data="data 2"),
        tmp_path / "docs" / "BM25-3": dataclasses.replace(OURS, fingerprint="settings 3"),
        # A retriever of another name is in nobody's way.
        tmp_path / "docs" / "ours": dataclasses.replace(OURS, retriever="ours"),
    }
    with contextlib.ExitStack() as running:
        for folder, identity in others.items():
            claim = claimed_below(tmp_path, "docs", folder.name.partition("-")[0], identity)
            assert running.enter_context(claim) == folder
        with pytest.raises(DataError, match="output: another process is at work on results for .*docs/BM25; wait for"):
            chosen(tmp_path, "docs", "BM25", OURS)
    # None of them came to an end.
    assert chosen(tmp_path, "docs", "BM25", dataclasses.replace(OURS, data="data 3")) == tmp_path / "docs" / "BM25"
    assert list(tmp_path.rglob("*.lock")) == []


def test_another_process_keeps_its_folder_until_it_ends_or_is_killed(tmp_path):
    folder, other = tmp_path / "docs" / "BM25", dataclasses.replace(OURS, fingerprint="settings 2")
    with another_process(folder, OURS) as process:
        assert chosen(tmp_path, "docs", "BM25", other) == tmp_path / "docs" / "BM25-2"
        with pytest.raises(DataError, match="output: another process is at work on results for .*, output=FOLDER"):
            finished(folder, other)
        assert json.loads((folder / "identity.json").read_text())["fingerprint"] == "settings 1"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (folder / "running.lock").exists()
        assert chosen(tmp_path, "docs", "BM25", other) == folder
        finished(folder, other)
    assert sorted(path.name for path in folder.iterdir()) == ["identity.json", "metrics.json"]
    assert json.loads((folder / "identity.json").read_text())["fingerprint"] == "settings 2"


def test_runs_that_choose_at_once_get_a_folder_each(tmp_path):
    """Threads, whose locks are as foreign to each other as those of processes."""
    identities = [dataclasses.replace(OURS, data=f"data {number % 2}", fingerprint=str(number)) for number in range(8)]
    begin, end = threading.Barrier(len(identities)), threading.Barrier(len(identities))

    def choose(identity: RunIdentity) -> Path:
        begin.wait(20)
        with claimed_below(tmp_path, "docs", "BM25", identity) as folder:
            end.wait(20)
            return folder

    with ThreadPoolExecutor(len(identities)) as pool:
        folders = list(pool.map(choose, identities))
    assert len(set(folders)) == len(folders)
    by_data = [{folder.parent for folder in folders[number::2]} for number in range(2)]
    assert all(len(homes) == 1 for homes in by_data) and by_data[0] != by_data[1]
    assert {json.loads((folder / "identity.json").read_text())["fingerprint"] for folder in folders} == set("01234567")
    assert list(tmp_path.rglob("*.lock")) == []


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path, monkeypatch):
    """As when another run ends between the opening and the locking."""
    fcntl = pytest.importorskip("fcntl")
    lock, other = fcntl.flock, contextlib.ExitStack()
    other.enter_context(claimed(tmp_path / "out", OURS, setting="output"))

    def lock_late(*arguments: object) -> None:
        other.close()
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with claimed(tmp_path / "out", OURS, setting="output"):
        assert (tmp_path / "out" / "running.lock").exists()
        with pytest.raises(DataError, match="another process is at work"):
            finished(tmp_path / "out", OURS)


def test_results_keep_their_folder_when_one_before_it_has_become_free(tmp_path):
    other = dataclasses.replace(OURS, data="data 2")
    with claimed_below(tmp_path, "docs", "BM25", OURS):
        finished(chosen(tmp_path, "docs", "BM25", other), other)
    assert chosen(tmp_path, "docs", "BM25", other) == tmp_path / "docs-2" / "BM25"


def test_where_no_lock_is_to_be_had_it_is_said(tmp_path, monkeypatch):
    """As on file systems that refuse it."""
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(StoreWarning, match="running.lock: cannot be locked .*see to it that no other process writes"):
        finished(tmp_path / "out", OURS)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["identity.json", "metrics.json"]
