"""Two processes that train together, against one with the rows of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conceptformer.training_runs import (
    HELD_OUT,
    LORA,
    ROWS,
    log_of,
    pair,
    relative_difference,
    run,
    run_together,
    trained,
    write_data,
)

# The learning rate is 0 in the first step, so the first checkpoint has the weights that training begins with.
SETTINGS = ("training.max_steps=2", "training.save_every=1", "training.evaluate_every=0", "training.keep=9")


def assert_equal(one: Path, two: Path) -> None:
    """Weights, and every line of the log, but for padding: shorter rows meet in smaller batches."""
    start = trained(one, 1)
    assert relative_difference(trained(two, 1), start, trained(one, 2)) < 1e-6
    assert relative_difference(trained(two, 2), trained(one, 2), start) < 2e-3
    for left, right in zip(log_of(one), log_of(two), strict=True):
        assert left.keys() == right.keys()
        assert left.pop("padding_share", 1) >= right.pop("padding_share", 0)
        assert left == pytest.approx(right, rel=1e-3, abs=1e-5)


def compared(folder: Path, *arguments: str, one: tuple[str, ...], each: tuple[str, ...]) -> None:
    run(*SETTINGS, *arguments, *one, "output=one", folder=folder)
    run_together(*SETTINGS, *arguments, *each, "output=two", folder=folder)
    assert_equal(folder / "one", folder / "two")


def test_two_processes_train_and_measure_as_one_does(tmp_path):
    arguments = (*HELD_OUT, "training.evaluate_every=2", "training.accumulation=2")
    compared(write_data(tmp_path), *arguments, one=("training.batch_size=6",), each=("training.batch_size=3",))
    measured = [row for row in log_of(tmp_path / "two") if "eval_ndcg_at_10" in row]
    assert [row["step"] for row in measured] == [2]


def test_gradients_are_cached_over_the_rows_of_two_processes_some_of_which_cannot_be_read(tmp_path):
    """Processes then have different numbers of rows."""
    write_data(tmp_path)
    for number in (3, 6):
        image = tmp_path / "data" / "images" / f"{number}.png"
        image.write_bytes(image.read_bytes()[:300])
    each = ("training.batch_size=2", "training.accumulation=2", "training.cache_gradients=true")
    compared(tmp_path, "skip_bad_rows=true", one=("training.batch_size=8",), each=each)
    assert sum(row.get("unreadable", 0) for row in log_of(tmp_path / "two")) > 0
    lists = [(tmp_path / name / "refused.txt").read_text().splitlines() for name in ("one", "two")]
    assert sorted(lists[0]) == sorted(lists[1]) != []


@pytest.mark.parametrize(
    "arguments",
    [
        # The rows of the concept tokens are trained.
        (*LORA, "adaptation.dropout=0", "adaptation.language_model_only=true", "projection=true"),
        ("objective.concept_weight=0",),
    ],
    ids=["LoRA and a projection", "unused concepts"],
)
def test_a_process_without_any_box_takes_part(tmp_path, arguments):
    """Rows of a batch are sorted by length, so those without concepts all fall to the first process."""
    rows = [
        pair(number, boxes=[] if number % 2 else [[0, 0, 1, 1]], image=f"images/{number % 3 * 4}.png")
        for number in range(ROWS)
    ]
    rows = [row | {"page_id": row["image"]} for row in rows]
    folder = write_data(tmp_path, rows)
    compared(folder, *arguments, one=("training.batch_size=14",), each=("training.batch_size=7",))
    assert all(row["without_concept"] == 7 for row in log_of(folder / "two") if "loss" in row)


def test_the_first_process_alone_draws_and_speaks(tmp_path):
    arguments = ("data=drawn", "data.drawing.pages=30", "data.drawing.held_out_pages=11", "training.max_steps=1")
    first, second = run_together(*arguments, "training.evaluate_every=3", folder=tmp_path)
    assert "reading pages" in first.out and "1 steps; retriever: out/retriever" in first.out
    assert (second.out, second.err, first.err) == ("", "", "")
    assert len(list((tmp_path / "cache").glob("**/train/images/*.png"))) == 30
    config = (tmp_path / "out" / "config.yaml").read_text()
    assert "processes: 2" in config
    assert json.loads((tmp_path / "out" / "log.jsonl").read_text().splitlines()[0])["step"] == 1
