"""Keys and choices that do not exist, and help, in the commands of this package."""

from __future__ import annotations

import pytest

from tests.conceptformer.commands_here import run_here
from visar.command_line import config_folder
from visar.config_keys import CommandKeys

COMMANDS = {
    "train": {"backbone", "data", "adaptation", "concepts", "objective", "training", "sharding", "exp"},
    "eval": {"benchmark", "retriever", "page_text"},
    "propose": {"api"},
    "pairs": {"benchmark"},
    "opendocvqa": {"queries"},
    "table": set(),
}


@pytest.mark.parametrize(
    ("command", "arguments", "told"),
    [
        ("train", ["training.max_step=5"], "training.max_step: no such setting; did you mean training.max_steps?"),
        (
            "train",
            ["+exp=tiny", "data.train=FILE"],
            "data.train belongs to data=files; write data=files data.tr",
        ),
        (
            "train",
            ["+exp=qwne"],
            "exp=qwne: no such choice; did you mean exp=qwen? Expected one of figure3b",
        ),
        ("train", ["compare.seeds=[1]"], "compare.seeds belongs to +exp=tiny_compare; write +exp=tiny_compare comp"),
        ("train", ["+benchmark=drawn"], "+benchmark: no such setting"),
        (
            "eval",
            ["benchmark=infvqa"],
            "benchmark=infvqa: no such choice; did you mean benchmark=infovqa?",
        ),
        ("eval", ["checkpiont=a"], "checkpiont: no such setting; did you mean checkpoint?"),
        ("propose", ["api.base_ulr=a"], "api.base_ulr: no such setting; did you mean api.base_url?"),
        ("pairs", ["benchmark.root=a"], "benchmark.root belongs to benchmark=all, benchmark=chartqa, benchmark="),
        ("table", ["run=a"], "run: no such setting; did you mean runs?"),
    ],
)
def test_what_was_meant_is_said_in_one_line(command, arguments, told, tmp_path):
    outcome = run_here(command, *arguments, folder=tmp_path)
    assert outcome.error.startswith(told)
    assert outcome.status == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_knows_its_own_groups(command):
    assert set(CommandKeys.read(config_folder("conceptformer"), command).groups) == COMMANDS[command]


@pytest.mark.parametrize("command", ["train", "propose"])
def test_help_names_the_groups_of_the_command_and_no_others(command, tmp_path):
    shown = run_here(command, "--help", folder=tmp_path).out.split("Choices:")[1].split("Settings, each")[0]
    lines = [line for line in shown.splitlines() if line.startswith("  ") and not line.startswith("    ")]
    assert {line.split(":")[0].strip() for line in lines} == COMMANDS[command]
    assert ("exp: figure3b_length_128" in shown) == (command == "train")
