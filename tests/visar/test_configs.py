"""Every YAML file is composed as the commands do it, and whatever it names can be made from what it gives."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from tests.config_parts import assert_can_be_made
from visar.command_line import config_folder
from visar.selectors import PageSelector

FOLDER = config_folder()
FILES = sorted(FOLDER.rglob("*.yaml"))
COMMANDS = ("ask", "eval")
# Groups that only comparisons of many questions have.
OF_EVAL_ONLY = {"dataset", "exp"}


def options() -> list[tuple[str, str]]:
    """(group, option) of every file below a group's folder."""
    return [(path.parent.name, path.stem) for path in FILES if path.parent != FOLDER]


@functools.cache
def composed(command: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(FOLDER), version_base="1.3"):
        # The folder of results is named by what Hydra chose, which only a running command knows.
        config = compose(command, overrides=[*overrides, "output=out"])
    OmegaConf.resolve(config)
    return config


def assert_all_can_be_made(config: DictConfig) -> None:
    assert {"encoder", "ocr"} <= assert_can_be_made(config)
    assert config.selectors
    for name, selector in config.selectors.items():
        assert issubclass(get_object(selector._target_), PageSelector), name


def test_the_search_for_files_finds_files_of_every_group():
    assert {group for group, _ in options()} == {"dataset", "encoder", "exp", "ocr", "selector"}
    assert {path.stem for path in FILES if path.parent == FOLDER} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_arguments_can_make_everything(command):
    assert_all_can_be_made(composed(command))


@pytest.mark.parametrize(("group", "option"), options())
@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_can_be_chosen_and_made(command, group, option):
    if command == "ask" and group in OF_EVAL_ONLY:
        with pytest.raises(ConfigCompositionException, match=f"Could not override '{group}'"):
            composed(command, f"{group}={option}")
        return
    config = composed(command, f"{group}={option}")
    assert_all_can_be_made(config)
    if group == "selector":
        assert list(config.selectors) == [option]
    elif group == "exp":
        assert list(config.selectors) != list(composed(command).selectors)
    else:
        assert config[group]._target_ == _own(group, option)["_target_"]


def _own(group: str, option: str) -> dict[str, Any]:
    """What an option's file says itself, or the file that it begins with."""
    content = yaml.safe_load((FOLDER / group / f"{option}.yaml").read_text(encoding="utf-8"))
    return content if "_target_" in content else _own(group, content["defaults"][0])


@pytest.mark.parametrize("path", [path for path in FILES if path.parent != FOLDER], ids=lambda path: path.stem)
def test_an_option_says_first_what_it_is(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if lines[0].startswith("# @package"):
        del lines[0]
    said = re.match(r"# (.{20,})", lines[0])
    assert said, f"{path.name}: the first line is no comment that says what this is"


@pytest.mark.parametrize("path", sorted((FOLDER / "selector").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_selector_stands_under_its_own_name(path):
    assert path.read_text(encoding="utf-8").startswith(f"# @package selectors.{path.stem}\n")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_numbers_are_numbers(path):
    """YAML 1.1 reads 1e5 as text: a number needs a dot."""

    def texts(node: Any) -> Iterator[str]:
        for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from [value] if isinstance(value, str) else texts(value)

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert not [text for text in texts(content) if re.fullmatch(r"[+-]?[0-9.]*[0-9][0-9.]*(e[+-]?[0-9]+)?", text)]


@pytest.mark.parametrize("path", sorted((FOLDER / "exp").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_experiment_names_the_results_it_gives_and_the_command(path):
    comment = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    assert re.search(r"\b(Table|Tables|Figure|Figures) [S0-9]", " ".join(comment[1:3]))
    (command,) = (line for line in comment if "python -m visar.eval" in line)
    overrides = command.split("python -m visar.eval ")[1].split()
    assert overrides[0] == f"exp={path.stem}"
    assert_all_can_be_made(composed("eval", *overrides))


def test_an_experiment_keeps_to_its_selectors_and_takes_other_documents():
    config = composed("eval", "exp=sensitivity_top_patches", "dataset=mmlongbench", "encoder=colpali")
    assert config.dataset._target_ == "visar.benchmarks.MMLongBench"
    assert config.encoder.model == "vidore/colpali-v1.2"
    sizes = [1, 5, 10, 25, 50, 75, 100, 150, 200, 300, 500, 750, 1000]
    assert [selector.top_patches for name, selector in config.selectors.items() if name != config.baseline] == sizes
    config = composed("eval", "exp=sensitivity_leakage_weight")
    weights = [selector.leakage_weight for name, selector in config.selectors.items() if name != config.baseline]
    assert weights == [10.0**power for power in range(9)]


def test_a_misspelt_experiment_is_no_run_of_the_defaults():
    with pytest.raises(ConfigCompositionException, match="exp/tabel1"):
        composed("eval", "exp=tabel1")


def test_the_baseline_of_every_run_is_among_its_selectors():
    for overrides in ([], *([f"exp={path.stem}"] for path in (FOLDER / "exp").glob("*.yaml"))):
        config = composed("eval", *overrides)
        assert config.baseline in config.selectors
