"""Results of one run are not written over those of another, nor is a run refused without a word on what to do."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from conceptformer.data.parquet_pages import ParquetImage
from conceptformer.data.retrieval_files import write_retrieval_folder
from conceptformer.errors import DataError
from conceptformer.records import Page, RetrievalTask
from conceptformer.retrieval.finished_runs import find_finished_runs
from conceptformer.retrieval.result_folders import data_fingerprint
from tests.conceptformer.colour_pages import make_task
from tests.conceptformer.commands_here import run_here
from tests.conceptformer.parquet_files import CORPUS, QUERIES, corpus_rows, page_content, write_benchmark, write_table
from tests.conceptformer.test_eval_command import COLOURS, metrics_in, run
from tests.conceptformer.test_result_folders_kept import OURS, another_process, chosen, finished

FILES = ("benchmark=files", "cache=cache", "resampling.samples=50", *COLOURS)
EVAL = Path("runs", "conceptformer", "eval")


@pytest.fixture
def here(tmp_path) -> Path:
    """Two folders of one name with different pages."""
    for number, place in ((8, tmp_path / "data"), (12, tmp_path / "other" / "data")):
        write_retrieval_folder(place, make_task(place / "images", number))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# The command.


def test_another_folder_of_the_same_name_and_other_settings_get_folders_of_their_own(here):
    runs = {
        "files-data/colours": ("benchmark.folder=data",),
        "files-data/colours-2": ("benchmark.folder=data", "+retriever.weight=0.5"),
        "files-data-2/colours": ("benchmark.folder=other/data",),
        "files-data-2/colours-2": ("benchmark.folder=other/data", "+retriever.weight=0.5"),
    }
    kept: dict[str, bytes] = {}
    for name, arguments in runs.items():
        outcome = run(*FILES, *arguments, folder=here)
        assert outcome.status == 0, outcome.err
        assert outcome.out.splitlines()[-1] == f"results: {EVAL / name}"
        moved = (
            f"{EVAL / name.replace('-2', '')} was taken by other data or other settings: results go to {EVAL / name}"
        )
        assert (moved in outcome.out.splitlines()) == ("-2" in name)
        # What was there before is as it was.
        assert contents(here / EVAL).items() >= kept.items()
        kept = contents(here / EVAL)
    assert len(find_finished_runs(here / EVAL)[0]) == 4
    assert metrics_in(here / EVAL / "files-data-2" / "colours")["pages"] == 12
    # Each finds its own again.
    for name, arguments in runs.items():
        outcome = run(*FILES, *arguments, folder=here)
        assert outcome.out.splitlines()[-1] == f"results: {EVAL / name}"
    assert contents(here / EVAL) == kept


def test_tables_of_data_of_one_name_are_made_one_by_one(here):
    for folder in ("data", "other/data"):
        assert run(*FILES, f"benchmark.folder={folder}", folder=here).status == 0
    both = run_here("table", "output=out", folder=here)
    assert "data, with different queries; compare runs of the same data: choose their folder, runs=FOLDER" in both.error
    outcome = run_here("table", "output=out", f"runs={EVAL / 'files-data-2'}", folder=here)
    assert outcome.status == 0 and "data: 4 queries, 12 pages." in outcome.out.splitlines()


def test_a_folder_that_was_chosen_is_refused_where_it_holds_other_results_and_the_way_out_is_said(here):
    assert run(*FILES, "benchmark.folder=data", "output=out", folder=here).status == 0
    kept = contents(here / "out")
    assert run(*FILES, "benchmark.folder=data", "output=out", folder=here).status == 0
    other = run(*FILES, "benchmark.folder=other/data", "output=out", folder=here)
    assert other.error == (
        "output: out holds results of other pages or queries, called data too; choose another folder, output=FOLDER, "
        "or remove that one"
    )
    settings = run(*FILES, "benchmark.folder=data", "+retriever.weight=0.5", "output=out", folder=here)
    assert settings.error.startswith(
        "output: out holds results of colours with other settings or weights; choose another"
    )
    assert contents(here / "out") == kept
    assert len(list((here / "cache" / "pages").iterdir())) == 1  # nothing was encoded before it was refused


def test_a_changed_page_makes_other_data(here):
    assert run(*FILES, "benchmark.folder=data", folder=here).status == 0
    page = here / "data" / "images" / "1.png"
    page.write_bytes(page.read_bytes() + b"\0")
    assert run(*FILES, "benchmark.folder=data", folder=here).out.splitlines()[-1] == (
        f"results: {EVAL / 'files-data-2' / 'colours'}"
    )


def test_a_run_that_failed_leaves_its_folders_to_the_one_that_follows(here):
    page = here / "data" / "images" / "1.png"
    good = page.read_bytes()
    page.write_bytes(good[: len(good) // 2 + 20])
    for output in ((), ("output=out",)):
        failed = run(*FILES, "benchmark.folder=data", *output, folder=here)
        assert failed.status == 2 and "page 'page 1': data/images/1.png: the image is damaged" in failed.error
    page.write_bytes(good)
    for output, folder in (((), EVAL / "files-data" / "colours"), (("output=out",), Path("out"))):
        outcome = run(*FILES, "benchmark.folder=data", *output, folder=here)
        assert (outcome.status, outcome.out.splitlines()[-1]) == (0, f"results: {folder}")
        assert "running.lock" not in contents(here / folder)
    assert [path.name for path in (here / EVAL).iterdir()] == ["files-data"]
    assert find_finished_runs(here / EVAL)[1] == []


def test_other_images_under_the_same_ids_make_other_data_within_parquet_files_too(tmp_path):
    relevant = {"q1": ["p1"], "q2": ["p7"]}
    queries = [{"query_id": name, "query": "red green", "relevant_doc_ids": own} for name, own in relevant.items()]
    settings = ("benchmark=parquet", "benchmark.root=data", "cache=cache", "resampling.samples=50", *COLOURS)
    ids = [f"p{number}" for number in range(12)]
    write_benchmark(tmp_path / "data", relevant, ids)
    write_table(tmp_path / "data" / "query.parquet", queries, QUERIES)
    assert run(*settings, folder=tmp_path).status == 0
    kept = contents(tmp_path / EVAL)
    # One image of 12, so that only one of the three files changes.
    rows = corpus_rows(ids[:4])
    rows[1]["image"]["bytes"] = page_content(100, 40)
    (first, *_) = sorted((tmp_path / "data").glob("corpus-*.parquet"))
    write_table(first, rows, CORPUS, 5)
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    manifest["corpus_bytes"] = sum(path.stat().st_size for path in (tmp_path / "data").glob("corpus-*.parquet"))
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))
    outcome = run(*settings, "+retriever.weight=0.5", folder=tmp_path)
    assert outcome.out.splitlines()[-1] == f"results: {EVAL / 'parquet-data-2' / 'colours'}", outcome.err
    assert contents(tmp_path / EVAL).items() >= kept.items()
    told = run_here("table", "output=out", folder=tmp_path).error
    assert "both are of a benchmark called data, with different page images or texts; compare runs of the same" in told


def test_data_in_parquet_files_are_told_apart_by_each_files_name_and_size_and_not_by_their_place(tmp_path):
    """Files of several folders may have one name."""

    def fingerprint(root: Path) -> str:
        files = [root / "en" / "test.parquet", root / "more" / "test.parquet"]
        pages = (Page(path.parent.name, ParquetImage(path, "image", 0, 0)) for path in files)
        return data_fingerprint(RetrievalTask("x", {"q": "a"}, tuple(pages), {"q": frozenset({"en"})}))

    for root, sizes in {"a": (3, 4), "moved": (3, 4), "first": (5, 4), "second": (3, 5), "swapped": (4, 3)}.items():
        for folder, size in zip(("en", "more"), sizes, strict=True):
            (tmp_path / root / folder).mkdir(parents=True)
            (tmp_path / root / folder / "test.parquet").write_bytes(bytes(size))
    prints = {name: fingerprint(tmp_path / name) for name in ("a", "moved", "first", "second", "swapped")}
    assert prints["a"] == prints["moved"] and len(set(prints.values())) == 4
    (tmp_path / "a" / "more" / "test.parquet").unlink()
    with pytest.raises(DataError, match=r"more/test.parquet: No such file"):
        fingerprint(tmp_path / "a")


# The parts.


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"benchmark": "slides"}, "another benchmark, docs;"),
        ({"data": "data 2"}, "other pages or queries, called docs too;"),
        ({"retriever": "MiniLM"}, "another retriever, BM25;"),
        ({"fingerprint": "settings 2"}, "BM25 with other settings or weights;"),
    ],
)
def test_it_is_said_what_is_there(tmp_path, changes, said):
    finished(tmp_path / "out", OURS)
    with pytest.raises(DataError, match=f"output: {tmp_path}/out holds results of {said}"):
        finished(tmp_path / "out", dataclasses.replace(OURS, **changes))


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"benchmark": "docs"}', b"\xff"])
def test_results_of_nobody_knows_what_are_left_alone(tmp_path, content):
    """Of an earlier version, or damaged."""
    folder = tmp_path / "docs" / "BM25"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text("{}")
    if content is not None:
        (folder / "identity.json").write_bytes(content)
    assert chosen(tmp_path, "docs", "BM25", OURS) == tmp_path / "docs-2" / "BM25"
    with pytest.raises(DataError, match="holds results of another run; choose another folder"):
        finished(folder, OURS)


def test_data_are_told_apart_by_whatever_changes_a_score(tmp_path):
    task = make_task(tmp_path / "images", 4)
    image = task.pages[1].image
    changed = [
        dataclasses.replace(task, queries={**task.queries, "q0": "another"}),
        dataclasses.replace(task, relevant={**task.relevant, "q0": frozenset({"page 2"})}),
        dataclasses.replace(task, pages=task.pages[:3]),
        dataclasses.replace(task, pages=(*task.pages[:3], Page("page 9", task.pages[3].image))),
        dataclasses.replace(task, pages=(task.pages[0], Page("page 1", image.read_bytes() + b"0"), *task.pages[2:])),
    ]
    prints = [data_fingerprint(one) for one in (task, *changed)]
    assert len(set(prints)) == len(prints)
    # Where it lies, and how it is held in memory, change nothing.
    in_memory = tuple(Page(page.page_id, page.image.read_bytes()) for page in task.pages)
    assert data_fingerprint(dataclasses.replace(task, pages=in_memory, name="moved")) == prints[0]
    missing = RetrievalTask("x", {"q": "a"}, (Page("p", tmp_path / "gone.png"),), {"q": frozenset({"p"})})
    assert data_fingerprint(missing) != prints[0]


def test_a_run_that_was_killed_before_its_first_results_is_told_as_unfinished(here):
    assert run(*FILES, "benchmark.folder=data", folder=here).status == 0
    with another_process(here / EVAL / "docs" / "BM25", OURS) as process:
        process.kill()
    runs, unfinished = find_finished_runs(here / EVAL)
    assert len(runs) == 1 and unfinished == [here / EVAL / "docs" / "BM25"]
    assert json.loads((unfinished[0] / "identity.json").read_text())["retriever"] == "BM25"
