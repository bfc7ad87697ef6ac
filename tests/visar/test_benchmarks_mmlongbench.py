"""MMLongBench-Doc: what loads, what is refused, and the real copy."""

from __future__ import annotations

import json
import sys
from collections import Counter

import pytest

from tests.visar.benchmark_files import SHARED, write_json, write_pdf
from visar.benchmarks import Benchmark, MMLongBench
from visar.errors import DatasetError, MissingExtraError

REAL = SHARED / "data" / "mmlongbench"


def row(**changes):
    fields = {"doc_id": "a.pdf", "question": "What is shown?", "answer": "A cat", "evidence_pages": "[1]"}
    return {**fields, **changes}


def benchmark(folder, rows, pages=None):
    for name, count in (pages or {"a.pdf": 3}).items():
        write_pdf(folder / "documents" / name, count)
    write_json(folder / "samples.json", rows)
    return MMLongBench(root=folder)


def good(count):
    return [row(question=f"Question {number}?") for number in range(count)]


def test_it_is_a_benchmark():
    assert isinstance(MMLongBench(), Benchmark)


def test_pages_counted_from_one_become_indexes(tmp_path):
    rows = [row(evidence_pages="[3, 1]"), row(question="Nothing?", evidence_pages="[]", answer="Not answerable")]
    loaded = benchmark(tmp_path, rows).load()
    assert [question.evidence_pages for question in loaded.questions] == [(0, 2), ()]
    assert [question.answer for question in loaded.questions] == ["A cat", "Not answerable"]
    assert [(document.id, document.label(0)) for document in loaded.documents] == [("a.pdf", 1)]
    assert loaded.name == "mmlongbench"
    assert loaded.refused == ()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"evidence_pages": "[0]"}, "page 0 is outside the document, whose pages are 1 to 3"),
        ({"evidence_pages": "[2, 4]"}, "page 4 is outside the document, whose pages are 1 to 3"),
        ({"evidence_pages": "[-1]"}, "page -1 is outside"),
        ({"evidence_pages": "[1, 2"}, "is not a list of page numbers"),
        ({"evidence_pages": "1-2"}, "is not a list of page numbers"),
        ({"evidence_pages": ""}, "field 'evidence_pages' is empty"),
        ({"evidence_pages": None}, "field 'evidence_pages' is missing"),
        ({"doc_id": "b.pdf"}, "document 'b.pdf' is not in documents/"),
        ({"doc_id": "../samples.json"}, "is not a path inside documents/"),
        ({"doc_id": "..\\samples.json"}, "is not a path inside documents/"),
        ({"doc_id": "C:/x.pdf"}, "is not a path inside documents/"),
        ({"doc_id": "C:x.pdf"}, "is not a path inside documents/"),
        ({"doc_id": "\\\\host\\x.pdf"}, "is not a path inside documents/"),
        ({"doc_id": "x" * 300}, "in documents/"),
        ({"question": " \n"}, "field 'question' is empty"),
        ({"question": 7}, "field 'question' holds int, expected text"),
    ],
)
def test_a_row_that_cannot_be_right_is_refused_with_its_number_and_reason(tmp_path, changes, reason):
    loaded = benchmark(tmp_path, [*good(2), row(**changes)]).load()
    assert len(loaded.questions) == 2
    assert len(loaded.refused) == 1
    assert loaded.refused[0].startswith("row 3 (")
    assert reason in loaded.refused[0]
    assert "\n" not in loaded.refused[0]


@pytest.mark.parametrize("changes", [{"doc_id": "\ud83d.pdf"}, {"question": "What \ud83d?"}, {"answer": ["\ud83d"]}])
def test_text_that_cannot_be_written_to_a_file_is_refused(tmp_path, changes):
    loader = benchmark(tmp_path, good(1))
    (tmp_path / "samples.json").write_text(json.dumps([*good(2), row(**changes)]))
    (line,) = loader.load().refused
    assert line.endswith("holds '\\ud83d', half of a character (a surrogate without its other)")
    assert line.encode().startswith(b"row 3 (")


