"""Text of page images: read by real engines, kept by content, resumed after kills, faults told apart."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from conceptformer.baselines import PageTextReader
from conceptformer.baselines.text_files import TextFiles
from conceptformer.errors import ConceptFormerError, DataError
from conceptformer.records import Page
from tests.conceptformer.coded_pages import CodedReader, coded, coded_page
from tests.conceptformer.colour_pages import encoding, png, silent
from visar.documents import RapidOcr, Tesseract
from visar.documents.ocr import ImageRefusedError
from visar.tensor_files import StoreWarning

pytest.importorskip("reportlab", reason="made_documents needs reportlab")
from tests.visar.made_documents import typed_page  # noqa: E402

ROOT = Path(__file__).parents[2]


def alone(**settings: object) -> PageTextReader:
    """Reads in this process."""
    return PageTextReader(CodedReader(**settings), processes=1)


def read(reader: PageTextReader, pages: list[Page], cache: Path, **changes: object):
    return reader.read(pages, encoding(cache, **changes), silent)


def files_in(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file() and path.name != "key.json")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# Real engines.


@pytest.mark.parametrize("engine", [RapidOcr(threads=1), Tesseract()], ids=lambda engine: engine.name)
def test_words_that_were_drawn_are_read_in_order(tmp_path, engine):
    if engine.name == "rapidocr":
        pytest.importorskip("rapidocr", reason="the ocr extra is not installed")
        pytest.importorskip("onnxruntime", reason="the ocr extra is not installed")
    elif shutil.which("tesseract") is None:
        pytest.skip("the program tesseract is not installed")
    drawn = ["Rotterdam harbour handled", "435 million tonnes of cargo"]
    pages = [Page("drawn", png(typed_page(drawn, size=(700, 160)))), Page("blank", png(Image.new("RGB", (200, 200))))]
    found = read(PageTextReader(engine, processes=1), pages, tmp_path)
    assert found.texts == {"drawn": " ".join(drawn), "blank": ""}
    assert found.left_out == {}


# What is kept.


def test_texts_come_in_the_order_of_the_pages_and_are_read_once(tmp_path):
    pages = [coded_page(f"p{number}", f"text of {number % 3}") for number in range(7)]
    log, told = tmp_path / "log", []
    for _ in range(2):
        found = alone(log=log).read(pages, encoding(tmp_path / "cache"), lambda done, total: told.append((done, total)))
        assert list(found.texts.items()) == [(f"p{number}", f"text of {number % 3}") for number in range(7)]
    # Equal images are one image, whatever their ids.
    assert lines(log) == ["text of 0", "text of 1", "text of 2"]
    assert told == [(done, 7) for done in range(8)] * 2
    assert len(files_in(tmp_path / "cache")) == 3


def test_another_engine_has_texts_of_its_own(tmp_path):
    pages = [coded_page("a", "some words")]
    for version in ("1", "2", "1"):
        assert read(alone(log=tmp_path / "log", version=version), pages, tmp_path / "cache").texts == {
            "a": "some words"
        }
    assert len(lines(tmp_path / "log")) == 2
    (first, second) = sorted((tmp_path / "cache" / "page_text").iterdir())
    assert {json.loads((folder / "key.json").read_text())["version"] for folder in (first, second)} == {"1", "2"}


@pytest.mark.parametrize("damage", [b"", b'{"image": "x', b"[]", b'{"image": "other", "text": "a"}', b'{"text": 3}'])
def test_a_damaged_text_is_read_again_with_a_warning(tmp_path, damage):
    pages, log = [coded_page("a", "first"), coded_page("b", "second")], tmp_path / "log"
    read(alone(log=log), pages, tmp_path / "cache")
    (broken,) = [path for path in files_in(tmp_path / "cache") if json.loads(path.read_text())["text"] == "second"]
    broken.write_bytes(damage)
    with pytest.warns(StoreWarning, match="damaged"):
        assert read(alone(log=log), pages, tmp_path / "cache").texts == {"a": "first", "b": "second"}
    assert lines(log) == ["first", "second", "second"]


def test_letters_that_utf8_cannot_hold_survive(tmp_path):
    files = TextFiles(tmp_path, {"engine": "x"})
    text = "lone \ud83d surrogate,  line separator, Größe 10 %"
    files.save("0" * 64, text)
    assert files.load("0" * 64) == text


# Several processes.


def test_processes_of_their_own_read_the_same(tmp_path):
    pages = [coded_page(f"p{number}", f"text of {number}") for number in range(9)]
    pages.insert(4, Page("broken", b"no image"))
    log = tmp_path / "log"
    shared = PageTextReader(CodedReader(log=log, seconds=0.01), processes=2)
    found = read(shared, pages, tmp_path / "cache", skip_bad_pages=True)
    assert list(found.texts) == [page.page_id for page in pages if page.page_id != "broken"]
    assert found == read(alone(), pages, tmp_path / "own", skip_bad_pages=True)
    assert sorted(lines(log)) == sorted(found.texts.values())
    # All texts are there now: no process is needed, and none is started.
    before = time.process_time()
    assert read(shared, pages, tmp_path / "cache", skip_bad_pages=True) == found
    assert len(lines(log)) == 9 and time.process_time() - before < 5


def test_a_process_that_is_killed_ends_the_run_with_a_line_and_what_was_read_is_kept(tmp_path):
    pages = [coded_page("first", "kept words"), *(coded_page(f"p{number}", f"slow {number}") for number in range(6))]
    read(alone(), pages[:1], tmp_path / "cache")

    def kill_children(done: int, total: int) -> None:
        if done == 2:
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)

    reader = PageTextReader(CodedReader(seconds=0.2), processes=2)
    with pytest.raises(ConceptFormerError, match=r"was killed.*page_text\.processes=1.*is kept") as caught:
        reader.read(pages, encoding(tmp_path / "cache"), kill_children)
    assert "\n" not in str(caught.value)
    assert len(files_in(tmp_path / "cache")) >= 2
    assert len(read(alone(), pages, tmp_path / "cache").texts) == 7


def test_processes_end_when_their_owner_is_killed(tmp_path):
    """Else each kill would leave some that hold half a gigabyte for ever."""
    script = f"""
