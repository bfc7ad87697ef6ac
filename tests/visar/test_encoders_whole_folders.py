"""Folders that are there complete or not at all: kills, full disks, and several writers at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from visar.encoders import whole_folders
from visar.encoders.whole_folders import write_whole

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
WRITER = """
import sys, time
from pathlib import Path
from visar.encoders.whole_folders import write_whole

def fill(folder):
    (folder / "weights").write_text("half")
    print("begun", flush=True)
    time.sleep(120)

write_whole(Path(sys.argv[1]), fill)
"""


def files(content: str):
    def fill(folder: Path) -> None:
        (folder / "weights").write_text(content, encoding="utf-8")
        (folder / "inner").mkdir()
        (folder / "inner" / "config").write_text(content, encoding="utf-8")

    return fill


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def writer(tmp_path):
    """Another process in the middle of writing."""
    command = [sys.executable, "-c", WRITER, str(tmp_path / "killed")]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        yield process
        process.kill()


def test_files_are_synced_before_they_are_moved_through_handles_that_windows_syncs(tmp_path, monkeypatch):
    """There a handle that is open for reading alone is refused."""
    fcntl = pytest.importorskip("fcntl", reason="asks POSIX how a file was opened")
    synced, sync = [], os.fsync

    def watched(descriptor: int) -> None:
        synced.append(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE)
        assert not (tmp_path / "target").exists()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    write_whole(tmp_path / "target", files("whole"))
    assert synced == [os.O_RDWR] * 2
    assert (tmp_path / "target" / "inner" / "config").read_text(encoding="utf-8") == "whole"


@pytest.mark.skipif(os.name != "posix", reason="only POSIX tells whether a process is alive")
def test_what_a_kill_leaves_is_removed_by_the_next_writer_and_what_is_being_written_is_not(tmp_path, writer):
    write_whole(tmp_path / "first", files("first"))
    assert len(names(tmp_path)) == 2, "the other process is still writing"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert [name.partition("-")[0] for name in names(tmp_path)] == ["first", "unfinished"], "the kill leaves nothing"
    write_whole(tmp_path / "second", files("second"))
    assert names(tmp_path) == ["first", "second"]


def test_what_another_machine_began_is_removed_after_a_day(tmp_path):
    young, old, unnamed = (tmp_path / f"unfinished-{name}" for name in ("far.1.a", "away.1.b", "abc"))
    for folder in (young, old, unnamed):
        folder.mkdir()
        files("half")(folder)
    for folder in (old, unnamed):
        os.utime(folder, (time.time() - 25 * 3600,) * 2)
    write_whole(tmp_path / "target", files("whole"))
    assert names(tmp_path) == ["target", young.name]


def test_the_first_of_two_writers_gives_the_folder_and_the_other_discards_its_own(tmp_path):
    target = tmp_path / "target"

    def slow(folder: Path) -> None:
        files("late")(folder)
        write_whole(target, files("early"))

    write_whole(target, slow)
    assert names(tmp_path) == ["target"]
    assert (target / "weights").read_text(encoding="utf-8") == "early"


def test_a_failure_leaves_nothing(tmp_path):
    def full(folder: Path) -> None:
        files("half")(folder)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "target", full)
    assert names(tmp_path) == []


def test_names_of_unfinished_folders_say_who_writes_them(tmp_path):
    def fill(folder: Path) -> None:
        found = whole_folders._UNFINISHED.fullmatch(folder.name)
        assert found is not None
        assert int(found["process"]) == os.getpid()

    write_whole(tmp_path / "target", fill)
