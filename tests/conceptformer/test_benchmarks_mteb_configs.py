"""Several corpora in one data set, told apart by names before or behind those of the tables."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from conceptformer.errors import DataError
from tests.conceptformer.parquet_files import BARE_CORPUS, pq, write_table
from tests.conceptformer.test_benchmarks_mteb import (
    PAGES,
    QUERIES,
    RELEVANT,
    TEXT,
    WHOLE,
    beir,
    corpus,
    mteb,
    schema,
    vidore,
)
from visar.command_line import config_folder

TABLES = ("corpus", "queries", "qrels")
NAMES = ["{config}-{table}", "{table}-{config}", "{config}_{table}", "{table}_{config}"]


def in_folders(root: Path, config: str, name: str, question: str | None = None) -> None:
    """A corpus whose folders bear a config's name; with a question all its queries ask that."""
    vidore(root / "made")
    if question is not None:
        rows = [{"query-id": int(query_id), "query": question} for query_id in QUERIES]
        kinds = schema(query__id=WHOLE, query=TEXT)
        write_table(root / "made" / "queries" / "test-00000-of-00001.parquet", rows, kinds)
    for table in TABLES:
        (root / "made" / table).rename(root / name.format(config=config, table=table))
    (root / "made").rmdir()


def of_files(root: Path, config: str, name: str) -> None:
    """A corpus of files beside each other that bear a config's name."""
    mteb(root / "made")
    for path in (root / "made").iterdir():
        table, _, number = path.name.partition("-")
        path.rename(root / f"{name.format(config=config, table=table)}-{number}")
    (root / "made").rmdir()


def assert_whole(task) -> None:
    assert (task.queries, task.relevant, task.refused) == (QUERIES, RELEVANT, ())
    assert [page.page_id for page in task.pages] == [str(number) for number in range(PAGES)]


@pytest.mark.parametrize("name", NAMES)
def test_the_only_config_needs_no_choice_and_may_be_chosen(tmp_path, name):
    in_folders(tmp_path, "zh-hans", name)
    assert_whole(corpus(tmp_path).load())
    assert corpus(tmp_path).load().name == tmp_path.name
    assert_whole(corpus(tmp_path, config="zh-hans").load())


@pytest.mark.parametrize("name", NAMES)
def test_of_several_configs_one_has_to_be_chosen_and_names_the_task(tmp_path, name):
    in_folders(tmp_path, "en", name, "In English?")
    in_folders(tmp_path, "fr", name, "En français ?")
    with pytest.raises(
        DataError, match="has tables of the configs en, fr; choose one: benchmark.config=NAME"
    ) as caught:
        corpus(tmp_path).load()
    assert "\n" not in str(caught.value)
    for config, question in (("en", "In English?"), ("fr", "En français ?")):
        task = corpus(tmp_path, config=config).load()
        assert set(task.queries.values()) == {question}
        assert task.name == f"{tmp_path.name}-{config}"
    with pytest.raises(DataError, match="has no tables of the config 'de'; found en, fr: benchmark.config=NAME"):
        corpus(tmp_path, config="de").load()


@pytest.mark.parametrize("name", NAMES)
def test_files_may_bear_the_name_as_folders_do(tmp_path, name):
    of_files(tmp_path, "en", name)
    of_files(tmp_path, "fr", name)
    assert_whole(corpus(tmp_path, config="fr").load())


@pytest.mark.parametrize("number", ["", "-00000-of-00001"])
@pytest.mark.parametrize("name", ["{table}-{config}", "{table}_{config}", "{table}.{config}"])
@pytest.mark.parametrize(("short", "long"), [("pt", "pt-br"), ("zh", "zh-hans")])
def test_a_config_is_not_taken_for_a_split_of_one_whose_name_begins_its_own(tmp_path, short, long, name, number):
    def add(config: str, question: str) -> None:
        vidore(tmp_path / "made")
        rows = [{"query-id": int(query_id), "query": question} for query_id in QUERIES]
        kinds = schema(query__id=WHOLE, query=TEXT)
        write_table(tmp_path / "made" / "queries" / "test-00000-of-00001.parquet", rows, kinds)
        for table in TABLES:
            paths = sorted((tmp_path / "made" / table).iterdir())
            if len(paths) > 1:  # the corpus, which has two files
                rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
                paths = [write_table(paths[0], rows, BARE_CORPUS)]
            paths[0].rename(tmp_path / f"{name.format(config=config, table=table)}{number}.parquet")
        shutil.rmtree(tmp_path / "made")

    add("en", "In English?")
    add(long, "The longer name?")
    with pytest.raises(DataError, match=f"no tables of the config '{short}'; found en, {long}: benchmark.config=NAME"):
        corpus(tmp_path, config=short).load()
    assert set(corpus(tmp_path, config=long).load().queries.values()) == {"The longer name?"}
    add(short, "The shorter name?")
    for config, question in ((short, "The shorter name?"), (long, "The longer name?"), ("en", "In English?")):
        task = corpus(tmp_path, config=config).load()
        assert set(task.queries.values()) == {question} and task.relevant == RELEVANT
    # A corpus of another config is not shared, be it the only one.
    for config in (short, "en"):
        (tmp_path / f"{name.format(config=config, table='corpus')}{number}.parquet").unlink()
        with pytest.raises(DataError, match=f"has no table corpus of the config '{config}'"):
            corpus(tmp_path, config=config).load()


