"""The queries and judgments of the six benchmarks as they were published."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from conceptformer.benchmarks import ParquetCorpus
from conceptformer.benchmarks.hub_corpus import read_published_queries
from conceptformer.data.folder import HubData
from conceptformer.data.json_rows import Refusals
from conceptformer.errors import DataError
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


@real
def test_without_the_pages_the_published_folder_says_which_files_it_needs():
    with pytest.raises(DataError, match="14 of the 14 corpus files are not there, .*corpus-00000-of-00014.parquet"):
        ParquetCorpus(None, EVAL, "slidevqa", HubData(None, None, []), skip_bad_rows=False).load()
