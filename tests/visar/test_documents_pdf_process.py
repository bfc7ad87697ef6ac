"""The process that reads a PDF: crashes and hangs cost one page, and no process is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.visar.benchmark_files import write_pdf
from visar.documents import DocumentReader, NoOcr, find_document, pdf_worker
from visar.documents.pdf import PdfFile
from visar.documents.text_layer import read_text_layer
from visar.errors import DocumentError

pytest.importorskip("reportlab", reason="reportlab draws the documents")
from tests.visar.made_documents import draw_pdf, lines  # noqa: E402

posix = pytest.mark.skipif(os.name != "posix", reason="signals and forks of POSIX systems")


def words(file: PdfFile, page: int) -> list[str]:
    return [word.text for word in read_text_layer(file.characters(page)).words]


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process_id}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def ends_within(process_id: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while is_running(process_id) and time.monotonic() < end:
        time.sleep(0.05)
    return not is_running(process_id)


@pytest.fixture
def three_pages(tmp_path: Path) -> Iterator[PdfFile]:
    path = draw_pdf(tmp_path / "three.pdf", *(lines([f"page number {page}"]) for page in ("one", "two", "three")))
    file = PdfFile(path, timeout=60)
    yield file
    file.close()


@posix
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSEGV])
def test_a_crash_is_an_error_that_names_file_and_page_and_the_next_page_reads(
    three_pages: PdfFile, end: signal.Signals
) -> None:
    first = three_pages._worker.process.pid
    assert words(three_pages, 0) == ["page", "number", "one"]
    os.kill(first, end)
    with pytest.raises(DocumentError, match=rf"three.pdf, page 2 of 3: .* ended with signal {end.value}"):
        three_pages.characters(1)
    assert words(three_pages, 2) == ["page", "number", "three"]
    assert three_pages.render(1, dpi=36).size == (306, 396)
    assert three_pages._worker.process.pid != first


@posix
def test_a_kill_in_the_middle_of_a_request_ends_that_request_at_once(three_pages: PdfFile) -> None:
    process = three_pages._worker.process.pid
    os.kill(process, signal.SIGSTOP)  # the request is sent and finds nobody awake
    killer = threading.Timer(0.3, os.kill, (process, signal.SIGKILL))
    killer.start()
    with pytest.raises(DocumentError, match="page 1 of 3: .* ended with signal 9"):
        three_pages.render(0, dpi=72)
    killer.join()
    assert words(three_pages, 0) == ["page", "number", "one"]


@posix
def test_a_process_that_hangs_is_ended_after_the_timeout(tmp_path: Path) -> None:
    file = PdfFile(draw_pdf(tmp_path / "a.pdf", lines(["still here"])), timeout=60)
    process = file._worker.process.pid
    file._worker._timeout = 0.5  # opening took its time on a busy machine; the page shall not
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(DocumentError, match=r"a.pdf, page 1 of 1: reading took longer than 0.5 s"):
        file.characters(0)
    assert not is_running(process)
    assert words(file, 0) == ["still", "here"]
    file.close()


@posix
def test_an_interrupt_by_the_user_does_not_leave_a_stale_reply(three_pages: PdfFile) -> None:
    os.kill(three_pages._worker.process.pid, signal.SIGSTOP)

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            three_pages.characters(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert words(three_pages, 1) == ["page", "number", "two"]


def test_threads_take_turns(three_pages: PdfFile) -> None:
    wrong: list[tuple[int, list[str]]] = []

    def read(page: int) -> None:
        for _ in range(20):
            if (found := words(three_pages, page)[-1]) != ("one", "two", "three")[page]:
                wrong.append((page, found))

    threads = [threading.Thread(target=read, args=(page,)) for page in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@posix
def test_a_daemonic_fork_reads_with_a_process_of_its_own(three_pages: PdfFile) -> None:
    # Daemonic processes may have no children of multiprocessing's kind, and a fork shares its parent's pipe.
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def read() -> None:
        sender.send((words(three_pages, 1), three_pages._worker.process.pid))
        three_pages.close()

    child = multiprocessing.get_context("fork").Process(target=read, daemon=True)
    child.start()
    assert receiver.poll(60)
    found, process = receiver.recv()
    child.join(60)
    assert found == ["page", "number", "two"]
    assert process != three_pages._worker.process.pid
    assert ends_within(process, 10)
    assert words(three_pages, 2) == ["page", "number", "three"]


def test_closing_a_reader_ends_its_process(tmp_path: Path) -> None:
    document = find_document(write_pdf(tmp_path / "a.pdf", 1))
    with DocumentReader(document, ocr=NoOcr()) as reader:
        assert reader.page_count == 1
        process = reader._pdf._worker.process.pid
        assert is_running(process)
    assert not is_running(process)
    reader.close()


OWNER = """
import sys, time
from pathlib import Path
from visar.documents.pdf import PdfFile
file = PdfFile(Path(sys.argv[1]), timeout=60)
print(file._worker.process.pid, flush=True)
if sys.argv[2] == "wait":
    time.sleep(600)
"""


@posix
@pytest.mark.parametrize("end", ["leave", "wait"])
def test_no_process_outlives_an_owner_that_leaves_or_is_killed(tmp_path: Path, end: str) -> None:
    path = write_pdf(tmp_path / "a.pdf", 1)
    # From stdin: such an owner has no file that a child could import again.
    with subprocess.Popen(
        [sys.executable, "-", str(path), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as owner:
        owner.stdin.write(OWNER.encode())
        owner.stdin.close()
        process = int(owner.stdout.readline())
        if end == "wait":
            owner.kill()
        assert owner.wait(timeout=30) == (0 if end == "leave" else -signal.SIGKILL)
    assert ends_within(process, 10)


def test_the_process_may_not_fill_the_machines_memory() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("address space is limited on Linux only")
    code = (
        f"import runpy; worker = runpy.run_path({pdf_worker.__file__!r}); worker['_limit_memory']();"
        "bytearray(worker['MEMORY_LIMIT_BYTES'])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MemoryError" in ended.stderr


def test_the_worker_imports_nothing_heavy() -> None:
    code = (
        f"import runpy, sys; runpy.run_path({pdf_worker.__file__!r})['PdfDocumentServer']();"
        "print([name for name in ('visar', 'torch', 'numpy', 'PIL') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_a_file_that_vanishes_is_an_error_of_the_next_process(three_pages: PdfFile) -> None:
    three_pages.path.unlink()
    three_pages.close()
    with pytest.raises(DocumentError, match="three.pdf: no such file"):
        three_pages.characters(0)