@pytest.mark.parametrize("field", ["doc_id", "question", "evidence_pages"])
def test_a_missing_field_is_named_with_its_row(tmp_path, field):
    broken = row()
    del broken[field]
    loaded = benchmark(tmp_path, [*good(2), broken]).load()
    assert f"field '{field}' is missing" in loaded.refused[0]
    assert loaded.refused[0].startswith("row 3")


def test_a_row_that_is_no_object_is_refused(tmp_path):
    loaded = benchmark(tmp_path, [*good(2), "What is shown?"]).load()
    assert loaded.refused == ("row 3: holds str, expected an object with named fields",)


def test_a_repeated_question_is_refused_and_names_the_first(tmp_path):
    loaded = benchmark(tmp_path, [*good(2), row(question="Question 1?", evidence_pages="[2]")]).load()
    assert "the same question id as row 2" in loaded.refused[0]
    assert loaded.questions[1].evidence_pages == (0,)


def test_ids_stay_when_rows_are_sorted_and_left_out(tmp_path):
    rows = good(4)
    ids = {question.text: question.id for question in benchmark(tmp_path / "a", rows).load().questions}
    again = {question.text: question.id for question in benchmark(tmp_path / "b", rows[:0:-1]).load().questions}
    assert len(set(ids.values())) == 4
    assert again.items() < ids.items()


def test_more_than_half_refused_is_an_error_and_half_is_not(tmp_path):
    wrong = [row(question=f"Wrong {number}?", evidence_pages="[9]") for number in range(3)]
    assert len(benchmark(tmp_path / "half", [*good(3), *wrong]).load().refused) == 3
    with pytest.raises(DatasetError, match=r"3 of 5 rows are refused, more than half: row 3 .*page 9 is outside"):
        benchmark(tmp_path / "more", [*good(2), *wrong]).load()


def test_where_most_rows_are_refused_the_reason_of_a_broken_document_is_told(tmp_path):
    loader = benchmark(tmp_path, [row(doc_id="broken.pdf")])
    (tmp_path / "documents" / "broken.pdf").write_bytes(b"not a PDF")
    with pytest.raises(
        DatasetError, match="1 of 1 rows are refused.* cannot be read; .*broken.pdf: not a PDF"
    ) as caught:
        loader.load()
    assert "\n" not in str(caught.value)


def test_no_rows_is_an_error(tmp_path):
    with pytest.raises(DatasetError, match="holds no questions"):
        benchmark(tmp_path, []).load()


