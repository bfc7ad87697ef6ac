"""From page images to their text: by an OCR engine, in processes of their own, each image once and for all."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait as wait_for_end

import torch

from conceptformer.baselines.text_files import TextFiles
from conceptformer.data.images import open_image
from conceptformer.errors import ConceptFormerError, DataError
from conceptformer.records import OnProgress, Page
from conceptformer.retrieval.encoding import image_digest, read_page, refuse_changed
from conceptformer.retrieval.filling import Encoding, refuse_left_out
from visar.documents import OcrEngine
from visar.documents.ocr import ImageRefusedError
from visar.errors import VisarError

# Raise it when the text of the same image changes: it is part of every key.
_RULES_VERSION = "1"
# Images that wait for a process, for each process: enough to keep it busy, few enough to be held in memory.
_WAITING = 2


@dataclass(frozen=True)
class PageTexts:
    """What was read.

    Attributes:
        texts: By page id, in the order of the pages; empty where a page has no text.
        left_out: Why a page could not be read, by page id.
        refused: Those of ``left_out`` that the engine refused, which it may not do another time: memory or time was
            short, say.
    """

    texts: Mapping[str, str]
    left_out: Mapping[str, str]
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class _Read:
    """A page's text, or why the page, or any page, cannot be read: exceptions do not survive the way back whole."""

    text: str = ""
    fault: str | None = None
    by_engine: bool = False
    fault_of_all: str | None = None


