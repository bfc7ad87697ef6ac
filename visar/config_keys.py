"""What can be written on a command line: a command's keys, its groups and their choices; and what was meant instead."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

_EXPERIMENTS = "exp"
# Keys of Hydra and OmegaConf, which are no settings of a command.
_NOT_SETTINGS = ("defaults", "hydra")
_SHOWN_OWNERS = 4
_HELP = "--help shows the settings"


@dataclass(frozen=True)
class CommandKeys:
    """What the files of a command's config hold, whichever choices are made.

    Attributes:
        groups: Choices of each group of the command, as its list of defaults names them.
        keys: Of the command's own file, with dots.
        unset: Those of them that are null in that file.
        owners: For each key of a choice, the choices that have it, as ``group=choice``.
    """

    groups: Mapping[str, tuple[str, ...]]
    keys: tuple[str, ...]
    unset: tuple[str, ...]
    owners: Mapping[str, tuple[str, ...]]

    @classmethod
    def read(cls, folder: Path, command: str) -> CommandKeys:
        """Read ``folder/command.yaml`` and the files of its groups."""
        own = OmegaConf.load(folder / f"{command}.yaml")
        names = [name for entry in own.defaults if isinstance(entry, DictConfig) for name in map(str, entry)]
        groups = {
            name: tuple(sorted(path.stem for path in (folder / name).glob("*.yaml")))
            for name in names
            if " " not in name  # "override hydra/..." is none of ours
        }
        owners: dict[str, list[str]] = {}
        # A key of a choice is to be had without an experiment that makes this choice.
        for group in sorted(groups, key=lambda name: name == _EXPERIMENTS):
            for choice in groups[group]:
                for key in _keys_of_choice(folder / group / f"{choice}.yaml"):
                    if group != _EXPERIMENTS or key not in owners:
                        owners.setdefault(key, []).append(f"{group}={choice}")
        keys = tuple(_dotted(own))
        unset = tuple(key for key in keys if not OmegaConf.is_interpolation(own, key) and _selected(own, key) is None)
        return cls(groups, keys, unset, {key: tuple(found) for key, found in owners.items()})

    def unread(self, arguments: Sequence[str]) -> str | None:
        """What is wrong with the first argument that adds a key which no command would look at; None if none does."""
        first = {key.partition(".")[0] for key in (*self.groups, *self.keys, *self.owners, *_NOT_SETTINGS)}
        for argument in arguments:
            key = argument.partition("=")[0]
            if key.startswith("+") and re.split(r"[.@/]", key.lstrip("+"))[0] not in first:
                return self.unknown_key(key, self.keys)
        return None

    def unknown_choice(self, override: Override) -> str | None:
        """What is wrong with the choice of a group; None if nothing is."""
        group, value = override.key_or_group, override.value()
        if override.is_add():
            return _there_already(f"+{group}")
        for name in value if isinstance(value, list) else [value]:
            choice = "null" if name is None else str(name)
            if choice not in self.groups[group]:
                found = difflib.get_close_matches(choice, self.groups[group], n=1)
                meant = f"did you mean {group}={found[0]}? Expected" if found else "expected"
                return f"{group}={choice}: no such choice; {meant} one of {', '.join(self.groups[group])}"
        return None

    def unknown_key(self, written: str, there: Collection[str]) -> str:
        """What to write instead of a key that the config does not have.

        Args:
            written: The key as it was typed.
            there: Keys of the config as it was chosen.
        """
        key = written.lstrip("+~")
        owners = self.owners.get(key, ())
        # Of the choice as it was made, the same name further down.
        below = [name for name in there if "." in key and _leaves_out_places(key, name)]
        if below:
            besides = f" {key} belongs to {_either(owners)}" if owners else ""
            return f"{written}: no such setting; did you mean {min(below, key=_depth)}?{besides}"
        if owners:
            example = " for example" if len(owners) > 1 else ""
            return f"{key} belongs to {_either(owners)}; write{example} {_shown(owners[0])} {key}=..."
        known = dict.fromkeys((*there, *self.groups, *self.owners))
        # Without the part before the dot, as the help shows keys in blocks.
        alike = [name for name in known if "." not in key and name.rpartition(".")[2] == key]
        found = next(iter(difflib.get_close_matches(key, alike or known, n=1, cutoff=0.0 if alike else 0.6)), None)
        if found is None:
            return f"{written}: no such setting; {_HELP}"
        elsewhere = found not in there and found not in self.groups
        belongs = f", which belongs to {_either(self.owners[found])}" if elsewhere else ""
        return f"{written}: no such setting; did you mean {found}{belongs}?"


def value_of_group(arguments: Sequence[str], names: CommandKeys, folder: Path, command: str) -> str | None:
    """What is wrong with the first argument that gives a group of settings one value; None if none does.

    Braces may hold several settings. Null may stand for a group that is null in the command's own file, or that an
    object takes, which is left to judge it.

    Args:
        arguments: ``key=value``, as Hydra reads them.
        names: Of the command.
        folder: Of the package's YAML files.
        command: Name of the top one.
    """
    overrides = OverridesParser.create().parse_overrides(list(arguments))
    choosing = [override for override in overrides if override.key_or_group in names.groups]
    values = [each for each in overrides if each.key_or_group not in names.groups and _is_one_value(each)]
    if not values or any(override.is_sweep_override() for override in choosing):
        return None
    with initialize_config_dir(str(folder), version_base="1.3"):
        config = _composed(command, [str(override.input_line) for override in choosing])
    for override in values if config is not None else []:
        if told := _not_for_group(override, names, config):
            return told
    return None


def wrong_argument(arguments: Sequence[str], folder: Path, command: str) -> str | None:
    """Of arguments with which a command's config cannot be composed, what is wrong with the first such one.

    Args:
        arguments: ``key=value``, as Hydra reads them.
        folder: Of the package's YAML files.
        command: Name of the top one.

    Returns:
        One line; None where the fault is of another kind than a key or a choice that does not exist.
    """
    names = CommandKeys.read(folder, command)
    overrides = OverridesParser.create().parse_overrides(list(arguments))
    if any(override.is_sweep_override() for override in overrides):
        return None
    choosing = [override for override in overrides if override.key_or_group in names.groups]
    for override in choosing:
        if not override.is_delete() and (told := names.unknown_choice(override)):
            return told
    with initialize_config_dir(str(folder), version_base="1.3"):
        composes = functools.partial(_composed, command)
        followed = [str(override.input_line) for override in choosing]
        config = composes(followed)
        for argument in (line for line in arguments if line not in followed):
            followed.append(argument)
            if config is not None and composes(followed) is None:
                return _not_followed(argument, names, list(_dotted(config)))
    return None


def _not_followed(argument: str, names: CommandKeys, there: Collection[str]) -> str | None:
    written = argument.partition("=")[0]
    if written.startswith("hydra"):
        return None
    if written.startswith("+") and written.lstrip("+") in there:
        return _there_already(written)
    return None if written.lstrip("+~") in there else names.unknown_key(written, there)


def _is_one_value(override: Override) -> bool:
    if override.is_delete() or override.is_sweep_override() or override.package is not None:
        return False
    held = OmegaConf.create({"value": override.value()})
    return not (OmegaConf.is_interpolation(held, "value") or OmegaConf.is_dict(held.value))


def _not_for_group(override: Override, names: CommandKeys, config: DictConfig) -> str | None:
    """What is wrong with a single value for the key of a config; None if it is not that of a group."""
    key, value = override.key_or_group, override.value()
    place, _, name = key.rpartition(".")
    parent, node = _selected(config, place) if place else config, _selected(config, key)
    told = f"{override.input_line}: {key} is a group of settings"
    if value is None and (key in names.unset or (isinstance(parent, DictConfig) and "_target_" in parent)):
        return None
    if node is None and key in names.unset and any(other.startswith(f"{key}.") for other in names.owners):
        return f"{told}; write {_shown(names.owners[key][0])}, which has it"
    if not isinstance(node, DictConfig):
        return None
    if isinstance(parent, DictConfig) and OmegaConf.is_interpolation(parent, name):
        return f"{told}, {OmegaConf.to_container(parent, resolve=False)[name]}; write them there"
    found = [below for below in _dotted(node, key) if not isinstance(_selected(config, below), DictConfig)]
    if not found:
        return f"{told}; write " + (f"{key}._target_=..." if "_target_" in node else f"{key}={{...}}")
    return f"{told}; write {_either([f'{below}=...' for below in found])}"


def _there_already(written: str) -> str:
    return f"{written}: it is there already, not to be added; write {written.lstrip('+')}=..."


def _composed(command: str, arguments: Sequence[str]) -> DictConfig | None:
    try:
        return compose(command, overrides=list(arguments))
    except (HydraException, ValueError):
        # Hydra raises both of arguments that it cannot follow.
        return None


def _selected(config: DictConfig, key: str) -> object:
    """What a key holds, interpolations followed; None where it holds nothing, or nothing before the command runs."""
    try:
        return OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return None


def _keys_of_choice(path: Path) -> Iterator[str]:
    """With the place that the file's first line gives them, which is the group's name if it does not speak of it."""
    header = re.match(r"# @package (\S+)", path.read_text(encoding="utf-8"))
    package = header[1] if header else path.parent.name
    yield from _dotted(OmegaConf.load(path), "" if package == "_global_" else package)


def _dotted(node: object, place: str = "") -> Iterator[str]:
    """All keys of a config, those of groups of keys among them."""
    content = OmegaConf.to_container(node, resolve=False) if OmegaConf.is_config(node) else node
    if not isinstance(content, dict):
        return
    for name, value in content.items():
        # A name with a dot, as of a file, cannot be written on a command line.
        if not str(name).startswith("_") and "." not in str(name) and (place or name not in _NOT_SETTINGS):
            key = f"{place}.{name}" if place else str(name)
            yield key
            yield from _dotted(value, key)


def _leaves_out_places(key: str, full: str) -> bool:
    """Whether a key is the full one without some of the parts between its first and its last."""
    first, *between, last = key.split(".")
    places = full.split(".")
    if (places[0], places[-1]) != (first, last):
        return False
    rest = iter(places[1:-1])
    return all(part in rest for part in between)


def _depth(key: str) -> int:
    return key.count(".")


def _shown(choice: str) -> str:
    """As the help and the READMEs write it."""
    return f"+{choice}" if choice.startswith(f"{_EXPERIMENTS}=") else choice


def _either(owners: Sequence[str]) -> str:
    shown = [_shown(owner) for owner in owners[:_SHOWN_OWNERS]]
    if len(owners) > _SHOWN_OWNERS:
        shown.append(f"{len(owners) - _SHOWN_OWNERS} more")
    return " or ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