def test_a_broken_pdf_is_listed_with_its_questions(tmp_path):
    rows = [*good(3), row(doc_id="broken.pdf"), row(doc_id="broken.pdf", question="Another?")]
    loader = benchmark(tmp_path, rows)
    (tmp_path / "documents" / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    loaded = loader.load()
    assert len(loaded.questions) == 3
    assert [document.id for document in loaded.documents] == ["a.pdf"]
    assert loaded.refused[0].startswith("document 'broken.pdf': ")
    assert [line.split(" (")[0] for line in loaded.refused[1:]] == ["row 4", "row 5"]


def test_only_documents_that_questions_name_are_opened(tmp_path):
    loader = benchmark(tmp_path, good(2), {"a.pdf": 3})
    (tmp_path / "documents" / "unasked.pdf").write_bytes(b"not a PDF")
    loaded = loader.load()
    assert [document.id for document in loaded.documents] == ["a.pdf"]
    assert loaded.refused == ()


def test_a_document_without_a_question_that_is_admitted_is_left_out(tmp_path):
    rows = [*good(2), row(doc_id="b.pdf", evidence_pages="[9]")]
    loaded = benchmark(tmp_path, rows, {"a.pdf": 1, "b.pdf": 2}).load()
    assert [document.id for document in loaded.documents] == ["a.pdf"]


def test_documents_stand_in_the_order_of_their_first_question(tmp_path):
    rows = [row(doc_id="b.pdf"), row(doc_id="a.pdf"), row(doc_id="b.pdf", question="More?")]
    loaded = benchmark(tmp_path, rows, {"a.pdf": 1, "b.pdf": 2}).load()
    assert [document.id for document in loaded.documents] == ["b.pdf", "a.pdf"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"doc_id": "a.pdf",\n "question" "x"}]', "not valid JSON at line 2, column 13"),
        (b"", "not valid JSON at line 1, column 1"),
        (b'{"doc_id": "a.pdf"}', "holds dict at its top level, expected a list"),
        (b"[" * 100_000, "not valid JSON|nested too deeply"),
        (b'["\xff"]', "is not utf-8 text at byte 2"),
        (b"[" + b"9" * 5000 + b"]", "5000 digits|holds int, expected an object"),
    ],
)
def test_a_broken_file_is_one_error_that_says_where(tmp_path, content, message):
    (tmp_path / "documents").mkdir()
    (tmp_path / "samples.json").write_bytes(content)
    with pytest.raises(DatasetError, match=message) as caught:
        MMLongBench(root=tmp_path).load()
    assert "samples.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_the_files_says_what_it_must_hold(tmp_path):
    with pytest.raises(DatasetError, match=r"neither samples.json nor data/\*.parquet"):
        MMLongBench(root=tmp_path).load()
    with pytest.raises(DatasetError, match="nowhere is not a folder, expected one with samples.json"):
        MMLongBench(root=tmp_path / "nowhere").load()
    with pytest.raises(DatasetError, match="xx(: | is not a folder)"):
        MMLongBench(root=tmp_path / ("x" * 300)).load()
    with pytest.raises(DatasetError, match="set dataset.root=FOLDER"):
        MMLongBench().load()
    write_json(tmp_path / "samples.json", good(1))
    with pytest.raises(DatasetError, match="documents is not a folder"):
        MMLongBench(root=tmp_path).load()


def test_the_parquet_layout_loads_like_the_json_one(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [*good(3), row(evidence_pages="[0]")]
    expected = benchmark(tmp_path / "json", rows).load()
    write_pdf(tmp_path / "parquet" / "documents" / "a.pdf", 3)
    (tmp_path / "parquet" / "data").mkdir()
    table = tmp_path / "parquet" / "data" / "train-00000-of-00001.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), table)
    loaded = MMLongBench(root=tmp_path / "parquet").load()
    assert loaded.questions == expected.questions
    assert loaded.refused == expected.refused
    table.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        MMLongBench(root=tmp_path / "parquet").load()


def test_the_parquet_layout_without_pyarrow_names_the_line_that_installs_it(tmp_path, monkeypatch):
    (tmp_path / "documents").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"needs the package 'pyarrow': pip install"):
        MMLongBench(root=tmp_path).load()


@pytest.mark.skipif(not REAL.is_dir(), reason="the shared copy of MMLongBench-Doc is not here")
def test_the_real_copy_loads_in_full_but_for_the_listed_rows():
    loaded = MMLongBench(root=REAL).load()
    rows = json.loads((REAL / "samples.json").read_text(encoding="utf-8"))
    # Two of the 197 rows name page 0.
    assert len(loaded.questions) == 195
    outside = "evidence page 0 is outside the document, whose pages are 1 to"
    assert loaded.refused == (
        f"row 46 (2303.08559v2:98dd3aeea16b): {outside} 30",
        f"row 167 (f86d073b0d735ac873a65d906ba82758:2ed85a1fa22a): {outside} 20",
    )
    assert len(loaded.documents) == 25
    assert len({question.id for question in loaded.questions}) == len(loaded.questions)
    by_question = {(one["doc_id"], one["question"].strip()): json.loads(one["evidence_pages"]) for one in rows}
    for question in loaded.questions:
        labels = by_question[question.document_id, question.text]
        assert [page + 1 for page in question.evidence_pages] == sorted(set(labels))
    pages = Counter(min(len(question.evidence_pages), 2) for question in loaded.questions)
    assert pages == {0: 34, 1: 94, 2: 67}
