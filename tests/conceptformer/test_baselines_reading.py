"""How often text baselines read images, and what they tell on the way."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from conceptformer.baselines import DenseText, PageTextReader
from conceptformer.errors import DataError
from conceptformer.records import Page
from conceptformer.retrieval.encoding import Place, page_stamps
from conceptformer.retrieval.evaluation import evaluate_retrieval
from tests.conceptformer.coded_pages import CodedReader, coded, coded_page
from tests.conceptformer.colour_pages import encoding, png, silent
from visar.documents import Tesseract
from visar.documents.ocr import ImageRefusedError
from visar.significance import Resampling

pytest.importorskip("sentence_transformers", reason="the encoders extra is not installed")
from tests.conceptformer.test_baselines_dense_text import embedder, ranker, task_of_texts  # noqa: E402
from tests.conceptformer.tiny_text_checkpoints import save_bert  # noqa: E402

ROOT = Path(__file__).parents[2]
FEW = Resampling(samples=50, seed=0)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    save_bert(folder / "cls", "cls")
    save_bert(folder / "mean", "mean")
    return folder


class Loads(CodedReader):
    """An engine that takes a while before its first page."""

    def read(self, image: Image.Image):
        self.log.write_text("begun")
        return super().read(image)


def test_it_is_told_that_reading_begins_before_an_engine_has_loaded(tmp_path):
    log, told = tmp_path / "log", []

    def on_progress(done: int, total: int) -> None:
        told.append((done, total, log.exists()))

    pages = [coded_page("a", "some words"), coded_page("b", "others")]
    PageTextReader(Loads(log=log), processes=1).read(pages, encoding(tmp_path / "cache"), on_progress)
    assert told == [(0, 2, False), (1, 2, True), (2, 2, True)]


def test_images_whose_text_is_there_are_not_read_where_their_stamps_are_known(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    pages = [Page(name, folder / name) for name in ("a", "b")]
    for page in pages:
        page.image.write_bytes(coded(f"text of {page.page_id}"))
    stamps = page_stamps(pages)
    reader, settings = PageTextReader(CodedReader(), processes=1), encoding(tmp_path / "cache")
    first = reader.read(pages, settings, silent, stamps)
    (folder / "a").unlink()
    assert reader.read(pages, settings, silent, stamps) == first
    # Another image than the stamp says must not give its text to what the stamp stands for.
    with pytest.raises(DataError, match="page 'b': the image changed while the run was on"):
        reader.read(pages, encoding(tmp_path / "other", skip_bad_pages=True), silent, page_stamps(pages) | {"b": "0"})


def test_a_page_that_rapidocr_fails_at_is_listed_and_the_others_are_read(tmp_path):
    """A line of 250,000 pixels takes 165 GB. In a process of its own: memory cannot be given back to this one."""
    pytest.importorskip("rapidocr", reason="the ocr extra is not installed")
    pytest.importorskip("onnxruntime", reason="the ocr extra is not installed")
    script = """if True:
        import resource, sys
        from pathlib import Path
        from PIL import Image
        from conceptformer.baselines import PageTextReader
        from conceptformer.records import Page
        from tests.conceptformer.colour_pages import encoding, png, silent
        from tests.visar.made_documents import typed_page
        from visar.documents import RapidOcr
        strip = Image.new("RGB", (250_000, 16), "white")
        strip.paste("black", (4, 4, 12, 8))
        first, second = (typed_page([text], size=(500, 120)) for text in ("Rotterdam harbour", "two ferries"))
        pages = [Page("first", png(first)), Page("strip", png(strip)), Page("second", png(second))]
        reader = PageTextReader(RapidOcr(threads=1), processes=1)
        def limited(done, total):
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            if done == 1:
                resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, used + 2**29))
        found = reader.read(pages, encoding(Path(sys.argv[1]), skip_bad_pages=True), limited)
        print(dict(found.texts), dict(found.left_out))
    """
    pytest.importorskip("reportlab", reason="made_documents needs reportlab")
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    read = re.escape(str({"first": "Rotterdam harbour", "second": "two ferries"}))
    refused = r"\{'strip': .rapidocr fails at an image of 250000 x 16 pixels \(.+\).\}"
    assert re.fullmatch(f"{read} {refused}\n", run.stdout), run.stderr


def test_a_page_with_a_side_beyond_tesseracts_limit_is_read(tmp_path):
    if shutil.which("tesseract") is None:
        pytest.skip("the program tesseract is not installed")
    strip = Image.new("RGB", (40_000, 60), "white")
    strip.paste("black", (5, 5, 9, 9))
    pages = [Page("strip", png(strip)), coded_page("next", "a few words")]
    found = PageTextReader(Tesseract(), processes=1).read(pages, encoding(tmp_path), silent)
    assert list(found.texts) == ["strip", "next"] and found.texts["strip"] == ""


@dataclasses.dataclass(frozen=True)
class RefusesOnce(CodedReader):
    """An engine that a time limit ends at a page about bees, the first time."""

    mark: Path | None = None

    def read(self, image: Image.Image):
        words = super().read(image)
        if self.mark is not None and any(word.text == "bees" for word in words) and not self.mark.exists():
            self.mark.write_text("refused")
            raise ImageRefusedError("not read within 300 s")
        return words


def test_a_page_that_was_refused_once_is_read_by_the_next_run(tmp_path, checkpoints):
    """Its refusal was kept beside the vectors for good: a moment without memory cost the page its place."""
    task = task_of_texts()
    settings = encoding(tmp_path / "cache", skip_bad_pages=True)

    def left_out() -> dict[str, str]:
        reader = PageTextReader(RefusesOnce(mark=tmp_path / "mark"), processes=1)
        ranking = DenseText(
            name="tiny", embedder=embedder(checkpoints / "mean", "mean"), page_text=reader, question_only=False
        )
        found = evaluate_retrieval(task, ranking, settings, depth=10, resampling=FEW)
        return dict(found.left_out)

    assert left_out() == {"p0": "not read within 300 s"}
    assert left_out() == {}


class CountedImage:
    """An image in memory that counts how often it is read."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.reads = 0

    def read_bytes(self) -> bytes:
        self.reads += 1
        return self._content