def test_files_of_a_config_may_have_the_split_that_was_asked_for(tmp_path):
    beir(tmp_path)
    (tmp_path / "qrels" / "test.tsv").rename(tmp_path / "qrels-en-test.tsv")
    (tmp_path / "qrels").rmdir()
    (tmp_path / "qrels-en-dev.tsv").write_text("query-id\tcorpus-id\tscore\n11\t1\t1\n12\t1\t1\n13\t1\t1\n")
    for table in ("corpus", "queries"):
        (tmp_path / f"{table}.jsonl").rename(tmp_path / f"{table}-en.jsonl")
    assert_whole(corpus(tmp_path, config="en").load())
    assert set(corpus(tmp_path, config="en", split="dev").load().relevant.values()) == {frozenset({"1"})}
    with pytest.raises(DataError, match="has no table qrels of the config 'en'"):
        corpus(tmp_path, config="en", split="train").load()


def test_files_of_one_split_may_be_shared(tmp_path):
    mteb(tmp_path)
    (tmp_path / "corpus-00000-of-00001.parquet").rename(tmp_path / "corpus-validation.parquet")
    for table in ("query", "qrels"):
        (tmp_path / f"{table}-00000-of-00001.parquet").rename(tmp_path / f"{table}-en.parquet")
    assert_whole(corpus(tmp_path, config="en").load())
    # With queries of that split besides, which are not the config's.
    (tmp_path / "corpus-validation.parquet").rename(tmp_path / "corpus-test.parquet")
    write_table(tmp_path / "query-test.parquet", [{"id": "1", "text": "Other?"}], schema(id=TEXT, text=TEXT))
    assert_whole(corpus(tmp_path, config="en").load())


def test_a_table_without_a_configs_name_is_shared(tmp_path):
    vidore(tmp_path)
    (tmp_path / "queries").rename(tmp_path / "en-queries")
    rows = [{"query-id": int(query_id), "query": "Où ?"} for query_id in QUERIES]
    write_table(tmp_path / "fr-queries" / "test.parquet", rows, schema(query__id=WHOLE, query=TEXT))
    with pytest.raises(DataError, match="configs en, fr; choose one"):
        corpus(tmp_path).load()
    assert_whole(corpus(tmp_path, config="en").load())
    task = corpus(tmp_path, config="fr").load()
    assert (set(task.queries.values()), task.relevant) == ({"Où ?"}, RELEVANT)


def test_a_config_that_lacks_a_table_says_which(tmp_path):
    in_folders(tmp_path, "en", "{config}-{table}")
    (tmp_path / "en-qrels" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match="has no table qrels of the config 'en'; expected corpus, queries and qrels"):
        corpus(tmp_path).load()


@pytest.mark.parametrize("write", [vidore, mteb, beir])
def test_tables_of_other_things_beside_them_are_no_configs(tmp_path, write: Callable[[Path], None]):
    write(tmp_path)
    for name in ("documents_metadata/test", "queries_metadata/test", "corpus_extra-00000-of-00001", "hard-qrels"):
        write_table(tmp_path / f"{name}.parquet", [{"id": 1}], schema(id=WHOLE))
    assert_whole(corpus(tmp_path).load())


def test_a_config_has_its_splits(tmp_path):
    in_folders(tmp_path, "en", "{table}-{config}")
    write_table(tmp_path / "queries-en" / "dev-00000-of-00001.parquet", [], schema(query__id=WHOLE, query=TEXT))
    assert_whole(corpus(tmp_path, config="en").load())
    with pytest.raises(DataError, match="queries has the splits dev, test; choose one"):
        corpus(tmp_path, config="en", split="train").load()


def test_the_command_takes_a_config(tmp_path):
    with initialize_config_dir(str(config_folder("conceptformer")), version_base="1.3"):
        config = compose("eval", ["benchmark=mteb", f"benchmark.root={tmp_path}", "benchmark.config=fr"])
    in_folders(tmp_path, "en", NAMES[0])
    with pytest.raises(DataError, match="no tables of the config 'fr'; found en"):
        instantiate(config.benchmark).load()
