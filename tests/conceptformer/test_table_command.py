"""Finished runs on disk, and ``python -m conceptformer.table`` over them."""

from __future__ import annotations

import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from conceptformer import table as command
from conceptformer.errors import DataError
from conceptformer.published import published_benchmarks
from conceptformer.retrieval.comparison import compare_retrievers
from conceptformer.retrieval.evaluation import METRICS
from conceptformer.retrieval.finished_runs import find_finished_runs, read_finished_run
from tests.visar.commands import Outcome
from visar.command_line import run_command
from visar.significance import Resampling


def run(*arguments: str, folder: Path) -> Outcome:
    """The command as if it had been started in ``folder``."""
    status, out, err = 0, io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["conceptformer.table", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "")
        with redirect_stdout(out), redirect_stderr(err):
            try:
                run_command(command.main, config="table", literal=command.LITERAL_KEYS, package="conceptformer")
            except SystemExit as end:
                status = int(end.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue())


# Runs on disk.


def written(folder: Path, *, rows: int = 3, **changes: object) -> Path:
    """A run of as many queries, as conceptformer.eval leaves it."""
    values = [round(1 / (1 + number), 3) for number in range(rows)]
    lines = [
        {"query_id": f"q{number}", "query": "line\u2028end", "relevant": [f"p{number}"], "ranking": [], "scores": []}
        | dict.fromkeys(METRICS, value)
        for number, value in enumerate(values)
    ]
    metrics = {
        "benchmark": "own",
        "retriever": "ours",
        "retriever_fingerprint": "1",
        "queries": rows,
        "pages": 9,
        **{name: {"value": sum(values) / rows, "low": None, "high": None} for name in METRICS},
        "refused": [],
        "left_out": ["p9: broken"],
        **changes,
    }
    folder.mkdir(parents=True)
    (folder / "per_query.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_a_run_is_read_back(tmp_path):
    run = read_finished_run(written(tmp_path / "run"))
    assert (run.benchmark, run.retriever, run.pages, run.left_out) == ("own", "ours", 10, 1)
    assert run.queries["q1"] == dict.fromkeys(METRICS, 0.5)
    assert run.relevant == {f"q{number}": frozenset([f"p{number}"]) for number in range(3)}


def test_runs_are_found_at_any_depth_and_unfinished_ones_told(tmp_path):
    written(tmp_path / "b" / "deep" / "run")
    written(tmp_path / "a")
    (written(tmp_path / "begun") / "metrics.json").unlink()
    runs, unfinished = find_finished_runs(tmp_path)
    assert [run.folder for run in runs] == [tmp_path / "a", tmp_path / "b" / "deep" / "run"]
    assert unfinished == [tmp_path / "begun"]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("metrics.json", "{", "damaged or of another version"),
        ("metrics.json", "{}", "damaged or of another version"),
        ("per_query.jsonl", "", "damaged or of another version"),
        ("per_query.jsonl", '{"query_id": "a"}\n', "damaged or of another version"),
        ("metrics.json", None, "cannot be read"),
        ("identity.json", "[]", "identity.json is damaged or of another version"),
    ],
)
def test_damaged_runs_are_told_in_a_line(tmp_path, file, content, said):
    folder = written(tmp_path / "run")
    (folder / file).unlink() if content is None else (folder / file).write_text(content)
    with pytest.raises(DataError, match=said) as caught:
        read_finished_run(folder)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)


def test_figures_and_rows_of_different_runs_are_not_put_together(tmp_path):
    """As a kill between the writing of the two leaves them."""
    folder, other = written(tmp_path / "run"), written(tmp_path / "other", rows=4)
    (folder / "per_query.jsonl").write_bytes((other / "per_query.jsonl").read_bytes())
    with pytest.raises(DataError, match="are not of the same run"):
        read_finished_run(folder)


@pytest.mark.parametrize(("name", "said"), [("none", "no such folder"), ("empty", "holds no finished run")])
def test_a_folder_without_runs_is_told(tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=said):
        find_finished_runs(tmp_path / name)


