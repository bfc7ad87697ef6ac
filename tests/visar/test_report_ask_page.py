"""The page of one question: self-contained, bounded, escaped, and right about what it shows."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.visar.report_reading import Reading, assert_self_contained, read
from visar.errors import VisarError
from visar.matches import Match
from visar.report.ask_page import AskResult, ChosenPage, write_ask_page
from visar.selection import Selection

EVIL = "</title><script>alert('&')</script>"
DOCUMENTS = Path(__file__).parents[2].parent / "shared" / "data" / "mmlongbench" / "documents"


def _page_image(seed: int = 0) -> Image.Image:
    """Dark marks on white, about as busy as a page of text."""
    marks = np.random.default_rng(seed).random((396, 306)) < 0.12
    return Image.fromarray(np.where(marks, 30, 255).astype(np.uint8)).resize((1224, 1584))


def _result(count: int = 6, k: int = 2, image: Image.Image | None = None, **changes: object) -> AskResult:
    values = torch.linspace(0, 1, count)
    selection = Selection(
        order=list(range(count - 1, -1, -1)),
        scores=values,
        k=k,
        reason="least_cost",
        late_interaction=values + 7,
        similarity=values[:, None] * values[None, :],
        cost=(torch.arange(1, max(count, 2)) - float(k)).abs(),
        warnings=("the selection warns",),
        seconds={"late_interaction": 0.012},
    )
    matches = (Match((0.1, 0.2, 0.4, 0.25), "cash", 0.9, 0.5), Match((0.5, 0.5, 0.6, 0.7), "flow", 0.4, 0.1))
    chosen = tuple(
        ChosenPage(page, page + 1, values[page].item(), values[page].item() + 7, image or _page_image(), matches)
        for page in selection.pages
    )
    result = AskResult("What is the cash flow?", "report.pdf", count, selection, chosen, settings={"encoder": "MiniLM"})
    return dataclasses.replace(result, **changes)


def _write(tmp_path: Path, result: AskResult) -> tuple[str, Reading]:
    path = tmp_path / "ask.html"
    write_ask_page(path, result)
    html = path.read_text(encoding="utf-8")
    assert_self_contained(html)
    return html, read(html)


def test_the_headline_and_the_pictures(tmp_path: Path) -> None:
    html, reading = _write(tmp_path, _result(notes=("a note", "the selection warns")))
    assert reading.text("h1") == ["What is the cash flow?"]
    assert "Read pages 5 and 6 of 6" in reading.text("p")
    assert _result().selection.explanation in reading.text("p")
    assert [image.attributes["alt"] for image in reading.all("img")] == ["Page 6 of report.pdf", "Page 5 of report.pdf"]
    assert reading.text("h3") == [
        "Similarity of the pages, seen through the question",
        "Cost of reading the k best pages",
        "Late interaction",
        "ViSAR self-similarity",
        "Table",
    ]
    (notes,) = reading.text("div", role="note")
    assert notes == "a notethe selection warns"
    assert reading.text("dt") == ["encoder", "time: late_interaction"]
    assert reading.text("dd") == ["MiniLM", "12 ms"]
    assert all(svg.attributes.get("aria-label") for svg in reading.all("svg"))


def test_all_pages_are_in_the_score_table_best_first(tmp_path: Path) -> None:
    _, reading = _write(tmp_path, _result())
    rows = [row for row in reading.text("tr") if row.endswith("yes") or re.match(r"^[1-6][1-6][01]\.", row)]
    assert rows == [
        "161.0008.000yes",
        "250.8007.800yes",
        "340.6007.600",
        "430.4007.400",
        "520.2007.200",
        "610.0007.000",
    ]


def test_matches_stand_where_their_boxes_are_and_fade_with_their_strength(tmp_path: Path) -> None:
    _, reading = _write(tmp_path, _result(k=1))
    strong, weak = [rect for rect in reading.all("rect") if "above the average page" in rect.text]
    place = [strong.attributes[name] for name in ("x", "y", "width", "height")]
    assert place == ["100", "200", "300", "50"]
    assert float(strong.attributes["fill-opacity"] or 0) > 2 * float(weak.attributes["fill-opacity"] or 0) > 0
    assert strong.text == "cash: similarity 0.90, 0.50 above the average page"
    (names,) = reading.text("ul", class_="tokens")
    assert names == "cash +0.50flow +0.10"


def test_a_page_opens_without_script_and_closes_where_it_was(tmp_path: Path) -> None:
    _, reading = _write(tmp_path, _result())
    assert [link.attributes["href"] for link in reading.all("a", class_="open")] == ["#page-1", "#page-2"]
    closing = [link.attributes["href"] for link in reading.all("a") if link.text == "Close"]
    assert closing == ["#place-1", "#place-2"]
    assert [figure.attributes["id"] for figure in reading.all("figure")] == ["page-1", "page-2"]


def test_foreign_text_is_text(tmp_path: Path) -> None:
    match = Match((0.1, 0.1, 0.2, 0.2), EVIL, 0.9, 0.5)
    base = _result(k=1)
    html, reading = _write(
        tmp_path,
        dataclasses.replace(
            base,
            question=EVIL,
            document_name=f'"{EVIL}.pdf',
            chosen=(dataclasses.replace(base.chosen[0], matches=(match,)),),
            settings={EVIL: EVIL},
            notes=(EVIL,),
            selection=dataclasses.replace(base.selection, warnings=(EVIL,), seconds={EVIL: 1.0}),
        ),
    )
    assert "<script" not in html
    assert reading.text("h1") == [EVIL]
    assert reading.text("title")[0] == f'{EVIL} – "{EVIL}.pdf'
    assert reading.all("img")[0].attributes["alt"] == f'Page 6 of "{EVIL}.pdf'
    assert reading.text("dt") == [EVIL, f"time: {EVIL}"]


def test_ten_busy_pages_stay_under_a_megabyte_and_a_half(tmp_path: Path) -> None:
    html, reading = _write(tmp_path, _result(count=100, k=10))
    assert len(reading.all("img")) == 10
    assert len(html.encode()) < 1_500_000


def test_sixty_pages_are_cut_to_thirty_pictures_and_it_says_so(tmp_path: Path) -> None:
    html, reading = _write(tmp_path, _result(count=468, k=60, image=_page_image().resize((800, 1035))))
    assert len(reading.all("img")) == 30
    assert "Chosen but not pictured here (30 pages): 409–438." in reading.text("p")
    assert "Read pages 409–468 of 468" in reading.text("p")
    assert len(html.encode()) < 1_500_000


def test_a_page_without_an_image_is_listed_and_the_others_keep_their_rank(tmp_path: Path) -> None:
    base = _result(k=3)
    chosen = (base.chosen[0], dataclasses.replace(base.chosen[1], image=None), base.chosen[2])
    _, reading = _write(tmp_path, dataclasses.replace(base, chosen=chosen))
    assert [figure.attributes["id"] for figure in reading.all("figure")] == ["page-1", "page-3"]
    assert "Read pages 4–6 of 6" in reading.text("p")
    assert "Chosen but not pictured here (1 page): 5." in reading.text("p")


def test_the_pictured_page_is_the_page(tmp_path: Path) -> None:
    image = Image.new("RGB", (600, 800), "white")
    image.paste((200, 30, 30), (0, 0, 600, 400))
    _, reading = _write(tmp_path, _result(k=1, image=image))
    (shown,) = reading.all("img")
    content = base64.b64decode((shown.attributes["src"] or "").removeprefix("data:image/jpeg;base64,"))
    decoded = Image.open(io.BytesIO(content)).convert("RGB")
    assert decoded.size == (600, 800) == (int(shown.attributes["width"]), int(shown.attributes["height"]))
    assert max(abs(a - b) for a, b in zip(decoded.getpixel((300, 200)), (200, 30, 30), strict=True)) < 12
    assert min(decoded.getpixel((300, 600))) > 245


def test_selectors_without_a_matrix_have_no_empty_pictures(tmp_path: Path) -> None:
    base = _result()
    selection = dataclasses.replace(base.selection, similarity=torch.zeros(0, 0), cost=torch.zeros(0))
    _, reading = _write(tmp_path, dataclasses.replace(base, selection=selection))
    assert reading.text("h3") == ["Late interaction", "Table"]
    assert "How many pages, and why these" not in reading.text("h2")


def test_one_page_without_matches(tmp_path: Path) -> None:
    selection = Selection([0], torch.tensor([3.0]), 1, "one_page", torch.tensor([3.0]))
    chosen = (ChosenPage(0, 54, 3.0, 3.0, _page_image(), without_place=2),)
    html, reading = _write(tmp_path, AskResult("Why?", "page.png", 1, selection, chosen, labels=[54]))
    assert "Read page 54 of 1" in reading.text("p")
    assert "2 tokens matched, but at no place on the page." in html
    assert "Show matches" not in html


def test_pages_left_out_are_listed_last_and_without_rank(tmp_path: Path) -> None:
    base = _result()
    scores = base.selection.scores.clone()
    scores[2] = math.nan
    selection = dataclasses.replace(base.selection, order=[5, 4, 3, 1, 0], scores=scores, late_interaction=scores)
    html, reading = _write(tmp_path, dataclasses.replace(base, selection=selection))
    assert "–3––left out" in reading.text("tr")
    assert "nan" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", html).lower()


def test_labels_that_do_not_fit_and_folders_that_cannot_be_written_are_errors(tmp_path: Path) -> None:
    with pytest.raises(VisarError, match="labels"):
        write_ask_page(tmp_path / "ask.html", _result(labels=[1, 2]))
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(VisarError) as caught:
        write_ask_page(tmp_path / "file" / "ask.html", _result())
    assert "\n" not in str(caught.value)


def test_a_failing_write_leaves_the_old_page_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "ask.html"
    path.write_text("old")
    with pytest.raises(VisarError):
        write_ask_page(path, _result(labels=[1]))
    assert path.read_text() == "old"
    write_ask_page(path, _result())
    assert [file.name for file in tmp_path.iterdir()] == ["ask.html"]
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.skipif(not DOCUMENTS.is_dir(), reason="needs the real PDFs of MMLongBench-Doc beside the checkout")
def test_ten_real_pages_stay_under_a_megabyte_and_a_half_and_legible(tmp_path: Path) -> None:
    import pypdfium2

    with pypdfium2.PdfDocument(DOCUMENTS / "NETFLIX_2015_10K.pdf") as document:
        images = [document[page].render(scale=2).to_pil() for page in range(40, 50)]
    base = _result(count=72, k=10)
    chosen = tuple(dataclasses.replace(page, image=image) for page, image in zip(base.chosen, images, strict=True))
    html, reading = _write(tmp_path, dataclasses.replace(base, chosen=chosen))
    assert len(html.encode()) < 1_500_000
    assert min(int(image.attributes["width"]) for image in reading.all("img")) >= 580
