"""How a :class:`~visar.selection.Selection` shows itself in a notebook."""

from __future__ import annotations

from collections.abc import Sequence

from visar.report.page import render
from visar.report.pictures import cost_curve, heat_map
from visar.report.wording import page_labels, page_list
from visar.selection import Selection

_MOST_ROWS = 15


def selection_html(selection: Selection, *, labels: Sequence[int] | None = None) -> str:
    """An HTML fragment without scripts, ids or outside files, for dark and light notebooks alike.

    Args:
        labels: The number that a person reads on each of the N pages; 1, 2, ... if None.
    """
    names = page_labels(labels, len(selection.scores))
    rows = [
        (names[page], float(selection.scores[page]), float(selection.late_interaction[page]))
        for page in selection.pages[:_MOST_ROWS]
    ]
    return str(
        render(
            "selection",
            chosen=page_list(names[page] for page in selection.pages),
            k=selection.k,
            page_count=len(names),
            explanation=selection.explanation,
            rows=rows,
            unlisted=selection.k - len(rows),
            warnings=selection.warnings,
            heat_map=heat_map(selection, labels),
            cost_curve=cost_curve(selection),
        )
    )
