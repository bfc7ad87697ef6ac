"""Files written whole or not at all: long names, and folders that the file system refuses."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from visar.store import EmbeddingStore
from visar.tensor_files import StoreError, load, remove_leftovers, to_bytes, write_atomically


@pytest.mark.parametrize("name", ["年" * 80 + ".html", "x" * 255, "𝐀" * 62 + ".html"])
def test_a_name_as_long_as_the_file_system_takes_can_be_written(tmp_path, name):
    write_atomically(tmp_path / name, b"data")
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == b"data"


def test_a_longer_name_is_the_reason_that_is_told(tmp_path):
    with pytest.raises(StoreError, match="cannot write .*give a shorter name") as caught:
        write_atomically(tmp_path / ("年" * 90), b"data")
    assert "make room" not in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="whether a process is alive is asked on POSIX systems only")
def test_what_a_kill_left_of_a_file_with_a_long_name_is_removed(tmp_path):
    code = (
        "import os, pathlib, signal, sys\n"
        "os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from visar.tensor_files import write_atomically\n"
        "write_atomically(pathlib.Path(sys.argv[1], chr(0x5E74) * 80), b'data')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[2], check=False)
    assert len(os.listdir(tmp_path)) == 1
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_looked_into_is_one_line(tmp_path):
    remove_leftovers(tmp_path / "not made yet")
    with pytest.raises(StoreError, match="cannot be looked into"):
        remove_leftovers(tmp_path / ("x" * 300))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is refused to root")
def test_a_store_under_a_folder_that_may_not_be_read_is_one_line(tmp_path):
    (tmp_path / "closed" / "store").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o000)
    with pytest.raises(StoreError, match="cannot be looked into .*Permission denied"):
        EmbeddingStore(tmp_path / "closed" / "store")
    (tmp_path / "closed").chmod(0o700)


def test_a_file_that_vanishes_while_it_is_opened_is_no_file(tmp_path):
    """safetensors opens a file twice; removed in between, it raised RuntimeError."""
    path, content = tmp_path / "page.safetensors", to_bytes({}, {"vectors": torch.ones(3, 2)})
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            (tmp_path / "new").write_bytes(content)
            os.replace(tmp_path / "new", path)
            path.unlink()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(3000):
            loaded = load(path)
            assert loaded is None or torch.equal(loaded[1]["vectors"], torch.ones(3, 2))
    finally:
        stop.set()
        thread.join()
