"""Training as a user starts it, on a few noise pages and with a model of some thousand parameters.

The command runs in forked processes, since importing torch and transformers anew takes longer than the training.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import DistributedType, PartialState
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from PIL import Image
from safetensors.torch import load_file
from torch import distributed

from conceptformer import train as command
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.backbones.qwen2_5_vl_inputs import InputSettings, Qwen2_5_VLInputs
from conceptformer.manifest import Manifest
from conceptformer.training.checkpoints import TRAINED_TENSORS
from conceptformer.training.run import LOG_FILE
from conceptformer.training.run_checkpoints import checkpoints
from tests.conceptformer.row_files import write_lines
from visar.command_line import config_folder, run_command

ROWS = 14
QUERIES = ("the red square", "a blue circle beside a small table", "chart")
# What depends on the clock.
TIMED = {"tokens_per_second", "train_runtime", "train_samples_per_second", "train_steps_per_second"}
_SECONDS = 120
FILES = ("data=files", "data.train=data/train.jsonl")
SMALL = (
    "cache=cache",
    "output=out",
    "backbone.pretrained.vocabulary_size=300",
    "backbone.pretrained.text={hidden_size:32,layers:1,heads:2,key_value_heads:1,intermediate_size:32}",
    "backbone.pretrained.vision={hidden_size:16,layers:1,heads:2,intermediate_size:32,window:112,full_attention:[0]}",
    "training.max_steps=6",
    "training.batch_size=4",
    "training.bucket=2",
    "training.log_every=1",
    "training.evaluate_every=0",
    "training.save_every=3",
    "training.workers=0",
    "training.loggers=[]",
)
"""Six steps of four rows without evaluation; an epoch of 14 rows has three steps."""
HELD_OUT = ("data.held_out=data/held_out", "training.evaluate_every=3")
LORA = ("adaptation=lora", "adaptation.rank=2", "adaptation.dropout=0.3")


def noise(path: Path, size: tuple[int, int], seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def pair(number: int, **changes: Any) -> dict[str, Any]:
    """A row of the training file: its page has 4 to 12 visual tokens, every fourth has no boxes."""
    boxes = [[0.0, 0.0, 0.6, 0.5], [0.5, 0.5, 1.0, 1.0]][: number % 4 and 1 + number % 2]
    row = {
        "query_id": f"q{number}",
        "query": f"{QUERIES[number % 3]} {number}",
        "page_id": f"p{number}",
        "image": f"images/{number}.png",
        "boxes": boxes,
        "frame": "relative",
    }
    return row | changes


def write_data(folder: Path, rows: Sequence[Mapping[str, Any]] | None = None) -> Path:
    """``data/train.jsonl``, a held-out task of six of its pages in ``data/held_out``, and the images of all."""
    rows = [pair(number) for number in range(ROWS)] if rows is None else rows
    for number in range(ROWS):
        noise(folder / "data" / "images" / f"{number}.png", (28 * (2 + number % 2), 28 * (2 + number % 3)), number)
    write_lines(folder / "data" / "train.jsonl", *rows)
    pages = [{"page_id": f"p{number}", "image": f"../images/{number}.png"} for number in range(7)]
    queries = [
        {"query_id": f"q{number}", "query": f"{QUERIES[number % 3]} {number}", "relevant": [f"p{number}"]}
        for number in range(5)
    ]
    write_lines(folder / "data" / "held_out" / "pages.jsonl", *pages)
    write_lines(folder / "data" / "held_out" / "queries.jsonl", *queries)
    return folder


@dataclass
class Running:
    """A command that has been started.

    Attributes:
        place: Where its output is collected.
    """

    process: multiprocessing.process.BaseProcess
    place: Path

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Until something is so, which the command must bring about."""
        end = time.monotonic() + _SECONDS
        while not condition():
            assert self.process.is_alive(), f"ended before: {self.err}"
            assert time.monotonic() < end, "the command takes too long"
            time.sleep(0.002)

    def finish(self, status: int = 0) -> Running:
        """Until it ends, with this exit status."""
        self.process.join(_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            raise AssertionError(f"the command hangs: {self.out}{self.err}")
        assert self.process.exitcode == status, f"exit status {self.process.exitcode}: {self.out}{self.err}"
        return self

    @property
    def out(self) -> str:
        return (self.place / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self.place / "stderr").read_text()

    @property
    def surprises(self) -> list[str]:
        """Lines on stderr, but for what is said of every training set that has rows without boxes."""
        return [line for line in self.err.splitlines() if "training pairs have no concept" not in line]

    @property
    def error(self) -> str:
        """The one line that says what is wrong."""
        (line,) = self.surprises
        assert line.startswith("error: ")
        return line


@cache
def _prepare() -> None:
    """Once for all processes: what transformers, Hydra and the tokenizers make and keep when they are first used."""
    with initialize_config_dir(str(config_folder("conceptformer")), version_base="1.3"):
        config = compose("train", overrides=[*FILES, *SMALL])
    with tempfile.TemporaryDirectory() as folder:
        config.output = config.cache = folder
        instantiate(config.backbone.pretrained)


def start(
    *arguments: str,
    folder: Path,
    largest: int | None = None,
    shard: bool = False,
    without: Sequence[str] = (),
    **environment: str,
) -> Running:
    """Start the command in a folder, with a small model and few steps, in a process group of its own.

    Args:
        largest: Bytes of a file beyond which the file system refuses to write, as a full disk does.
        shard: Let accelerate use FSDP, as it does where there are GPUs.
        without: Packages that cannot be imported, as if they were not installed.
    """
    _prepare()
    place = folder / f"printed {environment.get('RANK', '0')}"
    place.mkdir(exist_ok=True)

    def call() -> None:
        gc.freeze()
        os.setsid()
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        os.environ.update({"HYDRA_FULL_ERROR": "", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"} | environment)
        torch.set_num_threads(1)
        sys.modules.update(dict.fromkeys(without))
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        if shard:
            distributed.init_process_group("gloo")
            # It asks for GPUs by the kind of processes it finds; FSDP itself runs on a CPU too.
            PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
            os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
        files = () if any(argument.startswith("data=") for argument in arguments) else FILES
        sys.argv = ["conceptformer.train", *files, *SMALL, *arguments]
        run_command(command.main, config="train", literal=command.LITERAL_KEYS, package="conceptformer")

    process = multiprocessing.get_context("fork").Process(target=call)
    process.start()
    return Running(process, place)


def run(*arguments: str, folder: Path, status: int = 0, **options: Any) -> Running:
    """The command from its start to its end."""
    return start(*arguments, folder=folder, **options).finish(status)


def start_together(*arguments: str, folder: Path, processes: int = 2, **options: Any) -> list[Running]:
    """The command in several processes, as torchrun starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1"}
    return [
        start(*arguments, folder=folder, RANK=str(rank), LOCAL_RANK=str(rank), MASTER_PORT=port, **shared, **options)
        for rank in range(processes)
    ]


def run_together(*arguments: str, folder: Path, **options: Any) -> list[Running]:
    """All of them to their end."""
    started = start_together(*arguments, folder=folder, **options)
    for one in started:
        one.process.join(_SECONDS)
    said = "\n".join(f"{one.process.exitcode}: {one.err}" for one in started)
    for one in started:
        one.process.kill()
    assert [one.process.exitcode for one in started] == [0] * len(started), said
    return started


def log_of(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's log, without what depends on the clock."""
    rows = [json.loads(line) for line in (folder / LOG_FILE).read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMED} for row in rows]


def steps_of(folder: Path) -> list[int]:
    """Steps of the complete checkpoints."""
    return [int(path.name.rpartition("-")[2]) for path in checkpoints(folder)]


def inputs_of(folder: Path) -> Qwen2_5_VLInputs:
    """How a run words queries and pages."""
    settings = InputSettings(**Manifest.read(checkpoints(folder)[-1]).inputs)
    return Qwen2_5_VL.from_pretrained(folder / "base", settings=settings).inputs


def trained(folder: Path, step: int = 6) -> dict[str, torch.Tensor]:
    return load_file(folder / f"checkpoint-{step}" / TRAINED_TENSORS)


def assert_same_training(folder: Path, other: Path, step: int = 6) -> None:
    """To the last bit."""
    left, right = (one / f"checkpoint-{step}" / TRAINED_TENSORS for one in (folder, other))
    assert left.read_bytes() == right.read_bytes()
    assert log_of(folder) == log_of(other)


def largest_difference(left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor]) -> float:
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


def relative_difference(
    left: Mapping[str, torch.Tensor], right: Mapping[str, torch.Tensor], start: Mapping[str, torch.Tensor]
) -> float:
    """How far two trained states are apart, measured by how far they have come.

    Not number by number: Adam makes steps of full size of gradients that are nothing but rounding.
    """

    def norm(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> float:
        assert one.keys() == other.keys()
        return sum(float((one[name] - other[name]).detach().square().sum()) for name in one) ** 0.5

    return norm(left, right) / norm(right, start)
