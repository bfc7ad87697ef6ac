"""``python -m conceptformer.opendocvqa``."""

from __future__ import annotations

from pathlib import Path

from conceptformer.data.training_files import read_training_rows
from tests.conceptformer.commands_here import run_here
from tests.conceptformer.opendocvqa_files import DOCVQA, released_row, write_pages, write_released
from tests.visar.commands import Outcome


def run(*arguments: str, folder: Path) -> Outcome:
    return run_here("opendocvqa", *arguments, folder=folder, module="opendocvqa.__main__")


def test_the_command_prints_the_counts_beside_table_4(tmp_path):
    write_pages(tmp_path / "corpus (1)")
    write_released(tmp_path / "q", released_row("docvqa-train_0", [DOCVQA[0]], [[0, 0, 9, 9]]))
    queries = ("queries=released", "queries.root=q", "queries.files=[train.parquet]")
    done = run("out=out", *queries, "corpus.root=corpus (1)", folder=tmp_path)
    assert done.status == 0, done.err
    docvqa = next(line for line in done.out.splitlines() if "docvqa" in line)
    assert [cell.strip() for cell in docvqa.split("│")[1:-1]] == ["docvqa", "7", "12,767", "1", "6,382", "differs"]
    assert "pairs: 1, without boxes: 0" in done.out
    assert "rows of the corpus with the id of an earlier one: 1" in done.out
    assert len(read_training_rows(tmp_path / "out" / "train.jsonl", skip_bad_rows=False).examples) == 1


def test_the_command_says_what_is_missing(tmp_path):
    assert run(folder=tmp_path).error == "out: expected the folder to write to; write out=FOLDER"
    assert run("out=out", folder=tmp_path).error.startswith("NTT-hil-insight/OpenDocVQA: its revision is None; set ")
