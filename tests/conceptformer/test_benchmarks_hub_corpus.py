"""The six benchmarks: a corpus in their layout read as published, and everything that may be wrong with it."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from pathlib import Path

import pytest

from conceptformer.benchmarks import Benchmark, ParquetCorpus
from conceptformer.data.folder import HubData
from conceptformer.errors import DataError
from conceptformer.retrieval.encoding import encode_pages
from conceptformer.retrieval.evaluation import check_task
from tests.conceptformer.colour_pages import ColourRetriever, encoding, silent
from tests.conceptformer.encoded_pages import assert_same, directly, made
from tests.conceptformer.parquet_files import QUERIES, page_content, pq, write_benchmark, write_table

COUNT = 17
IDS = [f"made/deck {number // 5}/slide_{number}.jpg" for number in range(COUNT)]
RELEVANT = {"made-test_0": [IDS[3]], "made-test_1": [IDS[16], IDS[0], IDS[7]], "made-test_2": [IDS[3]]}
NOWHERE = HubData(None, None, [])


def corpus(root: Path, folder: str = "made", **changes: object) -> ParquetCorpus:
    settings = {"name": None, "root": root, "folder": folder, "hub": NOWHERE, "skip_bad_rows": False}
    return ParquetCorpus(**(settings | changes))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_benchmark(tmp_path / "made", RELEVANT, IDS)
    return tmp_path


def change_queries(root: Path, *rows: dict) -> None:
    """Other queries, with qrels that say the same."""
    write_table(root / "made" / "query.parquet", rows, QUERIES)
    lines = [f"{row['query_id']} 0 {page} 1\n" for row in rows for page in row.get("relevant_doc_ids") or ()]
    (root / "made" / "qrels.txt").write_text("".join(lines))
    (root / "made" / "manifest.json").unlink()


def test_queries_judgments_and_pages_are_what_the_files_say(root):
    seen: list[tuple[int, int]] = []
    task = corpus(root).load(lambda *progress: seen.append(progress))
    check_task(task)
    assert isinstance(corpus(root), Benchmark)
    assert (task.name, task.refused, seen) == ("made", (), [(1, 3), (2, 3), (3, 3)])
    assert task.relevant == {query_id: frozenset(page_ids) for query_id, page_ids in RELEVANT.items()}
    assert [page.page_id for page in task.pages] == IDS
    assert [page.image.read_bytes() for page in task.pages] == [page_content(number) for number in range(COUNT)]
    # Byte for byte: a backslash and an n are two characters, a line end is one.
    assert task.queries["made-test_0"] == "Instruct: find it.\\nQuery: made-test_0, wörtlich?\nyes"
    assert corpus(root, name="of mine").load().name == "of mine"


def test_pages_in_parquet_files_are_encoded_like_pages_in_files(root, tmp_path):
    pages = corpus(root).load().pages
    encoded = encode_pages(pages, ColourRetriever(), encoding(tmp_path / "cache"), silent)
    assert_same(made(encoded), directly(pages))


def test_a_page_that_cannot_be_read_is_listed_when_bad_pages_may_be_skipped(root, tmp_path):
    shard = root / "made" / "corpus-00001-of-00003.parquet"
    rows = pq.read_table(shard).to_pylist()
    rows[2]["image"]["bytes"], rows[4]["image"]["bytes"] = None, b"no image"
    write_table(shard, rows, pq.read_schema(shard), 5)
    pages = corpus(root).load().pages
    encoded = encode_pages(pages, ColourRetriever(), encoding(tmp_path / "cache", skip_bad_pages=True), silent)
    assert set(encoded.left_out) == {rows[2]["doc_id"], rows[4]["doc_id"]}
    assert len(made(encoded)) == COUNT - 2
    with pytest.raises(DataError, match="the cell is empty"):
        encode_pages(pages, ColourRetriever(), encoding(tmp_path / "other"), silent)


def test_qrels_alone_or_the_column_alone_are_enough(root):
    folder = root / "made"
    expected = corpus(root).load().relevant
    (folder / "manifest.json").unlink()
    with_columns = pq.read_table(folder / "query.parquet")
    pq.write_table(with_columns.select(["query_id", "query"]), folder / "query.parquet")
    assert corpus(root).load().relevant == expected
    pq.write_table(with_columns, folder / "query.parquet")
    (folder / "qrels.txt").unlink()
    assert corpus(root).load().relevant == expected
    pq.write_table(with_columns.select(["query_id", "query"]), folder / "query.parquet")
    with pytest.raises(DataError, match="neither qrels.txt nor relevant_doc_ids"):
        corpus(root).load()


def test_judgments_of_nought_and_page_ids_with_blanks(root):
    (root / "made" / "manifest.json").unlink()
    change = f"made-test_0\t0\t{IDS[3]}\t1\nmade-test_0 Q0 {IDS[5]} 0\nmade-test_1 0 {IDS[16]} 2\n\n"
    rest = f"made-test_1 0 {IDS[0]} 1\r\nmade-test_1 0 {IDS[7]} 1\nmade-test_2 0 {IDS[3]} 1\n"
    (root / "made" / "qrels.txt").write_text(change + rest, newline="")
    assert corpus(root).load().relevant == {name: frozenset(page_ids) for name, page_ids in RELEVANT.items()}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"query_rows": 4}, "query_rows 3, not 4"),
        ({"qrels_rows": 4}, "qrels_rows 5, not 4"),
        ({"corpus_rows": 52_380}, "corpus_rows 17, not 52,380"),
        ({"corpus_positive_docs": 3}, "corpus_positive_docs 4, not 3"),
        ({"corpus_bytes": 6_477_479_204}, "should have about 6,477,479,204 bytes"),
        ({"corpus_shards": ["corpus-00000-of-00014.parquet"]}, "not there: 1 of 1, the first: corpus-00000-of-"),
        ({"corpus_shards": ["../made/corpus-00000-of-00003.parquet"]}, "expected a list of file names"),
        ({"corpus_rows": None}, "corpus_rows is None; expected a whole number"),
    ],
)
def test_files_that_are_not_what_the_manifest_says_are_refused(tmp_path, changes, said):
    write_benchmark(tmp_path / "made", RELEVANT, IDS, **changes)
    with pytest.raises(DataError) as caught:
        corpus(tmp_path).load()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_where_files_are_missing_it_is_said_where_to_get_them(root):
    (root / "made" / "corpus-00001-of-00003.parquet").unlink()
    published = HubData("owner/name", None, ["made/*"], "made")
    for hub, said in (
        (published, r"fetch them from the hub \(owner/name, made/\) into that folder, .* benchmark.hub.revision=COMMIT "
                    "in place of benchmark.root"),
        (NOWHERE, "fetch them from where the others came from, into that folder"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=rf"not there: 1 of 3, the first: corpus-00001-of-00003.parquet; {said}$"):
            corpus(root, hub=hub).load()
    for path in (root / "made").glob("corpus-*"):
        path.unlink()
    (root / "made" / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"expected corpus-\*.parquet: fetch them from the hub \(owner/name, made/\)"):
        corpus(root, hub=published).load()


def test_the_manifest_says_the_order_of_the_corpus(root):
    manifest = json.loads((root / "made" / "manifest.json").read_text())
    manifest["corpus_shards"].reverse()
    (root / "made" / "manifest.json").write_text(json.dumps(manifest))
    assert [page.page_id for page in corpus(root).load().pages] == IDS[12:] + IDS[6:12] + IDS[:6]


def test_corpus_files_may_lie_in_a_folder_of_their_own(root):
    (root / "made" / "corpus").mkdir()
    for path in (root / "made").glob("corpus-*"):
        path.rename(root / "made" / "corpus" / path.name)
    assert len(corpus(root).load().pages) == COUNT
    (root / "made" / "manifest.json").unlink()
    assert len(corpus(root).load().pages) == COUNT


def test_a_corpus_that_misses_a_relevant_page_cannot_judge_the_query(root):
    row = {"query_id": "q1", "query": "Where?", "relevant_doc_ids": [IDS[1]]}
    lost = {"query_id": "q2", "query": "Where not?", "relevant_doc_ids": [IDS[2], "gone.png"]}
    change_queries(root, row, lost)
    with pytest.raises(DataError, match=r"query 'q2': relevant pages that are not in the corpus: 1, .*'gone.png'"):
        corpus(root).load()
    task = corpus(root, skip_bad_rows=True).load()
    assert set(task.queries) == {"q1"}
    assert task.refused == ("query 'q2': relevant pages that are not in the corpus: 1, the first: 'gone.png'",)


@pytest.mark.parametrize(
    ("rows", "reasons"),
    [
        ([{"query_id": "q0", "query": "Again?", "relevant_doc_ids": [IDS[1]]}],
         ["query.parquet:2: the same query id 'q0'"]),
        ([{"query_id": None, "query": "Who?"}], ["query.parquet:2: there is no query_id"]),
        ([{"query_id": "q1", "query": " \n"}], ["query.parquet:2: query is"]),
        ([{"query_id": "q1", "query": "Who?", "relevant_doc_ids": []}], ["query 'q1': no page is relevant"]),
    ],
)  # fmt: skip
def test_rows_that_make_no_sense_are_listed(root, rows, reasons):
    change_queries(root, {"query_id": "q0", "query": "Where?", "relevant_doc_ids": [IDS[1]]}, *rows)
    task = corpus(root, skip_bad_rows=True).load()
    assert set(task.queries) == {"q0"}
    assert len(task.refused) == len(reasons)
    for line, reason in zip(task.refused, reasons, strict=True):
        assert line.startswith(reason)
    with pytest.raises(DataError, match="skip_bad_rows=true"):
        corpus(root).load()


def test_judgments_that_say_the_same_again_count_once_and_others_are_refused(root):
    (root / "made" / "manifest.json").unlink()
    with (root / "made" / "qrels.txt").open("a") as file:
        file.write(f"made-test_0 0 {IDS[3]} 1\nmade-test_1 0 {IDS[16]} 1.0\n")
    with pytest.warns(UserWarning, match="repeat an earlier one: 2, the first: qrels.txt:6, as qrels.txt:1; each"):
        task = corpus(root).load()
    assert task.relevant == {name: frozenset(page_ids) for name, page_ids in RELEVANT.items()}
    with (root / "made" / "qrels.txt").open("a") as file:
        file.write(f"made-test_2 0 {IDS[3]} 2\n")
    with (
        pytest.warns(UserWarning, match="repeat an earlier one: 2"),
        pytest.raises(DataError, match="qrels.txt:8: says 2 of the same query and page as qrels.txt:5, which says 1"),
    ):
        corpus(root).load()


def test_lines_of_qrels_that_make_no_sense_are_listed(root):
    (root / "made" / "manifest.json").unlink()
    with (root / "made" / "qrels.txt").open("a") as file:
        file.write(f"unknown 0 {IDS[0]} 1\nmade-test_0 0\nmade-test_0 0 {IDS[0]} much\n")
        file.write(f"made-test_0 0 {IDS[0]} nan\n")
    task = corpus(root, skip_bad_rows=True).load()
    assert set(task.queries) == set(RELEVANT)
    assert [line.split(":", 2)[1] for line in task.refused] == ["7", "8", "9", "6"]
    assert "no query has the id 'unknown'" in task.refused[3]


def test_page_ids_that_come_twice_or_not_at_all_are_listed(root):
    shard = root / "made" / "corpus-00000-of-00003.parquet"
    rows = pq.read_table(shard).to_pylist()
    rows[1]["doc_id"], rows[2]["doc_id"] = IDS[0], None
    write_table(shard, rows, pq.read_schema(shard))
    manifest = json.loads((root / "made" / "manifest.json").read_text())
    # It counts rows, and says nothing of what is in them.
    (root / "made" / "manifest.json").write_text(json.dumps(manifest | {"corpus_bytes": None}))
    task = corpus(root, skip_bad_rows=True).load()
    assert len(task.pages) == COUNT - 2
    assert len(task.refused) == 2
    assert task.refused[0] == f"{shard.name}:2: the same page id '{IDS[0]}' as in {shard.name}:1"
    assert task.refused[1].startswith(f"{shard.name}:3: there is no page_id")


def test_qrels_and_column_that_disagree_are_of_two_versions(root):
    lines = (root / "made" / "qrels.txt").read_text().replace(IDS[16], IDS[15])
    (root / "made" / "qrels.txt").write_text(lines)
    with pytest.raises(DataError, match="name different pages for 1 queries, the first: 'made-test_1'"):
        corpus(root).load()


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda folder: shutil.rmtree(folder), "No such file or directory; expected a folder with made/ in it"),
        (lambda folder: (folder / "query.parquet").unlink(), "has no query.parquet or queries.parquet"),
        (lambda folder: (folder / "query.parquet").write_bytes(b"PAR1"), "query.parquet: cannot be read as Parquet"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json: cannot be read"),
        (lambda folder: (folder / "qrels.txt").write_bytes(b"\xff\xfe\x00"), "qrels.txt:1: no UTF-8 at byte 0"),
        (lambda folder: write_table(folder / "query.parquet", [], QUERIES), "query_rows 0, not 3"),
        (lambda folder: pq.write_table(pq.read_table(folder / "query.parquet").drop(["query"]),
                                       folder / "query.parquet"), "has no column 'query'; found 'query_id'"),
    ],
)  # fmt: skip
def test_files_that_are_missing_or_broken_are_one_line(root, break_it, said):
    break_it(root / "made")
    with pytest.raises(DataError) as caught:
        corpus(root).load()
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_corpus_without_pages_is_said(tmp_path):
    write_benchmark(tmp_path / "made", RELEVANT, [])
    (tmp_path / "made" / "manifest.json").unlink()
    with pytest.raises(DataError, match="expected pages, found none"):
        corpus(tmp_path).load()
    for path in (tmp_path / "made").glob("corpus-*"):
        path.unlink()
    with pytest.raises(DataError, match="has no Parquet files of a corpus"):
        corpus(tmp_path).load()


def test_other_queries_than_the_published_ones_are_used_with_a_warning(root):
    right = {"qrels.txt": hashlib.sha256((root / "made" / "qrels.txt").read_bytes()).hexdigest()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        corpus(root, sha256=right).load()
    with pytest.warns(UserWarning, match="query.parquet: is not the file that was published"):
        assert corpus(root, sha256={"query.parquet": "0" * 64}).load().queries


def test_columns_that_nobody_knows_are_named(root):
    path = root / "made" / "query.parquet"
    table = pq.read_table(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        corpus(root).load()
    pq.write_table(table.append_column("colour", table["query"]), path)
    with pytest.warns(UserWarning, match="query.parquet: columns not used: 'colour'; known are query_id, query"):
        corpus(root).load()
