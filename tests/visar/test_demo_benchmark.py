"""The demo benchmark: the drawn pages hold exactly the evidence that the questions claim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pypdfium2
import pytest
from PIL import Image

pytest.importorskip("reportlab", reason="the demo documents are drawn with reportlab (extra offline)")

from reportlab.platypus.doctemplate import LayoutError

from visar.benchmarks import Benchmark, Demo
from visar.benchmarks.demo.blocks import Heading, Part, Table, Text, paragraphs
from visar.benchmarks.demo.documents import DOCUMENTS
from visar.benchmarks.demo.documents.city_budget import projects, running_costs
from visar.benchmarks.demo.documents.city_districts import DISTRICTS
from visar.benchmarks.demo.documents.field_guide import FIELD_GUIDE
from visar.benchmarks.demo.documents.wildflowers import SPECIES
from visar.benchmarks.demo.drawing import DrawnDocument, draw_document
from visar.records import QuestionSet

ROOT = Path(__file__).parents[2]
QUESTIONS = [(document, question) for document in DOCUMENTS for question in document.questions]
IDS = [question.id for _, question in QUESTIONS]
SCANNED = "cooperative-minutes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def loaded(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> QuestionSet:
    """The set as drawn by another process, with another hash seed, time zone and working directory."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo", "PYTHONPATH": str(ROOT)}
    code = "import sys; from visar.benchmarks import Demo; Demo(sys.argv[1]).load()"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, env=environment, cwd=elsewhere)
    return Demo(folder).load()


@pytest.fixture(scope="module")
def drawn() -> dict[str, DrawnDocument]:
    """A second drawing, in this process, which also tells what was printed on the scans."""
    return {document.id: draw_document(document) for document in DOCUMENTS}


@pytest.fixture(scope="module")
def texts(drawn: dict[str, DrawnDocument]) -> dict[str, list[str]]:
    return {id_: page_texts(document) for id_, document in drawn.items()}


def page_texts(document: DrawnDocument) -> list[str]:
    with pypdfium2.PdfDocument(document.pdf) as pdf:
        layer = [page.get_textpage().get_text_range() for page in pdf]
    return [" ".join(document.scanned.get(number, text).split()) for number, text in enumerate(layer)]


def pages_with(key: str, pages: list[str]) -> set[int]:
    """Pages that hold ``key`` as a whole: 276 is not found in 1,276 or 276.5."""
    pattern = re.compile(rf"(?<![\w,.]){re.escape(key)}(?!\w|[.,]\d)", re.IGNORECASE)
    return {number for number, text in enumerate(pages) if pattern.search(text)}


def test_it_is_a_benchmark_with_single_several_and_no_evidence_pages(loaded: QuestionSet) -> None:
    assert isinstance(Demo(), Benchmark)
    assert loaded.refused == ()
    counts = Counter(min(len(question.evidence_pages), 2) for question in loaded.questions)
    assert counts[1] >= 12 and counts[2] >= 10 and counts[0] >= 5
    assert max(len(question.evidence_pages) for question in loaded.questions) >= 4
    assert len({question.id for question in loaded.questions}) == len(loaded.questions)


def test_documents_have_8_to_36_pages_and_some_100_in_all(loaded: QuestionSet) -> None:
    lengths = []
    for document in loaded.documents:
        with pypdfium2.PdfDocument(document.files[0]) as pdf:
            lengths.append(len(pdf))
    assert len(lengths) == 6
    assert all(8 <= length <= 36 for length in lengths), lengths
    assert 90 <= sum(lengths) <= 120, lengths


@pytest.mark.parametrize(("document", "question"), QUESTIONS, ids=IDS)
def test_every_key_fact_stands_on_its_evidence_page_and_on_no_other(
    document, question, loaded: QuestionSet, drawn: dict[str, DrawnDocument], texts: dict[str, list[str]]
) -> None:
    claimed = next(each for each in loaded.questions if each.id == question.id).evidence_pages
    assert claimed == tuple(sorted(set(claimed)))
    assert set(claimed) == {drawn[document.id].marks[mark] for mark, _ in question.evidence}
    for mark, key in question.evidence:
        found = pages_with(key, texts[document.id])
        assert drawn[document.id].marks[mark] in found, f"{key!r} is not on the page of its block"
        assert found <= set(claimed), f"{key!r} also stands on pages {sorted(found - set(claimed))}"


