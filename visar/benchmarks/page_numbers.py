"""Page numbers as benchmarks write them -> 0-based page numbers."""

from __future__ import annotations

import re

from visar.benchmarks.admission import RowRefusedError

# At most nine digits: no document has more pages, and int() of a very long string is an error of its own.
_NUMBER = r"[+-]?[0-9]{1,9}"
_BRACKETED = re.compile(rf"\[\s*(?:{_NUMBER}\s*(?:,\s*{_NUMBER}\s*)*)?\]")
_BARE = re.compile(rf"{_NUMBER}\s*(?:[;,]\s*{_NUMBER}\s*)*")


def parse_page_list(value: object) -> tuple[int, ...]:
    """Read a list of page numbers, without judging them.

    Args:
        value: A whole number, a list of whole numbers, a string with such a list (``"[3, 5]"``) or with numbers
            separated by commas or semicolons (``"3;5"``), or nothing (None, blank, ``"[]"``).

    Returns:
        The numbers as they stand, in their order; empty where there are none.

    Raises:
        RowRefusedError: The value is none of these. Nothing is guessed: ``"3-5"``, ``"3.0"`` and ``True`` are errors.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return ()
        if not (_BRACKETED.fullmatch(text) or _BARE.fullmatch(text)):
            raise RowRefusedError(f"{_shown(value)} is not a list of page numbers, expected one like [3, 5]")
        return tuple(int(number) for number in re.findall(_NUMBER, text))
    numbers = value if isinstance(value, list | tuple) else [value]
    for number in numbers:
        # bool is an int for Python, and never a page number for people.
        if isinstance(number, bool) or not isinstance(number, int):
            raise RowRefusedError(f"{_shown(number)} is not a page number, expected a whole number")
    return tuple(numbers)


def evidence_indexes(numbers: tuple[int, ...], *, first_number: int, page_count: int) -> tuple[int, ...]:
    """Convert page numbers to 0-based pages.

    Args:
        numbers: Page numbers in the benchmark's own counting.
        first_number: What the benchmark calls the document's first page.
        page_count: How many pages the document has.

    Returns:
        0-based pages, ascending and distinct.

    Raises:
        RowRefusedError: A number lies outside the document. It is never moved to the nearest page.
    """
    last_number = first_number + page_count - 1
    outside = [number for number in numbers if not first_number <= number <= last_number]
    if outside:
        listed = ", ".join(map(str, outside))
        raise RowRefusedError(
            f"evidence page {listed} is outside the document, whose pages are {first_number} to {last_number}"
        )
    return tuple(sorted({number - first_number for number in numbers}))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
