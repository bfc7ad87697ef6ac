"""Own documents with a table of questions, as spreadsheets and scripts write it."""

from __future__ import annotations

import csv
import io
import json
import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.visar.benchmark_files import write_image, write_json, write_json_lines, write_pdf
from visar.benchmarks import Benchmark, Folder
from visar.benchmarks.question_files import read_csv
from visar.errors import DatasetError

REQUIRED = ("document", "question")


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """a.pdf (3 pages), deep/b.pdf (2), deep/er/a.pdf (1), scans/ (4 images), broken.pdf."""
    folder = tmp_path_factory.mktemp("documents")
    write_pdf(folder / "a.pdf", 3)
    write_pdf(folder / "deep" / "b.pdf", 2)
    write_pdf(folder / "deep" / "er" / "a.pdf", 1)
    for number in range(1, 5):
        write_image(folder / "scans" / f"{number}.png")
    write_pdf(folder / ".hidden" / "b.pdf", 2)
    (folder / "._a.pdf").write_bytes(b"a file manager's metadata")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and nothing more")
    return folder


def load(documents, tmp_path, content, name="questions.csv"):
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Folder(documents, file).load()


def test_it_is_a_benchmark():
    assert isinstance(Folder(), Benchmark)


def test_a_plain_table_loads(documents, tmp_path):
    text = "id,document,question,evidence_pages,answer\n1,a.pdf,Who?,3,Ann\n2,deep/b.pdf,When?,,\n"
    loaded = load(documents, tmp_path, text)
    first, second = loaded.questions
    assert (first.id, first.document_id, first.text, first.evidence_pages, first.answer) == (
        "1", "a.pdf", "Who?", (2,), "Ann"
    )  # fmt: skip
    assert (second.document_id, second.evidence_pages, second.answer) == ("deep/b.pdf", (), None)
    assert [document.id for document in loaded.documents] == ["a.pdf", "deep/b.pdf"]
    assert loaded.refused == ()


def test_what_a_german_spreadsheet_saves_loads(documents, tmp_path):
    # Byte order mark, semicolons, CRLF, quoted line break and quotes, an empty last row, capitals in the header.
    text = (
        '\ufeffDocument;Question;Evidence_Pages;Answer\r\n'
        'a.pdf;"Wie heißt ""er"",\nund warum; wieso?";1,3;"5,2 %"\r\n'
        "b.pdf;Wann?;2;\r\n;;;\r\n"
    )  # fmt: skip
    loaded = load(documents, tmp_path, text)
    assert [question.text for question in loaded.questions] == ['Wie heißt "er",\nund warum; wieso?', "Wann?"]
    assert [question.evidence_pages for question in loaded.questions] == [(0, 2), (1,)]
    assert loaded.questions[0].answer == "5,2 %"
    assert loaded.refused == ()


def test_tabs_and_the_unicode_text_of_spreadsheets_load(documents, tmp_path):
    text = "question\tdocument\tevidence_pages\nHow, and why; when?\ta.pdf\t1;2\n"
    for content in (text.encode(), text.encode("utf-16"), b"\xfe\xff" + text.encode("utf-16-be")):
        loaded = load(documents, tmp_path, content, "questions.tsv")
        assert loaded.questions[0].text == "How, and why; when?"
        assert loaded.questions[0].evidence_pages == (0, 1)


@pytest.mark.parametrize("pages", [[3, 1], "[3, 1]", "3;1", "3, 1"])
def test_json_takes_page_lists_in_every_form(documents, tmp_path, pages):
    rows = [{"document": "a.pdf", "question": "Who?", "evidence_pages": pages, "answer": 7, "id": 12}]
    file = write_json(tmp_path / "questions.json", rows)
    lines = write_json_lines(tmp_path / "questions.jsonl", rows)
    for loaded in (Folder(documents, file).load(), Folder(documents, lines).load()):
        (question,) = loaded.questions
        assert (question.id, question.evidence_pages, question.answer) == ("12", (0, 2), "7")


@pytest.mark.parametrize(
    ("called", "document_id"),
    [
        ("deep/b.pdf", "deep/b.pdf"),
        ("deep\\b.pdf", "deep/b.pdf"),
        ("./deep/b.pdf", "deep/b.pdf"),
        ("b.pdf", "deep/b.pdf"),
        ("b", "deep/b.pdf"),
        ("deep/b", "deep/b.pdf"),
        ("a.pdf", "a.pdf"),
        ("scans", "scans"),
        ("scans/2.png", "scans/2.png"),
    ],
)
def test_documents_are_found_by_path_or_by_name(documents, tmp_path, called, document_id):
    rows = [{"document": called, "question": "Who?"}]
    loaded = Folder(documents, write_json(tmp_path / "questions.json", rows)).load()
    assert [document.id for document in loaded.documents] == [document_id]