@pytest.mark.parametrize(("document", "question"), QUESTIONS, ids=IDS)
def test_a_question_has_either_evidence_or_words_that_the_document_never_uses(
    document, question, texts: dict[str, list[str]]
) -> None:
    assert bool(question.evidence) != bool(question.absent)
    for word in question.absent:
        assert pages_with(word, texts[document.id]) == set(), word


def test_all_pages_that_name_the_circulation_pump_as_a_cause_are_evidence(
    loaded: QuestionSet, texts: dict[str, list[str]]
) -> None:
    pages = texts["heat-pump-manual"]
    with_codes = {number for number, text in enumerate(pages) if "Possible cause" in text}
    naming = {number for number in with_codes if "irculation pump" in pages[number]}
    asked = next(each for each in loaded.questions if each.id == "heat-pump-circulation-pump-codes")
    assert naming == set(asked.evidence_pages)
    assert len(with_codes) > len(naming)


def answer_of(id_: str) -> str:
    return next(question.answer for _, question in QUESTIONS if question.id == id_)


def test_computed_answers_agree_with_sums_over_the_data() -> None:
    costs = {district.name: running_costs(district) for district in DISTRICTS}
    libraries = sum(costs[name]["Library services"][1] for name in ("Northmoor", "Quarry Hill", "Saltmarsh"))
    assert f"{libraries:,} crowns" in answer_of("budget-summed-libraries")
    roads = {name: costs[name]["Road maintenance"][1] for name in ("Eastgate", "Millfields")}
    assert answer_of("budget-compared-roads").startswith(max(roads, key=roads.__getitem__))
    assert f"by {max(roads.values()) - min(roads.values()):,} crowns" in answer_of("budget-compared-roads")
    schools = [each.name for each in DISTRICTS if any("New primary school" in work.name for work in projects(each))]
    assert answer_of("budget-new-schools") == f"{', '.join(schools)}."
    paved = [each.name for each in DISTRICTS if any("new paving" in work.name for work in projects(each))]
    assert answer_of("budget-paving") == f"{', '.join(paved)}."
    shingle = [flower.name for flower in SPECIES if flower.habitat == "shingle"]
    assert answer_of("guide-shingle") == f"{', '.join(shingle)}."
    october = [flower.name for flower in SPECIES if flower.months[0] <= 10 <= flower.months[1]]
    assert answer_of("guide-october") == f"{', '.join(october)}."


def test_reference_numbers_follow_from_the_printed_ones(texts: dict[str, list[str]]) -> None:
    assert answer_of("ferry-revenue-per-post").startswith(f"{1288.0 / 1120:.2f} million")
    assert answer_of("ferry-yard-days").startswith(f"{19 + 26 + 33} days")
    assert answer_of("minutes-lift-overrun").startswith(f"By {153_400 - 148_000:,} crowns")
    cancelled = [re.search(r"Quarter 4 [\d,]+ (\d+) ", text) for text in texts["ferry-annual-report"]]
    assert answer_of("ferry-cancelled").startswith(str(sum(int(found[1]) for found in cancelled if found)))
    traffic = next(text for text in texts["ferry-annual-report"] if "Table 1: Passengers by route" in text)
    rows = re.findall(r"(North Sound|Kestrel Strait|Outer Isles|Lindhaven Express|Night Line)((?: [\d,]+){5})", traffic)
    growth = {}
    for name, numbers in rows:
        *_, before, after = (int(number.replace(",", "")) for number in numbers.split())
        growth[name] = after / before
    assert len(growth) == 5
    assert max(growth, key=growth.__getitem__) == "Outer Isles"


def test_scanned_pages_have_no_text_layer_and_grey_noisy_images(drawn: dict[str, DrawnDocument]) -> None:
    scanned = drawn[SCANNED].scanned
    assert 5 <= len(scanned) <= 6
    with pypdfium2.PdfDocument(drawn[SCANNED].pdf) as pdf:
        for number, page in enumerate(pdf):
            assert (page.get_textpage().count_chars() == 0) == (number in scanned)
        pixels = np.asarray(pdf[min(scanned)].render(scale=1).to_pil().convert("L"), dtype=float)
    assert 180 < np.median(pixels) < 245, "paper is grey"
    assert pixels.std() > 10, "there is ink"
    assert all(len(text.split()) > 80 for text in scanned.values())
    assert all(not document.scanned for id_, document in drawn.items() if id_ != SCANNED)


