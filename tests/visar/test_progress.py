"""Progress in a terminal and in a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from visar.progress import progress_bar


class Clock:
    """Seconds that go by when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def reported(reports: list[tuple[float, int, int]], **settings: object) -> str:
    """What a console of such settings shows of reports (seconds since the one before, done, all)."""
    out, clock = io.StringIO(), Clock()
    with progress_bar(Console(file=out, width=100, **settings), "reading pages", clock) as report:
        for seconds, done, total in reports:
            clock.now += seconds
            report(done, total)
    return out.getvalue()


def test_a_file_gets_a_line_at_once_then_every_half_minute_and_at_the_end():
    reports = [(0, 0, 52_380), *((6, done, 52_380) for done in range(1, 12)), (0, 52_380, 52_380)]
    assert reported(reports) == (
        "reading pages: 0 of 52,380\n"
        "reading pages: 5 of 52,380\n"
        "reading pages: 10 of 52,380\n"
        "reading pages: 52,380 of 52,380\n"
    )


@pytest.mark.parametrize("reports", [[(0, 3, 3)], [(0, 3, 3), (60, 3, 3)]])
def test_what_is_done_at_once_gets_one_line(reports):
    assert reported(reports) == "reading pages: 3 of 3\n"


def test_a_number_that_grows_on_the_way_is_told_and_brackets_are_no_markup():
    out = io.StringIO()
    with progress_bar(Console(file=out, width=20), "[b] pages of a long name", Clock()) as report:
        report(0, 0)
        report(2, 2)
        report(3, 3)
    assert out.getvalue() == "".join(f"[b] pages of a long name: {count} of {count}\n" for count in (0, 2, 3))


def test_nothing_is_shown_where_nothing_is_reported_or_the_console_is_quiet():
    for terminal in (False, True):
        assert reported([], force_terminal=terminal) == ""
    assert reported([(0, 1, 2), (60, 2, 2)], quiet=True) == ""


def test_a_terminal_has_a_bar():
    shown = reported([(0, 0, 4), (0, 4, 4)], force_terminal=True)
    assert "━" in shown and "4/4" in shown and "reading pages: " not in shown


def test_lines_come_while_the_work_goes_on_and_a_failure_leaves_them_standing():
    out = io.StringIO()
    with pytest.raises(ValueError, match="of the work"), progress_bar(Console(file=out), "pages", Clock()) as report:
        report(0, 9)
        assert out.getvalue() == "pages: 0 of 9\n"
        raise ValueError("of the work")
    assert out.getvalue() == "pages: 0 of 9\n"