def test_a_folder_of_images_is_a_document_with_a_page_for_each(documents, tmp_path):
    loaded = load(documents, tmp_path, "document,question,evidence_pages\nscans,Who?,4\n")
    assert loaded.questions[0].evidence_pages == (3,)
    assert [file.name for file in loaded.documents[0].files] == ["1.png", "2.png", "3.png", "4.png"]


def test_accents_are_found_however_they_are_composed(tmp_path):
    write_pdf(tmp_path / unicodedata.normalize("NFD", "Übersicht.pdf"), 1)
    text = f"document,question\n{unicodedata.normalize('NFC', 'Übersicht.pdf')},Who?\n"
    assert len(load(tmp_path, tmp_path, text).questions) == 1


def test_two_files_whose_names_differ_in_how_accents_are_stored_are_not_told_apart(tmp_path):
    names = [unicodedata.normalize(form, "Übersicht.pdf") for form in ("NFC", "NFD")]
    for pages, name in enumerate(names, start=1):
        write_pdf(tmp_path / name, pages)
    write_pdf(tmp_path / "a.pdf", 1)
    if len(list(tmp_path.iterdir())) < 3:
        pytest.skip("this file system takes the two names for one")
    rows = "".join(f"{name},Who?\n" for name in (*names, "Übersicht"))
    loaded = load(tmp_path, tmp_path, f"document,question\n{rows}" + "".join(f"a.pdf,{n}?\n" for n in range(3)))
    assert len(loaded.refused) == 3
    assert all("may be any of several files whose names differ only" in line for line in loaded.refused)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a.pdf,Why?,4,x,", "page 4 is outside the document, whose pages are 1 to 3"),
        ("a.pdf,Why?,0,x,", "page 0 is outside"),
        ("a.pdf,Why?,1-2,x,", "'1-2' is not a list of page numbers"),
        ("a.pdf,Why?,1.0,x,", "'1.0' is not a list of page numbers"),
        ("c.pdf,Why?,1,x,", "document 'c.pdf' is not in"),
        ("._a.pdf,Why?,1,x,", "document '._a.pdf' is not in"),
        ("../a.pdf,Why?,1,x,", "document '../a.pdf' is not in"),
        ("a,Why?,1,x,", "may be any of a.pdf, deep/er/a.pdf: give its path"),
        ("a.pdf, ,1,x,", "field 'question' is empty"),
        (",Why?,1,x,", "field 'document' is empty"),
        ("a.pdf,Why?,1,x,first", "the same question id as line 2"),
        ("a.pdf,Why?,1", "3 cells, expected 5 as in the header"),
        ("a.pdf,Why, and how?,1,x,", "6 cells, expected 5 as in the header"),
        ("broken.pdf,Why?,1,x,", "its document 'broken.pdf' cannot be read"),
    ],
)
def test_a_row_that_cannot_be_right_is_refused_with_its_line_and_reason(documents, tmp_path, line, reason):
    text = f'document,question,evidence_pages,answer,id\na.pdf,"Who\nis it?",1,x,first\n{line}\nb.pdf,When?,2,x,\n'
    loaded = load(documents, tmp_path, text)
    assert len(loaded.questions) == 2
    (refused,) = [refused for refused in loaded.refused if refused.startswith("line ")]
    # The row before it takes two lines.
    assert refused.startswith("line 4")
    assert reason in refused


def test_a_broken_document_is_listed_once_with_all_its_questions(documents, tmp_path):
    rows = "".join(f"{name},Question {number}?\n" for number, name in enumerate(["broken.pdf"] * 2 + ["a.pdf"] * 2))
    loaded = load(documents, tmp_path, f"document,question\n{rows}")
    assert [line.split(":")[0] for line in loaded.refused] == ["document 'broken.pdf'", "line 2", "line 3"]
    assert [document.id for document in loaded.documents] == ["a.pdf"]


def test_a_wrong_column_is_an_error_that_lists_what_is_there(documents, tmp_path):
    with pytest.raises(DatasetError, match=r"no column 'document'; found the columns 'file', 'question'"):
        load(documents, tmp_path, "File;Question\na.pdf;Who?\n")
    file = write_json(tmp_path / "q.json", [{"document": "a.pdf", "query": "Who?"}])
    with pytest.raises(DatasetError, match=r"no column 'question'; found the columns 'document', 'query'"):
        Folder(documents, file).load()


