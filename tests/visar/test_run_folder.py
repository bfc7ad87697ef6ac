"""Rows of a run outlive kills, full disks and damage."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.visar.commands import environment
from visar.run_folder import RunFolder
from visar.tensor_files import StoreError

TEXT = "Größe? 日本\u2028two\x85three\x0bfour\nfive \U0001f41d \udce9"


def row(key: str, **more: object) -> dict[str, object]:
    return {"key": key, "question": TEXT, "seconds": {"similarity": 0.1 + 0.2}, "f1": None, **more}


def lines_of(folder: Path) -> list[dict[str, object]]:
    content = (folder / "per_query.jsonl").read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def test_rows_come_back_as_they_were_and_equal_keys_once(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "a")
    assert folder.known_rows() == {}
    for key in ("a", "b", "a"):
        folder.append(row(key))
    assert RunFolder(folder.path).known_rows() == {"a": row("a"), "b": row("b")}


def test_a_row_is_on_the_disk_before_the_next_is_made(tmp_path):
    folder = RunFolder(tmp_path)
    for count in range(1, 4):
        folder.append(row(str(count)))
        assert len(lines_of(tmp_path)) == count


@given(st.data())
def test_a_file_cut_anywhere_loses_the_cut_row_alone(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("run")
    first = RunFolder(path)
    rows = [row(key) for key in "abc"]
    for one in rows:
        first.append(one)
    content = (path / "per_query.jsonl").read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    (path / "per_query.jsonl").write_bytes(content[:cut])
    # A row is complete once its closing brace is there; the line end after it is not missed.
    complete = next(
        n for n in range(3, -1, -1) if cut >= sum(len(line) + 1 for line in content.split(b"\n")[:n]) - (n > 0)
    )
    again = RunFolder(path)
    assert list(again.known_rows().values()) == rows[:complete]
    again.append(row("new"))
    assert list(RunFolder(path).known_rows().values()) == [*rows[:complete], row("new")]


def test_what_is_no_row_is_passed_over(tmp_path):
    lines = [
        b"\x00" * 40,
        b"[]",
        b"5",
        b"{}",
        b'{"key": ["a"]}',
        b'{"key": "x", "q": "\xff"}',
        b"null",
        json.dumps(row("a")).encode(),
    ]
    (tmp_path / "per_query.jsonl").write_bytes(b"\n".join(lines))
    assert RunFolder(tmp_path).known_rows() == {"a": row("a")}


def test_the_end_of_a_run_leaves_its_rows_alone_in_their_order(tmp_path):
    folder = RunFolder(tmp_path)
    for key in ("old", "b", "a"):
        folder.append(row(key))
    folder.finish([row("a"), row("b")])
    assert lines_of(tmp_path) == [row("a"), row("b")]
    folder.append(row("c"))
    assert [line["key"] for line in lines_of(tmp_path)] == ["a", "b", "c"]
    assert [path.name for path in tmp_path.iterdir()] == ["per_query.jsonl"]


def test_what_a_killed_writer_left_is_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = socket.gethostname().replace(".", "_")
    (tmp_path / f".metrics.json.{host}.{dead.pid}.0123abcd.tmp").write_text("half")
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_the_way_is_said(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(StoreError, match="taken: cannot be made .*; choose another output folder"):
        RunFolder(tmp_path / "taken")
    (tmp_path / "per_query.jsonl").mkdir()
    for attempt in (RunFolder(tmp_path).known_rows, lambda: RunFolder(tmp_path).append(row("a"))):
        with pytest.raises(StoreError, match="per_query.jsonl: cannot be"):
            attempt()


FULL_DISK = """
import resource, sys
from pathlib import Path
from visar.run_folder import RunFolder
from visar.tensor_files import StoreError

folder = RunFolder(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
written = 0
for attempt in (
    lambda: [folder.append({"key": str(n), "question": "x" * 150}) for n in range(9)],
    lambda: folder.append({"key": "later", "question": "x" * 150}),
    lambda: folder.write("metrics.json", "x" * 2000),
    lambda: folder.finish([{"key": "a", "question": "x" * 2000}]),
):
    try:
        attempt()
    except StoreError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
folder.append({"key": "room again"})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit on file sizes is POSIX's")
def test_a_full_disk_costs_the_row_that_did_not_fit(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], env=environment(), capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert [line.split(": ")[1].split(" (")[0] for line in said[:2]] == ["cannot be written"] * 2
    assert all("make room there" in line for line in said)
    assert len(said) == 4
    # Nothing was kept back to fail once more when the process ended.
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == ["per_query.jsonl"]
    assert list(RunFolder(tmp_path).known_rows()) == ["0", "1", "2", "3", "4", "room again"]
