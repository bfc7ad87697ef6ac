"""Encoding documents: only what is missing, in several processes, past broken files, kills and full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.visar.hashed_encoder import HashedWords
from visar.documents import DocumentReader, NoOcr
from visar.errors import VisarError
from visar.indexing import IndexReport, index_documents
from visar.records import Document
from visar.store import EmbeddingStore
from visar.tensor_files import StoreError

canvas = pytest.importorskip("reportlab.pdfgen.canvas", reason="reportlab draws the documents")


def pdf(path: Path, pages: Sequence[str]) -> Document:
    """A PDF with one line of text on each page; equal texts give equal files."""
    drawing = canvas.Canvas(str(path), pagesize=(300, 200), invariant=True)
    for text in pages:
        drawing.drawString(20, 100, text)
        drawing.showPage()
    drawing.save()
    return Document(path.stem, (path,))


def words(name: str, pages: int) -> list[str]:
    """Texts long enough to count as a text layer, no two alike; the first word tells document and page."""
    return [f"{name}{page} is the text of page number {page} in this document" for page in range(pages)]


def index(documents: Sequence[Document], encoder: HashedWords, root: Path, **options: object) -> IndexReport:
    settings = {"dpi": 50, "ocr": NoOcr(), "text_cache": None, "batch_pages": 2, **options}
    return index_documents(documents, encoder, EmbeddingStore(root), **settings)


def encoded(encoder: HashedWords) -> list[str]:
    """First words of the pages encoded so far."""
    return sorted(line.split()[1] for line in calls(encoder))


def processes_used(encoder: HashedWords) -> set[int]:
    return {int(line.split()[0]) for line in calls(encoder)}


def calls(encoder: HashedWords) -> list[str]:
    return encoder.calls.read_text().splitlines() if encoder.calls.exists() else []


def stored_bytes(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def is_alive(process: int) -> bool:
    """Whether a process runs; a dead child of this one whose end nobody asked about does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def encoder(tmp_path) -> HashedWords:
    return HashedWords(tmp_path / "calls")


@pytest.fixture
def documents(tmp_path) -> list[Document]:
    return [pdf(tmp_path / f"{name}.pdf", words(name, pages)) for name, pages in {"apple": 3, "berry": 5}.items()]


def test_stored_pages_are_what_the_encoder_makes_of_them(tmp_path, documents, encoder):
    report = index(documents, encoder, tmp_path / "store")
    assert report.failures == ()
    assert report.page_counts == {"apple": 3, "berry": 5}
    assert report.encoded_pages == 8
    pages = EmbeddingStore(tmp_path / "store").read(report.keys["berry"])
    expected = [encoder.encode_query(text).vectors.half() for text in words("berry", 5)]
    assert [page.vectors.tolist() for page in pages] == [vectors.tolist() for vectors in expected]


def test_a_second_run_encodes_nothing_and_asks_no_document_for_its_pages(tmp_path, documents, encoder, monkeypatch):
    first = index(documents, encoder, tmp_path / "store")
    before = encoded(encoder)

    def asked(reader: DocumentReader) -> int:
        raise AssertionError("the document was asked how many pages it has")

    monkeypatch.setattr(DocumentReader, "page_count", property(asked))
    progress = []
    second = index(documents, encoder, tmp_path / "store", on_progress=lambda *counts: progress.append(counts))
    assert encoded(encoder) == before
    assert (second.keys, second.page_counts, second.encoded_pages) == (first.keys, first.page_counts, 0)
    assert progress == []