def test_columns_without_a_use_are_named_in_a_warning(documents, tmp_path):
    with pytest.warns(UserWarning, match=r"columns not used: 'notes', 'page'; known are document, question, id"):
        load(documents, tmp_path, "document,notes,question,page\na.pdf,x,Who?,1\n")


def test_nothing_is_warned_of_without_need(documents, tmp_path, recwarn):
    load(documents, tmp_path, "document,question,id,evidence_pages,answer\na.pdf,Who?,,,\n")
    assert not [warning for warning in recwarn if "columns" in str(warning.message)]


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (b"", "q.csv", "is empty, expected a header with the columns 'document', 'question'"),
        (b"document,question\n", "q.csv", "holds no questions"),
        (b'document,question\na.pdf,Who?\na.pdf,"Why?\n', "q.csv", "broken at line 3"),
        (b'document,question\na.pdf,"Why"?\n', "q.csv", "broken at line 2"),
        (b"document,question,Question\na.pdf,Who?,Why?\n", "q.csv", "the column 'question' more than once"),
        ("document,question\na.pdf,Größe?\n".encode("latin-1"), "q.csv", "not utf-8 text at byte 26; save it again"),
        (b"\xff\xfed\x00o", "q.csv", "not utf-16|no column"),
        (b"[]", "q.json", "holds no questions"),
        (b"", "q.jsonl", "holds no questions"),
        (b"[{]", "q.json", "not valid JSON at line 1"),
        (b"9" * 5000, "q.jsonl", "not valid JSON at line 1.*5000 digits|no column"),
        (b"PK\x03\x04", "q.xlsx", "has the suffix '.xlsx', expected .csv, .tsv, .json or .jsonl"),
    ],
)
def test_a_broken_file_is_one_error_that_says_where(documents, tmp_path, content, name, message):
    with pytest.raises(DatasetError, match=message) as caught:
        load(documents, tmp_path, content, name)
    assert "\n" not in str(caught.value)


def test_missing_paths_are_named_with_the_setting(documents, tmp_path):
    with pytest.raises(DatasetError, match="set dataset.documents=FOLDER"):
        Folder().load()
    with pytest.raises(DatasetError, match="nowhere is not a folder"):
        Folder(tmp_path / "nowhere").load()
    with pytest.raises(DatasetError, match="xx(: | is not a folder)"):
        Folder(tmp_path / ("x" * 300)).load()
    with pytest.raises(DatasetError, match="missing.csv cannot be read"):
        Folder(documents, documents / "missing.csv").load()


def test_without_a_file_the_folders_own_questions_are_taken(tmp_path):
    write_pdf(tmp_path / "a.pdf", 1)
    with pytest.raises(DatasetError, match="no questions file, expected one of questions.csv, questions.json"):
        Folder(tmp_path).load()
    (tmp_path / "questions.csv").write_text("document,question\na.pdf,Who?\n")
    assert len(Folder(tmp_path).load().questions) == 1
    write_json_lines(tmp_path / "questions.jsonl", [])
    with pytest.raises(DatasetError, match="holds questions.csv, questions.jsonl, expected one"):
        Folder(tmp_path).load()


CELLS = st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n,;\t\"'|"), max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4),
    st.sampled_from(",;\t|"),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_every_table_that_pythons_writer_writes_is_read_back(tmp_path, cells, delimiter, encoding, line_end, quoting):
    file = tmp_path / "table.csv"
    written = io.StringIO(newline="")
    writer = csv.writer(written, delimiter=delimiter, lineterminator=line_end, quoting=quoting)
    writer.writerows([("question", "answer", "document"), *cells])
    file.write_bytes(written.getvalue().encode(encoding))
    columns, rows = read_csv(file, REQUIRED)
    assert columns == ["question", "answer", "document"]
    filled = [row for row in cells if any(cell.strip() for cell in row)]
    assert [tuple(row.fields.values()) for row in rows] == filled


def test_an_id_that_cannot_be_written_is_refused(documents, tmp_path):
    rows = [{"document": "a.pdf", "question": "Who?", "id": "\ud83d"}, {"document": "a.pdf", "question": "Why?"}]
    file = tmp_path / "questions.json"
    file.write_text(json.dumps(rows))
    (line,) = Folder(documents, file).load().refused
    assert line.startswith("row 1 (\\ud83d): the text holds '\\ud83d', half of a character")


def test_questions_may_hold_any_text(documents, tmp_path):
    texts = ["Größe?", "数は？", "a" * 50_000, "x\ty", "= 1 + 1"]
    file = write_json(tmp_path / "q.json", [{"document": "a.pdf", "question": text} for text in texts])
    assert [question.text for question in Folder(documents, file).load().questions] == texts
    assert json.loads(file.read_text(encoding="utf-8"))[1]["question"] == texts[1]
