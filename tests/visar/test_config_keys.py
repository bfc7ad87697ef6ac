"""What is said of keys and choices that do not exist, on a config that is made up and on those of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.visar.commands import run_here
from visar.command_line import config_folder
from visar.config_keys import CommandKeys, value_of_group, wrong_argument

FILES = {
    "paint.yaml": """
defaults:
  - colour: red
  - brush: thin
  - _self_
  - exp: null
  - override hydra/job_logging: none
layers: 3
output: out
canvas: {width: 10, height: 20}
series: null
""",
    "look.yaml": "defaults: [_self_]\nlayers: 1\n",
    "colour/red.yaml": "# Red.\n_target_: x.Red\nlight: 0.5\n",
    "colour/blue.yaml": "# Blue.\n_target_: x.Blue\ndepth: 4\nof_sky: {hour: 12}\n",
    "colour/green.yaml": "# Green.\n_target_: x.Green\ndepth: 2\n",
    "colour/mixed.yaml": """# Mixed.
_target_: x.Mixed
parts: {of: {light: 1}, depth: 2}
names: {a.b: c}
like: ${canvas}
""",
    "brush/thin.yaml": "# @package brushes.thin\n# Thin.\nhairs: 5\n",
    "brush/wide.yaml": "# @package brushes.wide\n# Wide.\nhairs: 50\nedge: soft\n",
    "paper/rough.yaml": "# Of another command.\ngrain: 3\n",
    "exp/series.yaml": "# @package _global_\ndefaults:\n  - override /colour: blue\nseries: {count: 9}\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("configs")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_command_has_the_groups_of_its_defaults_and_no_others(folder):
    names = CommandKeys.read(folder, "paint")
    assert names.groups == {"colour": ("blue", "green", "mixed", "red"), "brush": ("thin", "wide"), "exp": ("series",)}
    assert CommandKeys.read(folder, "look").groups == {}
    assert names.keys == ("layers", "output", "canvas", "canvas.width", "canvas.height", "series")
    assert names.unset == ("series",)
    assert names.owners["colour.depth"] == ("colour=blue", "colour=green")
    assert names.owners["brushes.wide.edge"] == ("brush=wide",)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["layer=4"], "layer: no such setting; did you mean layers?"),
        (["canvas.widht=4"], "canvas.widht: no such setting; did you mean canvas.width?"),
        (["layers=4", "color=blue"], "color: no such setting; did you mean colour?"),
        (["width=4"], "width: no such setting; did you mean canvas.width?"),
        (["brushes.thin.hair=4"], "brushes.thin.hair: no such setting; did you mean brushes.thin.hairs?"),
        (["~layer"], "~layer: no such setting; did you mean layers?"),
        (["zzz=4"], "zzz: no such setting; --help shows the settings"),
        (["+output=a"], "+output: it is there already, not to be added; write output=..."),
        (["+colour=blue"], "+colour: it is there already, not to be added; write colour=..."),
        (["colour=bleu"],
         "colour=bleu: no such choice; did you mean colour=blue? Expected one of blue, green, mixed, red"),
        (["colour=7"], "colour=7: no such choice; expected one of blue, green, mixed, red"),
        (["colour=null"], "colour=null: no such choice; expected one of blue, green, mixed, red"),
        (["brush=[thin,wide,wdie]"], "brush=wdie: no such choice; did you mean brush=wide? Expected one of thin, wide"),
        (["colour.of_sky.hour=3"],
         "colour.of_sky.hour belongs to colour=blue; write colour=blue colour.of_sky.hour=..."),
        (["colour.of_sky.huor=3"],
         "colour.of_sky.huor: no such setting; did you mean colour.of_sky.hour, which belongs to colour=blue?"),
        (["colour.depth=3"],
         "colour.depth belongs to colour=blue or colour=green; write for example colour=blue colour.depth=..."),
        (["series.count=3"], "series.count belongs to +exp=series; write +exp=series series.count=..."),
        (["colour=blue", "colour.light=3"], "colour.light belongs to colour=red; write colour=red colour.light=..."),
        (["colour=mixed", "colour.light=3"],
         "colour.light: no such setting; did you mean colour.parts.of.light? colour.light belongs to colour=red"),
        (["colour=mixed", "colour.of.light=3"],
         "colour.of.light: no such setting; did you mean colour.parts.of.light?"),
        (["brush=wide", "brushes.thin.hairs=3"],
         "brushes.thin.hairs belongs to brush=thin; write brush=thin brushes.thin.hairs=..."),
    ],
)  # fmt: skip
def test_what_was_meant_is_said(folder, arguments, told):
    assert wrong_argument(arguments, folder, "paint") == told


@pytest.mark.parametrize(
    "arguments",
    [["colour=blue", "colour.depth=3"], ["exp=series", "series.count=3"], ["+canvas.depth=3"], ["layers=x"]],
)
def test_arguments_that_can_be_followed_are_not_blamed(folder, arguments):
    assert wrong_argument(arguments, folder, "paint") is None


def test_the_argument_that_is_wrong_is_blamed_and_not_its_neighbours(folder):
    arguments = ["canvas.width=4", "colour=blue", "colour.depth=2", "+canvas.new=1", "canvas.new=2", "canvas.hight=3"]
    assert wrong_argument(arguments, folder, "paint") == "canvas.hight: no such setting; did you mean canvas.height?"


def test_keys_that_are_added_where_nobody_looks_are_found(folder):
    names = CommandKeys.read(folder, "paint")
    assert names.unread(["+outptu=a"]) == "+outptu: no such setting; did you mean output?"
    assert names.unread(["+paper=rough"]).startswith("+paper: no such setting")
    assert names.unread(["+brushes.wide.hairs=3", "+canvas.depth=1", "++series.step=2", "layers=3"]) is None


def one_value(folder: Path, *arguments: str) -> str | None:
    return value_of_group(arguments, CommandKeys.read(folder, "paint"), folder, "paint")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["canvas=3"], "canvas=3: canvas is a group of settings; write canvas.width=... or canvas.height=..."),
        (["++canvas=[1]"], "++canvas=[1]: canvas is a group of settings; write canvas.width=... or canvas.height=..."),
        (["canvas=null"], "canvas=null: canvas is a group of settings; write canvas.width=... or canvas.height=..."),
        (["canvas="], "canvas=: canvas is a group of settings; write canvas.width=... or canvas.height=..."),
        (["layers=2", "colour=blue", "colour.of_sky=noon"],
         "colour.of_sky=noon: colour.of_sky is a group of settings; write colour.of_sky.hour=..."),
        (["brushes=3"], "brushes=3: brushes is a group of settings; write brushes.thin.hairs=..."),
        (["colour=mixed", "colour.parts=1"],
         "colour.parts=1: colour.parts is a group of settings; "
         "write colour.parts.of.light=... or colour.parts.depth=..."),
        (["colour=mixed", "colour.names=1"],
         "colour.names=1: colour.names is a group of settings; write colour.names={...}"),
        (["colour=mixed", "colour.like=1"],
         "colour.like=1: colour.like is a group of settings, ${canvas}; write them there"),
        (["exp=series", "series=9"], "series=9: series is a group of settings; write series.count=..."),
        (["series=9"], "series=9: series is a group of settings; write +exp=series, which has it"),
    ],
)  # fmt: skip
def test_one_value_for_a_group_names_the_settings_in_it(folder, arguments, told):
    assert one_value(folder, *arguments) == told


@pytest.mark.parametrize(
    "arguments",
    [
        ["series=null"],
        ["exp=series", "series=null"],
        ["colour=blue", "colour.of_sky=null"],
        ["canvas={width: 3}"],
        ["series={count: 3}"],
        ["canvas=${series}"],
        ["canvas.width=null", "layers=[1]", "output='a: {b}'"],
        ["~canvas"],
        ["colour=blue", "+colour.mood=3"],
        ["zzz=3", "layers.a=3", "colour.light.a=3"],
    ],
)
def test_groups_that_get_groups_or_may_be_null_are_left_alone(folder, arguments):
    assert one_value(folder, *arguments) is None


# The package's own.


def test_a_file_for_another_benchmark_is_told_by_the_command(tmp_path):
    outcome = run_here("eval", "dataset.documents=FOLDER", folder=tmp_path)
    assert outcome.error == "dataset.documents belongs to dataset=folder; write dataset=folder dataset.documents=..."
    assert outcome.status == 2


def test_a_command_helps_with_its_own_groups(tmp_path):
    ask, compare = (run_here(command, "--help", folder=tmp_path) for command in ("ask", "eval"))
    choices = ask.out.split("Choices:")[1].split("Settings")[0]
    assert [line.split(":")[0].strip() for line in choices.strip().splitlines() if ":" in line] == [
        "encoder", "ocr", "selector"
    ]  # fmt: skip
    assert "dataset: demo, folder" in compare.out and "exp: sensitivity" in compare.out
    assert "Usage: python -m visar.ask document=FILE" in ask.out and "dpi: 144" in ask.out


def test_help_may_stand_before_and_behind_settings(tmp_path):
    for arguments in (["--help", "dpi=72", "ocr=none"], ["dpi=72", "ocr=none", "--help"]):
        outcome = run_here("ask", *arguments, folder=tmp_path)
        assert outcome.status == 0 and "dpi: 72" in outcome.out and "  ocr: none, rapidocr" in outcome.out


def test_choices_in_a_folder_of_the_users_are_not_taken_for_misspelt(tmp_path):
    (tmp_path / "more" / "selector").mkdir(parents=True)
    (tmp_path / "more" / "selector" / "own.yaml").write_text("# @package selectors.own\nk: 3\n")
    for place in ("hydra.searchpath=[file://more]", "--config-dir=more"):
        outcome = run_here("ask", place, "selector=own", "dpis=3", folder=tmp_path)
        assert outcome.error.startswith("Could not override 'dpis'")


def test_every_group_of_the_package_belongs_to_a_command():
    groups = {path.name for path in config_folder().iterdir() if path.is_dir()}
    assert groups == {name for command in ("ask", "eval") for name in CommandKeys.read(config_folder(), command).groups}
