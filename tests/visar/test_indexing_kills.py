"""Encoding goes on past killed processes, bugs, kills of the whole run and full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.visar.hashed_encoder import HashedWords
from tests.visar.indexed_documents import encoded, index, is_alive, pdf, processes_used, stored_bytes, words
from visar.errors import VisarError
from visar.records import Document
from visar.tensor_files import StoreError


@pytest.fixture
def encoder(tmp_path) -> HashedWords:
    return HashedWords(tmp_path / "calls")


@pytest.fixture
def documents(tmp_path) -> list[Document]:
    return [pdf(tmp_path / f"{name}.pdf", words(name, pages)) for name, pages in {"apple": 3, "berry": 5}.items()]


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
