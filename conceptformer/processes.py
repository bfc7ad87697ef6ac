"""Which of several processes this one is, as launchers say it."""

from __future__ import annotations

from collections.abc import Mapping

from conceptformer.errors import ConceptFormerError


def rank_and_world(environment: Mapping[str, str]) -> tuple[int, int]:
    """Number of this process, from 0, and of all of them, as torchrun says in RANK and WORLD_SIZE; 0 and 1 without it.

    Raises:
        ConceptFormerError: One of them is no number, out of range, or set without the other.
    """
    given = {name: environment[name] for name in ("RANK", "WORLD_SIZE") if environment.get(name)}
    if not given:
        return 0, 1
    if len(given) == 2 and all(value.isascii() and value.isdigit() for value in given.values()):
        rank, world = int(given["RANK"]), int(given["WORLD_SIZE"])
        if rank < world:
            return rank, world
    told = " and ".join(f"{name}={value}" for name, value in given.items())
    raise ConceptFormerError(f"the environment says {told}: expected RANK below WORLD_SIZE; start with torchrun")
