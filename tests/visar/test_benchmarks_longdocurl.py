"""LongDocURL: slices of page images, whole PDFs, and the two ways to count pages."""

from __future__ import annotations

import logging

import pytest

from tests.visar.benchmark_files import SHARED, write_image, write_json, write_json_lines, write_pdf
from visar.benchmarks import Benchmark, LongDocUrl
from visar.errors import DatasetError

REAL = SHARED / "data" / "longdocurl"
FOREIGN = "/another/machine/4000-4999/4000"


def image_row(number, pages, *, indexes=range(41, 46), document="4000001", **changes):
    fields = {
        "question_id": f"q{number}",
        "question": f"Question {number}?",
        "answer": 5,
        "evidence_pages": pages,
        "start_end_idx": [43, 44],
        "images": [f"{FOREIGN}/{document}_{index}.png" for index in indexes],
    }
    return {**fields, **changes}


def image_benchmark(root, rows, indexes=range(41, 47), **settings):
    for index in indexes:
        # One folder per document, as the benchmark's own scripts lay them out.
        write_image(root / "pages" / "4000" / f"4000001_{index}.png")
    write_json_lines(root / "LongDocURL.jsonl", rows)
    return LongDocUrl(root=root, **settings)


def pdf_row(number, pages, **changes):
    fields = {"question_id": f"q{number}", "question": f"Question {number}?", "doc_id": "a.pdf", "answer": ["x", "ü"]}
    return {**fields, "evidence_pages": pages, **changes}


def pdf_benchmark(root, rows, page_base):
    write_pdf(root / "documents" / "a.pdf", 5)
    write_json(root / "samples.json", rows)
    return LongDocUrl(root=root, page_base=page_base)


def test_it_is_a_benchmark():
    assert isinstance(LongDocUrl(), Benchmark)


def test_a_slice_of_images_is_a_document_whose_labels_are_the_pages_of_the_whole_one(tmp_path):
    loaded = image_benchmark(tmp_path, [image_row(1, [44, 42]), image_row(2, [46])]).load()
    (document,) = loaded.documents
    assert document.id == "4000001_42-46"
    assert [file.name for file in document.files] == [f"4000001_{index}.png" for index in range(41, 46)]
    assert [document.label(page) for page in range(5)] == [42, 43, 44, 45, 46]
    assert [question.evidence_pages for question in loaded.questions] == [(0, 2), (4,)]
    # The claim behind the conversion: page 44 is the file numbered 43.
    assert document.files[loaded.questions[0].evidence_pages[1]].name == "4000001_43.png"
    assert loaded.questions[0].answer == "5"


def test_slices_of_the_same_pdf_are_different_documents(tmp_path):
    rows = [image_row(1, [43]), image_row(2, [43], indexes=range(42, 46))]
    loaded = image_benchmark(tmp_path, rows).load()
    assert [(document.id, document.first_label) for document in loaded.documents] == [
        ("4000001_42-46", 42),
        ("4000001_43-46", 43),
    ]
    assert [question.evidence_pages for question in loaded.questions] == [(1,), (0,)]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (image_row(3, [41]), "page 41 is outside the document, whose pages are 42 to 46"),
        (image_row(3, [44, 47]), "page 47 is outside the document, whose pages are 42 to 46"),
        (image_row(3, [44], indexes=range(40, 46)), "1 of its 6 page images are not in pages/, first 4000001_40.png"),
        (image_row(3, [44], indexes=[41, 43, 44]), "consecutive pages"),
        (image_row(3, [44], indexes=[43, 42, 41]), "consecutive pages"),
        (image_row(3, [44], indexes=[43, 43]), "consecutive pages"),
        (image_row(3, [44], images=["a_1.png", "b_2.png"]), "consecutive pages of one document"),
        (image_row(3, [44], images=["notes.txt"]), "consecutive pages"),
        (image_row(3, [44], images=[]), "field 'images' is not a list of file names"),
        (image_row(3, [44], images=None), "field 'images' is missing"),
        (image_row(3, [44], evidence_pages=None), "field 'evidence_pages' is missing"),
        (image_row(3, ["44"]), "'44' is not a page number"),
        (image_row(2, [44]), "the same question id as line 2"),
        (image_row(3, [44], question=""), "field 'question' is empty"),
    ],
)
def test_a_row_that_cannot_be_right_is_refused_with_its_line_and_reason(tmp_path, wrong, reason):
    loaded = image_benchmark(tmp_path, [image_row(1, [44]), image_row(2, [45]), wrong]).load()
    assert len(loaded.questions) == 2
    assert len(loaded.refused) == 1
    assert loaded.refused[0].startswith(f"line 3 ({wrong['question_id']}): ")
    assert reason in loaded.refused[0]


def test_an_image_that_stands_twice_is_refused_rather_than_picked(tmp_path):
    rows = [image_row(1, [44]), image_row(2, [45]), image_row(3, [47], indexes=range(45, 47))]
    loader = image_benchmark(tmp_path, rows)
    write_image(tmp_path / "pages" / "old" / "4000001_46.png")
    assert loader.load().refused == ("line 3 (q3): page image 4000001_46.png is in pages/ 2 times",)


def test_a_broken_line_is_an_error_that_says_which(tmp_path):
    loader = image_benchmark(tmp_path, [image_row(1, [44])])
    with (tmp_path / "LongDocURL.jsonl").open("a") as file:
        file.write('\n{"question_id": \n')
    with pytest.raises(DatasetError, match="not valid JSON at line 3"):
        loader.load()


