"""Progress of the commands: bars in a terminal, lines where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

OnProgress = Callable[[int, int], None]

# A file has a line now and then: often enough to see that a run goes on, and not thousands of them.
_SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def progress_bar(console: Console, label: str, clock: Callable[[], float] = time.monotonic) -> Iterator[OnProgress]:
    """A bar that appears with the first report of (done, all), so that nothing is drawn where nothing is to be done.

    Where the console is no terminal a bar would show at its end only: instead of it there is a line for the first
    report, one at most every 30 seconds, and one for the last.

    Args:
        clock: Seconds from any moment on.
    """
    if not console.is_terminal:
        yield _lines(console, label, clock)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console)
    task = None

    def report(done: int, total: int) -> None:
        nonlocal task
        if task is None:
            progress.start()
            task = progress.add_task(label, total=total)
        progress.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if task is not None:
            progress.stop()


def _lines(console: Console, label: str, clock: Callable[[], float]) -> OnProgress:
    said: tuple[int, int] | None = None
    last = 0.0

    def report(done: int, total: int) -> None:
        nonlocal said, last
        now = clock()
        if (done, total) != said and (said is None or done >= total or now - last >= _SECONDS_BETWEEN_LINES):
            said, last = (done, total), now
            console.print(f"{label}: {done:,} of {total:,}", markup=False, highlight=False, soft_wrap=True)

    return report
