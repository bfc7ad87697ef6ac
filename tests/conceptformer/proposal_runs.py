"""Pairs of small pages, runs of ``conceptformer.propose`` on them, and fixtures of a server to ask."""

from __future__ import annotations

import copy
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from conceptformer import propose as command
from tests.conceptformer.proposal_server import Server, running_server
from tests.conceptformer.tiny_models import noise_image
from tests.visar.commands import Outcome
from visar.command_line import config_folder, run_command
from visar.errors import VisarError

KEY = "sk-secret-0123456789abcdef"
SIZE = (100, 150)


@pytest.fixture(scope="module")
def process() -> Iterator[Server]:
    """One server process for all tests of a file."""
    with running_server() as server:
        yield server


@pytest.fixture
def server(process) -> Server:
    """It answers each request with a box; the log is empty."""
    process.plan()
    return process


def write_pairs(folder: Path, count: int, *, more: Iterable[object] = ()) -> Path:
    """``folder/data/pairs.jsonl`` with pairs q0 ... of one page each, seven of which share an image, and other lines.

    ``more`` is written as it is where it is text, else as JSON.
    """
    data = folder / "data"
    (data / "pages").mkdir(parents=True)
    for number in range(min(7, count)):
        noise_image(*SIZE, seed=number).save(data / "pages" / f"{number}.png")
    rows: list[object] = [
        {"query_id": f"id{i}", "query": f"What is q{i}?", "page_id": f"page{i}", "image": f"pages/{i % 7}.png"}
        for i in range(count)
    ]
    lines = (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in (*rows, *more))
    path = data / "pairs.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def arguments(server: Server | str, *more: str) -> list[str]:
    """Of a run with short waits; what comes later in ``more`` wins."""
    given = {
        "pairs": "data/pairs.jsonl",
        "out": "out/boxes.jsonl",
        "api.base_url": server if isinstance(server, str) else server.url,
        "api.model": "some/model-1",
        "frame": "absolute",
        "retry.first_wait_seconds": "0.01",
        "retry.longest_wait_seconds": "0.02",
        "retry.attempts": "3",
    }
    given |= dict(argument.split("=", 1) for argument in more)
    return [f"{name}={value}" for name, value in given.items()]


def run(folder: Path, server: Server | str, *more: str, key: str | None = KEY) -> Outcome:
    """The command as if it had been started in ``folder``."""

    def start() -> None:
        run_command(command.main, config="propose", literal=command.LITERAL_KEYS, package="conceptformer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["conceptformer.propose", *arguments(server, *more)])
        patch.setenv("HYDRA_FULL_ERROR", "")
        return _outcome(start, folder, key)


def run_main(folder: Path, server: Server | str, *more: str, key: str | None = KEY) -> Outcome:
    """The same without Hydra's way from arguments to the config, which takes longer than the run."""
    config = copy.deepcopy(_config())
    config.merge_with_dotlist(arguments(server, *more))

    def start() -> None:
        try:
            command.main(config)
        except VisarError as error:
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from error

    return _outcome(start, folder, key)


@cache
def _config() -> DictConfig:
    with initialize_config_dir(str(config_folder("conceptformer")), version_base="1.3"):
        return compose("propose")


def _outcome(start: Callable[[], None], folder: Path, key: str | None) -> Outcome:
    status, out, err = 0, io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=err)
        patch.chdir(folder)
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.delenv("OPENAI_API_KEY", raising=False)
        if key is not None:
            patch.setenv("OPENAI_API_KEY", key)
        with redirect_stdout(out), redirect_stderr(err):
            try:
                start()
            except SystemExit as end:
                status = int(end.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue())


def rows_in(folder: Path, name: str = "boxes") -> list[dict[str, Any]]:
    """Rows of ``out/NAME.jsonl``; none where it is not there."""
    path = folder / "out" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def content_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def reply(*areas: object, **more: object) -> Mapping[str, Any]:
    """A step of the server: a completion with these boxes."""
    boxes = [{"area": area, "describe": f"thing {number}"} for number, area in enumerate(areas)]
    return {"content": json.dumps({"think": "so", "boxes": boxes}), **more}
