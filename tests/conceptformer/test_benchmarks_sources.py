"""Where published data come from: a folder, or the hub at one commit; and the choices that the commands offer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from conceptformer.benchmarks import BenchmarkGroup, DocumentFolder, MtebCorpus, ParquetCorpus, corpora_of_one_release
from conceptformer.data.folder import HubData, data_folder
from conceptformer.errors import DataError
from conceptformer.opendocvqa import OpenDocVqaQueries, ReleasedTrainset
from tests.conceptformer.commands_here import run_here
from tests.conceptformer.parquet_files import write_benchmark
from visar.command_line import config_folder

constants = pytest.importorskip("huggingface_hub.constants", reason="huggingface_hub is not installed")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SIX = ("infovqa", "chartqa", "slidevqa", "tqa", "owid_charts", "wikimedia_maps")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's local cache, and no connection."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def put(cache: Path, content: Path) -> None:
    """Lay a folder into the cache as the commit of owner/name."""
    shutil.copytree(content, cache / "datasets--owner--name" / "snapshots" / COMMIT)


def hub(**changes: object) -> HubData:
    return HubData(**({"repository": "owner/name", "revision": COMMIT, "files": ["*"]} | changes))


def config_of(command: str, *overrides: str):
    with initialize_config_dir(str(config_folder("conceptformer")), version_base="1.3"):
        return compose(command, overrides=list(overrides))


def test_the_folder_of_a_commit_is_found_in_the_cache(cache, tmp_path):
    write_benchmark(tmp_path / "content" / "part", {"q": ["a"]}, ["a", "b", "c"])
    put(cache, tmp_path / "content")
    benchmark = ParquetCorpus(None, None, "part", hub(folder="part", files=["part/*"]), skip_bad_rows=False)
    assert benchmark.load().relevant == {"q": frozenset("a")}


@pytest.mark.parametrize("revision", [None, "main", "0123abc"])
def test_a_revision_that_is_no_commit_is_said(cache, revision):
    with pytest.raises(DataError, match=f"its revision is {revision}; .*benchmark.hub.revision=COMMIT"):
        data_folder(None, hub(revision=revision), setting="benchmark", needs="x")


def test_a_hub_that_cannot_be_reached_is_one_line_that_says_what_else_to_do(cache):
    with pytest.raises(DataError) as caught:
        data_folder(None, hub(), setting="queries", needs="train.parquet in it")
    said = str(caught.value)
    assert said.startswith(f"owner/name at {COMMIT}: cannot be downloaded (")
    assert "set queries.root=FOLDER, a folder with train.parquet in it" in said and "\n" not in said


def test_nothing_given_and_nothing_published_is_said():
    with pytest.raises(DataError, match="benchmark.root: expected a folder with pages; write benchmark.root=FOLDER"):
        data_folder(None, hub(repository=None), setting="benchmark", needs="pages")


def test_a_folder_that_is_none_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").write_text("x")
    (tmp_path / "data" / "below").mkdir(parents=True)
    assert data_folder("~/data", hub(), below="below", setting="benchmark", needs="x") == tmp_path / "data" / "below"
    for root in ("~/file", "~/gone"):
        with pytest.raises(DataError, match="benchmark.root: .*; expected a folder with pages"):
            data_folder(root, hub(), setting="benchmark", needs="pages")


@pytest.mark.parametrize("name", SIX)
def test_each_of_the_six_is_a_choice_of_its_own(name):
    benchmark = instantiate(config_of("eval", f"benchmark={name}", "benchmark.root=data").benchmark)
    assert isinstance(benchmark, ParquetCorpus)
    assert (benchmark.name, benchmark.root, benchmark.skip_bad_rows) == (name, "data", False)
    assert benchmark.hub.repository == "hmhm1229/ConceptFormer-Eval"
    assert benchmark.folder == benchmark.hub.folder and list(benchmark.hub.files) == [f"{benchmark.folder}/*"]


def test_all_are_the_six_in_the_order_of_the_table_in_one_place():
    group = instantiate(config_of("eval", "benchmark=all", "benchmark.root=data", "skip_bad_rows=true").benchmark)
    assert isinstance(group, BenchmarkGroup)
    assert tuple(group.members) == SIX
    assert {member.root for member in group.members.values()} == {"data"}
    assert all(member.skip_bad_rows and member.sha256 for member in group.members.values())
    group = instantiate(config_of("eval", "benchmark=all", f"benchmark.hub.revision={COMMIT}").benchmark)
    assert {(member.root, member.hub.revision) for member in group.members.values()} == {(None, COMMIT)}


def test_a_member_that_lies_elsewhere_stays_there():
    config = config_of("eval", "benchmark=all", "benchmark.root=data", "benchmark.members.tqa.root=other")
    assert [member.root for member in instantiate(config.benchmark).members.values()] == [*["data"] * 3, "other"] + [
        "data"
    ] * 2
    with pytest.raises(DataError, match="at least one benchmark"):
        corpora_of_one_release("data", {"revision": None}, {})


def test_all_are_evaluated_in_turn_and_averaged(tmp_path):
    for number, name in enumerate(SIX):
        folder = config_of("eval", f"benchmark={name}").benchmark.folder
        ids = [f"{name}/{page}.png" for page in range(3 + number)]
        write_benchmark(tmp_path / "data" / folder, {f"{name}-test_0": ids[:2]}, ids)
    (tmp_path / "more" / "retriever").mkdir(parents=True)
    chosen = tmp_path / "more" / "retriever" / "colours.yaml"
    chosen.write_text("_target_: tests.conceptformer.colour_pages.ColourRetriever\nlog: null\n")
    settings = ("hydra.searchpath=[file://more]", "retriever=colours", "cache=cache", "output=out",
                "resampling.samples=10", "benchmark=all", "benchmark.root=data")  # fmt: skip
    refused = run_here("eval", *settings, folder=tmp_path)
    assert refused.status == 2
    assert "data/infovqa: the corpus has 3 pages, the published one 5,485: scores would not be" in refused.error
    counts = [f"benchmark.members.{name}.pages={3 + number}" for number, name in enumerate(SIX)]
    done = run_here("eval", *settings, *counts, folder=tmp_path)
    assert done.status == 0, done.err
    # What was made here is not what was published, and that is said.
    assert done.err.count("is not the file that was published") == 2 * len(SIX)
    metrics = {name: json.loads((tmp_path / "out" / name / "metrics.json").read_text()) for name in SIX}
    assert [(name, found["benchmark"], found["pages"]) for name, found in metrics.items()] == [
        (name, name, 3 + number) for number, name in enumerate(SIX)
    ]
    mean = sum(found["recall_at_10"]["value"] for found in metrics.values()) / len(SIX)
    assert f"{mean:.3f}" in done.out


@pytest.mark.parametrize(
    ("choice", "kind"), [("parquet", ParquetCorpus), ("mteb", MtebCorpus), ("folder", DocumentFolder)]
)
def test_own_corpora_are_choices_that_say_what_they_need(choice, kind):
    benchmark = instantiate(config_of("eval", f"benchmark={choice}").benchmark)
    assert isinstance(benchmark, kind)
    with pytest.raises(DataError, match=r"benchmark\.(root|documents): expected a folder"):
        benchmark.load()


@pytest.mark.parametrize(("choice", "kind"), [("opendocvqa", OpenDocVqaQueries), ("released", ReleasedTrainset)])
def test_the_queries_of_the_training_set_are_a_choice(choice, kind):
    config = config_of("opendocvqa", f"queries={choice}", "queries.files=[a.parquet]")
    queries = instantiate(config.queries)
    assert isinstance(queries, kind) and list(queries.hub.files) == ["a.parquet"]
