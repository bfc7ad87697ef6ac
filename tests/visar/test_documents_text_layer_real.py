"""Words of real documents against other extractors, and real pages without a text layer."""

from __future__ import annotations

import shutil
import subprocess
import unicodedata
from pathlib import Path

import pypdfium2
import pytest

from visar.documents.page_characters import PageCharacters
from visar.documents.pdf import PdfFile
from visar.documents.text_layer import read_text_layer

PARITY = {"watch_d.pdf": 6, "2303.08559v2.pdf": 3, "ADOBE_2015_10K.pdf": 40, "tacl_a_00660.pdf": 2}


def words(characters: PageCharacters) -> list[str]:
    return [word.text for word in read_text_layer(characters).words]


@pytest.mark.parametrize("name", PARITY)
def test_words_are_those_of_pdfiums_own_text(shared_data: Path, name: str) -> None:
    path, page = shared_data / "mmlongbench" / "documents" / name, PARITY[name]
    with pypdfium2.PdfDocument(path) as document:
        text = document[page].get_textpage().get_text_range()
    # PDFium writes U+FFFE for a hyphen at a line's end.
    expected = [_joined(word) for word in text.split()]
    file = PdfFile(path, timeout=60)
    assert words(file.characters(page)) == [
        cleaned for word in expected if (cleaned := "".join(c for c in word if unicodedata.category(c)[0] != "C"))
    ]
    file.close()


def _joined(word: str) -> str:
    first, *others = word.split("\ufffe")
    return first + "".join(other if other[:1].islower() else f"-{other}" for other in others)


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="poppler's pdftotext is not installed")
@pytest.mark.parametrize("name", PARITY)
def test_words_and_boxes_agree_with_poppler(shared_data: Path, name: str) -> None:
    path, page = shared_data / "mmlongbench" / "documents" / name, PARITY[name]
    said = subprocess.run(
        ["pdftotext", "-tsv", "-f", str(page + 1), "-l", str(page + 1), str(path), "-"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = [line.split("\t") for line in said.splitlines()[1:]]
    width, height = next((float(row[8]), float(row[9])) for row in rows if row[0] == "1")
    theirs: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row[0] == "5":
            left, top, across, down = (float(side) for side in row[6:10])
            theirs.setdefault(row[11], []).append(((left + across / 2) / width, (top + down / 2) / height))
    file = PdfFile(path, timeout=60)
    ours: dict[str, list[tuple[float, ...]]] = {}
    for word in read_text_layer(file.characters(page)).words:
        ours.setdefault(word.text, []).append(word.box)
    file.close()
    shared = sum(min(len(theirs.get(text, ())), len(boxes)) for text, boxes in ours.items())
    # They differ in words divided at line ends, in formulas, and in dots that lead to page numbers.
    assert shared >= 0.9 * max(sum(map(len, theirs.values())), sum(map(len, ours.values())))
    for text in ours.keys() & theirs.keys():
        if len(ours[text]) == len(theirs[text]) == 1:
            (left, top, right, bottom), (across, down) = ours[text][0], theirs[text][0]
            assert left - 0.01 <= across <= right + 0.01, text
            assert top - 0.015 <= down <= bottom + 0.015, text


FAULTS = {
    # A scan with the stamp of a court, pages of a scan, a garbled font, a report with its own text throughout.
    "3276a5b991c49cf5f9a4af0f7d6fce67.pdf": 16,
    "germanwingsdigitalcrisisanalysis-150403064828-conversion-gate01_95.pdf": 23,
    "reportq32015-151009093138-lva1-app6891_95.pdf": 34,
    "afe620b9beac86c1027b96d31d396407.pdf": 7,
    "PG_2020.03.09_US-Germany_FINAL.pdf": 0,
    "698bba535087fa9a7f9009e172a7f763.pdf": 2,
}


@pytest.mark.parametrize("name", FAULTS)
def test_real_pages_without_a_text_layer_are_found(shared_data: Path, name: str) -> None:
    file = PdfFile(shared_data / "mmlongbench" / "documents" / name, timeout=60)
    faults = [read_text_layer(file.characters(page)).fault for page in range(file.page_count)]
    file.close()
    assert sum(fault is not None for fault in faults) == FAULTS[name]
