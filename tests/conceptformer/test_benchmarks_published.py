"""The queries and judgments of the six benchmarks as they were published."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
import warnings
from importlib.resources import files
from pathlib import Path

import pytest

from conceptformer.benchmarks import ParquetCorpus
from conceptformer.benchmarks.hub_corpus import read_published_queries
from conceptformer.data.folder import HubData
from conceptformer.data.json_rows import Refusals
from conceptformer.errors import DataError
from tests.conceptformer.parquet_files import write_benchmark
from visar.command_line import config_folder

pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

EVAL = Path(__file__).parents[2].parent / "shared" / "data" / "conceptformer-eval"
SIX = {
    "infovqa": ("infovqa", 1048, 0),
    "chartqa": ("chartqa", 150, 0),
    "slidevqa": ("slidevqa", 760, 0),
    "tqa": ("tqa", 1000, 1000),
    "owid_charts": ("owid_charts_en", 131, 131),
    "wikimedia_maps": ("wikimedia-commons-maps", 455, 455),
}
real = pytest.mark.skipif(not EVAL.is_dir(), reason="the published queries are not beside the checkout")


@real
@pytest.mark.parametrize("name", SIX)
def test_the_published_queries_and_judgments_load_and_are_as_many_as_the_manifest_says(name):
    folder, count, with_backslash = SIX[name]
    refusals = Refusals(EVAL / folder, skip=False)
    queries = read_published_queries(EVAL / folder, refusals)
    manifest = json.loads((EVAL / folder / "manifest.json").read_text())
    assert refusals.result(len(queries.texts), "queries") == ()
    assert len(queries.texts) == queries.rows == manifest["query_rows"] == count
    assert queries.judgments == manifest["qrels_rows"]
    assert (
        len({page for page_ids in queries.relevant.values() for page in page_ids}) == manifest["corpus_positive_docs"]
    )
    assert sum("\\n" in text for text in queries.texts.values()) == with_backslash
    table = pq.read_table(EVAL / folder / "query.parquet").to_pylist()
    assert queries.texts == {row["query_id"]: row["query"] for row in table}
    assert queries.relevant == {row["query_id"]: tuple(row["relevant_doc_ids"]) for row in table}


@real
@pytest.mark.parametrize("name", SIX)
def test_the_configs_know_the_published_files(name):
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((config_folder("conceptformer") / "benchmark" / f"{name}.yaml").read_text())
    assert config["sha256"] == {
        file: hashlib.sha256((EVAL / config["folder"] / file).read_bytes()).hexdigest()
        for file in ("query.parquet", "qrels.txt")
    }
    assert config["pages"] == json.loads((EVAL / config["folder"] / "manifest.json").read_text())["corpus_rows"]


@pytest.mark.parametrize("name", SIX)
def test_the_configs_know_the_numbers_of_pages_of_table_5(name):
    yaml = pytest.importorskip("yaml")
    config = yaml.safe_load((config_folder("conceptformer") / "benchmark" / f"{name}.yaml").read_text())
    with (files("conceptformer.published") / "conceptformer_table5.csv").open(encoding="utf-8") as table:
        rows = {row["benchmark"]: row for row in csv.DictReader(line for line in table if not line.startswith("#"))}
    assert config["pages"] == int(rows[name]["pages"])
    assert set(config["sha256"]) == {"query.parquet", "qrels.txt"}


@real
def test_without_the_pages_the_published_folder_says_which_files_it_needs():
    with pytest.raises(DataError, match="not there: 14 of 14, the first: corpus-00000-of-00014.parquet"):
        ParquetCorpus(None, EVAL, "slidevqa", HubData(None, None, []), skip_bad_rows=False).load()


# A published corpus, made small: what must be there, and how many pages.

IDS = [f"made/{number}.png" for number in range(17)]


@pytest.fixture
def published(tmp_path: Path) -> ParquetCorpus:
    folder = write_benchmark(tmp_path / "made", {"q": [IDS[0]], "r": [IDS[7], IDS[8]]}, IDS)
    sha256 = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("query.parquet", "qrels.txt")}
    hub = HubData("owner/name", None, ["made/*"], "made")
    return ParquetCorpus("made", tmp_path, "made", hub, skip_bad_rows=True, sha256=sha256, pages=len(IDS))


def test_a_whole_published_corpus_loads_without_a_warning(published):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(published.load().pages) == 17


@pytest.mark.parametrize("gone", [["manifest.json"], ["qrels.txt"], ["query.parquet"], ["qrels.txt", "manifest.json"]])
@pytest.mark.parametrize("shard_too", [False, True])
def test_a_published_file_that_is_missing_is_named_with_where_to_get_it(published, tmp_path, gone, shard_too):
    for name in gone:
        (tmp_path / "made" / name).unlink()
    if shard_too:
        (tmp_path / "made" / "corpus-00002-of-00003.parquet").unlink()
    told = f"made: published files that are not there: {', '.join(gone)}; fetch them from the hub (owner/name, made/)"
    with pytest.raises(DataError, match=re.escape(told)) as caught:
        published.load()
    assert "\n" not in str(caught.value)


def test_without_checksums_a_corpus_of_ones_own_needs_neither_manifest_nor_qrels(published, tmp_path):
    for name in ("manifest.json", "qrels.txt"):
        (tmp_path / "made" / name).unlink()
    own = ParquetCorpus(None, tmp_path, "made", HubData(None, None, []), skip_bad_rows=False)
    assert len(own.load().pages) == 17


def test_a_manifest_that_was_cut_down_with_the_corpus_does_not_pass_for_the_published_one(published, tmp_path):
    shutil.rmtree(tmp_path / "made")
    write_benchmark(tmp_path / "made", {"q": [IDS[0]], "r": [IDS[7], IDS[8]]}, IDS[:12])
    with pytest.raises(DataError, match=r"the corpus has 12 pages, the published one 17: .*; fetch them .*=parquet"):
        published.load()
