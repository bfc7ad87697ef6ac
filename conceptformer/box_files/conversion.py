"""Boxes into a box file in a stated frame: from the columns of the authors' release, from training files, or from box
files in another frame."""

from __future__ import annotations

import glob
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from conceptformer.box_files.page_sources import PageSource
from conceptformer.box_files.rows import BoxFile, Fault, FaultList
from conceptformer.data.folder import HubData
from conceptformer.data.json_rows import image_reference, shown, write_json_rows
from conceptformer.data.page_files import CopiedPage, page_of_size
from conceptformer.errors import DataError
from conceptformer.opendocvqa.queries import TrainingQuery
from conceptformer.opendocvqa.released import ReleasedTrainset
from conceptformer.proposals.box_file import FORMAT, companion, lost_boxes, remove_file
from conceptformer.records import EvidenceBox, OnProgress, Page
from conceptformer.regions import frame_named, valid_boxes

RELEASE = "hmhm1229/ConceptFormer-Trainset"
_CONVERTED = "converted"
_DECIMALS = {"absolute": 4, "relative": 8, "relative1000": 5}


@dataclass(frozen=True)
class Conversion:
    """Rows of a box file, and what is not in them.

    Attributes:
        skipped: Rows, and boxes of other rows, that were left out.
        clipped: Boxes that reached beyond their page and were cut off there.
    """

    rows: tuple[Mapping[str, object], ...]
    skipped: tuple[Fault, ...]
    clipped: tuple[Fault, ...]


