"""The parts of a composed config that name a class or function, and whether it can be called as they say."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

# What Hydra keeps for itself.
_OF_HYDRA = ("_target_", "_convert_", "_recursive_", "_partial_")


def targets(node: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part that names a class or function, with its place."""
    if isinstance(node, dict):
        if "_target_" in node:
            yield place, node
        for name, value in node.items():
            yield from targets(value, f"{place}.{name}".lstrip("."))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from targets(value, f"{place}[{number}]")


def assert_can_be_made(config: DictConfig) -> set[str]:
    """Names and arguments; returns the places that name something."""
    found = dict(targets(OmegaConf.to_container(config)))
    for place, part in found.items():
        made = get_object(part["_target_"])
        try:
            inspect.signature(made).bind(**{name: value for name, value in part.items() if name not in _OF_HYDRA})
        except TypeError as error:
            pytest.fail(f"{place}: {part['_target_']} cannot be called: {error}")
    return set(found)
