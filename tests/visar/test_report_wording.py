"""How the reports put pages, numbers and times into words, and where axes have their ticks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.errors import VisarError
from visar.report import wording
from visar.report.axes import Scale, logarithmic_ticks, page_ticks, ticks


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ([], ""),
        ([4], "4"),
        ([7, 4], "4 and 7"),
        ([4, 5], "4 and 5"),
        ([4, 5, 6], "4–6"),
        ([12, 9, 7, 8, 4, 13], "4, 7–9, 12 and 13"),
    ],
)
def test_page_lists(labels: list[int], text: str) -> None:
    assert wording.page_list(labels) == text


@given(st.sets(st.integers(0, 60)))
def test_page_lists_name_every_page_and_no_other(labels: set[int]) -> None:
    named: set[int] = set()
    for part in wording.page_list(labels).replace(" and ", ", ").split(", "):
        if part:
            first, _, last = part.partition("–")
            named |= set(range(int(first), int(last or first) + 1))
    assert named == labels


def test_labels_default_to_one_based_numbers_and_must_fit() -> None:
    assert wording.page_labels(None, 3) == [1, 2, 3]
    assert wording.page_labels((41, 42), 2) == [41, 42]
    with pytest.raises(VisarError, match=r"one per page of the document \(3\), got 2"):
        wording.page_labels((41, 42), 3)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "–"), (math.inf, "–"), (0.12345, "0.123"), (-0.5, "−0.500"), (-0.00001, "0.000")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0.00042, "0.42 ms"),
        (0.018, "18 ms"),
        (1.254, "1.25 s"),
        (12.34, "12.3 s"),
        (125.2, "2 min 5 s"),
        (119.7, "2 min 0 s"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert wording.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (8.1637, "8.16"), (-99871.2, "-99871"), (123456.0, "1.2e+05"), (math.nan, "–")]
)
def test_short_numbers(value: float, text: str) -> None:
    assert wording.short_number(value) == text


def test_probabilities_and_counts() -> None:
    assert [wording.probability(p) for p in (None, 0.0004, 0.031)] == ["–", "< 0.001", "0.031"]
    assert [wording.counted(n, "page") for n in (0, 1, 1130)] == ["0 pages", "1 page", "1,130 pages"]


def test_tokens_lose_their_tokenizers_marks() -> None:
    assert [wording.readable_token(t) for t in ("▁cash", "Ġflow", "##s", "net", "##")] == [
        "cash",
        "flow",
        "…s",
        "net",
        "…",
    ]
    assert wording.readable_token("▁") == "▁"


def test_scales_map_the_ends_and_the_middle() -> None:
    linear = Scale(2, 6, 100, 0)
    assert [linear(value) for value in (2, 4, 6)] == [100, 50, 0]
    logarithmic = Scale(1, 100, 0, 10, logarithmic=True)
    assert [logarithmic(value) for value in (1, 10, 100)] == pytest.approx([0, 5, 10])
    assert Scale(3, 3, 0, 10)(3) == 5


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4), st.integers(4, 10))
def test_ticks_are_few_ascending_and_within(low: float, width: float, most: int) -> None:
    places = ticks(low, low + width, most)
    assert len(places) <= most + 1
    assert places == sorted(set(places))
    assert all(low - width * 1e-6 <= place <= low + width * (1 + 1e-6) for place in places)


def test_logarithmic_ticks() -> None:
    assert logarithmic_ticks(1) == [1]
    assert logarithmic_ticks(60) == [1, 2, 5, 10, 20, 50]
    assert logarithmic_ticks(100) == [1, 2, 5, 10, 20, 50, 100]


def test_page_ticks_name_round_labels_at_their_page() -> None:
    assert page_ticks(list(range(41, 61)), 5) == [(4, 45), (9, 50), (14, 55), (19, 60)]
    assert page_ticks([7], 8) == [(0, 7)]
    # Labels that jump have no round values to offer: every so many pages one is named.
    assert page_ticks([1, 2, 9, 10], 2) == [(0, 1), (2, 9)]