@pytest.mark.parametrize(("page_base", "indexes"), [(0, (1, 4)), (1, (0, 3))])
def test_whole_pdfs_are_counted_as_the_setting_says(tmp_path, page_base, indexes, caplog):
    with caplog.at_level(logging.INFO):
        loaded = pdf_benchmark(tmp_path, [pdf_row(1, [1, 4])], page_base).load()
    assert loaded.questions[0].evidence_pages == indexes
    assert loaded.questions[0].answer == '["x", "ü"]'
    assert [(document.id, document.first_label) for document in loaded.documents] == [("a.pdf", 1)]
    assert f"whole PDFs, pages counted from {page_base}" in caplog.text


@pytest.mark.parametrize(("page_base", "outside"), [(0, 5), (1, 0)])
def test_whole_pdfs_refuse_pages_outside_under_either_count(tmp_path, page_base, outside):
    loaded = pdf_benchmark(tmp_path, [pdf_row(1, [2]), pdf_row(2, [outside])], page_base).load()
    assert len(loaded.refused) == 1
    reason = f"page {outside} is outside the document, whose pages are {page_base} to {4 + page_base}"
    assert reason in loaded.refused[0]


def named(number, pages, words):
    return pdf_row(number, pages, detailed_evidences=f"See the table <box>(0.1, 0.2, 0.3, 0.4)</box>, {words}.")


FROM_ZERO = [named(1, [1, 2], "pages 3 and 2"), named(2, [0], "page 1"), named(3, [2], "page 2"), pdf_row(4, [1])]


def test_whole_pdfs_need_the_setting_and_the_error_says_what_the_rows_say(tmp_path):
    with pytest.raises(DatasetError, match=r"set dataset.page_base to 0 or 1.* 2 fit 0 and 1 fit 1"):
        pdf_benchmark(tmp_path, FROM_ZERO, None).load()


def test_a_setting_that_the_rows_contradict_is_an_error(tmp_path):
    with pytest.raises(DatasetError, match=r"counts from 0, not from 1: .* 2 fit 0 and 1 fit 1"):
        pdf_benchmark(tmp_path, FROM_ZERO, 1).load()
    assert [question.evidence_pages for question in pdf_benchmark(tmp_path, FROM_ZERO, 0).load().questions] == [
        (1, 2),
        (0,),
        (2,),
        (1,),
    ]


@pytest.mark.parametrize(
    ("words", "fits_one"),
    [
        ("pages 2, 3 and 5", [2, 3, 5]),
        ("pages 2, 3, and 5", [2, 3, 5]),
        ("page 2 and page 5", [2, 5]),
        ("Page 4", [4]),
    ],
)
def test_pages_named_in_words_are_understood(tmp_path, words, fits_one):
    with pytest.raises(DatasetError, match="0 fit 0 and 1 fit 1"):
        pdf_benchmark(tmp_path, [named(1, fits_one, words)], None).load()
    with pytest.raises(DatasetError, match="1 fit 0 and 0 fit 1"):
        pdf_benchmark(tmp_path, [named(1, [page - 1 for page in fits_one], words)], None).load()


def test_page_images_whose_rows_count_from_zero_are_an_error(tmp_path):
    rows = [image_row(1, [43], detailed_evidences="It is on page 44."), image_row(2, [44])]
    with pytest.raises(DatasetError, match="counts from 0, not from 1"):
        image_benchmark(tmp_path, rows).load()


def test_the_setting_is_checked(tmp_path):
    with pytest.raises(DatasetError, match="page_base=2 is not a way to count pages"):
        LongDocUrl(root=tmp_path, page_base=2)
    with pytest.raises(DatasetError, match="page_base=0 does not fit the page images"):
        image_benchmark(tmp_path, [image_row(1, [44])], page_base=0).load()
    assert image_benchmark(tmp_path, [image_row(1, [44])], page_base=1).load().questions[0].evidence_pages == (2,)


def test_an_unclear_layout_is_an_error(tmp_path):
    with pytest.raises(DatasetError, match="neither layout, expected one .jsonl file and page images in pages/, or"):
        LongDocUrl(root=tmp_path).load()
    image_benchmark(tmp_path, [image_row(1, [44])])
    write_json_lines(tmp_path / "More.jsonl", [])
    with pytest.raises(DatasetError, match=r"2 question files \(LongDocURL.jsonl, More.jsonl\)"):
        LongDocUrl(root=tmp_path).load()
    pdf_benchmark(tmp_path, [pdf_row(1, [1])], 0)
    with pytest.raises(DatasetError, match="both layouts"):
        LongDocUrl(root=tmp_path).load()


def test_a_download_is_not_started_without_the_setting_that_it_needs():
    from visar.benchmarks import HubCopy

    hub = HubCopy("owner/name", "0" * 40, ["samples.json"])
    with pytest.raises(DatasetError, match="set dataset.page_base to 0 or 1"):
        LongDocUrl(hub=hub).load()


@pytest.mark.skipif(not REAL.is_dir(), reason="the shared copy of LongDocURL is not here")
def test_the_real_rows_point_at_the_images_that_show_their_evidence():
    loaded = LongDocUrl(root=REAL).load()
    assert loaded.refused == ()
    assert [(document.id, len(document.files), document.first_label) for document in loaded.documents] == [
        ("4055915_42-71", 30, 42),
        ("4127644_8-37", 30, 8),
        ("4151603_24-53", 30, 24),
    ]
    documents = {document.id: document for document in loaded.documents}
    evidence = [
        [(documents[question.document_id].label(page), documents[question.document_id].files[page].name)
         for page in question.evidence_pages]
        for question in loaded.questions
    ]  # fmt: skip
    assert evidence == [
        [(54, "4055915_53.png")],
        [(15, "4127644_14.png"), (16, "4127644_15.png")],
        [(42, "4151603_41.png")],
    ]
