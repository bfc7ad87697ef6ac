"""The page that answers "which pages should be read for this question, and why"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from visar.matches import Match
from visar.report.images import page_image
from visar.report.page import render, write_page
from visar.report.pictures import cost_curve, heat_map, score_bars, similarity_rows
from visar.report.wording import page_labels, page_list
from visar.selection import Selection

MOST_IMAGES = 30
"""Chosen pages beyond this many are listed and not pictured."""

# Characters of all page images together: what is left of 1.5 MB after the pictures of a long document.
_IMAGE_BUDGET = 1_150_000
_MOST_TOKENS = 6


@dataclass(frozen=True)
class ChosenPage:
    """One page to read.

    Attributes:
        page: 0-based number.
        label: The number that a person reads on it.
        score: What ranked it.
        late_interaction: Its late-interaction score (Eq. 1).
        image: The page, of any size and mode; None for a page that is only listed, as those beyond MOST_IMAGES are.
        matches: Where the question's tokens matched, see :func:`visar.matches.find_matches`.
        without_place: How many tokens matched a vector without a place on the page.
    """

    page: int
    label: int
    score: float
    late_interaction: float
    image: Image.Image | None
    matches: tuple[Match, ...] = ()
    without_place: int = 0


@dataclass(frozen=True)
class AskResult:
    """Everything that the page shows.

    Attributes:
        document_name: Shown as given.
        page_count: Pages of the document, unreadable ones included.
        labels: One per page of ``selection.scores``; None for 1, 2, ...
        chosen: The pages of the selection, best first.
        settings: Name and value of what was used (encoder, selector, dpi, ...), in the order to be shown.
        notes: What the reader has to know, one sentence each; the selection's own warnings are added.
    """

    question: str
    document_name: str
    page_count: int
    selection: Selection
    chosen: tuple[ChosenPage, ...]
    labels: Sequence[int] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def write_ask_page(path: Path, result: AskResult) -> None:
    """Write one self-contained HTML file (no script, no outside request), atomically.

    The page images share one budget, so the file stays near 1.5 MB for any number of chosen pages; only the first 30
    are pictured.

    Raises:
        StoreError: The file cannot be written.
        VisarError: Labels that do not fit the number of pages.
    """
    selection, labels = result.selection, result.labels
    pictured = [page for page in result.chosen[:MOST_IMAGES] if page.image is not None]
    best, rows = similarity_rows(selection, labels)
    ranked_by_similarity = len(selection.similarity) > 0
    bars = [
        ("Late interaction", score_bars(selection.late_interaction, selection, labels, name="Late-interaction score"))
    ]
    if ranked_by_similarity:
        bars.append(("ViSAR self-similarity", score_bars(selection.scores, selection, labels, name="Self-similarity")))
    text = render(
        "ask",
        result=result,
        chosen_list=page_list(page.label for page in result.chosen),
        explanation=selection.explanation,
        notes=tuple(dict.fromkeys(result.notes + selection.warnings)),
        pages=_figures(pictured, selection.order),
        any_matches=any(page.matches for page in pictured),
        unpictured=page_list({page.label for page in result.chosen} - {page.label for page in pictured}),
        unpictured_count=len(result.chosen) - len(pictured),
        heat_map=heat_map(selection, labels),
        similarity_names=best,
        similarity_rows=rows,
        cost_curve=cost_curve(selection),
        bars=bars,
        ranked_by_similarity=ranked_by_similarity,
        scores=_score_rows(selection, labels),
        seconds=selection.seconds,
    )
    write_page(path, text)


def _figures(chosen: Sequence[ChosenPage], order: Sequence[int]) -> list[dict[str, object]]:
    """What the template needs of each pictured page."""
    strongest = max((match.strength for page in chosen for match in page.matches), default=1.0)
    figures: list[dict[str, object]] = []
    for page in chosen:
        uri, width, height = page_image(page.image, _IMAGE_BUDGET // len(chosen))
        tokens: dict[str, float] = {}
        for match in page.matches:
            tokens[match.token] = max(match.strength, tokens.get(match.token, 0.0))
        figures.append(
            {
                "rank": order.index(page.page) + 1,
                "page": page,
                "uri": uri,
                "width": width,
                "height": height,
                # Opacity is relative to the strongest match of all pages, so that pages can be compared by eye.
                "matches": [(match, match.strength / strongest) for match in page.matches],
                "tokens": sorted(tokens.items(), key=lambda item: -item[1])[:_MOST_TOKENS],
                "more_tokens": max(0, len(tokens) - _MOST_TOKENS),
            }
        )
    return figures


def _score_rows(selection: Selection, labels: Sequence[int] | None) -> list[tuple[int | None, int, float, float, bool]]:
    """Rank (None for pages left out), label, score, late-interaction score, chosen; best first."""
    names = page_labels(labels, len(selection.scores))
    rank = {page: place for place, page in enumerate(selection.order, start=1)}
    left_out = [page for page in range(len(names)) if page not in rank]
    return [
        (
            rank.get(page),
            names[page],
            float(selection.scores[page]),
            float(selection.late_interaction[page]),
            rank.get(page, len(names) + 1) <= selection.k,
        )
        for page in [*selection.order, *left_out]
    ]
