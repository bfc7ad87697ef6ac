"""Processes that encode pieces end when nothing is left to do, in whatever order their pieces fail."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from visar.page_encoding import Piece, Step
from visar.records import Document
from visar.store import EmbeddingKey
from visar.worker_processes import run_in_processes

KEY = EmbeddingKey("{}")


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


@dataclass(frozen=True)
class FailTogether:
    """Pages 0 and 1 are begun at the same time and fail when they are told to; what is begun after them is listed."""

    folder: Path
    batch_pages: int = 1

    def steps(self, piece: Piece) -> Iterator[Step]:
        (self.folder / f"begun {piece.pages[0]}").touch()
        if piece.pages == (0,):
            wait_for(self.folder / "begun 1")
            yield Step(piece.key)
        wait_for(self.folder / "fail")
        yield Step(piece.key, ended=True, failure="broken")


@pytest.mark.skipif(os.name != "posix", reason="alarms of POSIX systems end a test that would wait for ever")
def test_a_document_whose_pieces_fail_at_the_same_time_ends_the_run(tmp_path):
    def too_late(number: int, frame: object) -> None:
        raise TimeoutError("waits for processes that have nothing to do")

    pieces = [Piece(Document("a", ()), KEY, (page,)) for page in range(3)]
    steps = run_in_processes(FailTogether(tmp_path), pieces, 2)
    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(60)
    try:
        assert next(steps) == Step(KEY)
        (tmp_path / "fail").touch()
        time.sleep(1)  # both failures now lie in their pipes
        assert [step.failure for step in steps] == ["broken", "broken"]
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        steps.close()
    assert not (tmp_path / "begun 2").exists()
