"""The drawn data set on disk: its rows, its pictures, equal bytes for equal seeds, and what a kill leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from conceptformer.drawn import DrawnPages
from conceptformer.drawn.drawing import CELL
from conceptformer.drawn.papers import PAPERS
from conceptformer.errors import DataError
from tests.conceptformer.drawn_pages import contents, differing, rows, small_drawing
from visar.tensor_files import StoreError

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "pages"
    folders = small_drawing(folder).write()
    assert (folders.train, folders.held_out) == (folder / "train" / "train.jsonl", folder / "held_out")
    return folder


def test_training_rows_hold_query_page_and_boxes_in_pixels(drawn):
    train = rows(drawn / "train" / "train.jsonl")
    assert len(train) == 120 == len({row["query_id"] for row in train})
    assert len({row["page_id"] for row in train}) == 60
    for row in train:
        assert list(row) == ["query_id", "query", "page_id", "image", "boxes", "labels", "frame"]
        assert row["frame"] == "absolute" and 2 <= len(row["boxes"]) == len(row["labels"]) <= 3
        assert all(label in row["query"] or label.capitalize() in row["query"] for label in row["labels"])
        assert Image.open(drawn / "train" / row["image"]).size == (6 * CELL, 8 * CELL)


def test_the_held_out_task_has_one_query_for_each_page(drawn):
    pages, queries = rows(drawn / "held_out" / "pages.jsonl"), rows(drawn / "held_out" / "queries.jsonl")
    assert [list(row) for row in pages] == [["page_id", "image"]] * 20
    assert [row["relevant"] for row in queries] == [[row["page_id"]] for row in pages]
    for row in queries:
        assert list(row) == ["query_id", "query", "relevant", "boxes", "frame"]
        assert row["frame"] == "absolute" and list(row["boxes"]) == row["relevant"]
        assert 2 <= len(row["boxes"][row["relevant"][0]]) <= 3
    for row in pages:
        assert Image.open(drawn / "held_out" / row["image"]).size == (6 * CELL, 8 * CELL)


def test_boxes_touch_the_ink_on_all_four_sides(drawn):
    blanks = [paper.sheet((6 * CELL, 8 * CELL)) for paper in PAPERS]
    for row in rows(drawn / "train" / "train.jsonl"):
        page = Image.open(drawn / "train" / row["image"]).convert("RGB")
        # The page's own paper is the one that most of it looks like.
        ink = min((differing(page, blank) for blank in blanks), key=lambda image: -image.histogram()[0])
        for box in row["boxes"]:
            assert ink.crop(box).getbbox() == (0, 0, box[2] - box[0], box[3] - box[1])
            # One pixel around it there is paper.
            left, top, right, bottom = box[0] - 1, box[1] - 1, box[2] + 1, box[3] + 1
            for edge in ((left, top, right, top + 1), (left, bottom - 1, right, bottom)):
                assert ink.crop(edge).getbbox() is None
            for edge in ((left, top, left + 1, bottom), (right - 1, top, right, bottom)):
                assert ink.crop(edge).getbbox() is None


def test_splits_share_no_page_and_no_picture(drawn):
    train = {row["page_id"] for row in rows(drawn / "train" / "train.jsonl")}
    assert not train & {row["page_id"] for row in rows(drawn / "held_out" / "pages.jsonl")}
    pictures = [path.read_bytes() for path in drawn.rglob("*.png")]
    assert len(pictures) == 80 == len(set(pictures))


def test_no_held_out_page_holds_the_things_of_a_training_page(tmp_path):
    few = {"colours": 2, "shapes": 1, "words": 4, "things_per_page": (4, 4), "names_per_query": (4, 4)}
    train, held_out = DrawnPages(tmp_path, pages=80, held_out_pages=30, **few)._settle()
    assert len({page.things for page in train} | {page.things for page in held_out}) == 110


def test_held_out_queries_name_as_many_things_as_training_queries(tmp_path):
    """Thousands of pages need three names each; two hundred would often do with two."""
    train, held_out = DrawnPages(tmp_path, pages=2500, held_out_pages=60)._settle()

    def share_of_two(pages) -> float:
        lengths = [len(query.named) for page in pages for query in page.queries]
        return lengths.count(2) / len(lengths)

    assert share_of_two(train) < 0.1
    assert share_of_two(held_out) < 0.15


def test_equal_seeds_give_equal_bytes_and_other_seeds_other_pages(drawn, tmp_path):
    small_drawing(tmp_path / "again").write()
    assert contents(tmp_path / "again") == contents(drawn)
    small_drawing(tmp_path / "other", seed=1).write()
    before, other = contents(drawn), contents(tmp_path / "other")
    assert before.keys() == other.keys()
    # Ids and paths do not depend on the seed.
    same = {name for name in before if before[name] == other[name]}
    assert same == {"held_out/pages.jsonl"}


def test_a_drawing_that_is_there_is_not_drawn_again(drawn):
    before = {path: path.stat().st_mtime_ns for path in drawn.rglob("*")}
    small_drawing(drawn).write(lambda done, total: pytest.fail("drew"))
    assert {path: path.stat().st_mtime_ns for path in drawn.rglob("*")} == before


def test_progress_counts_the_pages_of_both_splits(tmp_path):
    reports = []
    small_drawing(tmp_path / "pages").write(lambda done, total: reports.append((done, total)))
    assert reports == [(done, 80) for done in range(81)]


def test_a_killed_drawing_goes_on_where_it_was_and_ends_with_the_same_files(drawn, tmp_path):
    folder = tmp_path / "killed"
    code = f"""
