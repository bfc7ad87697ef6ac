"""The notebook form of a selection."""

from __future__ import annotations

import math

import pytest
import torch

from tests.visar.report_reading import read
from visar.errors import VisarError
from visar.report.selection_html import selection_html
from visar.selection import Selection


def _selection(count: int = 6, k: int = 2, **changes: object) -> Selection:
    values = torch.linspace(0, 1, count)
    fields: dict = {
        "order": list(range(count - 1, -1, -1)),
        "scores": values,
        "k": k,
        "reason": "least_cost",
        "late_interaction": values + 7,
        "similarity": values[:, None] * values[None, :],
        "cost": torch.tensor([3.0, 1.0, 2.0]),
    }
    return Selection(**{**fields, **changes})


def test_names_the_pages_the_number_and_the_reason() -> None:
    reading = read(selection_html(_selection(), labels=[31, 32, 33, 34, 35, 36]))
    (first, *_) = reading.text("p")
    assert first == "Read pages 35 and 36 of 6 (k = 2)"
    assert reading.text("p")[1] == _selection().explanation
    assert reading.text("tr") == ["pagescorelate interaction", "361.0008.000", "350.8007.800"]
    assert len(reading.all("svg")) == 2
    assert len(reading.all("image")) == 1


def test_is_a_fragment_that_touches_nothing_around_it() -> None:
    html = selection_html(_selection())
    reading = read(html)
    (outer, *inner) = reading.elements
    assert (outer.tag, outer.attributes["class"]) == ("div", "visar-selection")
    assert all(element.inside for element in inner)
    assert not any("id" in element.attributes or element.tag == "script" for element in reading.elements)
    for rule in reading.text("style")[0].split("}"):
        assert not rule.strip() or rule.strip().startswith(".visar-selection")
    assert len(html) < 40_000


def test_colours_come_from_the_notebook_apart_from_the_marks() -> None:
    reading = read(selection_html(_selection()))
    fills = {element.attributes.get("fill") for element in reading.elements} - {None}
    assert all(fill in ("none", "currentColor") or fill.startswith("rgb(") for fill in fills)
    assert not any("background:" in (element.attributes.get("style") or "") for element in reading.elements)


def test_without_matrix_and_curve_only_the_table_is_left() -> None:
    selection = _selection(similarity=torch.zeros(0, 0), cost=torch.zeros(0), reason="fixed_k", warnings=("a <b> & c",))
    html = selection_html(selection)
    reading = read(html)
    assert reading.all("svg") == []
    assert "a <b> & c" in reading.text("p")
    assert "a &lt;b&gt; &amp; c" in html


def test_a_single_page_is_singular_and_nan_is_a_dash() -> None:
    selection = Selection([0], torch.tensor([math.nan]), 1, "one_page", torch.tensor([3.0]))
    reading = read(selection_html(selection))
    assert reading.text("p")[0] == "Read page 1 of 1 (k = 1)"
    assert reading.text("tr")[1] == "1–3.000"


def test_long_lists_are_cut_and_say_so() -> None:
    reading = read(selection_html(_selection(count=60, k=40)))
    assert len(reading.all("tr")) == 1 + 15
    assert "and 25 pages more" in reading.text("p")


def test_notebooks_find_it_on_the_selection() -> None:
    assert _selection()._repr_html_() == selection_html(_selection())


def test_labels_must_fit() -> None:
    with pytest.raises(VisarError, match="labels"):
        selection_html(_selection(), labels=[1, 2])
