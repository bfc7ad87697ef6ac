"""Images in Parquet files: the same bytes in every order, little read and little held in the order of the file."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conceptformer.data.images import image_size, open_image
from conceptformer.data.parquet_pages import ParquetImage, parquet_columns, row_count, stored_rows
from conceptformer.errors import DataError, MissingExtraError
from tests.conceptformer.colour_pages import draw
from tests.conceptformer.parquet_files import CORPUS, corpus_rows, pa, page_content, write_table

ROOT = Path(__file__).parents[2]
# Several row groups, and one of more rows than are read at once.
ROWS, GROUP = 47, 23


def images_of(path: Path) -> list[ParquetImage]:
    return [row.image for row in stored_rows(path, ["doc_id"], "image")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.parquet"
    return write_table(path, corpus_rows([f"d/{number}.png" for number in range(ROWS)]), CORPUS, GROUP)


def test_rows_are_given_in_their_order_with_the_bytes_of_their_images(corpus):
    rows = list(stored_rows(corpus, ["doc_id"], "image"))
    assert [row.values for row in rows] == [{"doc_id": f"d/{number}.png"} for number in range(ROWS)]
    assert [row.place for row in rows[:2]] == ["corpus.parquet:1", "corpus.parquet:2"]
    assert rows[GROUP].place == f"corpus.parquet:{GROUP + 1}"
    assert [row.image.read_bytes() for row in rows] == [page_content(number) for number in range(ROWS)]
    assert (row_count(corpus), parquet_columns(corpus)) == (ROWS, ["doc_id", "image", "dataset_name"])


@settings(max_examples=25)
@given(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=9))
def test_images_are_the_same_in_whatever_order_they_are_asked_for(corpus, order):
    images = images_of(corpus)
    assert [images[place].read_bytes() for place in order] == [page_content(place) for place in order]


def test_an_image_is_opened_and_measured_like_one_in_a_file(corpus):
    image = images_of(corpus)[31]
    assert open_image(image).tobytes() == draw(31)[0].tobytes()
    assert image_size(image) == (12, 21)
    assert str(image) == f"{corpus} (row group 1, row 8)"


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_bytes_need_no_struct_around_them(tmp_path, kind):
    schema = pa.schema([("doc_id", pa.string()), ("image", kind)])
    rows = [{"doc_id": str(number), "image": page_content(number)} for number in range(5)]
    path = write_table(tmp_path / "a.parquet", rows, schema, 2)
    assert [image.read_bytes() for image in images_of(path)] == [row["image"] for row in rows]


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="this system does not count what a process reads")
def test_in_the_order_of_the_file_every_row_group_is_read_once(tmp_path):
    content = random.Random(0)
    rows = [{"doc_id": str(number), "image": {"bytes": content.randbytes(20_000)}} for number in range(120)]
    images = images_of(write_table(tmp_path / "a.parquet", rows, CORPUS, 40))
    images[0].read_bytes()

    def bytes_read(order: list[ParquetImage]) -> int:
        before = _bytes_read_so_far()
        for image in order:
            image.read_bytes()
        return _bytes_read_so_far() - before

    size = images[0].path.stat().st_size
    assert bytes_read(images) < 1.5 * size
    # From row group to row group each image costs what lies before it in its own: the count above is no accident.
    assert bytes_read([images[40 * group + row] for row in range(40) for group in range(3)]) > 5 * size


def _bytes_read_so_far() -> int:
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["rchar"])


def test_threads_may_read_at_once(corpus):
    images = images_of(corpus)
    order = [number * 7 % ROWS for number in range(90)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda place: images[place].read_bytes(), order))
    assert found == [page_content(place) for place in order]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_reads_on_its_own_whatever_its_parent_was_doing(corpus):
    """The data loader forks while another thread may hold the reader's lock."""
    from conceptformer.data import parquet_pages

    images = images_of(corpus)
    images[3].read_bytes()

    def read(queue) -> None:
        queue.put([images[place].read_bytes() for place in (4, 30)])

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with parquet_pages._reader._lock:
        child = context.Process(target=read, args=(queue,))
        child.start()
        try:
            assert queue.get(timeout=60) == [page_content(4), page_content(30)]
        finally:
            child.kill()
            child.join()
    assert images[4].read_bytes() == page_content(4)


