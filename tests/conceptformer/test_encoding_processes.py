"""Encoding in several processes, in killed ones, and on a full disk."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
from collections.abc import Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from conceptformer.errors import DataError
from conceptformer.records import Page
from conceptformer.retrieval.encoding import Place, encode_pages
from tests.conceptformer.colour_pages import ColourRetriever, encoding, make_pages, silent
from tests.conceptformer.encoded_pages import assert_same, directly, lines, made, shards

ALONE = Place()
COUNT = 17


@pytest.fixture
def pages(tmp_path) -> list[Page]:
    return make_pages(tmp_path / "pages", COUNT)


def start(
    pages: Sequence[Page],
    cache: Path,
    log: Path,
    *,
    seconds: float = 0.0,
    place: Place = ALONE,
    largest: int | None = None,
) -> ForkProcess:
    """Encode in a process of its own, which may write files of at most ``largest`` bytes."""

    def encode() -> None:
        if largest is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        encode_pages(pages, ColourRetriever(log, seconds), encoding(cache, place=place), silent)

    # Forked, since importing torch anew would take longer than all the tests together.
    process = multiprocessing.get_context("fork").Process(target=encode)
    process.start()
    return process


def test_processes_share_the_work_and_the_first_ends_with_all_of_it(tmp_path, pages):
    cache, logs = tmp_path / "cache", [tmp_path / f"log {rank}" for rank in range(3)]
    # The first has the least to do at first, and most to wait for.
    waits = (0.0, 0.02, 0.04)
    running = [start(pages, cache, logs[rank], seconds=waits[rank], place=Place(rank, 3)) for rank in range(3)]
    running[0].join(60)
    assert running[0].exitcode == 0
    # Shards 0 and 3, shard 1, shard 2; of 5, 5, 5 and 2 pages.
    assert [len(lines(log)) for log in logs] == [7, 5, 5]
    log = tmp_path / "log"
    assert_same(made(encode_pages(pages, ColourRetriever(log), encoding(cache), silent)), directly(pages))
    assert lines(log) == []
    for process in running[1:]:
        process.join(60)
        assert process.exitcode == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_process_killed_at_any_moment_costs_the_shard_in_the_making(tmp_path, pages, seed):
    cache, log, kills = tmp_path / "cache", tmp_path / "log", 0
    moments = random.Random(seed)
    while True:
        process = start(pages, cache, log, seconds=0.01)
        # Longer each time, so that a slow machine comes to an end too.
        process.join(moments.uniform(0.07, 0.15) * (1 + kills / 4))
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        kills += 1
    assert process.exitcode == 0
    assert kills >= 1 and COUNT <= len(lines(log)) <= COUNT + 5 * kills
    encoded = encode_pages(pages, ColourRetriever(log), encoding(cache), silent)
    assert_same(made(encoded), directly(pages))
    assert not list(encoded.vectors.path.glob(".*"))


def test_a_process_that_never_comes_is_not_waited_for_without_end(tmp_path, pages):
    log = tmp_path / "log"
    settings = encoding(tmp_path / "cache", place=Place(0, 2), patience_seconds=0.3)
    with pytest.warns(UserWarning, match="makes their 2 missing shards itself"):
        encoded = encode_pages(pages, ColourRetriever(log), settings, silent)
    assert_same(made(encoded), directly(pages))
    assert len(lines(log)) == COUNT


def test_other_processes_make_their_share_and_do_not_wait(tmp_path, pages):
    encoded = encode_pages(pages, ColourRetriever(), encoding(tmp_path, place=Place(1, 2)), silent)
    assert [path.name for path in shards(encoded)] == ["shard-00001.safetensors", "shard-00003.safetensors"]
    with pytest.raises(DataError, match="run again"):
        made(encoded)


def test_a_full_disk_is_said_and_costs_nothing_that_was_complete(tmp_path, pages, capfd):
    """A limit on the size of a file stands in for the disk: the third shard is too large, for one long id."""
    pages[12] = Page("long " * 800, pages[12].image)
    cache, log = tmp_path / "cache", tmp_path / "log"
    process = start(pages, cache, log, largest=3000)
    process.join(60)
    error = capfd.readouterr().err.splitlines()[-1]
    assert process.exitcode == 1
    assert "StoreError" in error and "cannot write" in error and "what is complete is kept" in error
    (folder,) = (cache / "pages").iterdir()
    assert sorted(os.listdir(folder)) == ["key.json", "shard-00000.safetensors", "shard-00001.safetensors"]
    assert_same(made(encode_pages(pages, ColourRetriever(log), encoding(cache), silent)), directly(pages))
    assert len(lines(log)) == COUNT + 5
