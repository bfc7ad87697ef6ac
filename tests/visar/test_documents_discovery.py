"""Finding documents: what becomes a document, in which page order, and how everything else is refused."""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.visar.benchmark_files import write_image, write_pdf
from visar.documents import find_document
from visar.documents.discovery import natural_order
from visar.documents.images import check_page_image
from visar.documents.pdf import check_pdf
from visar.errors import DocumentError


def test_a_pdf_is_one_file_under_its_name(tmp_path: Path) -> None:
    document = find_document(write_pdf(tmp_path / "Report 2020.PDF", 2))
    assert (document.id, document.files) == ("Report 2020.PDF", (tmp_path / "Report 2020.PDF",))


def test_an_id_may_be_given(tmp_path: Path) -> None:
    assert find_document(str(write_image(tmp_path / "a.png")), document_id="").id == ""


def test_pages_of_a_folder_are_ordered_by_the_numbers_in_their_names(tmp_path: Path) -> None:
    names = ["page_1.png", "Page_2.JPG", "page_10.webp", "page_11.tiff", "page_100.bmp"]
    for name in reversed(names):
        write_image(tmp_path / name)
    document = find_document(tmp_path)
    assert [file.name for file in document.files] == names
    assert document.id == tmp_path.name


def test_a_folder_given_as_dot_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_image(tmp_path / "1.png")
    monkeypatch.chdir(tmp_path)
    assert find_document(".").id == tmp_path.name


@given(st.lists(st.text("aB0129 _", max_size=8), max_size=6))
def test_natural_order_compares_any_names_and_never_ties(names: list[str]) -> None:
    ordered = sorted(names, key=natural_order)
    for one, other in itertools.pairwise(ordered):
        assert natural_order(one) <= natural_order(other)
        assert (natural_order(one) == natural_order(other)) == (one == other)


def test_what_a_folder_holds_besides_images_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_image(tmp_path / "1.png")
    (tmp_path / ".DS_Store").write_bytes(b"x")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "more").mkdir()
    with caplog.at_level(logging.WARNING):
        assert len(find_document(tmp_path).files) == 1
    assert "left out: more, notes.txt" in caplog.text
    assert "DS_Store" not in caplog.text


def test_a_folder_without_images_says_what_is_there_instead(tmp_path: Path) -> None:
    for name in ("a.pdf", "b.doc", "c.txt", "d.txt", "e.txt"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(DocumentError, match=r"no images in this folder \(it holds a.pdf, b.doc, c.txt and 2 more\)"):
        find_document(tmp_path)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"no images in this folder \(it is empty\)"):
        find_document(tmp_path)


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file or folder"):
        find_document(tmp_path / "nowhere.pdf")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.pdf", b"", "the file is empty"),
        ("a.png", b"", "the file is empty"),
        ("a.pdf", b"<html>404 not found</html>", "not a PDF"),
        ("a.docx", b"PK\x03\x04", "not a PDF"),
        ("a.png", b"no image", "not an image"),
        ("a.jpg", b"\xff\xd8\xff\xe0", "a.jpg: "),
    ],
)
def test_content_that_is_not_what_the_name_says_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DocumentError, match=message) as caught:
        find_document(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_mail_headers_before_a_pdf_are_accepted(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", 1)
    path.write_bytes(b"Content-Type: application/pdf\r\n\r\n" + path.read_bytes())
    assert find_document(path).files == (path,)


def test_an_image_file_of_several_pages_is_refused(tmp_path: Path) -> None:
    frames = [Image.new("L", (10, 10), shade) for shade in (0, 100, 200)]
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    for path in (tmp_path / "a.tif", tmp_path):
        with pytest.raises(DocumentError, match="holds 3 images; expected one page per file"):
            find_document(path)


def test_a_name_that_the_file_system_refuses_is_one_line(tmp_path: Path) -> None:
    for look in (find_document, check_pdf, check_page_image):
        with pytest.raises(DocumentError, match="x: (cannot be|the image cannot be|no such file)") as caught:
            look(tmp_path / ("x" * 300))
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is refused to root")
def test_a_folder_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    write_image(tmp_path / "closed" / "1.png")
    for mode in (0o000, 0o200):
        (tmp_path / "closed").chmod(mode)
        for path in (tmp_path / "closed", tmp_path / "closed" / "1.png"):
            with pytest.raises(DocumentError, match="cannot be looked at .*Permission denied"):
                find_document(path)
    (tmp_path / "closed").chmod(0o700)
