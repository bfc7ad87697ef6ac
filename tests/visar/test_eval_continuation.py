"""``python -m visar.eval`` a second time: what is taken over, what is made anew, after kills and full disks too."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.visar.commands import environment, run_here, start
from tests.visar.evaluated_papers import (
    BEES,
    HARBOUR,
    QUESTIONS,
    QUICK,
    SELECTORS,
    make_papers,
    metrics_in,
    pages,
    rows_in,
    write_questions,
)
from tests.visar.made_documents import draw_pdf


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = make_papers(tmp_path_factory.mktemp("eval"))
    assert run_here("eval", *QUICK, folder=folder).status == 0
    return folder


@pytest.fixture
def again(finished, tmp_path):
    """A copy of the finished run's folder, and a function that runs the command in it."""
    folder = tmp_path / "again"
    shutil.copytree(finished, folder)

    def command(*arguments: str):
        return run_here("eval", *QUICK, *arguments, folder=folder)

    return folder, command


def test_a_second_run_takes_over_everything(again):
    folder, command = again
    before = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    stored = sorted((path, path.stat().st_mtime_ns) for path in (folder / "cache").rglob("*"))
    outcome = command()
    assert outcome.status == 0
    assert "encoding pages" not in outcome.out and "selecting pages" not in outcome.out
    assert {path.name: path.read_bytes() for path in (folder / "out").iterdir()} == before
    assert sorted((path, path.stat().st_mtime_ns) for path in (folder / "cache").rglob("*")) == stored


def test_a_changed_setting_makes_its_own_rows_anew_and_no_others(again):
    folder, command = again
    before = rows_in(folder)
    outcome = command("selectors.late_interaction_5.k=2")
    after = rows_in(folder)
    assert "selecting pages" in outcome.out and "encoding pages" not in outcome.out
    unchanged = [row for row in before if row["selector"] != "late_interaction_5"]
    assert [row for row in after if row["selector"] != "late_interaction_5"] == unchanged
    changed = [row for row in after if row["selector"] == "late_interaction_5"]
    assert [row["k"] for row in changed] == [2, 2, 2, 2, 1]
    assert {row["key"] for row in changed}.isdisjoint(row["key"] for row in before)
    assert metrics_in(folder)["selectors"]["late_interaction_5"]["at_k"]["mean_k"]["value"] == 9 / 5


def test_a_new_question_and_a_changed_document_are_all_that_is_done(again):
    folder, command = again
    before = rows_in(folder)
    draw_pdf(folder / "papers" / "bees.pdf", *pages(*BEES, "Beekeepers wear veils."))
    write_questions(folder / "papers", (*QUESTIONS[:5], ("q8", "whale.pdf", "How long is a whale?", "")))
    command()
    after = rows_in(folder)
    assert [row for row in after if row["question_id"] in ("q1", "q2", "q3", "q5")] == [
        row for row in before if row["question_id"] in ("q1", "q2", "q3", "q5")
    ]
    assert {len(row["order"]) for row in after if row["question_id"] == "q4"} == {3}
    assert [row["selector"] for row in after if row["question_id"] == "q8"] == list(SELECTORS)


def test_a_renamed_document_keeps_its_embeddings_and_gets_rows_under_its_new_name(again):
    folder, command = again
    (folder / "papers" / "whale.pdf").rename(folder / "papers" / "blue.pdf")
    write_questions(folder / "papers", (("q5", "blue.pdf", "What do whales eat?", "1"),))
    outcome = command()
    assert outcome.status == 0 and "encoding pages" not in outcome.out
    assert {row["document_id"] for row in rows_in(folder)} == {"blue.pdf"}


def test_a_row_that_a_kill_cut_is_made_again(again):
    folder, command = again
    path = folder / "out" / "per_query.jsonl"
    before = path.read_bytes()
    path.write_bytes(before[:-60])
    command()
    kept = before.split(b"\n")[:-2]
    assert path.read_bytes().split(b"\n")[:-2] == kept
    assert len(rows_in(folder)) == 50


