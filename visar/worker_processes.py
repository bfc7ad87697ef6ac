"""Encoding in several processes, each of which may die without taking the others or the run with it.

concurrent.futures gives up the whole pool when one process is killed and cannot tell which piece it was working on;
here each process has its own pipe, so both are known.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext

import torch

from visar.errors import VisarError
from visar.page_encoding import PageEncoding, Piece, Step, page_range


def run_in_processes(encoding: PageEncoding, pieces: Sequence[Piece], processes: int) -> Iterator[Step]:
    """Encode the pieces, in the given order, in up to ``processes`` new processes.

    A process that is killed is replaced and its piece continued once; the second time, the piece ends with a failure.
    When the generator is closed, its processes are ended.

    Yields:
        The steps of all pieces as they come; none for a piece that had not begun when its document failed.

    Raises:
        VisarError: A process met an error that concerns all documents (disk full, package missing, a bug).
    """
    # Spawned, not forked: a fork of a process that holds threads or a GPU may hang.
    context = multiprocessing.get_context("spawn")
    processes = min(processes, len(pieces))
    threads = max(1, usable_cores() // processes)
    waiting, failed, killed_once = deque(pieces), set(), set()
    idle: list[_Worker] = []
    busy: dict[Connection, _Worker] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < processes:
                piece = waiting.popleft()
                if piece.key in failed:
                    continue
                worker = idle.pop() if idle else _Worker(context, encoding, threads)
                busy[worker.connection] = worker
                worker.give(piece)
            if not busy:
                break  # All that waited were pieces of documents that have failed meanwhile.
            for connection in wait(list(busy)):
                worker = busy[connection]
                step = worker.next_step()
                if step is None:
                    del busy[connection]
                    rest = worker.piece
                    reason = worker.bury(encoding.batch_pages)
                    if (rest.key, rest.pages[-1:]) not in killed_once:
                        killed_once.add((rest.key, rest.pages[-1:]))
                        waiting.appendleft(rest)
                        continue
                    step = Step(rest.key, ended=True, failure=reason)
                elif step.ended:
                    idle.append(busy.pop(connection))
                if step.failure is not None:
                    failed.add(step.key)
                yield step
    finally:
        for worker in busy.values():
            worker.process.terminate()
        for worker in [*idle, *busy.values()]:
            worker.dismiss()


class _Worker:
    """One process, its pipe, and what is left of the piece that it works on."""

    def __init__(self, context: SpawnContext, encoding: PageEncoding, threads: int) -> None:
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(encoding, theirs, threads), daemon=True)
        self.process.start()
        theirs.close()  # Only the process itself holds its end now: the pipe closes when it dies.

    def give(self, piece: Piece) -> None:
        """Start a piece. A process that has died meanwhile is found out by :meth:`next_step`."""
        self.piece = piece
        with contextlib.suppress(OSError):
            self.connection.send(piece)

    def next_step(self) -> Step | None:
        """What the process says next, or None if it is dead.

        Raises:
            VisarError: It met an error that concerns all documents.
        """
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(message, str):
            raise VisarError(message)
        self.piece = self.piece.without_first(message.pages)
        return message

    def bury(self, batch_pages: int) -> str:
        """Wait for the dead process and say what it died of.

        Raises:
            VisarError: Not a kill but an exception, whose traceback the process has printed.
        """
        self.dismiss()
        code, document = self.process.exitcode, self.piece.document.id
        if code > 0:
            raise VisarError(f"a process that encoded {document} stopped with exit code {code}; its traceback is above")
        end = f"was killed twice (signal {-code})" if code else "ended twice without an error"
        return (
            f"its process {end} at {page_range(self.piece.pages[:batch_pages])}; "
            "signal 9 often means that memory ran out: use fewer processes or smaller batches"
        )

    def dismiss(self) -> None:
        """Close the pipe, upon which the process ends, and wait for that."""
        self.connection.close()
        self.process.join()


def _serve(encoding: PageEncoding, connection: Connection, threads: int) -> None:
    """A process's life: encode the pieces that come through the pipe until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the owner ends its processes.
    torch.set_num_threads(threads)
    # A closed pipe means that the owner has gone: nobody waits for more than the batch just stored.
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            piece = connection.recv()
            try:
                for step in encoding.steps(piece):
                    connection.send(step)
            except VisarError as error:
                connection.send(str(error))


def usable_cores() -> int:
    """Cores that this process may run on, which containers and job schedulers restrict."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