def test_rapidocr_reads_the_key_facts_of_a_scanned_page(drawn: dict[str, DrawnDocument]) -> None:
    rapidocr = pytest.importorskip("rapidocr", reason="reading scans needs rapidocr (extra ocr)")
    page = drawn[SCANNED].marks["archive-roof"]
    with pypdfium2.PdfDocument(drawn[SCANNED].pdf) as pdf:
        image: Image.Image = pdf[page].render(scale=2).to_pil().convert("RGB")
    # The paragraph in question is in the upper part; less of the page takes less time.
    image = image.crop((0, 0, image.width, image.height * 2 // 5))
    read = " ".join(rapidocr.RapidOCR()(np.asarray(image)).txts)
    assert "86,500" in read and "Brandl" in read


def test_pages_carry_several_hundred_characters_and_nothing_is_drawn_beyond_the_edge(
    drawn: dict[str, DrawnDocument], texts: dict[str, list[str]]
) -> None:
    for id_, document in drawn.items():
        assert all(len(text) > 300 for text in texts[id_][1:]), id_
        with pypdfium2.PdfDocument(document.pdf) as pdf:
            for number, page in enumerate(pdf):
                layer, (width, height) = page.get_textpage(), page.get_size()
                boxes = np.array([layer.get_charbox(index) for index in range(layer.count_chars())])
                if len(boxes):
                    assert boxes.min() >= 0 and boxes[:, 2].max() <= width * 0.95, (id_, number)
                    assert boxes[:, 3].max() <= height, (id_, number)


def test_no_glyph_is_missing(texts: dict[str, list[str]]) -> None:
    """Characters outside the fonts' encoding would come out as boxes or question marks."""
    letters = set("".join("".join(pages) for pages in texts.values()))
    assert {letter for letter in letters if not letter.isascii()} <= {"\x7f", "•", "▪", "■", "\uf06e"}


def test_two_processes_draw_the_same_bytes(loaded: QuestionSet, folder: Path, drawn: dict[str, DrawnDocument]) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {"manifest.json", *(f"{document.id}.pdf" for document in DOCUMENTS)}
    for document in loaded.documents:
        assert document.files[0].read_bytes() == drawn[document.id].pdf, document.id


def test_paragraphs_are_split_at_blank_lines_and_marks_read() -> None:
    first, second = paragraphs("""{here-1} One
        line.

        Another one.""")
    assert (first.text, first.mark) == ("One line.", "here-1")
    assert (second.text, second.mark) == ("Another one.", None)


def test_chapters_have_names_of_their_own() -> None:
    """The table of contents knows a chapter by its name."""
    for document in DOCUMENTS:
        blocks = [block for part in document.parts for block in part.blocks]
        chapters = [block.text for block in blocks if isinstance(block, Heading) and block.level == 1]
        assert len(chapters) == len(set(chapters)), document.id


def test_the_table_of_contents_gives_the_page_on_which_a_chapter_starts(texts: dict[str, list[str]]) -> None:
    pages = texts["ferry-annual-report"]
    listed = re.findall(r"(Route report: [A-Z]\w+ [A-Z]\w+|Income statement|Risks) (\d+)", pages[1])
    assert len(listed) == 7
    for chapter, label in listed:
        assert f"Annual Report 2023 {label} {chapter}" in pages[int(label) - 1]


def test_a_marked_block_that_does_not_fit_one_page_is_refused() -> None:
    rows = tuple((f"row {number}", "1") for number in range(200))
    too_long = replace(FIELD_GUIDE, parts=(Part((Table("", (), rows, mark="long"),)),))
    with pytest.raises((ValueError, LayoutError)):
        draw_document(too_long)


def test_a_mark_that_is_used_twice_is_refused() -> None:
    blocks = (Text("One.", mark="same"), Heading("Next"), Text("Two.", mark="same"))
    with pytest.raises(ValueError, match="'same' is drawn on two pages or used twice"):
        draw_document(replace(FIELD_GUIDE, parts=(Part(blocks),)))