from tests.conceptformer.drawn_pages import small_drawing
import pathlib, time
def slowly(done, total):
    time.sleep(0.05)
small_drawing(pathlib.Path({str(folder)!r})).write(slowly)
"""
    process = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT)
    images = folder / "train" / "images"
    deadline = time.monotonic() + 60
    while len(list(images.glob("*.png"))) < 10 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    drawn_before = {path.name: path.read_bytes() for path in images.glob("*.png")}
    assert 10 <= len(drawn_before) < 60
    assert not (folder / "manifest.json").exists()
    assert all(drawn_before[name] == (drawn / "train" / "images" / name).read_bytes() for name in drawn_before)

    reports = []
    small_drawing(folder).write(lambda done, total: reports.append((done, total)))
    assert reports[0] == (0, 80 - len(drawn_before))
    assert contents(folder) == contents(drawn)


def test_a_drawing_stopped_under_other_settings_leaves_no_picture_behind(drawn, tmp_path):
    folder = tmp_path / "pages"

    def stop(done: int, total: int) -> None:
        if done == 70:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_drawing(folder, pages=90, seed=9).write(stop)
    small_drawing(folder).write()
    assert contents(folder) == contents(drawn)


def test_a_drawing_with_other_settings_is_replaced(drawn, tmp_path):
    folder = tmp_path / "pages"
    small_drawing(folder, pages=70, seed=4).write()
    small_drawing(folder).write()
    assert contents(folder) == contents(drawn)


@pytest.mark.parametrize("damage", ["image lost", "image cut", "rows cut"])
def test_a_damaged_drawing_is_drawn_again(drawn, tmp_path, damage):
    folder = tmp_path / "pages"
    small_drawing(folder).write()
    image, lines = folder / "held_out" / "images" / "held-out-00003.png", folder / "train" / "train.jsonl"
    if damage == "image lost":
        image.unlink()
    else:
        damaged = image if damage == "image cut" else lines
        damaged.write_bytes(damaged.read_bytes()[:-1])
    small_drawing(folder).write()
    assert contents(folder) == contents(drawn)


def test_files_that_no_drawing_has_made_are_left_alone(tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "thesis.txt").write_text("years of work")
    with pytest.raises(
        DataError, match=r"expected an empty folder or drawn pages, found train; choose another folder$"
    ):
        small_drawing(tmp_path).write()
    assert contents(tmp_path) == {"train/thesis.txt": b"years of work"}


def test_a_file_in_the_folders_place_is_refused(tmp_path):
    (tmp_path / "pages").write_text("mine")
    with pytest.raises(DataError, match="expected a folder for drawn pages, found a file"):
        small_drawing(tmp_path / "pages").write()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions of POSIX systems")
def test_a_folder_that_cannot_be_written_is_said_in_one_line():
    with pytest.raises(StoreError) as error:
        small_drawing(Path("/proc/drawn")).write()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pages": 0}, "pages: expected at least 1, got 0"),
        ({"held_out_pages": 0}, "held_out_pages: expected at least 1, got 0"),
        ({"jitter": 4}, "jitter: expected 0 to 3, got 4"),
        ({"colours": 9}, "colours: expected 1 to 8, got 9"),
        ({"shapes": 0}, "shapes: expected 1 to 6, got 0"),
        ({"words": 41}, "words: expected 0 to 40, got 41"),
        ({"image_size": (170, 224)}, "image_size: expected multiples of 28 from 56 up, got 170 x 224"),
        ({"image_size": (168,)}, r"image_size: expected two numbers, got \[168\]"),
        ({"names_per_query": (3, 2)}, "expected 1 <= fewest names <= most names"),
        ({"names_per_query": (2, 5)}, "got names 2 to 5, things 4 to 7"),
        ({"things_per_page": (4, 200)}, "most things <= 65, got"),
        ({"image_size": (56, 56)}, "things do not fit on a page of 56 x 56 pixels"),
        ({"colours": 1, "shapes": 1, "words": 3}, "pages: .* cannot be told apart"),
    ],
)
def test_settings_that_make_no_sense_are_refused_before_anything_is_written(tmp_path, settings, message):
    with pytest.raises(DataError, match=message) as error:
        small_drawing(tmp_path / "pages", **settings).write()
    assert "\n" not in str(error.value)
    assert not (tmp_path / "pages").exists()
