"""Every YAML file is composed as the commands do it, and whatever it names can be made from what it gives."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from conceptformer.step.objective import Objective
from conceptformer.training.settings import TrainingSettings
from tests.config_parts import assert_can_be_made
from visar.command_line import config_folder

FOLDER = config_folder("conceptformer")
FILES = sorted(FOLDER.rglob("*.yaml"))
COMMANDS = sorted(path.stem for path in FILES if path.parent == FOLDER)
OPTIONS = [(path.parent.name, path.stem) for path in FILES if path.parent != FOLDER]
EXPERIMENTS = [option for group, option in OPTIONS if group == "exp"]


@functools.cache
def groups_of(command: str) -> dict[str, str | None]:
    """The groups that a command chooses from, with what it chooses."""
    entries = yaml.safe_load((FOLDER / f"{command}.yaml").read_text(encoding="utf-8"))["defaults"]
    chosen = {name: option for entry in entries if isinstance(entry, dict) for name, option in entry.items()}
    return {name.removeprefix("optional "): option for name, option in chosen.items() if "hydra/" not in name}


@functools.cache
def composed(command: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(FOLDER), version_base="1.3"):
        config = compose(command, overrides=[*overrides])
    for key in ("output", "out"):
        # Folders of results are named by what Hydra chose, which only a running command knows.
        if key in config:
            config[key] = "out"
    OmegaConf.resolve(config)
    return config


def test_the_search_for_files_finds_commands_and_groups():
    assert {"train", "eval"} <= set(COMMANDS)
    groups = {"adaptation", "backbone", "benchmark", "concepts", "data", "exp", "objective", "retriever", "sharding"}
    assert groups | {"training"} <= {group for group, _ in OPTIONS}
    unused = {group for group, _ in OPTIONS} - {group for command in COMMANDS for group in groups_of(command)}
    assert unused == set()


@pytest.mark.parametrize(
    ("command", "places"),
    [
        ("train", {"backbone.pretrained", "data", "adaptation", "concepts", "objective", "training", "passes"}),
        ("eval", {"benchmark", "retriever", "resampling"}),
    ],
)
def test_a_command_without_arguments_can_make_its_parts(command, places):
    assert places <= assert_can_be_made(composed(command))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_without_arguments_can_make_everything(command):
    assert_can_be_made(composed(command))


@pytest.mark.parametrize(("group", "option"), [one for one in OPTIONS if one[0] != "exp"])
def test_an_option_can_be_chosen_and_made(group, option):
    command = next(command for command in COMMANDS if group in groups_of(command))
    assert_can_be_made(composed(command, f"{group}={option}"))


@pytest.mark.parametrize("path", [path for path in FILES if path.parent != FOLDER], ids=lambda path: path.stem)
def test_an_option_says_first_what_it_is(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines[0].startswith("# @package"):
        del lines[0]
    assert re.match(r"# .{12,}", lines[0]), f"{path.name}: the first line is no comment that says what this is"


def words(node: Any) -> Iterator[str]:
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from [value] if isinstance(value, str) else words(value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_numbers_are_numbers(path):
    """YAML 1.1 reads 1e5 as text: a number needs a dot."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert not [text for text in words(content) if re.fullmatch(r"[+-]?[0-9.]*[0-9][0-9.]*(e[+-]?[0-9]+)?", text)]


@pytest.mark.parametrize("option", EXPERIMENTS)
def test_an_experiment_names_what_it_gives_and_the_command(option):
    comment = [line for line in (FOLDER / "exp" / f"{option}.yaml").read_text().splitlines() if line.startswith("#")]
    commands = [line for line in comment if "-m conceptformer.train +exp=" in line]
    assert commands
    for line in commands:
        overrides = line.split("-m conceptformer.train ")[1].split()
        assert overrides[0] == f"+exp={option}"
        config = composed("train", f"exp={option}", *overrides[1:])
        assert_can_be_made(config)
        assert isinstance(instantiate(config.training, _convert_="all"), TrainingSettings)
        assert isinstance(instantiate(config.objective), Objective)
    if not option.startswith("tiny"):
        assert re.search(r"\b(Table|Tables|Figure|Figures) [0-9]", " ".join(comment[1:3]))


def test_every_experiment_has_a_folder_of_its_own():
    outputs = [yaml.safe_load((FOLDER / "exp" / f"{name}.yaml").read_text())["output"] for name in EXPERIMENTS]
    assert len(set(outputs)) == len(outputs)


@pytest.mark.parametrize("sharding", ["none", "fsdp", "zero3"])
def test_settings_of_training_are_accepted(sharding):
    made = instantiate(composed("train", "exp=qwen", f"sharding={sharding}").training, _convert_="all")
    assert isinstance(made, TrainingSettings)
    assert made.sharding.any == (sharding != "none")


def test_the_papers_recipe_has_128_pairs_a_step_and_table_7s_numbers():
    config = composed("train", "exp=qwen")
    settings = config.training
    assert settings.batch_size * settings.accumulation * 4 == 128
    assert (settings.epochs, settings.learning_rate, settings.warm_up, settings.seed) == (3, 1e-4, 0.1, 42)
    assert (config.objective.temperature, config.objective.concept_weight) == (0.01, 0.2)
    assert (config.adaptation.rank, config.adaptation.alpha, config.adaptation.dropout) == (8, 64, 0.1)
    assert config.objective.mask_false_negatives is False and config.projection is False
    assert settings.precision == "bf16" and settings.cache_gradients is False


def test_classes_that_fsdp_shards_by_are_those_of_the_backbone():
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl

    names = composed("train", "sharding=fsdp").sharding.fsdp_config.transformer_layer_cls_to_wrap
    assert [inspect.isclass(getattr(modeling_qwen2_5_vl, name)) for name in names] == [True, True]


def test_a_misspelt_experiment_is_no_run_of_the_defaults():
    with pytest.raises(ConfigCompositionException, match="exp/qwne"):
        composed("train", "exp=qwne")
