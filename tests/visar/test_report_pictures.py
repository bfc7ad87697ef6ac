"""Pictures of a selection: what they show, pixel by pixel and mark by mark."""

from __future__ import annotations

import base64
import dataclasses
import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.visar.report_reading import Reading, read
from visar.report.images import matrix_image, page_image, ramp
from visar.report.pictures import cost_curve, heat_map, score_bars, similarity_rows
from visar.selection import Selection


def decode(uri: str, media_type: str = "image/png") -> Image.Image:
    start = f"data:{media_type};base64,"
    assert uri.startswith(start)
    return Image.open(io.BytesIO(base64.b64decode(uri.removeprefix(start), validate=True)))


def selection(**changes: object) -> Selection:
    similarity = torch.tensor([[0.25, 0.0, 0.1, 0.0], [0.0, 0.0, 0.0, 0.0], [0.1, 0.0, 1.0, 0.5], [0.0, 0.0, 0.5, 0.6]])
    base = Selection(
        order=[2, 3, 0, 1],
        scores=similarity.diagonal(),
        k=2,
        reason="least_cost",
        late_interaction=torch.tensor([7.0, 5.0, 9.0, 8.5]),
        similarity=similarity,
        cost=torch.tensor([-5000.0, -9000.0, -1000.0]),
    )
    return dataclasses.replace(base, **changes)


def test_matrix_pixels_are_see_through_at_zero_grey_at_nan_and_stronger_with_the_value() -> None:
    values = np.array([[0.0, 0.001, 0.2], [0.5, 0.8, 1.0], [np.nan, 0.0, 0.004]])
    pixels = np.asarray(decode(matrix_image(values)).convert("RGBA")).astype(int)
    assert pixels.shape == (3, 3, 4)
    opacity = pixels[..., 3]
    assert opacity[0, 0] == opacity[2, 1] == 0
    assert opacity[0, 1] > 80, "the weakest similarity is told apart from 0"
    assert opacity[0, 1] < opacity[0, 2] < opacity[1, 0] < opacity[1, 1] < opacity[1, 2] == 255
    assert pixels[1, 2].tolist() == [232, 89, 12, 255]
    assert pixels[2, 0, 0] == pixels[2, 0, 1] == pixels[2, 0, 2]


@settings(max_examples=30)
@given(st.floats(1e-6, 1.0))
def test_a_pixel_is_within_one_level_of_the_ramp(value: float) -> None:
    red, green, blue, opacity = decode(matrix_image(np.array([[value]]))).convert("RGBA").getpixel((0, 0))
    wanted = ramp(value)
    assert max(abs(red - wanted[0]), abs(green - wanted[1]), abs(blue - wanted[2])) <= 2
    assert abs(opacity / 255 - wanted[3]) <= 0.01


def test_a_long_documents_matrix_stays_small_and_lossless() -> None:
    generator = np.random.default_rng(5)
    matrix = generator.random((468, 468)) * (generator.random((468, 468)) < 0.3)
    uri = matrix_image(matrix)
    assert len(uri) < 180_000
    assert (np.asarray(decode(uri).convert("RGBA"))[..., 3] == 0).tolist() == (matrix == 0).tolist()


def test_heat_map_shows_the_matrix_its_chosen_pages_and_says_so() -> None:
    picture = read(heat_map(selection(), labels=[11, 12, 13, 14]))
    (image,) = picture.all("image")
    assert "pixelated" in (image.attributes["style"] or "")
    opacity = np.asarray(decode(image.attributes["href"] or "").convert("RGBA"))[..., 3]
    assert ((opacity > 0) == (selection().similarity.numpy() > 0)).all()
    marks = [title for title in picture.text("title") if "chosen" in title]
    assert sorted(marks) == ["page 13, chosen"] * 2 + ["page 14, chosen"] * 2
    (drawing,) = picture.all("svg", role="img")
    assert drawing.attributes["aria-label"] == (
        "Heat map of the similarities between 4 pages, in page order. 56% of the pairs are 0. Chosen: 13 and 14."
    )
    assert {"11", "12", "13", "14"} <= set(picture.text("text"))


def test_heat_map_marks_pages_that_were_left_out() -> None:
    picture = read(heat_map(selection(order=[2, 3, 0])))
    pixels = np.asarray(decode(picture.all("image")[0].attributes["href"] or "").convert("RGBA"))
    assert (pixels[1, :, :3] == 128).all()
    assert (pixels[:, 1, :3] == 128).all()
    assert "page left out" in picture.text("text")
    assert "page left out" not in read(heat_map(selection())).text("text")


def test_similarity_rows_hold_the_best_pages_in_rank_order() -> None:
    names, rows = similarity_rows(selection(order=[2, 3, 0]), [11, 12, 13, 14])
    assert names == [13, 14, 11]
    assert rows == [["1.00", "0.50", "0.10"], ["0.50", "0.60", "0.00"], ["0.10", "0.00", "0.25"]]


def _curve(picture: Reading) -> list[tuple[float, float]]:
    (line,) = picture.all("polyline")
    return [tuple(map(float, pair.split(","))) for pair in (line.attributes["points"] or "").split()]


def test_cost_curve_is_normalised_and_marks_k() -> None:
    picture = read(cost_curve(selection()))
    points = _curve(picture)
    # J = -5000, -9000, -1000 becomes 0.5, 0, 1 between y = 192 (below) and y = 22 (above).
    assert points == [(44.0, 107.0), (216.0, 192.0), (388.0, 22.0)]
    assert "k* = 2" in picture.text("text")
    marked = [circle for circle in picture.all("circle") if circle.attributes["r"] == "5"]
    assert [(circle.attributes["cx"], circle.attributes["cy"]) for circle in marked] == [("216", "192")]
    assert "k = 2: J = -9000" in picture.text("title")


