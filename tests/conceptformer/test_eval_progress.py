"""What ``python -m conceptformer.eval`` writes to a file while it works."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from conceptformer.data.retrieval_files import write_retrieval_folder
from tests.conceptformer.coded_pages import coded_task
from tests.visar.commands import environment

pytest.importorskip("bm25s", reason="the text extra is not installed")

# Read by an engine of the tests that takes its time for every page.
SLOW = {
    "_target_": "conceptformer.baselines.PageTextReader",
    "engine": {"_target_": "tests.conceptformer.coded_pages.CodedReader", "seconds": 30},
    "processes": 1,
}


def test_a_file_says_that_pages_are_being_read_before_the_first_one_is(tmp_path: Path) -> None:
    """Whoever pipes into a file, where there are no bars, sees that something goes on."""
    texts = {f"p{number}": f"topic{number}" for number in range(5)}
    write_retrieval_folder(
        tmp_path / "data", coded_task(texts, {"q": "topic3"}, {"q": ["p3"]}, tmp_path / "data" / "i")
    )
    (tmp_path / "more" / "page_text").mkdir(parents=True)
    (tmp_path / "more" / "page_text" / "slow.yaml").write_text(yaml.safe_dump(SLOW))
    arguments = (
        "hydra.searchpath=[file://more]", "page_text=slow", "retriever=bm25", "benchmark=files",
        "benchmark.folder=data", "cache=cache",
    )  # fmt: skip
    out = tmp_path / "out"
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "conceptformer.eval", *arguments],
            cwd=tmp_path,
            env=environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in range(1200):
            if b"texts of pages" in out.read_bytes() or process.poll() is not None:
                break
            time.sleep(0.05)
        assert process.poll() is None
        assert out.read_text().splitlines() == [
            "reading pages: 1 of 5",
            "reading pages: 5 of 5",
            "texts of pages: 0 of 5",
        ]
        assert not list((tmp_path / "cache" / "page_text").rglob("*.json"))
    finally:
        process.kill()
        process.wait()
