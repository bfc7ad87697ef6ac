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
MODULES = {"opendocvqa": "opendocvqa.__main__"}


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
        (
            "eval",
            ["benchmark=mmlongbench", "benchmark.root=x"],
            "benchmark.root: no such setting; did you mean benchmark.questions.root? benchmark.root belongs to benchm",
        ),
        (
            "pairs",
            ["benchmark=longdocurl", "benchmark.page_base=1"],
            "benchmark.page_base: no such setting; did you mean benchmark.questions.page_base?",
        ),
        (
            "eval",
            ["benchmark=mmlongbench", "benchmark.hub.revision=x"],
            "benchmark.hub.revision: no such setting; did you mean benchmark.questions.hub.revision?",
        ),
        (
            "eval",
            ["retriever=conceptformer_adapter", "retriever.max_pixels=3"],
            "retriever.max_pixels: no such setting; did you mean retriever.backbone.settings.max_pixels?",
        ),
    ],
)
def test_what_was_meant_is_said_in_one_line(command, arguments, told, tmp_path):
    outcome = run_here(command, *arguments, folder=tmp_path)
    assert outcome.error.startswith(told)
    assert outcome.status == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "arguments", "settings"),
    [
        ("propose", ["budget=20"], "budget.calls=... or budget.tokens=..."),
        ("propose", ["price=1"], "price.input=... or price.output=..."),
        ("propose", ["pairs=a", "retry=3"], "retry.attempts=..., retry.first_wait_seconds=..., retry.longest_wait_s"),
        ("propose", ["api=qwen2_5_vl", "image=png"], "image.max_pixels=..., image.side_multiple=... or image.format="),
        ("propose", ["budget.calls=5", "budget=null"], "budget.calls=... or budget.tokens=..."),
        ("eval", ["resampling=100"], "resampling.samples=... or resampling.seed=..."),
        ("eval", ["benchmark.drawing=3"], "benchmark.drawing.folder=..., benchmark.drawing.pages=..., benchmark."),
        ("table", ["resampling=100"], "resampling.samples=... or resampling.seed=..."),
        ("opendocvqa", ["corpus=FOLDER"], "corpus.root=..., corpus.files=..., corpus.hub.repository=..., corpus.hub"),
        ("train", ["passes=plain"], "passes._target_=..."),
        ("train", ["compare=5"], "+exp=tiny_compare, which has it"),
        ("train", ["+exp=tiny_compare", "compare=5"], "compare.variants.concept_weight_0=... or compare.seeds=..."),
    ],
)
def test_one_value_for_a_group_names_its_settings_before_anything_runs(command, arguments, settings, tmp_path):
    outcome = run_here(command, *arguments, folder=tmp_path, module=MODULES.get(command))
    key = arguments[-1].partition("=")[0]
    assert outcome.error.startswith(f"{arguments[-1]}: {key} is a group of settings; write {settings}")
    assert outcome.status == 2
    assert list(tmp_path.iterdir()) == []


def test_a_group_may_get_braces_and_one_that_is_null_may_stay_so(tmp_path):
    shown = run_here("propose", "--cfg", "job", "budget={calls: 20}", folder=tmp_path)
    assert shown.status == 0 and "\n  calls: 20\n  tokens: null\n" in shown.out and "budget.Budget" in shown.out
    shown = run_here("train", "--cfg", "job", "+exp=tiny_compare", "compare=null", folder=tmp_path)
    assert shown.status == 0 and "\ncompare: null\n" in shown.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_knows_its_own_groups(command):
    assert set(CommandKeys.read(config_folder("conceptformer"), command).groups) == COMMANDS[command]


@pytest.mark.parametrize("command", ["train", "propose"])
def test_help_names_the_groups_of_the_command_and_no_others(command, tmp_path):
    shown = run_here(command, "--help", folder=tmp_path).out.split("Choices:")[1].split("Settings, each")[0]
    lines = [line for line in shown.splitlines() if line.startswith("  ") and not line.startswith("    ")]
    assert {line.split(":")[0].strip() for line in lines} == COMMANDS[command]
    assert ("exp: figure3b_length_128" in shown) == (command == "train")
