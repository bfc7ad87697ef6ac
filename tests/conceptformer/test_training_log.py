"""What the log of a run says, counted by hand, and that TensorBoard says the same."""

from __future__ import annotations

import json
import math

import pytest
import torch
from accelerate import Accelerator
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import TrainerControl, TrainerState, TrainingArguments

from conceptformer.step.batches import read_example
from conceptformer.step.objective import LossTerms
from conceptformer.training.log import JsonLog, RefusedList, read_log
from conceptformer.training.rows import Chunks, MakeChunks, Unreadable
from conceptformer.training.step_counts import StepCounts
from tests.conceptformer.step_examples import mixed
from tests.conceptformer.tiny_models import tiny_backbone
from tests.conceptformer.training_parts import method
from tests.conceptformer.training_runs import HELD_OUT, inputs_of, log_of, noise, pair, run, write_data

FIELDS = {
    "step", "epoch", "loss", "info_nce", "alignment", "grad_norm", "learning_rate", "masked_pairs", "without_concept",
    "unreadable", "concept_tokens_mean", "concept_tokens_max", "padding_share", "tokens_per_second",
}  # fmt: skip
METHOD = method()
WHOLE, LEFT_HALF = [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.5, 1.0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of three steps on four pairs: pages of 2 x 2, 2 x 3, and again 2 x 2 tokens, the last a second time."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [
        pair(0, boxes=[WHOLE], other_positives=["p1"]),
        pair(1, boxes=[WHOLE, LEFT_HALF]),
        pair(2, boxes=[]),
        pair(3, boxes=[LEFT_HALF], page_id="p2", image="images/2.png"),
    ]
    write_data(folder, rows)
    for number, size in enumerate([(56, 56), (56, 84), (56, 56)]):
        noise(folder / "data" / "images" / f"{number}.png", size, number)
    run("training.max_steps=3", "training.loggers=[tensorboard]", *HELD_OUT, folder=folder)
    return folder


def test_every_line_counts_what_can_be_counted_by_hand(folder):
    lines = [row for row in read_log(folder / "out" / "log.jsonl") if "loss" in row]
    assert [row["step"] for row in lines] == [1, 2, 3]
    for row in lines:
        assert set(row) == FIELDS
        # 4 tokens; 6 and, by the second box, the 3 of the left column again; none; the 2 of the left column.
        assert row["concept_tokens_mean"] == pytest.approx((4 + 9 + 2) / 3)
        assert row["concept_tokens_max"] == 9
        assert (row["without_concept"], row["unreadable"]) == (1, 0)
        # p1 is no negative of the first query, and the third and the fourth page are one.
        assert row["masked_pairs"] == 3
        assert row["loss"] == pytest.approx(row["info_nce"] + 0.2 * row["alignment"], rel=1e-5)
        assert row["tokens_per_second"] > 0
    # Warm-up takes a tenth of the steps, thus the first; the others fall from 2e-3 to 0.
    assert [row["learning_rate"] for row in lines] == pytest.approx([0, 2e-3, 1e-3])
    assert [row["epoch"] for row in lines] == [1, 2, 3]


def test_the_share_of_padding_is_that_of_sequences_and_queries(folder):
    inputs = inputs_of(folder / "out")
    queries = [json.loads(line)["query"] for line in (folder / "data" / "train.jsonl").read_text().splitlines()]
    page = len(inputs.page_suffix_ids()) + len(inputs._before_image) + 1
    lengths = [
        page + tokens + (len(inputs.concept_suffix_ids(query, slots)) if slots else 0)
        for query, tokens, slots in zip(queries, (4, 6, 4, 4), (4, 9, 0, 2), strict=True)
    ]
    asked = [len(inputs.query_ids(query)) for query in queries]
    places = 4 * max(lengths) + 4 * max(asked)
    expected = 1 - (sum(lengths) + sum(asked)) / places
    assert 0.05 < expected < 0.6
    (found,) = {row["padding_share"] for row in log_of(folder / "out") if "loss" in row}
    assert found == pytest.approx(expected)


def test_the_last_line_tells_how_long_it_took_and_nothing_of_this_part_of_the_run_alone(folder):
    last = read_log(folder / "out" / "log.jsonl")[-1]
    assert set(last) == {"step", "epoch", "train_runtime", "train_samples_per_second", "train_steps_per_second"}


