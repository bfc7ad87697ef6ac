"""What a training run says when it cannot go on: one line, and nothing is lost that was complete."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from conceptformer.data.training_files import read_training_rows
from conceptformer.step.batches import row_size
from conceptformer.training.bucketing import LengthBuckets
from tests.conceptformer.row_files import png_of_size, write_lines
from tests.conceptformer.training_parts import method
from tests.conceptformer.training_runs import (
    HELD_OUT,
    LORA,
    ROWS,
    assert_same_training,
    inputs_of,
    log_of,
    pair,
    run,
    start_together,
    steps_of,
    write_data,
)

# The first step makes the weights so large that the loss of the second is no number.
BLOWN_UP = ("training.learning_rate=1e30", "training.warm_up=0", "training.save_every=1")


def listed(path: Path) -> list[tuple[str, ...]]:
    return sorted(tuple(line.split("\t")) for line in path.read_text().splitlines())


def pairs_of_batch(folder: Path, number: int, rows: int) -> list[tuple[str, str]]:
    """Of the first epoch, by the order that the seed of the config gives."""
    examples = read_training_rows(folder / "data" / "train.jsonl", skip_bad_rows=False).examples
    inputs = inputs_of(folder / "out")
    lengths = [row_size(example, inputs, method().concepts).tokens for example in examples]
    order = list(LengthBuckets(lengths, batch=rows, bucket=2, seed=42))[number * rows :][:rows]
    return sorted((examples[place].query_id, examples[place].page.page_id) for place in order)


def test_a_loss_that_is_no_number_ends_the_run_and_lists_the_pairs_of_its_batch(tmp_path):
    ended = run(*BLOWN_UP, folder=write_data(tmp_path), status=2)
    assert "step 1: the loss is not finite" in ended.error and "not-finite-step-1-0.txt" in ended.error
    assert listed(tmp_path / "out" / "not-finite-step-1-0.txt") == pairs_of_batch(tmp_path, 1, 4)
    assert steps_of(tmp_path / "out") == [1]
    assert [row["step"] for row in log_of(tmp_path / "out")] == [1]


def test_all_processes_end_and_list_their_own_pairs(tmp_path):
    write_data(tmp_path)
    for one in start_together(*BLOWN_UP, "training.batch_size=3", folder=tmp_path):
        assert "step 1: the loss is not finite" in one.finish(2).error
    files = sorted(tmp_path.glob("out/not-finite-step-1-*.txt"))
    assert [path.name[-5] for path in files] == ["0", "1"]
    assert [len(listed(path)) for path in files] == [3, 3]
    assert sorted(listed(files[0]) + listed(files[1])) == pairs_of_batch(tmp_path, 1, 6)


def test_a_full_disk_costs_the_checkpoint_in_the_making_alone(tmp_path):
    """A limit on the size of a file stands in for the disk; the optimiser's state is the largest."""
    folder = write_data(tmp_path)
    run("training.keep=2", "output=whole", folder=folder)
    shutil.copytree(folder / "whole", folder / "out", ignore=shutil.ignore_patterns("checkpoint-6", "retriever"))
    sizes = sorted((path.stat().st_size, path.name) for path in (folder / "out").rglob("*") if path.is_file())
    (second, _), (first, name) = sizes[-2:]
    assert name == "optimizer.pt" and second < first
    ended = run("training.keep=2", folder=folder, largest=(first + second) // 2, status=2)
    assert "checkpoint-6: the checkpoint cannot be written" in ended.error and "as on a full disk" in ended.error
    assert [path.name for path in (folder / "out").glob("checkpoint-*")] == ["checkpoint-3"]
    run("training.keep=2", folder=folder)
    assert_same_training(folder / "out", folder / "whole")


def test_a_disk_that_is_full_for_the_retriever_is_said_too(tmp_path):
    folder = write_data(tmp_path)
    ended = run(*LORA, folder=folder, largest=60_000, status=2)
    assert "make room" in ended.error and not list((folder / "out").glob("checkpoint-*"))


# Rows and files that cannot be used.


BAD_ROWS = {
    "missing": (pair(20, image="images/none.png"), "images/none.png: no such file"),
    "outside": (
        pair(21, boxes=[[90, 1, 99, 9]], frame="absolute", image="images/1.png"),
        "outside the page of 84 x 84 pixels",
    ),
    "unstated": (pair(22, boxes=[[1, 2, 3, 4]], frame=None, image="images/1.png"), "frame"),
    "empty": (pair(23, query=" ", image="images/1.png"), "query is ' '; expected a text that is not empty"),
    "twice": (pair(1), "the same query and page as"),
    "wide": (pair(24, image="images/wide.png", boxes=[]), "Qwen2.5-VL takes sides up to 200 times as long"),
    "cut": (pair(25, image="images/cut.png", boxes=[]), "cut.png: the image is damaged, truncated"),
}


def with_bad_rows(folder: Path, *names: str) -> Path:
    """And with a page of one pixel, which is a page."""
    good = [*(pair(number) for number in range(ROWS - 1)), pair(13, image="images/dot.png")]
    write_data(folder, [*good, *(BAD_ROWS[name][0] for name in names)])
    (folder / "data" / "images" / "cut.png").write_bytes(png_of_size(56, 56))
    Image.new("RGB", (20_000, 90)).save(folder / "data" / "images" / "wide.png")
    Image.new("RGB", (1, 1)).save(folder / "data" / "images" / "dot.png")
    return folder


@pytest.mark.parametrize("names", [("missing", "outside", "unstated"), ("empty", "twice"), ("wide",), ("cut",)])
def test_rows_that_cannot_be_used_end_the_run_with_one_line(tmp_path, names):
    """A page that is cut off is found when it is read, in a worker of the data loader."""
    ended = run(f"training.workers={int('cut' in names)}", folder=with_bad_rows(tmp_path, *names), status=2)
    for name in names:
        assert BAD_ROWS[name][1] in ended.error
    assert "skip_bad_rows=true" in ended.error or "leave it out" in ended.error


def test_rows_left_out_are_counted_and_listed_in_a_file(tmp_path):
    folder = with_bad_rows(tmp_path, *BAD_ROWS)
    arguments = ("skip_bad_rows=true", "training.max_steps=8", "training.save_every=4", *LORA)
    ended = run(*arguments, folder=folder)
    lines = (folder / "out" / "refused.txt").read_text().splitlines()
    assert len(lines) == len(BAD_ROWS)
    for _, said in BAD_ROWS.values():
        assert [line for line in lines if said in line], said
    assert f"left out: {len(BAD_ROWS)} rows, boxes or pages" in ended.out and "out/refused.txt" in ended.out
    counted = [row["unreadable"] for row in log_of(folder / "out") if "loss" in row]
    # All 16 rows are in each epoch of four steps: those with a box outside stay, without it.
    assert len(counted) == 8 and sum(counted) == 2
    shutil.rmtree(folder / "out" / "checkpoint-8")
    run(*arguments, folder=folder)
    assert sorted((folder / "out" / "refused.txt").read_text().splitlines()) == sorted(lines)


def test_too_many_unreadable_rows_of_a_batch_end_the_run(tmp_path):
    folder = write_data(tmp_path)
    for number in range(ROWS):
        image = folder / "data" / "images" / f"{number}.png"
        image.write_bytes(image.read_bytes()[:200])
    ended = run("skip_bad_rows=true", folder=folder, status=2)
    assert "4 of the 4 rows of a batch cannot be read, which leaves too few; the first: " in ended.error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("data=files",), "data.train: expected a JSONL file of training pairs; write data.train=FILE"),
        (("data.train=data/none.jsonl",), "data/none.jsonl: no such file"),
        (("training.batch_size=15",), "14 usable training pairs are fewer than the 15 of one batch"),
        (("training.batch_size=1",), "one pair a batch has no page to be told apart from"),
        (("data.held_out=data/none",), "data/none"),
    ],
)
def test_settings_that_make_no_sense_are_said_in_one_line(tmp_path, arguments, said):
    assert said in run(*arguments, folder=write_data(tmp_path), status=2).error


def test_a_held_out_page_that_the_model_cannot_take_is_said_before_training(tmp_path):
    folder = write_data(tmp_path)
    write_lines(folder / "data" / "train.jsonl", *(pair(number) for number in range(6)))
    Image.new("RGB", (300, 1)).save(folder / "data" / "images" / "6.png")
    ended = run(*HELD_OUT, "training.batch_size=2", folder=folder, status=2)
    assert "held-out page p6: image of 300 x 1 pixels" in ended.error
    assert not (folder / "out" / "log.jsonl").exists()
