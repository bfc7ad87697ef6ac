"""Kills, full disks and several writers, with real processes: nothing complete is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.visar.store_processes import ENVIRONMENT, PRELUDE, output, start, wait_for
from tests.visar.stored_pages import KEY, files, filled, page
from visar.errors import VisarError
from visar.store import EmbeddingStore
from visar.tensor_files import write_atomically


def test_a_kill_in_a_write_leaves_the_old_file_and_the_rest_is_cleared(tmp_path):
    store = filled(tmp_path, pages=1)
    folder = store.folder(KEY)
    before = (folder / "page-00000.safetensors").read_bytes()
    process = start("store.write_page(KEY, 0, PageEmbedding(torch.ones(60_000, 512), torch.ones(60_000, 4)))", tmp_path)
    leftover = wait_for(".page-00000*.tmp", folder, process)
    process.send_signal(signal.SIGSTOP)
    assert store.missing_pages(KEY, 1) == []
    assert leftover.exists(), "the file of a living process was taken away"
    process.kill()
    process.communicate()
    assert (folder / "page-00000.safetensors").read_bytes() == before
    assert store.missing_pages(KEY, 1) == []
    assert files(store) == ["key.json", "page-00000.safetensors"]


def test_a_kill_while_pages_are_joined_loses_no_page(tmp_path):
    store = EmbeddingStore(tmp_path)
    for number in range(3):
        store.write_page(KEY, number, page(number, rows=20_000, width=512))
    process = start("store.finish(KEY, 3)", tmp_path)
    wait_for(".document*.tmp", store.folder(KEY), process)
    process.kill()
    process.communicate()
    assert store.page_count(KEY) is None
    assert store.missing_pages(KEY, 3) == []
    assert store.finish(KEY, 3) == []
    assert files(store) == ["document.safetensors", "key.json"]


def test_page_files_that_a_kill_left_beside_the_finished_document_are_removed(tmp_path):
    store = filled(tmp_path)
    pages = {path.name: path.read_bytes() for path in store.folder(KEY).glob("page-*")}
    store.finish(KEY, 3)
    for name, data in pages.items():
        (store.folder(KEY) / name).write_bytes(data)
    assert store.page_count(KEY) == 3
    assert files(store) == ["document.safetensors", "key.json"]


def test_leftovers_of_another_machine_stay_for_a_day(tmp_path):
    store = filled(tmp_path, pages=1)
    theirs = store.folder(KEY) / ".page-00000.safetensors.another-machine.1.0123abcd.tmp"
    theirs.write_bytes(b"half")
    store.missing_pages(KEY, 1)
    assert theirs.exists()
    yesterday = time.time() - 25 * 3600
    os.utime(theirs, (yesterday, yesterday))
    store.missing_pages(KEY, 1)
    assert not theirs.exists()


def test_a_file_size_limit_is_one_line_and_leaves_nothing_half_written(tmp_path):
    """A limit set by the kernel refuses the write in its middle, as a full disk does."""
    pytest.importorskip("resource", reason="file-size limits exist on POSIX systems only")
    code = """
import resource
store.write_page(KEY, 0, page(0))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    store.write_page(KEY, 1, page(1, rows=1000, width=512))
except VisarError as error:
    print(error)
"""
    message = output(start(code, tmp_path)).splitlines()
    store = EmbeddingStore(tmp_path)
    assert len(message) == 1
    assert str(store.folder(KEY)) in message[0]
    assert "File too large" in message[0]
    assert any(1_024_000 < int(word.replace(",", "")) < 1_100_000 for word in message[0].split() if "," in word)
    assert files(store) == ["key.json", "page-00000.safetensors"]
    assert store.missing_pages(KEY, 2) == [1]


def test_a_full_disk_is_one_line_and_the_next_run_continues(tmp_path):
    """A real file system of 1 MiB, mounted in a mount namespace of its own where the machine allows that."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("needs unshare and mount to make a small file system")
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    mount = f"mount -t tmpfs -o size=1m visar-test {tmp_path}"
    if subprocess.run([*namespace, "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("this machine does not allow mounting a small file system")
    code = """
import pathlib
ballast = pathlib.Path(sys.argv[1], "ballast")
store.write_page(KEY, 0, page(0))
ballast.write_bytes(bytes(900_000))
try:
    store.write_page(KEY, 1, page(1, rows=100, width=1024))
except VisarError as error:
    print(error)
print(store.missing_pages(KEY, 2), *sorted(path.name for path in store.folder(KEY).iterdir()))
ballast.unlink()
store.write_page(KEY, 1, page(1))
print(store.finish(KEY, 2), store.page_count(KEY))
"""
    script = f'{mount} && exec "$@"'
    result = subprocess.run(
        [*namespace, "sh", "-c", script, "sh", sys.executable, "-c", PRELUDE + code, str(tmp_path)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    message, after, end = result.stdout.splitlines()
    assert "No space left on device" in message and str(tmp_path) in message
    assert after == "[1] key.json page-00000.safetensors"
    assert end == "[] 2"


def test_processes_that_write_one_key_at_once_do_not_hurt_each_other(tmp_path):
    """They write, join and remove the same files; whatever the order, each ends with the whole document."""
    code = """
import random
warnings.simplefilter("error")
pages = list(range(13))
random.Random(sys.argv[2]).shuffle(pages)
sys.stdout.write("ready\\n"); sys.stdout.flush(); sys.stdin.readline()
for _ in range(100):
    for number in [number for number in pages if number in store.missing_pages(KEY, 13)]:
        store.write_page(KEY, number, page(number, rows=101))
    if not store.finish(KEY, 13):
        break
expected = [page(number, rows=101).vectors.half() for number in range(13)]
print(all(torch.equal(one.vectors, other) for one, other in zip(store.read(KEY), expected, strict=True)))
"""
    processes = [start(code, tmp_path, seed) for seed in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert output(process) == "True\n"
    store = EmbeddingStore(tmp_path)
    assert store.page_count(KEY) == 13
    assert files(store) == ["document.safetensors", "key.json"]


def test_an_atomic_write_replaces_what_stood_there(tmp_path):
    write_atomically(tmp_path / "file", b"old")
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "taken").write_text("not a folder")
    store = EmbeddingStore(tmp_path / "taken")
    with pytest.raises(VisarError, match="cannot write"):
        store.write_page(KEY, 0, page(0))