def test_runs_that_had_other_pages_behind_equal_ids_are_not_put_together(tmp_path):
    folders = [written(tmp_path / name, retriever=name) for name in ("a", "b", "older")]
    for folder, data in zip(folders, ("data 1", "data 1"), strict=False):
        (folder / "identity.json").write_text(json.dumps({"data": data}))
    # Of the oldest it is not known.
    assert [run.data for run in find_finished_runs(tmp_path)[0]] == ["data 1", "data 1", None]
    (folders[1] / "identity.json").write_text(json.dumps({"data": "data 2"}))
    settings = {"order": (), "reference": None, "resampling": Resampling(samples=50, seed=0)}
    with pytest.raises(DataError, match="a and .*/b: both are of a benchmark called own, with different page images"):
        compare_retrievers(find_finished_runs(tmp_path)[0], **settings)
    outcome = run(f"runs={tmp_path}", folder=tmp_path)
    assert outcome.status == 2 and "compare runs of the same data: choose their folder, runs=FOLDER" in outcome.error
    shutil.rmtree(folders[1])
    written(folders[1], benchmark="another")
    (folders[1] / "identity.json").write_text(json.dumps({"data": "data 2"}))
    runs, _ = find_finished_runs(tmp_path)
    assert len(runs) == 3 and compare_retrievers(runs, **settings).benchmarks == ("another", "own")


# The command.


def test_the_command_writes_and_prints_the_tables(tmp_path):
    for name in published_benchmarks():
        written(tmp_path / "runs" / "conceptformer" / "eval" / name / "ours", benchmark=name)
        better = tmp_path / "runs" / "conceptformer" / "eval" / name / "BM25"
        written(better, rows=3, benchmark=name, retriever="BM25", retriever_fingerprint="2")
    outcome = run(folder=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    out = tmp_path / "runs" / "conceptformer" / "table"
    assert {path.name for path in out.iterdir()} == {"table.md", "table.html"}
    markdown = (out / "table.md").read_text(encoding="utf-8")
    assert "| ours | 61.10 | 61.10 | 61.10 | 61.10 | 61.10 | 61.10 | 61.10 |" in markdown
    assert "| paper: ConceptFormer (Qwen) | 79.23 |" in markdown and "its figures are of other data" in markdown
    lines = outcome.out.splitlines()
    assert lines[-1] == "tables: runs/conceptformer/table"
    assert any(line.startswith("│ paper: BM25 ") for line in lines)


def test_what_is_compared_can_be_chosen(tmp_path):
    written(tmp_path / "some" / "ours")
    written(tmp_path / "some" / "BM25", retriever="BM25", retriever_fingerprint="2")
    chosen = ("runs=some", "output=tables", "reference=BM25", "published=2", "resampling.samples=50")
    outcome = run(*chosen, folder=tmp_path)
    assert (outcome.status, outcome.err) == (0, "")
    assert "BM25 − ours" in outcome.out and "Holm: corrected for all differences here." in outcome.out
    # None of the benchmarks is the paper's.
    assert "paper" not in (tmp_path / "tables" / "table.md").read_text(encoding="utf-8")
    assert "paper" not in outcome.out


def test_one_retriever_alone_has_no_table_of_differences(tmp_path):
    written(tmp_path / "some" / "ours")
    outcome = run("runs=some", folder=tmp_path)
    assert outcome.status == 0 and "Differences" not in outcome.out
    folder = tmp_path / "runs" / "conceptformer" / "table"
    for text in (outcome.out, (folder / "table.md").read_text(), (folder / "table.html").read_text()):
        assert "Means over queries." in text and "Holm" not in text and "average" not in text.lower()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runs=none",), "none: no such folder"),
        (("runs=some", "reference=nobody"), "no retriever is called 'nobody'"),
        (("runs=some", "published=7"), "tables of methods are 1 and 2, got 7"),
        (("runs=some", "resampling.samples=0"), "resampling.samples: expected a whole number"),
        (("runs=some", "output=some/ours/metrics.json"), "metrics.json"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, arguments, said):
    written(tmp_path / "some" / "ours")
    outcome = run(*arguments, folder=tmp_path)
    assert outcome.status == 2 and said in outcome.error


def test_help_says_what_it_reads_and_writes(tmp_path):
    outcome = run("--help", folder=tmp_path)
    assert outcome.status == 0
    for said in ("runs=FOLDER", "table.html", "published: 1", "Results:"):
        assert said in outcome.out
