"""How pages, numbers and times are put into words, the same way in every report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from visar.errors import VisarError

NOTHING = "–"


def page_labels(labels: Sequence[int] | None, count: int) -> list[int]:
    """The number that a person reads on each of ``count`` pages; 1, 2, ... where the document gives none.

    Raises:
        VisarError: Another number of labels than pages.
    """
    if labels is None:
        return list(range(1, count + 1))
    if len(labels) != count:
        raise VisarError(f"labels: expected one per page of the document ({count}), got {len(labels)}")
    return list(labels)


def page_list(labels: Iterable[int]) -> str:
    """Ascending page labels with runs of three and more joined: ``4, 7–9 and 12``."""
    runs: list[list[int]] = []
    for label in sorted(set(labels)):
        if runs and label == runs[-1][1] + 1:
            runs[-1][1] = label
        else:
            runs.append([label, label])
    parts: list[str] = []
    for first, last in runs:
        parts += [f"{first}–{last}"] if last - first > 1 else [str(label) for label in sorted({first, last})]
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def number(value: float | None, digits: int = 3) -> str:
    """A fixed number of digits; an en dash for None, NaN and Inf."""
    if value is None or not math.isfinite(value):
        return NOTHING
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def short_number(value: float) -> str:
    """Three significant digits, for axes and tooltips."""
    if not math.isfinite(value):
        return NOTHING
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value:.1e}"


def seconds(value: float | None) -> str:
    """A time with the unit that suits it: ``0.42 ms``, ``18 ms``, ``1.25 s``, ``2 min 5 s``."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value < 1:
        milliseconds = value * 1000
        return f"{milliseconds:.2f} ms" if milliseconds < 9.95 else f"{milliseconds:.0f} ms"
    if value < 60:
        return f"{value:.2f} s" if value < 9.95 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def counted(count: int, noun: str) -> str:
    """``1 page``, ``2 pages``, ``1,130 pages``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def probability(value: float | None) -> str:
    """A p-value: three digits, ``< 0.001`` below."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def readable_token(token: str) -> str:
    """A token without its tokenizer's marks: ``▁`` or ``Ġ`` before a word, ``##`` before the rest of one."""
    bare = token.replace("▁", " ").replace("Ġ", " ").strip()
    return f"…{bare[2:]}" if bare.startswith("##") else bare or token