def test_images_are_read_once_and_once_more_for_their_text(checkpoints, tmp_path):
    task = task_of_texts()
    images = [CountedImage(page.image) for page in task.pages]
    pages = tuple(Page(page.page_id, image) for page, image in zip(task.pages, images, strict=True))
    task = dataclasses.replace(task, pages=pages)

    def reads(made: DenseText) -> set[int]:
        for image in images:
            image.reads = 0
        settings = encoding(tmp_path / "cache", shard_items=4)
        assert evaluate_retrieval(task, made, settings, depth=10, resampling=FEW) is not None
        return {image.reads for image in images}

    assert reads(ranker(checkpoints / "cls")) == {2}
    assert reads(ranker(checkpoints / "cls")) == {1}
    # Another model over the same texts.
    other = DenseText(
        name="other",
        embedder=embedder(checkpoints / "mean", "mean"),
        page_text=PageTextReader(CodedReader(), processes=1),
        question_only=True,
    )
    assert reads(other) == {1}


def test_progress_of_texts_begins_at_once_and_vectors_come_batch_by_batch(checkpoints, tmp_path):
    told: list[tuple[str, int, int]] = []

    def on_stage(what: str):
        return lambda done, total: told.append((what, done, total))

    settings = encoding(tmp_path / "cache", shard_items=4)
    evaluate_retrieval(
        task_of_texts(), ranker(checkpoints / "cls"), settings, depth=10, resampling=FEW, on_progress=on_stage
    )
    assert told[0] == ("texts of pages", 0, 6)
    assert [done for what, done, _ in told if what == "pages"] == [2, 4, 6]


def test_a_shard_that_another_process_did_not_make_is_made_with_its_texts(checkpoints, tmp_path):
    """The first process waits in vain for the second, and then reads the second one's pages too."""
    log = tmp_path / "log"
    first = encoding(tmp_path / "cache", shard_items=2, place=Place(0, 2), patience_seconds=0.1)
    with pytest.warns(UserWarning, match="makes their 1 missing shards itself"):
        found = evaluate_retrieval(task_of_texts(), ranker(checkpoints / "cls", log), first, depth=10, resampling=FEW)
    assert len(log.read_text().splitlines()) == 5
    alone_ = evaluate_retrieval(
        task_of_texts(), ranker(checkpoints / "cls"), encoding(tmp_path / "own"), depth=10, resampling=FEW
    )
    assert found == alone_
