"""Pictures of one selection as inline SVG: similarity matrix, cost curve and scores page by page.

All take their text colour from where they stand (``currentColor``), and hold no ids, so that several of them can stand
in one notebook. Their text scales with them; they are drawn 400 units wide, near the width of a phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from markupsafe import Markup

from visar.report.axes import Scale, logarithmic_ticks, page_ticks, ticks
from visar.report.images import matrix_image, ramp
from visar.report.page import render
from visar.report.wording import counted, number, page_labels, page_list, short_number
from visar.selection import Selection

_LINEAR_UP_TO = 30
_MOST_POINTS = 90
_SMOOTH_FROM = 250
_TABLE_PAGES = 10
_MOST_NAMED = 12


@dataclass(frozen=True)
class _Mark:
    """A tick, point, bar or chosen page: where it stands along the axis, how high, and what it says."""

    place: float
    text: str
    height: float = 0.0
    chosen: bool = False
    name: str = ""


def heat_map(selection: Selection, labels: Sequence[int] | None = None) -> Markup:
    """The page similarity matrix (Eq. 11) in page order; empty where the selector computes none.

    Entries of exactly 0 show the bare ground; chosen pages are marked at both edges.
    """
    matrix = selection.similarity.detach().cpu().numpy().astype(float)
    count = len(matrix)
    if count == 0:
        return Markup("")
    zeros = float((matrix <= 0).mean())
    left_out = sorted(set(range(count)) - set(selection.order))
    matrix[left_out] = matrix[:, left_out] = np.nan
    names = page_labels(labels, count)
    left, top, side = 54.0, 26.0, 336.0
    cell = side / count
    marks = [_Mark((page + 0.5) * cell, str(name)) for page, name in page_ticks(names)]
    chosen = _spaced([_Mark((page + 0.5) * cell, str(names[page]), chosen=True) for page in sorted(selection.pages)])
    return render(
        "heat_map",
        image=matrix_image(matrix),
        left=left,
        top=top,
        side=side,
        smooth=count > _SMOOTH_FROM,
        ticks=marks,
        chosen=chosen,
        swatches=[ramp((step + 0.5) / 24) for step in range(24)],
        left_out=bool(left_out),
        label=f"Heat map of the similarities between {counted(count, 'page')}, in page order. {zeros:.0%} of the pairs "
        f"are 0. Chosen: {page_list(names[page] for page in selection.pages)}.",
    )


def _spaced(marks: Sequence[_Mark]) -> list[_Mark]:
    """Keep the full text in ``name`` and blank ``text`` where it would run into the one before, or if they are many."""
    spaced: list[_Mark] = []
    free_from = -math.inf if len(marks) <= _MOST_NAMED else math.inf
    for mark in marks:
        width = 8.0 * len(mark.text)
        fits = mark.place - width / 2 >= free_from
        spaced.append(replace(mark, name=mark.text, text=mark.text if fits else ""))
        free_from = mark.place + width / 2 + 3 if fits else free_from
    return spaced


def similarity_rows(selection: Selection, labels: Sequence[int] | None = None) -> tuple[list[int], list[list[str]]]:
    """The same as a table: labels of the best pages (10 at most), and their similarities to each other."""
    best = selection.order[:_TABLE_PAGES] if len(selection.similarity) else []
    names = page_labels(labels, len(selection.scores))
    rows = [[number(float(selection.similarity[row, column]), 2) for column in best] for row in best]
    return [names[page] for page in best], rows


def cost_curve(selection: Selection) -> Markup:
    """J(k) (Eq. 14) min-max normalised, with the chosen k; empty where the selector computes none.

    J itself is dominated by the leakage weight, so its absolute size says little. Beyond 30 values the k axis is
    logarithmic, since the dip is near its beginning.
    """
    cost = selection.cost.detach().cpu().to(torch.float64).tolist()
    finite = [value for value in cost if math.isfinite(value)]
    if not finite:
        return Markup("")
    low, high = min(finite), max(finite)
    length = len(cost)
    logarithmic = length > _LINEAR_UP_TO
    x = Scale(1, length, 44, 388, logarithmic)
    y = Scale(0, 1, 192, 22)
    height = {
        k: y((value - low) / (high - low) if high > low else 0.5)
        for k, value in enumerate(cost, start=1)
        if math.isfinite(value)
    }
    even_steps = {round(length ** (step / (_MOST_POINTS - 1))) for step in range(_MOST_POINTS)}
    shown = sorted(even_steps if logarithmic else height)
    lowest = min(height, key=lambda k: cost[k - 1])
    places = logarithmic_ticks(length) if logarithmic else ticks(1, length, 9, whole=True)
    if not logarithmic and 1.0 not in places:
        places = [1.0, *[place for place in places if place > 2]]
    points = [_Mark(x(k), f"k = {k}: J = {short_number(cost[k - 1])}", height[k]) for k in shown if k in height]
    return render(
        "cost_curve",
        path=" ".join(f"{x(k):.1f},{place:.1f}" for k, place in height.items()),
        points=points,
        x_ticks=[_Mark(x(place), f"{place:.0f}") for place in places],
        y_ticks=[_Mark(y(value), f"{value:g}") for value in (0, 0.5, 1)],
        logarithmic=logarithmic,
        k=selection.k,
        k_place=x(selection.k) if selection.k <= length else None,
        k_height=height.get(selection.k),
        label=f"Curve of the cost J(k) for k from 1 to {length}. It is lowest at k = {lowest}; "
        f"chosen is k = {selection.k}.",
    )


def score_bars(values: torch.Tensor, selection: Selection, labels: Sequence[int] | None = None, *, name: str) -> Markup:
    """One score for every page as bars from 0 in page order, chosen pages in colour.

    Args:
        values: [N] indexed by page number. NaN, for pages left out, makes a gap.
        name: What the score is called.
    """
    scores = values.detach().cpu().to(torch.float64).tolist()
    names = page_labels(labels, len(scores))
    finite = [value for value in scores if math.isfinite(value)]
    if not finite:
        return Markup("")
    low, high = min(0.0, *finite), max(0.0, *finite)
    y = Scale(low, high, 112, 10) if high > low else Scale(0, 1, 112, 10)
    left, right = 44.0, 388.0
    step = (right - left) / len(scores)
    width = max(min(step * 0.8, step - 0.4, 24.0), 0.5)
    chosen = set(selection.pages)
    bars = [
        _Mark(left + page * step, f"page {names[page]}: {short_number(value)}", y(value), page in chosen)
        for page, value in enumerate(scores)
        if math.isfinite(value)
    ]
    return render(
        "score_bars",
        bars=bars,
        width=width,
        # Where bars are thinner than a pixel, chosen ones still have to be seen.
        chosen_width=max(width, 1.6),
        zero=y(0),
        x_ticks=[_Mark(left + (page + 0.5) * step, str(name)) for page, name in page_ticks(names, 9)],
        y_ticks=[_Mark(y(value), short_number(value)) for value in ticks(low, high, 4)],
        middle=step / 2,
        label=f"{name} of {counted(len(scores), 'page')}, from {short_number(min(finite))} to "
        f"{short_number(max(finite))}. Chosen: {page_list(names[page] for page in chosen)}.",
    )
