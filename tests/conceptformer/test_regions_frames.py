"""Boxes as files state them: frames told apart, checks with their reasons, and what is left within the page."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conceptformer.backbones.protocol import TokenGrid
from conceptformer.errors import BoxError
from conceptformer.records import EvidenceBox
from conceptformer.regions import (
    AbsoluteFrame,
    Frame,
    RelativeFrame,
    ThousandthsFrame,
    covered_tokens,
    frame_named,
    valid_boxes,
)


def boxes_of(*rows: tuple[float, ...], frame: Frame, size: tuple[int, int]) -> tuple[EvidenceBox, ...]:
    return valid_boxes(rows, None, frame, size).boxes


# frames


def test_each_frame_worked_by_hand():
    wanted = EvidenceBox(0.1, 0.25, 0.5, 0.75)
    assert boxes_of((20, 100, 100, 300), frame=AbsoluteFrame(), size=(200, 400)) == (wanted,)
    assert boxes_of((5, 50, 25, 150), frame=AbsoluteFrame((50, 200)), size=(200, 400)) == (wanted,)
    assert boxes_of((0.1, 0.25, 0.5, 0.75), frame=RelativeFrame(), size=(200, 400)) == (wanted,)
    assert boxes_of((100, 250, 500, 750), frame=ThousandthsFrame(), size=(200, 400)) == (wanted,)


def test_frames_by_the_names_that_files_state():
    assert frame_named("absolute") == AbsoluteFrame()
    assert frame_named("absolute", [640, 480]) == AbsoluteFrame((640, 480))
    assert frame_named("relative") == RelativeFrame()
    assert frame_named("relative1000", [640, 480]) == ThousandthsFrame()


@pytest.mark.parametrize("name", [None, "", "pixels", "Absolute", 1000, ["relative"]])
def test_an_unstated_or_unknown_frame_is_refused_with_the_names_of_all_three(name: object):
    with pytest.raises(BoxError) as caught:
        frame_named(name)
    assert all(repr(known) in str(caught.value) for known in ("absolute", "relative", "relative1000"))


@pytest.mark.parametrize(
    "size", [[640], [640, 480, 3], [0, 480], [-1, 480], [640, math.nan], ["640", "480"], 640, "ab"]
)
def test_an_input_size_that_is_none_is_refused(size: object):
    with pytest.raises(BoxError, match="input_size"):
        frame_named("absolute", size)


def test_an_input_size_of_height_and_width_is_refused():
    with pytest.raises(BoxError, match="swap them"):
        boxes_of((10, 10, 50, 50), frame=AbsoluteFrame((1092, 812)), size=(1654, 2200))
    # Resized copies keep the shape to a cell or so, or are squares.
    for size in [(812, 1092), (812, 1064), (1000, 1000)]:
        assert boxes_of((10, 10, 50, 50), frame=AbsoluteFrame(size), size=(1654, 2200))
    assert boxes_of((10, 10, 50, 50), frame=AbsoluteFrame((990, 1010)), size=(1010, 990))


@pytest.mark.parametrize(
    ("stated", "row", "likelier"),
    [
        (RelativeFrame(), (120, 80, 640, 300), "'absolute' (pixels) or 'relative1000'"),
        (RelativeFrame(), (120, 80, 940, 300), "likelier 'relative1000'"),
        (RelativeFrame(), (120, 80, 1940, 300), "likelier 'absolute'"),
        (RelativeFrame(), (0.1, 0.1, 0.5, 1.2), "absolute"),
        (ThousandthsFrame(), (120, 80, 1940, 300), "likelier 'absolute'"),
        (ThousandthsFrame(), (0.1, 0.1, 0.5, 0.6), "likelier 'relative'"),
        (AbsoluteFrame(), (0.1, 0.1, 0.5, 1.0), "likelier 'relative'"),
        (AbsoluteFrame((640, 480)), (0, 0, 1, 1), "likelier 'relative'"),
    ],
)
def test_numbers_of_another_frame_are_refused_with_its_name(stated, row, likelier: str):
    with pytest.raises(BoxError) as caught:
        valid_boxes([row], None, stated, (700, 500))
    assert likelier in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_small_box_among_larger_ones_is_no_sign_of_another_frame():
    assert len(boxes_of((0, 0, 1, 1), (30, 30, 90, 90), frame=AbsoluteFrame(), size=(140, 100))) == 2
    assert boxes_of((0, 0, 1, 1), frame=AbsoluteFrame(), size=(1, 1)) == (EvidenceBox(0, 0, 1, 1),)


# valid_boxes


def test_bad_boxes_are_dropped_each_with_its_reason_and_order_and_labels_are_kept():
    rows = [
        [0, 0, 70, 50],
        [10, 10, 10, 50],
        [10, 50, 20, 40],
        [150, 10, 190, 50],
        [10, 10, math.nan, 50],
        [10, 10, 20],
        [10, 10, "20", 50],
        [10, 10, True, 50],
        7,
        [10, 10, 10**400, 50],
        [70, 50, 140, 100],
        [-30, 10, 0, 50],
    ]
    checked = valid_boxes(rows, [f"label {number}" for number in range(12)], AbsoluteFrame(), (140, 100))
    assert checked.boxes == (EvidenceBox(0, 0, 0.5, 0.5, "label 0"), EvidenceBox(0.5, 0.5, 1, 1, "label 10"))
    assert checked.clipped == ()
    reasons = ["empty or"] * 2 + ["outside the page of 140 x 100"] + ["four finite numbers"] * 6 + ["outside the page"]
    assert len(checked.dropped) == len(reasons)
    for number, reason, line in zip([2, 3, 4, 5, 6, 7, 8, 9, 10, 12], reasons, checked.dropped, strict=True):
        assert line.startswith(f"box {number} (")
        assert reason in line


def test_a_box_that_reaches_beyond_the_page_is_clipped_and_listed():
    checked = valid_boxes([(-10, 50, 70, 130), (0, 0, 140, 100)], None, AbsoluteFrame(), (140, 100))
    assert checked.boxes == (EvidenceBox(0, 0.5, 0.5, 1), EvidenceBox(0, 0, 1, 1))
    assert checked.dropped == ()
    assert checked.clipped == ("box 1 (-10, 50, 70, 130): reaches beyond the page of 140 x 100 pixels",)


def test_a_proposer_may_overshoot_a_relative_frame_a_little():
    assert len(valid_boxes([(0.5, 0.5, 1.02, 1)], None, RelativeFrame(), (140, 100)).clipped) == 1
    rounding = valid_boxes([(0.5, 0.5, 1.0000000000000002, 1)], None, RelativeFrame(), (140, 100))
    assert rounding.boxes == (EvidenceBox(0.5, 0.5, 1, 1),)
    assert rounding.clipped == ()


def test_labels_must_match_the_boxes():
    for labels in (["a"], []):
        with pytest.raises(BoxError, match="2 boxes and"):
            valid_boxes([(0, 0, 70, 50), (70, 50, 140, 100)], labels, AbsoluteFrame(), (140, 100))


numbers = st.one_of(st.floats(), st.integers(-(10**400), 10**400), st.floats(-0.1, 1.05), st.booleans(), st.none())


@given(st.lists(st.lists(numbers, max_size=5), max_size=4), st.sampled_from(["absolute", "relative", "relative1000"]),
       st.integers(1, 2000), st.integers(1, 2000))  # fmt: skip
def test_whatever_a_file_states_is_a_box_within_the_page_or_has_a_reason(rows, name, width, height):
    try:
        checked = valid_boxes(rows, None, frame_named(name), (width, height))
    except BoxError:
        return
    assert len(checked.boxes) + len(checked.dropped) == len(rows)
    assert len(checked.clipped) <= len(checked.boxes)
    for box in checked.boxes:
        assert 0 <= box.left < box.right <= 1
        assert 0 <= box.top < box.bottom <= 1
        assert len(covered_tokens(box, TokenGrid(5, 7, (width, height), (196, 140)))) >= 1