def test_without_the_baseline_the_run_says_that_there_are_no_tests(again):
    folder, command = again
    outcome = command("selector=[visar]", "output=other")
    metrics = json.loads((folder / "other" / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["tests"] == []
    assert metrics["warnings"]["no paired tests: the baseline late_interaction_10 is not among the selectors"] == 5
    assert "warnings: " in outcome.out


def test_a_run_without_any_readable_document_is_one_line(again):
    folder, command = again
    write_questions(folder / "papers", (QUESTIONS[5],))
    outcome = command("output=other")
    assert "1 of 1 rows are refused, more than half: line 2 (q6): its document 'broken.pdf'" in outcome.error


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("dataset.documents=nowhere", "dataset.documents=nowhere is not a folder"),
        ("dataset.questions=none.csv", "none.csv cannot be read (No such file or directory)"),
        ("output=papers/questions.csv", "papers/questions.csv: cannot be made (File exists)"),
        ("processes=0", "processes: expected a whole number of at least 1, got 0"),
        ("leave_out_broken=maybe", "leave_out_broken: expected true or false, got 'maybe'"),
        ("resampling.samples=0", "resampling.samples: expected a whole number of at least 1, got 0"),
        ("exp=tabel1", "exp=tabel1: no such choice; expected one of sensitivity"),
    ],
)
def test_what_is_wrong_is_said_before_the_work(again, argument, expected):
    _, command = again
    assert command(argument).error.startswith(expected)


def test_both_spellings_choose_an_experiment(again, tmp_path):
    folder, command = again
    for spelling, output in (("exp=sensitivity_leakage_weight", "a"), ("+exp=sensitivity_leakage_weight", "b")):
        assert command(spelling, f"output={output}").status == 0
        rows = [json.loads(line) for line in (folder / output / "per_query.jsonl").read_text().splitlines()]
        assert len({row["selector"] for row in rows}) == 10


def test_a_question_may_hold_any_sign(again):
    folder, command = again
    odd = "What,\u2028is \"50 %\" of [x], ${y} \x85and 'z'?"
    write_questions(folder / "papers", (("q1", "harbour.pdf", odd, "2"),))
    command()
    before = (folder / "out" / "per_query.jsonl").read_bytes()
    assert {row["question"] for row in rows_in(folder)} == {odd}
    assert "selecting pages" not in command().out
    assert (folder / "out" / "per_query.jsonl").read_bytes() == before


# Kills and full disks, in processes of their own.


CHOSEN = "selector=[late_interaction_10,visar,largest_gap]"


def make_long(folder: Path) -> Path:
    """Twelve pages and a hundred questions: long enough to be killed in the middle."""
    papers = folder / "papers"
    papers.mkdir()
    draw_pdf(papers / "long.pdf", *pages(*(f"Chapter {n}: {HARBOUR[n % 4]} {BEES[n % 2]}" for n in range(12))))
    write_questions(
        papers, tuple((f"q{n}", "long.pdf", f"What is in chapter {n}?", str(n % 12 + 1)) for n in range(100))
    )
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="kills by signal 9")
def test_a_killed_run_is_continued(tmp_path):
    folder = make_long(tmp_path)
    rows_file = folder / "out" / "per_query.jsonl"
    process = start("eval", *QUICK, CHOSEN, folder=folder)
    try:
        deadline = time.monotonic() + 120
        while not (rows_file.exists() and rows_file.read_bytes().count(b"\n") >= 5):
            assert process.poll() is None and time.monotonic() < deadline, "the run ended or hangs before its fifth row"
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    kept = rows_file.read_bytes().split(b"\n")[:-1]
    assert 5 <= len(kept) < 300
    assert not (folder / "out" / "metrics.json").exists()
    outcome = run_here("eval", *QUICK, CHOSEN, folder=folder)
    assert outcome.status == 0
    assert "encoding pages" not in outcome.out and "selecting pages" in outcome.out
    rows = rows_file.read_bytes().split(b"\n")[:-1]
    assert rows[: len(kept)] == kept
    assert len(rows) == len({json.loads(row)["key"] for row in rows}) == 300
    assert not list((folder / "out").glob(".*"))


LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)), resource.RLIM_INFINITY))
runpy.run_module("visar.eval", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit on file sizes is POSIX's")
def test_a_full_disk_is_one_line_and_the_next_run_continues(again):
    folder, command = again
    (folder / "out" / "per_query.jsonl").unlink()
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "8000", *QUICK],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2
    lines_said = done.stderr.splitlines()
    assert len(lines_said) == 1 and lines_said[0].startswith("error: out/per_query.jsonl: cannot be written (")
    assert "make room there, then run again" in lines_said[0]
    kept = (folder / "out" / "per_query.jsonl").read_bytes().split(b"\n")[:-1]
    assert 5 < len(kept) < 50
    assert command().status == 0
    rows = (folder / "out" / "per_query.jsonl").read_bytes().split(b"\n")[:-1]
    assert rows[: len(kept)] == kept and len(rows) == 50
