"""Several corpora in one data set, told apart by names before or behind those of the tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from conceptformer.errors import DataError
from tests.conceptformer.parquet_files import write_table
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