class PageTextReader:
    """Reads pages with an OCR engine and keeps their text by the images' SHA-256: words in reading order, one space
    between them.

    Which version of Pillow decodes an image is no part of the key: in a JPEG it moves shades by a step or two, and
    reading a corpus anew takes hours.

    Args:
        engine: One of :mod:`visar.documents`.
        processes: How many pages are read at once; 0 for one process for each core that this one may run on. With 1,
            pages are read in this process. An engine of rapidocr takes about half a gigabyte in each.

    Raises:
        DataError: ``processes`` is no whole number of at least 0.
    """

    def __init__(self, engine: OcrEngine, *, processes: int) -> None:
        if isinstance(processes, bool) or not isinstance(processes, int) or processes < 0:
            raise DataError(f"page_text.processes: expected a whole number of at least 0, got {processes!r}")
        self.engine = engine
        self.processes = processes

    def fingerprint(self) -> dict[str, str]:
        """Everything that decides the text of an image."""
        return {**self.engine.fingerprint(), "page text rules": _RULES_VERSION}

    def read(
        self,
        pages: Sequence[Page],
        encoding: Encoding,
        on_progress: OnProgress,
        stamps: Mapping[str, str] | None = None,
    ) -> PageTexts:
        """The text of pages, read or found in the cache. A kill costs the pages that are being read.

        Args:
            pages: With distinct ids. Looked at one after the other; the images of few are held at a time.
            encoding: Where texts are kept, whether bad pages are left out, and how many processes like this one there
                are, which share the cores.
            on_progress: Called with the number of pages that are done, and of all; with none at the start, since an
                engine may take long to load.
            stamps: By page id what :func:`~conceptformer.retrieval.encoding.page_stamps` says, where that is known. An
                image whose text is there is then not read.

        Raises:
            DataError: A page cannot be read, by its file or by the engine, and may not be skipped; or it has another
                stamp now.
            ConceptFormerError: The engine cannot be run, or one of its processes was killed.
            StoreError: The disk is full or the cache cannot be used.
        """
        files = TextFiles(encoding.cache / "page_text", self.fingerprint())
        files.remove_leftovers()
        found: dict[str, _Read] = {}

        def take(page_id: str, read: _Read) -> None:
            if read.fault_of_all is not None:
                raise ConceptFormerError(read.fault_of_all)
            if read.fault is not None and not encoding.skip_bad_pages:
                refuse_left_out({page_id: read.fault})
            found[page_id] = read
            on_progress(len(found), len(pages))

        on_progress(0, len(pages))
        with self._start(files, encoding) as start:
            waiting: dict[Future[_Read], str] = {}
            for page in pages:
                looked = _look(page, files, stamps)
                if isinstance(looked, _Read):
                    take(page.page_id, looked)
                else:
                    waiting[start(*looked)] = page.page_id
                del looked
                while len(waiting) >= _WAITING * self._count(encoding):
                    _take_finished(waiting, take)
            while waiting:
                _take_finished(waiting, take)
        ordered = [page.page_id for page in pages]
        return PageTexts(
            {page_id: found[page_id].text for page_id in ordered if found[page_id].fault is None},
            {page_id: str(found[page_id].fault) for page_id in ordered if found[page_id].fault is not None},
            frozenset(page_id for page_id in ordered if found[page_id].by_engine),
        )

    @contextmanager
    def _start(self, files: TextFiles, encoding: Encoding) -> Iterator[Callable[[bytes, str], Future[_Read]]]:
        """What begins to read an image. Processes are started with the first one."""
        count = self._count(encoding)
        if count == 1:
            yield partial(_read_here, self.engine, files)
            return
        threads = max(1, _usable_cores() // (count * encoding.place.world))
        # Spawned, not forked: a fork of a process that holds threads or a GPU may hang.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(self.engine, files, threads))
        try:
            yield partial(pool.submit, _read_in_process)
        except BrokenProcessPool as error:
            raise ConceptFormerError(
                "a process that read page text was killed, mostly because memory ran out; run again, with fewer "
                f"processes (page_text.processes={max(1, count // 2)}): what was read is kept"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)

    def _count(self, encoding: Encoding) -> int:
        return self.processes or max(1, _usable_cores() // encoding.place.world)


def _look(page: Page, files: TextFiles, stamps: Mapping[str, str] | None) -> _Read | tuple[bytes, str]:
    """What is known of a page already, or else the content of its image and its SHA-256."""
    stamp = None if stamps is None else image_digest(stamps[page.page_id])
    text = None if stamp is None else files.load(stamp)
    if text is not None:
        return _Read(text)
    content, digest = read_page(page)
    if stamps is not None:
        refuse_changed(page, digest, stamps)
    if content is None:
        return _Read(fault=digest)
    if stamp is None:
        text = files.load(digest)
    return (content, digest) if text is None else _Read(text)


def _take_finished(waiting: dict[Future[_Read], str], take: Callable[[str, _Read], None]) -> None:
    for future in wait(waiting, return_when=FIRST_COMPLETED).done:
        take(waiting.pop(future), future.result())


def _read(engine: OcrEngine, files: TextFiles, content: bytes, digest: str) -> _Read:
    try:
        image = open_image(content)
    except DataError as error:
        return _Read(fault=str(error))
    try:
        is_blank = all(low == high for low, high in image.getextrema())
        text = "" if is_blank else " ".join(word.text for word in engine.read(image))
        files.describe()
        files.save(digest, text)
    except ImageRefusedError as error:
        return _Read(fault=str(error), by_engine=True)
    except VisarError as error:
        return _Read(fault_of_all=str(error))
    return _Read(text)


def _read_here(engine: OcrEngine, files: TextFiles, content: bytes, digest: str) -> Future[_Read]:
    done: Future[_Read] = Future()
    done.set_result(_read(engine, files, content, digest))
    return done


# Of a process that reads: what it reads with, since an engine loads its models once.
_reading: tuple[OcrEngine, TextFiles]


def _begin(engine: OcrEngine, files: TextFiles, threads: int) -> None:
    """Begin the life of a process that reads."""
    global _reading
    _reading = engine, files
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the owner ends its processes.
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_owner, daemon=True).start()


def _end_with_owner() -> None:
    """Else a process would wait for ever for the pages of an owner that was killed."""
    owner = multiprocessing.parent_process()
    if owner is not None:
        wait_for_end([owner.sentinel])
        os._exit(1)


def _read_in_process(content: bytes, digest: str) -> _Read:
    return _read(*_reading, content, digest)


def _usable_cores() -> int:
    """Cores that this process may run on, which containers and job schedulers restrict."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