def test_several_processes_share_a_long_document_and_store_the_same_bytes_as_one(tmp_path, documents, encoder):
    documents = [*documents, pdf(tmp_path / "long.pdf", words("long", 24))]
    index(documents, encoder, tmp_path / "one")
    assert processes_used(encoder) == {os.getpid()}
    encoder.calls.unlink()
    slow = HashedWords(encoder.calls, seconds=0.1)
    progress = []
    report = index(documents, slow, tmp_path / "two", processes=2, on_progress=lambda *counts: progress.append(counts))
    assert list(report.page_counts) == ["apple", "berry", "long"]
    assert stored_bytes(tmp_path / "one") == stored_bytes(tmp_path / "two")
    of_long_document = [line.split() for line in calls(slow) if " long" in line]
    assert len(of_long_document) == 24
    assert len({process for process, _, _ in of_long_document}) == 2
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert {int(threads) for _, _, threads in of_long_document} == {max(1, cores // 2)}
    assert os.getpid() not in processes_used(slow)
    assert progress[0] == (0, 32) and progress[-1] == (32, 32)
    assert progress == sorted(progress)


def test_progress_is_told_after_each_batch(tmp_path, documents, encoder):
    progress = []
    index(documents, encoder, tmp_path / "store", on_progress=lambda *counts: progress.append(counts))
    assert sorted(set(progress)) == [(0, 8), (2, 8), (4, 8), (5, 8), (7, 8), (8, 8)]
    assert progress == sorted(progress)


# What makes a key


def test_another_setting_of_the_encoder_is_another_key(tmp_path, documents, encoder):
    first = index(documents, encoder, tmp_path / "store")
    second = index(documents, HashedWords(encoder.calls, width=5), tmp_path / "store")
    assert second.encoded_pages == 8
    assert set(first.keys.values()).isdisjoint(second.keys.values())


def test_changed_content_is_another_key_and_the_other_document_is_kept(tmp_path, documents, encoder):
    first = index(documents, encoder, tmp_path / "store")
    pdf(tmp_path / "berry.pdf", words("cherry", 5))
    second = index(documents, encoder, tmp_path / "store")
    assert second.encoded_pages == 5
    assert second.keys["apple"] == first.keys["apple"]
    assert second.keys["berry"] != first.keys["berry"]


def test_a_renamed_file_keeps_its_embeddings(tmp_path, documents, encoder):
    index(documents, encoder, tmp_path / "store")
    moved = (tmp_path / "berry.pdf").rename(tmp_path / "other.pdf")
    report = index([Document("other", (moved,))], encoder, tmp_path / "store")
    assert report.encoded_pages == 0
    assert report.page_counts == {"other": 5}


def test_resolution_counts_for_images(tmp_path, documents):
    encoder = HashedWords(tmp_path / "calls", needs="image")
    index(documents[:1], encoder, tmp_path / "store", dpi=72)
    index(documents[:1], encoder, tmp_path / "store", dpi=36)
    index(documents[:1], encoder, tmp_path / "store", dpi=72)
    assert encoded(encoder) == ["150x100"] * 3 + ["300x200"] * 3


def test_documents_of_equal_content_are_encoded_once(tmp_path, encoder):
    twins = [pdf(tmp_path / f"{name}.pdf", words("same", 3)) for name in ("one", "two")]
    report = index(twins, encoder, tmp_path / "store")
    assert report.keys["one"] == report.keys["two"]
    assert report.page_counts == {"one": 3, "two": 3}
    assert report.encoded_pages == 3


def test_folders_of_images_are_documents_too(tmp_path):
    files = tuple(tmp_path / f"{number}.png" for number in range(3))
    for number, file in enumerate(files):
        Image.new("RGB", (30, 20), (90 * number, 10, 200)).save(file)
    encoder = HashedWords(tmp_path / "calls", needs="image")
    report = index([Document("scan", files)], encoder, tmp_path / "store")
    pages = EmbeddingStore(tmp_path / "store").read(report.keys["scan"])
    assert len(pages) == 3
    assert not torch.equal(pages[0].vectors, pages[2].vectors)


# Broken documents and pages


def test_a_broken_document_is_listed_and_the_others_are_encoded(tmp_path, documents, encoder):
    (tmp_path / "junk.pdf").write_bytes(b"no PDF at all")
    unlikely = pdf(tmp_path / "unlikely.pdf", [*words("good", 3), "Unlikely text that the encoder refuses to embed"])
    missing = Document("missing", (tmp_path / "missing.pdf",))
    junk = Document("junk", (tmp_path / "junk.pdf",))
    progress = []
    report = index(
        [junk, documents[0], unlikely, missing, documents[1]],
        encoder,
        tmp_path / "store",
        on_progress=lambda *counts: progress.append(counts),
    )
    assert report.page_counts == {"apple": 3, "berry": 5}
    assert [failure.document_id for failure in report.failures] == ["junk", "unlikely", "missing"]
    assert all("\n" not in failure.reason for failure in report.failures)
    assert "pages 2 to 3 (0-based): the word Unlikely" in report.failures[1].reason
    assert progress[0] == (0, 12) and progress[-1] == (10, 10)


def test_a_failed_document_keeps_its_pages_for_the_next_run(tmp_path, encoder):
    texts = [*words("good", 4), "Mortal is the word on this last page of the document"]
    document = pdf(tmp_path / "mortal.pdf", [*texts, "Unlikely text that the encoder refuses to embed"])
    encoder.calls.with_name("scar").touch()
    assert index([document], encoder, tmp_path / "store").encoded_pages == 4
    assert encoded(encoder)[-4:] == ["good0", "good1", "good2", "good3"]
    encoder.calls.unlink()
    index([document], encoder, tmp_path / "store")
    assert encoded(encoder) == ["Mortal", "Unlikely"]


def test_a_file_that_changes_during_the_run_is_not_stored_under_its_old_key(tmp_path, documents, encoder):
    def change(done: int, total: int) -> None:
        if done == 5:  # berry, the longer one, comes first
            pdf(tmp_path / "apple.pdf", words("changed", 3))

    report = index(documents, encoder, tmp_path / "store", on_progress=change)
    assert [failure.document_id for failure in report.failures] == ["apple"]
    assert "changed while the run was on" in report.failures[0].reason
    assert index(documents, encoder, tmp_path / "store").encoded_pages == 3


@pytest.mark.parametrize("options", [{"processes": 0}, {"batch_pages": 0}])
def test_numbers_below_one_are_refused(tmp_path, documents, encoder, options):
    with pytest.raises(VisarError, match="expected 1 or more, got 0"):
        index(documents, encoder, tmp_path / "store", **options)


def test_two_documents_of_one_id_are_refused(tmp_path, documents, encoder):
    with pytest.raises(VisarError, match=r"distinct ids, got \['apple'\]"):
        index([documents[0], Document("apple", documents[1].files)], encoder, tmp_path / "store")


# Killed processes


def test_a_process_killed_once_is_replaced_and_its_document_completed(tmp_path, documents, encoder):
    mortal = pdf(tmp_path / "mortal.pdf", [*words("good", 3), "Mortal is the word on this last page of the document"])
    report = index([*documents, mortal], encoder, tmp_path / "store", processes=2)
    assert report.failures == ()
    assert report.page_counts == {"apple": 3, "berry": 5, "mortal": 4}
    assert report.encoded_pages == 12
    assert len(processes_used(encoder)) == 3


def test_documents_that_kill_or_break_in_a_process_are_listed_and_the_others_are_encoded(tmp_path, documents, encoder):
    deadly = pdf(tmp_path / "deadly.pdf", [*words("good", 3), "Deadly is the word on this last page of the document"])
    unlikely = pdf(tmp_path / "unlikely.pdf", [*words("fine", 2), "Unlikely text that the encoder refuses to embed"])
    (tmp_path / "junk.pdf").write_bytes(b"no PDF at all")
    junk = Document("junk", (tmp_path / "junk.pdf",))
    progress = []
    report = index(
        [deadly, documents[0], junk, unlikely, documents[1]],
        encoder,
        tmp_path / "store",
        processes=2,
        on_progress=lambda *counts: progress.append(counts),
    )
    assert report.page_counts == {"apple": 3, "berry": 5}
    assert [failure.document_id for failure in report.failures] == ["deadly", "junk", "unlikely"]
    assert "killed twice (signal 9) at pages 2 to 3 (0-based)" in report.failures[0].reason
    assert "page 2 (0-based): the word Unlikely" in report.failures[2].reason
    assert progress[0] == (0, 15)
    assert progress[-1] == (12, 12), "the two good pages of each failed document count, the others are not expected"


def test_a_bug_in_the_encoder_stops_the_run_and_all_processes(tmp_path, encoder, capfd):
    slow = HashedWords(encoder.calls, seconds=0.2)
    long = pdf(tmp_path / "long.pdf", ["Buggy is the word on the first page of this document", *words("long", 60)])
    with pytest.raises(VisarError, match="exit code 1; its traceback is above"):
        index([long], slow, tmp_path / "store", processes=2)
    assert "a bug in the encoder" in capfd.readouterr().err
    assert not any(map(is_alive, processes_used(slow)))
    assert "Buggy" in encoded(slow)
    assert len(encoded(slow)) < 61


SCRIPT = """
import sys
from pathlib import Path
from tests.visar.hashed_encoder import HashedWords
from visar.documents import NoOcr
from visar.errors import VisarError
from visar.indexing import index_documents
from visar.records import Document
from visar.store import EmbeddingStore

def main(folder, processes, seconds, limit):
    if limit:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    documents = [Document(path.stem, (path,)) for path in sorted(folder.glob("*.pdf"))]
    encoder = HashedWords(folder / "calls", seconds=seconds)
    try:
        report = index_documents(documents, encoder, EmbeddingStore(folder / "store"), dpi=50, ocr=NoOcr(),
                                 text_cache=None, processes=processes, batch_pages=2)
    except VisarError as error:
        print(type(error).__name__, error)
    else:
        print(report)

if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
"""


def start(folder: Path, *, processes: int, seconds: float = 0.0, limit: int = 0) -> subprocess.Popen[str]:
    """Index the PDFs of a folder in another process, from a script as a user would write it."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    paths = os.pathsep.join(path for path in [str(Path(__file__).parents[2]), *sys.path] if path)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), str(processes), str(seconds), str(limit)],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition, what: str) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_run_is_continued_and_equals_an_uninterrupted_one(tmp_path, encoder, processes):
    """Its processes go too, and only the batches under way at the kill are encoded again."""
    documents = [pdf(tmp_path / f"{name}.pdf", words(name, 12)) for name in ("apple", "berry")]
    run = start(tmp_path, processes=processes, seconds=0.2)
    wait_until(lambda: len(encoded(encoder)) >= 4, "four pages encoded")
    run.send_signal(signal.SIGKILL)
    run.communicate()
    wait_until(lambda: not any(map(is_alive, processes_used(encoder))), "the end of all processes")
    before = set(encoded(encoder))
    assert 4 <= len(before) < 24, "the kill came too late to interrupt anything"
    encoder.calls.unlink()
    report = index(documents, encoder, tmp_path / "store")
    assert report.page_counts == {"apple": 12, "berry": 12}
    assert len(encoded(encoder)) == report.encoded_pages <= 24 - len(before) + 2 * processes
    assert report.encoded_pages <= 22, "no batch had been kept"
    index(documents, encoder, tmp_path / "uninterrupted")
    assert stored_bytes(tmp_path / "store") == stored_bytes(tmp_path / "uninterrupted")


def test_a_full_disk_stops_the_run_with_one_line(tmp_path, documents, encoder):
    """A file-size limit of the kernel stands for the full disk: no document would fare better than the first."""
    pytest.importorskip("resource", reason="file-size limits exist on POSIX systems only")
    out, errors = start(tmp_path, processes=2, limit=700).communicate(timeout=100)
    assert "cannot write" in out and str(tmp_path / "store") in out and "File too large" in out
    assert out.count("\n") == 1
    assert "Traceback" not in errors
    assert index(documents, encoder, tmp_path / "store").failures == ()


def test_a_store_that_cannot_be_written_is_a_store_error(tmp_path, documents, encoder):
    (tmp_path / "store").write_text("not a folder")
    with pytest.raises(StoreError, match="cannot write"):
        index(documents, encoder, tmp_path / "store")
