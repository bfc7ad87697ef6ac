"""Corpora as MTEB, BEIR and ViDoRe lay them out: the same task from each layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conceptformer.benchmarks import Benchmark, MtebCorpus
from conceptformer.data.folder import HubData
from conceptformer.errors import DataError
from conceptformer.retrieval.evaluation import check_task
from tests.conceptformer.parquet_files import BARE_CORPUS, IMAGE, pa, page_content, write_table
from tests.conceptformer.row_files import write_lines

PAGES = 5
QUERIES = {"11": "Which\\nyear?", "12": "Who?", "13": "Where?"}
QRELS = [("11", "3", 1), ("11", "0", 2), ("12", "4", 1), ("13", "0", 1), ("13", "2", 0)]
RELEVANT = {"11": {"3", "0"}, "12": {"4"}, "13": {"0"}}

TEXT, WHOLE = pa.string(), pa.int64()


def schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema([(name.replace("__", "-"), kind) for name, kind in columns.items()])


def corpus(root: Path, **changes: object) -> MtebCorpus:
    settings = {"root": root, "hub": HubData(None, None, []), "split": "test", "skip_bad_rows": False}
    return MtebCorpus(**(settings | changes))


def vidore(root: Path, split: str = "test") -> None:
    """Whole numbers as ids, a folder for each table, files named for the split."""
    pages = [{"corpus-id": number, "image": {"bytes": page_content(number)}} for number in range(PAGES)]
    write_table(root / "corpus" / f"{split}-00000-of-00002.parquet", pages[:3], BARE_CORPUS, 2)
    write_table(root / "corpus" / f"{split}-00001-of-00002.parquet", pages[3:], BARE_CORPUS, 2)
    queries = [{"query-id": int(query_id), "query": text} for query_id, text in QUERIES.items()]
    write_table(root / "queries" / f"{split}-00000-of-00001.parquet", queries, schema(query__id=WHOLE, query=TEXT))
    qrels = [{"query-id": int(query), "corpus-id": int(page), "score": score} for query, page, score in QRELS]
    kinds = schema(query__id=WHOLE, corpus__id=WHOLE, score=pa.float64())
    write_table(root / "qrels" / f"{split}-00000-of-00001.parquet", qrels, kinds)


def mteb(root: Path) -> None:
    """Files beside each other, named for the table; further columns."""
    pages = [
        {"id": str(number), "modality": "image", "image": {"bytes": page_content(number)}} for number in range(PAGES)
    ]
    write_table(root / "corpus-00000-of-00001.parquet", pages, schema(id=TEXT, modality=TEXT, image=IMAGE))
    queries = [{"id": query_id, "modality": "text", "text": text} for query_id, text in QUERIES.items()]
    kinds = schema(id=TEXT, modality=TEXT, text=TEXT, image=IMAGE)
    write_table(root / "query-00000-of-00001.parquet", queries, kinds)
    qrels = [{"query-id": query, "corpus-id": page, "score": score} for query, page, score in QRELS]
    write_table(root / "qrels-00000-of-00001.parquet", qrels, schema(query__id=TEXT, corpus__id=TEXT, score=pa.int8()))


def beir(root: Path) -> None:
    """JSONL tables, judgments divided by tabs, images as files."""
    for number in range(PAGES):
        path = root / "images" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(page_content(number))
    pages = [{"_id": str(number), "title": "", "image": f"images/{number}.png"} for number in range(PAGES)]
    write_lines(root / "corpus.jsonl", *pages)
    queries = [{"_id": query_id, "text": text, "metadata": {}} for query_id, text in QUERIES.items()]
    write_lines(root / "queries.jsonl", *queries)
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in QRELS)]
    (root / "qrels").mkdir(parents=True)
    (root / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("write", [vidore, mteb, beir])
def test_every_layout_gives_the_same_task(tmp_path, write: Callable[[Path], None]):
    write(tmp_path)
    seen: list[tuple[int, int]] = []
    task = corpus(tmp_path).load(lambda *progress: seen.append(progress))
    check_task(task)
    assert isinstance(corpus(tmp_path), Benchmark)
    assert (task.name, task.refused) == (tmp_path.name, ())
    assert task.queries == QUERIES
    assert task.relevant == RELEVANT
    assert [page.page_id for page in task.pages] == [str(number) for number in range(PAGES)]
    assert [page.image.read_bytes() for page in task.pages] == [page_content(number) for number in range(PAGES)]
    assert seen and seen[-1][0] == seen[-1][1]


def test_of_several_splits_one_has_to_be_chosen(tmp_path):
    vidore(tmp_path)
    vidore(tmp_path, "dev")
    write_table(tmp_path / "queries" / "dev-00000-of-00001.parquet", [{"query-id": 11, "query": "Other?"}],
                schema(query__id=WHOLE, query=TEXT))  # fmt: skip
    assert corpus(tmp_path).load().queries == QUERIES
    assert corpus(tmp_path, split="dev", skip_bad_rows=True).load().queries == {"11": "Other?"}
    with pytest.raises(DataError, match="queries has the splits dev, test; choose one: benchmark.split=NAME"):
        corpus(tmp_path, split="train").load()


def test_a_single_split_needs_no_choice(tmp_path):
    vidore(tmp_path, "validation")
    assert corpus(tmp_path).load().queries == QUERIES


def test_a_table_that_is_missing_or_of_another_kind_is_said(tmp_path):
    vidore(tmp_path)
    (tmp_path / "qrels" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(DataError, match="has no table qrels; expected corpus, queries and qrels"):
        corpus(tmp_path).load()
    (tmp_path / "qrels" / "test-00000-of-00001.tsv").write_text("query\tpage\n1\t2\n")
    with pytest.raises(
        DataError, match="has no column 'query-id', 'corpus-id', 'score'; found the columns 'query', 'page'"
    ):
        corpus(tmp_path).load()
    write_table(tmp_path / "qrels" / "test.parquet", [], schema(query__id=WHOLE))
    with pytest.raises(DataError, match=r"qrels has files of the kinds .parquet, .tsv; expected one"):
        corpus(tmp_path).load()


def test_rows_that_make_no_sense_are_listed(tmp_path):
    beir(tmp_path)
    with (tmp_path / "qrels" / "test.tsv").open("a") as file:
        file.write("11\t1\tvery\n12\t\t1\n99\t1\t1\n")
    with (tmp_path / "queries.jsonl").open("a") as file:
        file.write('{"_id": "14"}\n{"_id": "15", "text": "Without an answer?"}\n')
    (tmp_path / "images" / "1.png").write_bytes(b"no image")
    with (tmp_path / "corpus.jsonl").open("a") as file:
        file.write('{"_id": "5", "image": "images/gone.png"}\n{"_id": "6", "image": null}\n')
    with pytest.warns(UserWarning, match="left out, since no page answers them: 1 of 4; 1 have no judgment here, 0"):
        task = corpus(tmp_path, skip_bad_rows=True).load()
    assert task.queries == QUERIES
    assert [page.page_id for page in task.pages] == ["0", "2", "3", "4"]
    reasons = [
        "queries.jsonl, line 4: there is no query in this row",
        "test.tsv, line 7: the score is 'very'",
        "test.tsv, line 8: there is no page_id",
        "corpus.jsonl, line 7: there is no image",
        "corpus.jsonl, line 2: ",
        "corpus.jsonl, line 6: ",
        "test.tsv, line 9: no query has the id '99'",
    ]
    assert len(task.refused) == len(reasons)
    for line, reason in zip(task.refused, reasons, strict=True):
        assert line.startswith(reason)
    with pytest.warns(UserWarning), pytest.raises(DataError, match="rows or boxes that cannot be used: 7"):
        corpus(tmp_path).load()


def test_queries_of_other_splits_are_left_out_and_counted(tmp_path):
    """BEIR lists the queries of all splits in one file and their judgments in one file for each."""
    beir(tmp_path)
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n21\t1\t1\n22\t2\t1\n")
    with (tmp_path / "queries.jsonl").open("a") as file:
        file.write('{"_id": "21", "text": "A training query?"}\n{"_id": "22", "text": "Another?"}\n')
    with pytest.warns(UserWarning, match="no page answers them: 2 of 5; 2 have no judgment here, 0 none above 0"):
        task = corpus(tmp_path).load()
    check_task(task)
    assert (task.queries, task.relevant, task.refused) == (QUERIES, RELEVANT, ())
    with pytest.warns(UserWarning, match="no page answers them: 3 of 5; 3 have no judgment"):
        assert corpus(tmp_path, split="train").load().relevant == {"21": {"1"}, "22": {"2"}}


def test_queries_whose_judgments_are_all_nought_are_left_out_and_counted(tmp_path):
    beir(tmp_path)
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n11\t3\t1\n12\t4\t0\n12\t1\t-1\n")
    with pytest.warns(UserWarning, match="no page answers them: 2 of 3; 1 have no judgment here, 1 none above 0"):
        task = corpus(tmp_path).load()
    assert (task.relevant, task.refused) == ({"11": {"3"}}, ())
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n11\t3\t0\n")
    with pytest.warns(UserWarning, match="3 of 3"), pytest.raises(DataError, match="expected queries, found none"):
        corpus(tmp_path).load()


def test_repeated_judgments_count_once_where_they_agree_and_are_refused_where_they_do_not(tmp_path):
    beir(tmp_path)
    with (tmp_path / "qrels" / "test.tsv").open("a") as file:
        file.write("12\t4\t1\n12\t4\t1\n13\t2\t0\n")
    with pytest.warns(UserWarning, match="repeat an earlier one: 3, the first: test.tsv, line 7, as test.tsv, line 4"):
        task = corpus(tmp_path).load()
    assert (task.relevant, task.refused) == (RELEVANT, ())
    with (tmp_path / "qrels" / "test.tsv").open("a") as file:
        file.write("13\t2\t1\n")
    with (
        pytest.warns(UserWarning),
        pytest.raises(
            DataError, match="test.tsv, line 10: says 1 of the same query and page as test.tsv, line 6, which says 0"
        ),
    ):
        corpus(tmp_path).load()
    # What came first stands.
    with pytest.warns(UserWarning):
        assert corpus(tmp_path, skip_bad_rows=True).load().relevant == RELEVANT


@pytest.mark.parametrize("score", ["nan", "inf", "-inf"])
def test_scores_that_are_not_finite_are_refused(tmp_path, score):
    """nan is neither above 0 nor not: its page would silently be no answer."""
    beir(tmp_path)
    with (tmp_path / "qrels" / "test.tsv").open("a") as file:
        file.write(f"12\t1\t{score}\n")
    with pytest.raises(DataError, match=f"test.tsv, line 7: the score is '{score}'; expected a number"):
        corpus(tmp_path).load()


def test_lines_that_are_no_rows_are_an_error(tmp_path):
    beir(tmp_path)
    (tmp_path / "queries.jsonl").write_text('{"_id": "1", "text": "a"}\n[1]\n')
    with pytest.raises(DataError, match="rows that cannot be read: 1, the first: line 2: holds list"):
        corpus(tmp_path, skip_bad_rows=True).load()
    (tmp_path / "queries.jsonl").write_text('{"_id": \n')
    with pytest.raises(DataError, match="not valid JSON at line 1"):
        corpus(tmp_path, skip_bad_rows=True).load()