def test_tensorboard_has_the_same_numbers(folder):
    events = EventAccumulator(str(folder / "out" / "tensorboard")).Reload()
    lines = read_log(folder / "out" / "log.jsonl")
    for prefix, lines_with in (("train", "loss"), ("eval", "eval_ndcg_at_10")):
        chosen = [row for row in lines if lines_with in row]
        assert chosen
        for name in chosen[0].keys() - {"step", "epoch"}:
            scalars = events.Scalars(f"{prefix}/{name.removeprefix('eval_')}")
            assert [(scalar.step, scalar.value) for scalar in scalars] == [
                (row["step"], pytest.approx(row[name], rel=1e-6)) for row in chosen
            ]


def test_padding_of_texts_that_stand_for_concepts_is_counted(tmp_path):
    rows = [pair(number, boxes=[WHOLE], labels=["word " * (1 + 8 * number)]) for number in range(4)]
    run("training.max_steps=1", "concepts=text", folder=write_data(tmp_path, rows))
    (share,) = {row["padding_share"] for row in log_of(tmp_path / "out") if "loss" in row}
    assert share > 0.15


def test_without_tensorboard_the_line_that_installs_it_is_named(tmp_path):
    ended = run("training.loggers=[tensorboard]", folder=write_data(tmp_path), without=("tensorboard",), status=2)
    assert "needs the package 'tensorboard': pip install 'evidence-retrieval[train]'" in ended.error


# The counts alone.


def counted_step(inputs, device: str = "cpu") -> tuple[LossTerms, Chunks]:
    """Of two rows in two chunks, and one that could not be read."""
    rows = [read_example(one, inputs, METHOD.concepts) for one in mixed()[:2]]
    chunks = MakeChunks(2)([*rows, Unreadable(("q9", "p9"), "cut off")])["chunks"]
    terms = (torch.tensor(value, device=device) for value in (3.0, 1.5, 0.25))
    return LossTerms(*terms, masked_pairs=2, without_concept=1), chunks


def test_speed_is_over_the_time_from_line_to_line_without_pauses(monkeypatch):
    now = 100.0
    monkeypatch.setattr("conceptformer.training.step_counts.time.perf_counter", lambda: now)
    inputs, counts = tiny_backbone().inputs, StepCounts()
    terms, chunks = counted_step(inputs)
    tokens = sum(batch.tokens for batch in chunks.batches)
    accelerator = Accelerator(cpu=True)
    for expected in (2 * tokens / (1 + 4), 2 * tokens / (16 + 1 + 4)):
        for seconds in (1, 4):
            counts.begin_step()
            now += seconds
            counts.add(terms, chunks)
        with counts.paused():
            now += 32
        found = counts.drain(accelerator)
        assert found["tokens_per_second"] == pytest.approx(expected)
        assert (found["info_nce"], found["alignment"], found["unreadable"]) == (1.5, 0.25, 2)
        # After the first line: data are waited for.
        now += 16


def test_counting_a_step_reads_nothing_off_the_device():
    """Tensors on the meta device hold nothing that could be read."""
    counts = StepCounts()
    counts.add(*counted_step(tiny_backbone().inputs, device="meta"))
    assert counts._losses[0].is_meta


# The files alone.


def state_at(step: int) -> tuple[TrainingArguments, TrainerState, TrainerControl]:
    return None, TrainerState(global_step=step, is_world_process_zero=True), TrainerControl()


def test_a_log_goes_on_after_the_checkpoint_and_drops_what_came_later(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.0}\n{"step": 3, "lo')
    assert [row["step"] for row in read_log(path)] == [1, 2]
    log = JsonLog(path)
    log.on_train_begin(*state_at(1))
    log.on_log(*state_at(2), logs={"loss": 1.5, "grad_norm": math.inf})
    assert read_log(path) == [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 1.5, "grad_norm": None}]
    log.on_train_begin(*state_at(0))
    assert path.read_bytes() == b""


def test_the_list_of_what_was_left_out_grows_and_is_begun_anew_with_the_run(tmp_path):
    path, counts = tmp_path / "refused.txt", StepCounts()
    kept = RefusedList(path, ("row 1: bad",), counts)
    kept.on_train_begin(*state_at(0))
    assert path.read_text() == "row 1: bad\n"
    counts.unreadable["q\n7", "p7"] = "cut off"
    kept.on_log(*state_at(1))
    assert path.read_text() == "row 1: bad\nquery q 7, page p7: cut off\n"
    again = RefusedList(path, ("row 1: bad",), StepCounts())
    again.on_train_begin(*state_at(1))
    assert again.lines() == ("row 1: bad", "query q 7, page p7: cut off")
    anew = RefusedList(path, (), StepCounts())
    anew.on_train_begin(*state_at(0))
    assert not path.exists()
