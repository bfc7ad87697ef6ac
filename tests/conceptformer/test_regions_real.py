"""Evidence on real pages: LongDocURL states its boxes in fractions of the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from conceptformer.backbones.protocol import TokenGrid
from conceptformer.data.images import image_size
from conceptformer.errors import BoxError
from conceptformer.records import EvidenceBox
from conceptformer.regions import concept_length, concept_tokens, frame_named, valid_boxes

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "longdocurl"
CELL = 28

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no real pages beside the checkout")


def evidence_pages() -> list[tuple[Path, list[list[float]]]]:
    """Each page that answers one of the questions, with the boxes that its row states."""
    pages = []
    for line in (DATA / "LongDocURL.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        boxes = [
            [float(number) for number in found.split(",")]
            for found in re.findall(r"<box>\(([^)]*)\)</box>", row["detailed_evidences"])
        ]
        pages += [(DATA / "pages" / f"{row['doc_no']}_{number - 1}.png", boxes) for number in row["evidence_pages"]]
    return pages


def grid_over(path: Path) -> TokenGrid:
    """Cells of 28 pixels over the page resized to whole cells."""
    width, height = image_size(path)
    rows, columns = round(height / CELL), round(width / CELL)
    return TokenGrid(rows, columns, (width, height), (columns * CELL, rows * CELL))


def cells_drawn(box: EvidenceBox, grid: TokenGrid) -> list[int]:
    """The cells that hold a pixel of the box, drawn at ten times the size of the resized page."""
    width, height = (10 * side for side in grid.resized_size)
    image = Image.new("1", (width, height))
    edges = (
        round(box.left * width),
        round(box.top * height),
        round(box.right * width) - 1,
        round(box.bottom * height) - 1,
    )
    ImageDraw.Draw(image).rectangle(edges, fill=1)
    cells = np.asarray(image).reshape(grid.rows, 10 * CELL, grid.columns, 10 * CELL).any(axis=(1, 3))
    return np.flatnonzero(cells).tolist()


def test_three_questions_have_four_evidence_pages_and_one_of_them_a_box():
    pages = evidence_pages()
    assert [path.name for path, _ in pages] == ["4055915_53.png", "4127644_14.png", "4127644_15.png", "4151603_41.png"]
    assert [boxes for _, boxes in pages] == [[[0.08, 0.26, 0.92, 0.52]], [], [], []]


def test_the_tokens_of_a_real_box_are_those_it_is_drawn_on():
    (path, rows), *_ = evidence_pages()
    grid = grid_over(path)
    assert (grid.image_size, grid.rows, grid.columns) == ((612, 792), 28, 22)
    checked = valid_boxes(rows, None, frame_named("relative"), grid.image_size)
    assert (checked.dropped, checked.clipped) == ((), ())
    tokens = concept_tokens(checked.boxes, grid)
    assert tokens.tolist() == cells_drawn(checked.boxes[0], grid)
    # columns floor(1.76) to ceil(20.24) - 1, rows floor(7.28) to ceil(14.56) - 1
    assert concept_length(checked.boxes, grid) == 20 * 8
    assert (int(tokens[0]), int(tokens[-1])) == (7 * 22 + 1, 14 * 22 + 20)


def test_the_evidence_in_fractions_holds_the_criteria_measured_in_pixels():
    """The five judging criteria, which the question asks for, are printed at these pixels of the page."""
    (path, rows), *_ = evidence_pages()
    grid, criteria = grid_over(path), (131, 340, 457, 391)
    with Image.open(path) as image:
        assert (np.asarray(image.convert("L").crop(criteria)) < 128).any(axis=1).sum() > 25
    stated = valid_boxes(rows, None, frame_named("relative"), grid.image_size).boxes
    measured = valid_boxes([criteria], None, frame_named("absolute"), grid.image_size).boxes
    tokens = set(concept_tokens(measured, grid).tolist())
    assert len(tokens) == 2 * 13
    assert tokens < set(concept_tokens(stated, grid).tolist())


@pytest.mark.parametrize("frame", ["absolute", "relative1000"])
def test_real_boxes_in_a_frame_that_is_not_theirs_are_refused(frame: str):
    (path, rows), *_ = evidence_pages()
    with pytest.raises(BoxError, match="likelier 'relative'"):
        valid_boxes(rows, None, frame_named(frame), image_size(path))
