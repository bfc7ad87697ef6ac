"""A contact sheet of evidence boxes: one HTML page that draws them on their pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.backbones.protocol import TokenGrid
from conceptformer.box_files.rows import BoxFile, BoxRow
from conceptformer.box_files.sampling import ChosenRow
from conceptformer.box_files.statistics import BoxStatistics, area, coverage
from conceptformer.box_files.summary import PUBLISHED, facts, length_rows, told_lengths
from conceptformer.data.images import open_image
from conceptformer.data.json_rows import shown
from conceptformer.errors import DataError
from conceptformer.records import OnProgress
from conceptformer.regions import concept_length
from conceptformer.report.page import render
from conceptformer.report.pictures import length_bars
from visar.report.images import page_image
from visar.report.page import write_page

# In pixels and characters: forty pages stay below four megabytes.
_LARGEST = (640, 760)
_BUDGET = 80_000
_COLOURS = 6
_MOST_TEXT, _MOST_LABEL, _MOST_LINES = 700, 220, 1000


@dataclass(frozen=True)
class DrawnBox:
    """A box as it is drawn.

    Attributes:
        number: Among all boxes of the row, from 1; the label bears it too.
        colour: Number of its colour.
        left, top, width, height: In percent of the page.
        share: Of the page's area.
    """

    number: int
    colour: int
    left: float
    top: float
    width: float
    height: float
    share: float
    label: str


@dataclass(frozen=True)
class Card:
    """A row as it is shown.

    Attributes:
        uri: The page, as ``data:`` URI; empty where it cannot be read.
        facts: Name and value of what is known of the row.
        notes: What is wrong with it.
        alternative: The picture in words.
    """

    chosen: ChosenRow
    query: str
    uri: str
    width: int
    height: int
    boxes: tuple[DrawnBox, ...]
    facts: Mapping[str, str]
    notes: tuple[str, ...]
    alternative: str


def write_box_sheet(
    path: Path,
    file: BoxFile,
    statistics: BoxStatistics,
    chosen: Sequence[ChosenRow],
    grid_of: Callable[[tuple[int, int]], TokenGrid],
    *,
    rule: str,
    on_progress: OnProgress = lambda done, total: None,
) -> None:
    """Write one self-contained HTML file (no script, no outside request), atomically.

    Args:
        grid_of: The grid of visual tokens of a page of (width, height).
        rule: How the rows were chosen, in a sentence.
        on_progress: Called with (rows drawn, all of them).

    Raises:
        StoreError: The file cannot be written.
    """
    cards = []
    for done, row in enumerate(chosen, start=1):
        cards.append(_card(row, grid_of))
        on_progress(done, len(chosen))
    lengths = statistics.lengths
    page = render(
        "boxes",
        title=file.path.name,
        figures=facts(statistics),
        hints=statistics.hints,
        cards=cards,
        rule=rule,
        lengths=None if lengths is None else length_bars(lengths),
        told_lengths=None if lengths is None else told_lengths(lengths),
        length_rows=[] if lengths is None else length_rows(lengths),
        published=PUBLISHED,
        faults=[str(fault) for fault in (*file.invalid, *file.dropped, *file.clipped)],
        most_lines=_MOST_LINES,
    )
    write_page(path, page)


def _card(chosen: ChosenRow, grid_of: Callable[[tuple[int, int]], TokenGrid]) -> Card:
    row = chosen.row
    notes = [note for note in (row.fault, *row.dropped, *row.clipped) if note]
    uri, width, height = "", 0, 0
    try:
        image = open_image(row.image)
        image.thumbnail(_LARGEST)
        uri, width, height = page_image(image, _BUDGET)
    except DataError as error:
        if str(error) != row.fault:
            notes.append(str(error))
    boxes = tuple(
        DrawnBox(
            number,
            (number - 1) % _COLOURS,
            100 * box.left,
            100 * box.top,
            100 * (box.right - box.left),
            100 * (box.bottom - box.top),
            area(box),
            _cut(box.label, _MOST_LABEL),
        )
        for number, box in zip(row.numbers, row.boxes, strict=True)
    )
    drawn = f"{len(boxes):,} evidence {'box' if len(boxes) == 1 else 'boxes'} drawn"
    alternative = f"Page {_cut(row.page_id, _MOST_LABEL)}, {drawn}"
    query = _cut(row.query, _MOST_TEXT)
    return Card(chosen, query, uri, width, height, boxes, _facts(row, grid_of), tuple(notes), alternative)


def _facts(row: BoxRow, grid_of: Callable[[tuple[int, int]], TokenGrid]) -> dict[str, str]:
    values = row.row.values
    told = {"row": row.place, "query id": row.query_id, "page": row.page_id}
    if row.image_size is not None:
        told["page size"] = "{} × {}".format(*row.image_size)
    for key, name in (("frame", "frame"), ("input_size", "input size"), ("model", "model")):
        if values.get(key) is not None:
            value = values[key]
            sides = isinstance(value, list) and len(value) == 2
            told[name] = "{} × {}".format(*value) if sides else value if isinstance(value, str) else shown(value)
    for name, count in zip(("cut off when proposed", "dropped when proposed"), row.lost_before, strict=True):
        if count:
            told[name] = f"{count:,} {'box' if count == 1 else 'boxes'}"
    if row.boxes and row.image_size is not None:
        told["area covered"] = f"{coverage(row.boxes)[0]:.2%}"
        try:
            grid = grid_of(row.image_size)
        except DataError as error:
            told["concept tokens"] = str(error)
        else:
            told["concept tokens"] = (
                f"{concept_length(row.boxes, grid):,} of {len(grid):,} ({grid.columns} × {grid.rows})"
            )
    return {name: _cut(value, _MOST_LABEL) for name, value in told.items()}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