from pathlib import Path
from conceptformer.baselines import PageTextReader
from tests.conceptformer.coded_pages import CodedReader, coded_page
from tests.conceptformer.colour_pages import encoding, silent
if __name__ == "__main__":
    pages = [coded_page(str(number), f"page {{number}}") for number in range(500)]
    reader = PageTextReader(CodedReader(log=Path({str(tmp_path / "log")!r}), seconds=0.05), processes=2)
    reader.read(pages, encoding(Path({str(tmp_path / "cache")!r})), silent)
"""
    (tmp_path / "reading.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    owner = subprocess.Popen([sys.executable, str(tmp_path / "reading.py")], env=environment, start_new_session=True)
    try:
        wait_until(lambda: len(lines(tmp_path / "log")) >= 4)
    finally:
        owner.kill()
        owner.wait()
    wait_until(lambda: not members_of(owner.pid))
    assert len(lines(tmp_path / "log")) < 500
    for path in files_in(tmp_path / "cache"):
        assert path.name.endswith(".tmp") or json.loads(path.read_text())["text"].startswith("page ")


def wait_until(reached) -> None:
    for _ in range(1200):
        if reached():
            return
        time.sleep(0.05)
    raise AssertionError("waited for a minute")


def members_of(session: int) -> list[int]:
    """Processes of a session that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of_session = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(of_session) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


def test_runs_that_are_killed_at_any_moment_are_gone_on_with(tmp_path):
    pages = [coded_page(f"p{number}", f"text of {number}") for number in range(30)]
    log, cache = tmp_path / "log", tmp_path / "cache"
    generator = random.Random(0)
    for _ in range(8):
        # Forked, since importing torch anew would take longer than all the tests together.
        process = multiprocessing.get_context("fork").Process(
            target=read, args=(alone(log=log, seconds=0.005), pages, cache)
        )
        process.start()
        time.sleep(generator.uniform(0.01, 0.06))
        process.kill()
        process.join()
        for path in files_in(cache):
            assert path.name.startswith(".") or json.loads(path.read_text())["text"].startswith("text of ")
    found = read(alone(log=log), pages, cache)
    assert found.texts == {f"p{number}": f"text of {number}" for number in range(30)}
    # Each kill may cost the page that was being written, and no more.
    counts = Counter(lines(log))
    assert len(counts) == 30 and sum(counts.values()) <= 30 + 8
    assert not [path for path in files_in(cache) if path.name.startswith(".")]