@given(st.floats(1e-3, 1e6), st.floats(-1e6, 1e6))
@settings(max_examples=25)
def test_scale_and_offset_of_the_cost_do_not_change_the_curve(factor: float, offset: float) -> None:
    cost = torch.tensor([3.0, 1.0, 2.0, 7.0, 4.0], dtype=torch.float64)
    one = _curve(read(cost_curve(selection(cost=cost))))
    other = _curve(read(cost_curve(selection(cost=cost * factor + offset))))
    for left, right in zip(one, other, strict=True):
        assert left == pytest.approx(right, abs=0.11)


def test_a_long_cost_curve_is_logarithmic_and_bounded() -> None:
    cost = (torch.arange(1, 468) - 5.0).abs()
    text = cost_curve(selection(cost=cost, k=5))
    picture = read(text)
    assert any("logarithmic" in label for label in picture.text("text"))
    points = _curve(picture)
    assert len(points) == 467
    # The dip at k = 5 of 467 would stand at 1 % of a linear axis.
    assert points[4][0] - points[0][0] > 0.2 * (points[-1][0] - points[0][0])
    assert len(picture.all("circle")) < 100
    assert len(text) < 30_000


@pytest.mark.parametrize("cost", [[4.0], [4.0, 4.0, 4.0], [math.nan, 2.0, 1.0]])
def test_degenerate_cost_curves_are_drawn_without_nan(cost: list[float]) -> None:
    text = cost_curve(selection(cost=torch.tensor(cost), k=1))
    read(text)
    assert "nan" not in text.lower()


def test_k_beyond_the_curve_is_named_but_not_marked() -> None:
    text = cost_curve(selection(k=4))
    assert "chosen is k = 4" in text
    assert "k* =" not in text


def test_bars_start_at_zero_keep_their_proportions_and_leave_gaps_for_nan() -> None:
    values = torch.tensor([2.0, math.nan, 8.0, 4.0])
    picture = read(score_bars(values, selection(), name="Score"))
    bars = {bar.text.strip(): float(bar.attributes["height"] or "nan") for bar in picture.all("rect")}
    assert list(bars) == ["page 1: 2", "page 3: 8", "page 4: 4"]
    assert bars["page 1: 2"] / bars["page 3: 8"] == pytest.approx(0.25, abs=0.01)
    chosen = [bar.text.strip() for bar in picture.all("path") if "chosen" in bar.text]
    assert chosen == ["page 3: 8, chosen", "page 4: 4, chosen"]


def test_negative_scores_hang_below_the_axis() -> None:
    picture = read(score_bars(torch.tensor([-1.0, 0.0, 1.0, 0.5]), selection(), name="Score"))
    tops = {bar.text.strip(): float(bar.attributes["y"] or "nan") for bar in picture.all("rect")}
    heights = {bar.text.strip(): float(bar.attributes["height"] or "nan") for bar in picture.all("rect")}
    assert heights["page 1: -1"] == heights["page 3: 1"] > 0
    assert tops["page 1: -1"] == tops["page 3: 1"] + heights["page 3: 1"]


def test_what_was_not_computed_is_not_drawn() -> None:
    bare = selection(similarity=torch.zeros(0, 0), cost=torch.zeros(0))
    assert heat_map(bare) == cost_curve(bare) == ""
    assert similarity_rows(bare) == ([], [])
    assert score_bars(torch.full((4,), math.nan), bare, name="Score") == ""


def test_pictures_need_no_ids_so_many_fit_in_one_notebook() -> None:
    chosen = selection()
    text = heat_map(chosen) + cost_curve(chosen) + score_bars(chosen.scores, chosen, name="Score")
    assert not any("id" in element.attributes for element in read(text).elements)


def _noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    channels = len(mode)
    pixels = np.random.default_rng(1).integers(0, 255, (height, width, channels), dtype=np.uint8)
    return Image.fromarray(pixels if channels > 1 else pixels[..., 0])


def test_page_images_fit_their_budget_and_keep_their_shape() -> None:
    image = _noise(1224, 1584)
    for budget in (900_000, 120_000, 40_000):
        uri, width, height = page_image(image, budget)
        assert len(uri) <= budget
        assert decode(uri, "image/jpeg").size == (width, height)
        assert height / width == pytest.approx(1584 / 1224, rel=0.01)
        assert width <= 900


def test_quiet_pages_get_the_full_width_and_small_ones_are_not_enlarged() -> None:
    assert page_image(Image.new("RGB", (1224, 1584), "white"), 100_000)[1] == 900
    assert page_image(Image.new("L", (300, 200), 255), 100_000)[1:] == (300, 200)


def test_the_smallest_size_is_taken_where_nothing_fits() -> None:
    uri, width, _ = page_image(_noise(1200, 1200), 10)
    assert width == 260
    assert len(uri) > 10


def test_transparent_pages_lie_on_white() -> None:
    image = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    uri, _, _ = page_image(image, 100_000)
    assert decode(uri, "image/jpeg").convert("L").getextrema()[0] > 250
    palette = Image.new("P", (40, 40), 0)
    palette.info["transparency"] = 0
    assert decode(page_image(palette, 100_000)[0], "image/jpeg").convert("L").getextrema()[0] > 250