def is_released(path: Path) -> bool:
    """Whether a file has the columns of the release: a table, or JSON lines the first of which has ``bbox_2d``.

    Raises:
        DataError: It cannot be read.
    """
    if path.suffix.lower() != ".jsonl":
        return True
    try:
        with path.open("rb") as file:
            first = next((line for line in file if line.strip()), b"")
        row = json.loads(first.decode("utf-8-sig"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected a file with boxes") from error
    except (ValueError, RecursionError):  # said with its line when the file is read as a whole
        return False
    return isinstance(row, dict) and "bbox_2d" in row


def convert_box_file(file: BoxFile, out: Path, frame: str) -> Conversion:
    """The rows of a training file or a box file.

    Args:
        out: The file that the rows are for, which names images relative to its folder.
        frame: What boxes are to be measured in. Absolute ones refer to the row's input_size, or to the page's own size
            where there is none.

    Raises:
        BoxError: There is no frame of that name.
        DataError: No row can be used.
    """
    frame_named(frame)
    rows, skipped = [], [*file.invalid, *file.dropped]
    for pair in file.pairs:
        values = pair.row.values
        if values["boxes"] and not pair.boxes:
            skipped.append(Fault(pair.place, "none of its boxes can be used; no row"))
            continue
        maker = (values.get("model") or file.path.name, values.get("prompt_version") or _CONVERTED)
        page = CopiedPage(Page(pair.page_id, pair.image), pair.image_size)
        query = TrainingQuery(pair.place, pair.query_id, pair.query, (pair.page_id, *pair.other_positives), "")
        lost = tuple(
            before + len(now) for before, now in zip(pair.lost_before, (pair.clipped, pair.dropped), strict=True)
        )
        rows.append(_row(query, page, pair.boxes, out, frame, values.get("input_size"), maker, lost))
    return _complete(file.path, rows, skipped, file.clipped)


def convert_released(
    path: Path,
    pages: PageSource,
    out: Path,
    frame: str,
    stated_frame: str,
    on_progress: OnProgress | None = None,
) -> Conversion:
    """A row for each query of the release: its page is the one that its boxes lie on, told by the size, or the first.

    Args:
        stated_frame: What the boxes of the release are measured in, which it does not say.
        frame, out: See :func:`convert_box_file`.
        on_progress: Called with (done, all) of the pages.

    Raises:
        BoxError: There is no frame of that name.
        DataError: The file cannot be read or lacks a column, or no row can be used.
        StoreError: A page cannot be copied.
        MissingExtraError: pyarrow is needed and not installed.
    """
    frame_named(frame)
    refusals, clipped, rows = FaultList(path), [], []
    seen: dict[str, str] = {}
    queries = _released_queries(path, stated_frame, refusals)
    found = pages.find({page_id for query in queries for page_id in query.page_ids}, refusals, on_progress)
    for query in queries:
        try:
            if query.query_id in seen:
                raise DataError(f"the same query id as in {seen[query.query_id]}")
            seen[query.query_id] = query.place
            page = _page_of(query, found)
            boxes: tuple[EvidenceBox, ...] = ()
            lost = (0, 0)
            if query.evidence is not None:
                stated = query.evidence
                named = frame_named(stated.row.values["frame"], stated.row.values["input_size"])
                checked = valid_boxes(stated.boxes, stated.labels, named, page.size)
                boxes = stated.described(checked.boxes)
                if not boxes:
                    raise DataError(f"none of its boxes can be used, the first: {checked.dropped[0]}")
                for line in checked.dropped:
                    refusals.refuse(query.place, line)
                lost = (len(checked.clipped), len(checked.dropped))
                clipped += [Fault(query.place, line) for line in checked.clipped]
        except DataError as error:
            refusals.refuse(f"{query.place} (query {shown(query.query_id)})", error)
            continue
        input_size = None if query.evidence is None else query.evidence.row.values["input_size"]
        rows.append(_row(query, page, boxes, out, frame, input_size, (RELEASE, _CONVERTED), lost))
    return _complete(path, rows, refusals.faults, clipped)


def write_conversion(out: Path, conversion: Conversion) -> Path | None:
    """Write the box file, and beside it what was left out.

    Returns:
        The latter file; None where nothing was left out, and there is no such file.

    Raises:
        StoreError: A file cannot be written.
    """
    skipped = companion(out, "skipped")
    if conversion.skipped:
        write_json_rows(skipped, [asdict(fault) for fault in conversion.skipped])
    else:
        remove_file(skipped, "nothing was left out")
    write_json_rows(out, conversion.rows)
    return skipped if conversion.skipped else None


def _released_queries(path: Path, frame: str, refusals: FaultList) -> list[TrainingQuery]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected a table with boxes, or a JSONL file")
    source = ReleasedTrainset(path.parent, [glob.escape(path.name)], HubData(None, None, ()), frame)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        queries = source.read(refusals)
    for warning in caught:  # the setting has another name here
        warnings.warn(str(warning.message).replace("queries.frame=", "from_frame="), stacklevel=3)
    return queries


def _page_of(query: TrainingQuery, found: Mapping[str, CopiedPage]) -> CopiedPage:
    there = [found[page_id] for page_id in query.page_ids if page_id in found]
    if not there:
        raise DataError(f"none of its {len(query.page_ids)} pages is there, e.g. {shown(query.page_ids[0])}")
    return page_of_size(there, None if query.evidence is None else query.evidence.image_size)


def _row(
    query: TrainingQuery,
    page: CopiedPage,
    boxes: Sequence[EvidenceBox],
    out: Path,
    frame: str,
    input_size: object,
    maker: tuple[str, str],
    lost: tuple[int, int],
) -> dict[str, object]:
    # Sizes of training files and of the release may be fractions; those of a box file are pixels.
    size = page.size if input_size is None else tuple(max(1, round(side)) for side in input_size)
    page_id = page.page.page_id
    row = {
        "format": FORMAT,
        "query_id": query.query_id,
        "query": query.text,
        "page_id": page_id,
        "image": image_reference(page.page, out.parent),
        "boxes": [_numbers(box, frame, size) for box in boxes],
        "labels": [box.label for box in boxes],
        "frame": frame,
        "image_size": list(page.size),
        "input_size": list(size),
        "model": maker[0],
        "prompt_version": maker[1],
    }
    others = [other for other in query.page_ids if other != page_id]
    return row | ({"other_positives": others} if others else {}) | lost_boxes(clipped=lost[0], dropped=lost[1])


def _numbers(box: EvidenceBox, frame: str, size: tuple[int, int]) -> list[float]:
    width, height = {"absolute": size, "relative": (1, 1), "relative1000": (1000, 1000)}[frame]
    exact = [box.left * width, box.top * height, box.right * width, box.bottom * height]
    rounded = [round(number, _DECIMALS[frame]) for number in exact]
    if not (rounded[0] < rounded[2] and rounded[1] < rounded[3]):
        return exact  # thinner than a rounding
    return [int(number) if number.is_integer() else number for number in rounded]


def _complete(
    path: Path, rows: list[dict[str, object]], skipped: Sequence[Fault], clipped: Sequence[Fault]
) -> Conversion:
    if not rows:
        first = f": {skipped[0]}" if skipped else ""
        raise DataError(f"{path}: no row can be converted, {len(skipped):,} left out{first}")
    return Conversion(tuple(rows), tuple(skipped), tuple(clipped))
