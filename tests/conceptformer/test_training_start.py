"""What is said before the first step of a run, and where its backbone and its processes come from."""

from __future__ import annotations

import re

import pytest

from conceptformer.errors import ConceptFormerError
from conceptformer.processes import rank_and_world
from conceptformer.training.data import FileData
from tests.conceptformer.commands_here import run_here
from tests.conceptformer.training_runs import inputs_of, pair, run, write_data

WHOLE = [0.0, 0.0, 1.0, 1.0]


def test_the_longest_row_is_told_with_its_concept_tokens(tmp_path):
    """Pages have 4, 9 and 8 visual tokens, see ``write_data``; two boxes over the third count its tokens twice."""
    boxes = ([WHOLE], [WHOLE], [WHOLE, WHOLE], [], [], [])
    rows = [pair(number, query="the red square", boxes=chosen) for number, chosen in enumerate(boxes)]
    folder = write_data(tmp_path, rows)
    ended = run("training.max_steps=1", folder=folder)
    inputs = inputs_of(folder / "out")
    grid = inputs.grid_of((28 * 2, 28 * 4))
    parts = (inputs.prefix_ids(grid), inputs.page_suffix_ids(), inputs.concept_suffix_ids(rows[2]["query"], 16))
    (line,) = (line for line in ended.out.splitlines() if line.startswith("longest row"))
    assert re.findall(r"[\d,]+ tokens|T = \d+|\(.*\)", line) == [
        f"{sum(map(len, parts))} tokens", "T = 16", "(query q2, page p2)"
    ]  # fmt: skip
    assert ended.out.index("longest row") < ended.out.index("training: 0 of 1")
    # The run is finished: no step is to come, and nothing is said of one.
    assert "longest row" not in run("training.max_steps=1", folder=folder).out


def test_a_backbone_that_cannot_be_fetched_is_told_with_the_way_to_give_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    write_data(tmp_path)
    chosen = ("+exp=qwen", "data.train=data/train.jsonl", "training.loggers=[]", "output=out")
    copy = "backbone.pretrained.name_or_folder=FOLDER backbone.pretrained.revision=null"
    fetched = run_here("train", *chosen, "backbone.pretrained.name_or_folder=nobody/nothing", folder=tmp_path)
    assert fetched.error.startswith("nobody/nothing: its config cannot be loaded (")
    assert fetched.error.endswith(f"; a copy on this machine is given by {copy}")
    assert fetched.status == 2
    # A folder that is there needs no such advice, but another.
    folder = run_here("train", *chosen, f"backbone.pretrained.name_or_folder={tmp_path}", folder=tmp_path)
    assert "a folder has no revision" in folder.error and "a copy on this machine" not in folder.error


def test_data_is_called_by_its_file_and_folder(tmp_path):
    write_data(tmp_path)
    data = FileData(tmp_path / "data" / "train.jsonl", None, skip_bad_rows=False).load(lambda done, total: None)
    assert data.train.name == "data/train.jsonl"


@pytest.mark.parametrize(
    ("environment", "found"),
    [({}, (0, 1)), ({"RANK": "", "WORLD_SIZE": ""}, (0, 1)), ({"RANK": "3", "WORLD_SIZE": "4", "X": "y"}, (3, 4))],
)
def test_the_environment_says_which_process_this_is(environment, found):
    assert rank_and_world(environment) == found


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"RANK": "1"}, "the environment says RANK=1: expected RANK below WORLD_SIZE; start with torchrun"),
        ({"WORLD_SIZE": "4"}, "the environment says WORLD_SIZE=4: "),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "the environment says RANK=4 and WORLD_SIZE=4: "),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "the environment says RANK=-1"),
        ({"RANK": "²", "WORLD_SIZE": "4"}, "the environment says RANK=²"),
        ({"RANK": "0", "WORLD_SIZE": "0"}, "the environment says RANK=0"),
    ],
)
def test_an_environment_that_makes_no_sense_is_refused(environment, said):
    with pytest.raises(ConceptFormerError) as raised:
        rank_and_world(environment)
    assert str(raised.value).startswith(said)


def test_a_rank_without_a_world_ends_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert "the environment says RANK=1: expected" in run_here("train", "output=out", folder=tmp_path).error
    assert list(tmp_path.iterdir()) == []
