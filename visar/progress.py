"""Progress bars of the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def progress_bar(console: Console, label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that appears with the first report of (done, all), so that nothing is drawn where nothing is to be done."""
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