# What goes wrong.


def test_a_bad_page_stops_the_run_or_is_listed(tmp_path):
    cut = coded("cut off here and there")[:-30]
    missing = tmp_path / "missing.png"
    pages = [coded_page("good", "words"), Page("empty", b""), Page("cut", cut), Page("gone", missing)]
    with pytest.raises(DataError, match="page 'empty': .*empty.*; correct it, or skip bad pages"):
        read(alone(), pages, tmp_path / "cache")
    found = read(alone(), pages, tmp_path / "cache", skip_bad_pages=True)
    assert found.texts == {"good": "words"}
    assert list(found.left_out) == ["empty", "cut", "gone"]
    assert "missing.png: cannot be read" in found.left_out["gone"]
    # Nothing is remembered of a page that could not be read.
    missing.write_bytes(coded("found again"))
    assert read(alone(), pages, tmp_path / "cache", skip_bad_pages=True).texts == {
        "good": "words",
        "gone": "found again",
    }


def test_an_engine_that_cannot_be_run_stops_the_run_even_where_pages_may_be_skipped(tmp_path):
    pages = [coded_page("good", "words"), coded_page("other", "other words here")]
    with pytest.raises(ConceptFormerError, match="^the engine does not take 'here'$"):
        read(alone(refuses="here"), pages, tmp_path / "cache", skip_bad_pages=True)


class Choosy(CodedReader):
    def read(self, image: Image.Image):
        words = super().read(image)
        if len(words) > 2:
            raise ImageRefusedError(f"{len(words)} words are too many")
        return words


def test_a_page_that_the_engine_refuses_stops_the_run_or_is_listed_like_one_that_cannot_be_opened(tmp_path):
    pages = [coded_page("good", "two words"), coded_page("long", "these are four words"), coded_page("next", "more")]
    reader = PageTextReader(Choosy(log=tmp_path / "log"), processes=1)
    with pytest.raises(DataError, match="^page 'long': 4 words are too many; correct it, or skip bad pages"):
        read(reader, pages, tmp_path / "cache")
    for asked in (4, 5):  # nothing is remembered of it
        found = read(reader, pages, tmp_path / "cache", skip_bad_pages=True)
        assert found.texts == {"good": "two words", "next": "more"}
        assert found.left_out == {"long": "4 words are too many"}
        assert len(lines(tmp_path / "log")) == asked


def test_a_missing_engine_names_the_program(tmp_path):
    reader = PageTextReader(Tesseract(command="no-such-tesseract"), processes=1)
    with pytest.raises(ConceptFormerError, match="no-such-tesseract"):
        read(reader, [coded_page("a", "words")], tmp_path)


def test_a_full_disk_is_told_and_leaves_no_half_text(tmp_path):
    pages = [coded_page("a", "short"), coded_page("b", "long " * 2000)]

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with pytest.raises(ConceptFormerError, match="make room there"):
            read(alone(), pages, tmp_path / "cache")

    process = multiprocessing.get_context("fork").Process(target=limited)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert [json.loads(path.read_text())["text"] for path in files_in(tmp_path / "cache")] == ["short"]


@pytest.mark.parametrize("processes", [-1, 1.5, True, "2"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(processes):
    with pytest.raises(DataError, match=r"page_text\.processes: expected a whole number of at least 0"):
        PageTextReader(CodedReader(), processes=processes)


def test_an_image_that_is_transparent_or_turned_is_read_as_it_is_seen(tmp_path):
    """The image goes through the project's own decoder: a transparent page is white, hence blank."""
    buffer = io.BytesIO()
    Image.new("RGBA", (16, 16), (9, 9, 9, 0)).save(buffer, "PNG")
    assert read(alone(), [Page("clear", buffer.getvalue())], tmp_path).texts == {"clear": ""}
