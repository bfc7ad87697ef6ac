"""What retrievers are measured on: own folders, and the drawn pages, which several processes ask for at once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from conceptformer.benchmarks import Benchmark, Drawn, RetrievalFolder
from conceptformer.data.retrieval_files import write_retrieval_folder
from conceptformer.drawn import DrawnPages
from conceptformer.errors import DataError
from conceptformer.retrieval.evaluation import check_task
from tests.conceptformer.colour_pages import make_task
from visar.tensor_files import StoreError


def drawn(folder: Path) -> Drawn:
    return Drawn(DrawnPages(folder, pages=30, held_out_pages=9))


def test_a_folder_is_read_as_it_was_written_wherever_home_is(tmp_path, monkeypatch):
    task = make_task(tmp_path / "data" / "images", 7)
    write_retrieval_folder(tmp_path / "data", task)
    monkeypatch.setenv("HOME", str(tmp_path))
    seen: list[tuple[int, int]] = []
    benchmark = RetrievalFolder("~/data", skip_bad_rows=False)
    read = benchmark.load(lambda *progress: seen.append(progress))
    assert (dict(read.queries), dict(read.relevant)) == (dict(task.queries), dict(task.relevant))
    assert [page.page_id for page in read.pages] == [page.page_id for page in task.pages]
    assert seen[-1] == (7, 7)
    assert isinstance(benchmark, Benchmark)


def test_no_folder_is_said():
    with pytest.raises(DataError, match="write benchmark.folder=FOLDER"):
        RetrievalFolder(None, skip_bad_rows=True).load()


def test_drawn_pages_are_made_once_by_processes_that_come_together(tmp_path):
    """The drawing may be written by one process at a time; torchrun starts several at once."""
    log = tmp_path / "log"

    def load() -> None:
        def on_progress(done: int, total: int) -> None:
            with log.open("a") as file:
                file.write(f"{done}\n")

        drawn(tmp_path / "cache" / "drawn").load(on_progress)

    context = multiprocessing.get_context("fork")
    running = [context.Process(target=load) for _ in range(3)]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
    assert [process.exitcode for process in running] == [0, 0, 0]
    # One drew, the others waited and found it done.
    assert log.read_text().splitlines().count("0") == 1
    task = drawn(tmp_path / "cache" / "drawn").load()
    check_task(task)
    assert len(task.pages) == len(task.queries) == 9
    assert isinstance(drawn(tmp_path), Benchmark)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="choose another cache folder"):
        drawn(tmp_path / "file" / "drawn").load()
