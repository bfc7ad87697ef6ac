"""Pictures of training runs: bars of lengths, axes, numbers."""

from __future__ import annotations

import re

import pytest

from conceptformer.report.lengths import summarise_lengths
from conceptformer.report.page import figure
from conceptformer.report.pictures import BLUE, curve, length_bars, metric_curve
from conceptformer.report.series import Point
from tests.visar.report_reading import read


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0005, "0.0005"), (2e-5, "2e-5"), (1.5e-12, "1.5e-12"), (0.12345, "0.123"), (7512.4, "7,512"),
     (999.4, "999"), (-2.0, "-2"), (123456.0, "123,456")],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert figure(value) == text


def test_bars_are_as_high_as_their_share_and_marks_stand_within_their_group() -> None:
    summary = summarise_lengths([2, 2, 2, 4])
    assert summary is not None
    picture = str(length_bars(summary))
    bars = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"><title>([^<]*)', picture)
    assert [text for *_, text in bars] == [
        "1 token: 0 pairs",
        "2 tokens: 3 pairs",
        "3 tokens: 0 pairs",
        "4 tokens: 1 pair",
    ]
    assert [float(height) for _, _, _, height, _ in bars] == pytest.approx([0, 120, 0, 40])
    median, p90 = (float(place) for place in re.findall(r'd="M([\d.]+) [\d.]+V150"', picture))
    left, _, width, *_ = map(float, bars[1][:4])
    assert median == pytest.approx(left + width / 2, abs=0.1)
    assert float(bars[2][0]) < p90 < float(bars[3][0]) + float(bars[3][2])
    assert "median 2" in picture and "P90 3.4" in picture


def test_marks_in_an_open_group_stand_in_its_middle() -> None:
    summary = summarise_lengths([300] * 10)
    assert summary is not None
    picture = str(length_bars(summary))
    last = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', picture)[-1]
    places = [float(place) for place in re.findall(r'd="M([\d.]+) [\d.]+V150"', picture)]
    assert places == pytest.approx([float(last[0]) + float(last[1]) / 2] * 2, abs=0.1)
    assert ">256" in read(picture).text("text")


def test_names_of_groups_do_not_run_into_each_other() -> None:
    for lengths in ([64], [20], [900], [128]):
        summary = summarise_lengths(lengths)
        assert summary is not None
        shown = re.findall(r'<text x="([\d.]+)" y="167"[^>]*>([^<]*)<', str(length_bars(summary)))
        for (place, text), (next_place, next_text) in zip(shown, shown[1:], strict=False):
            # A digit is about 7.5 wide at this size.
            assert float(next_place) - float(place) > 7.5 * (len(text) + len(next_text)) / 2


def test_a_curve_without_values_is_none() -> None:
    assert curve("x", [], BLUE) is None
    assert metric_curve("x", [], BLUE, chance=0.1, kept_step=None) is None


@pytest.mark.parametrize("high", [0.001, 0.00012, 0.4, 9.0, 7512.0, 1234567.0])
def test_labels_of_the_left_axis_are_not_cut_off(high: float) -> None:
    """Of DejaVu Sans, the widest of the usual fonts, a digit has 0.636 em and a point or comma 0.318."""
    picture = str(curve("x", [Point(1, 0.0), Point(2, high)], BLUE).picture)
    size = float(re.search(r'font-size="([\d.]+)"', picture)[1])
    labels = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end" fill-opacity=".75">([^<]*)<', picture)
    assert len(labels) >= 3
    for end, text in labels:
        assert float(end) > size * sum(0.318 if letter in ".," else 0.636 for letter in text)
    # The curve, its grid and the name of the other axis begin and stand where that axis does.
    (start,) = re.findall(r'polyline points="([\d.]+),', picture)
    assert set(re.findall(r'<path d="M([\d.]+) ', picture)) == {start}
    middle = re.search(r'<text x="([\d.]+)" [^>]*>step<', picture)[1]
    assert float(middle) == pytest.approx((float(start) + 286) / 2, abs=0.1)


def test_shares_of_a_part_of_a_per_cent_are_not_rounded() -> None:
    summary = summarise_lengths(list(range(1, 11)))
    assert summary is not None
    labels = [text for text in read(str(length_bars(summary))).text("text") if text.endswith("%")]
    assert labels == ["0%", "2.5%", "5%", "7.5%", "10%"]


@pytest.mark.parametrize("value", [0.0, 3.5])
def test_a_single_point_stands_in_the_middle(value: float) -> None:
    panel = curve("x", [Point(7, value)], BLUE)
    assert panel is not None
    (place,) = re.findall(r'polyline points="([\d.]+),', str(panel.picture))
    assert float(place) == 169
    assert read(str(panel.picture)).text("text")[-1] == "step"


def test_a_loss_below_zero_does_not_leave_the_page() -> None:
    """KL can be -1e-9 by rounding."""
    panel = curve("x", [Point(1, -1e-9), Point(2, -2e-9)], BLUE)
    assert panel is not None
    heights = [float(pair.split(",")[1]) for pair in re.findall(r'points="([^"]*)"', str(panel.picture))[0].split()]
    assert heights == pytest.approx([128, 128])


@pytest.mark.parametrize("smooth", [True, False])
def test_a_single_value_is_a_dot(smooth: bool) -> None:
    """A line of one point has no length; in the middle of its axis, at its upper end."""
    panel = curve("Loss", [Point(1, 4.0)], BLUE, smooth=smooth)
    (dot,) = read(str(panel.picture)).all("circle")
    assert (dot.attributes["cx"], dot.attributes["cy"], dot.text) == ("169", "14", "step 1: 4")
    metric = metric_curve("nDCG@10", [Point(50, 0.5)], BLUE, chance=None, kept_step=None)
    (dot,) = read(str(metric.picture)).all("circle")
    assert (dot.attributes["cx"], dot.attributes["cy"]) == ("169", "71")