MEASURED = """
import resource, sys
from pathlib import Path
from conceptformer.data.parquet_pages import stored_rows

files = [Path(name) for name in sys.argv[1:]]
images = [row.image for path in files for row in stored_rows(path, ["doc_id"], "image")]
next(iter(images)).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = sum(len(image.read_bytes()) for image in images)
print(total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems measure memory in other units")
def test_a_corpus_is_read_in_a_fraction_of_its_size(tmp_path):
    content = random.Random(0)
    files = [
        write_table(
            tmp_path / f"{shard}.parquet",
            [{"doc_id": f"{shard}/{row}", "image": {"bytes": content.randbytes(60_000)}} for row in range(400)],
            CORPUS,
            50,
        )
        for shard in range(4)
    ]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, files)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    total, growth = map(int, done.stdout.split())
    assert total == 4 * 400 * 60_000
    assert growth * 1024 < total / 3


def test_a_cell_without_an_image_is_said_and_its_neighbours_are_read(tmp_path):
    rows = corpus_rows(["a", "b", "c", "d"])
    rows[1]["image"] = {"bytes": None, "path": "elsewhere.png"}
    rows[2]["image"] = None
    images = images_of(write_table(tmp_path / "a.parquet", rows, CORPUS))
    for image in images[1:3]:
        with pytest.raises(DataError, match=r"a\.parquet \(row group 0, row [12]\): the cell is empty"):
            image.read_bytes()
    assert images[3].read_bytes() == rows[3]["image"]["bytes"]


def test_other_kinds_of_images_are_refused_before_any_is_read(tmp_path):
    path = write_table(tmp_path / "a.parquet", [{"doc_id": "a", "image": "a.png"}], pa.schema(
        [("doc_id", pa.string()), ("image", pa.string())]
    ))  # fmt: skip
    with pytest.raises(DataError, match="its column 'image' holds string; expected the bytes of image files"):
        images_of(path)
    with pytest.raises(DataError, match="has no column 'picture'; found doc_id, image"):
        list(stored_rows(path, ["doc_id"], "picture"))


def test_a_file_that_is_gone_cut_short_or_changed_is_one_line(tmp_path):
    path = write_table(tmp_path / "a.parquet", corpus_rows([str(number) for number in range(9)]), CORPUS, 3)
    images = images_of(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    for place in (0, 8):
        with pytest.raises(DataError, match="cannot be read as Parquet .*get another copy") as caught:
            images[place].read_bytes()
        assert "\n" not in str(caught.value)
    write_table(path, corpus_rows(["0"]), CORPUS)
    with pytest.raises(DataError, match="no row group 2 any more; the file was changed"):
        images[8].read_bytes()
    with pytest.raises(DataError, match="there is no such row any more"):
        images[2].read_bytes()
    path.unlink()
    with pytest.raises(DataError, match="no such file"):
        images[0].read_bytes()
    path.write_bytes(whole)
    assert images[8].read_bytes() == page_content(8)


def test_damage_within_a_row_group_does_not_spoil_the_next_read(tmp_path):
    path = write_table(tmp_path / "a.parquet", corpus_rows([str(number) for number in range(8)]), CORPUS, 4)
    images = images_of(path)
    content = bytearray(path.read_bytes())
    # The images of the first row group: their page of values is no longer what its header says.
    start = content.index(b"\x89PNG") - 40
    content[start : start + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        images[2].read_bytes()
    assert images[6].read_bytes() == page_content(6)


def test_without_pyarrow_the_line_that_installs_it_is_said(corpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    with pytest.raises(MissingExtraError, match="reading Parquet files needs the package 'pyarrow': pip install"):
        row_count(corpus)
