"""``report.html`` of an evaluation run."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from tests.visar.report_reading import Reading, assert_self_contained, read
from tests.visar.test_report_table import METRICS, entry
from visar.report.evaluation_page import write_evaluation_page
from visar.report.evaluation_pictures import Point, k_histograms, oracle_curves, trade_off

EVIL = "</td><script>alert('&')</script>"


def row(number: int, selector: str = "visar", **changes: object) -> dict:
    base = {
        "question_id": f"q{number}",
        "document_id": "report.pdf",
        "question": f"Question {number}?",
        "selector": selector,
        "k": 2,
        "k_oracle": 1,
        "reason": "least_cost",
        "order": [3, 0, 1, 2],
        "first_label": 1,
        "evidence_pages": [0, 2],
        "recall": 0.5,
        "precision": 0.5,
        "f1": 0.5,
        "ranking": None,
        "seconds": {"total": 0.01},
    }
    return {**base, **changes}


def _write(tmp_path: Path, metrics: dict, rows: list[dict], settings: dict | None = None) -> tuple[str, Reading]:
    path = tmp_path / "report.html"
    write_evaluation_page(path, metrics, rows, settings or {"encoder": "MiniLM"})
    html = path.read_text(encoding="utf-8")
    assert_self_contained(html)
    return html, read(html)


def test_says_what_was_measured_and_shows_every_part(tmp_path: Path) -> None:
    _, reading = _write(tmp_path, METRICS, [row(1), row(1, "top|5", k=5, k_oracle=1)])
    assert reading.text("h1") == ["demo"]
    assert any(text.startswith("2 selectors on 30 questions (24 with known evidence") for text in reading.text("p"))
    assert reading.text("h2") == [
        "The pages that were read",
        "Paired tests",
        "Ranking",
        "How many pages are read",
        "Following the oracle",
        "Time per question",
        "Question by question",
        "Left out, and what was used",
    ]
    assert all(svg.attributes.get("aria-label") for svg in reading.all("svg"))
    assert "1500 × no text layer" in reading.text("li")
    assert "row 7: page 40 of 12" in reading.text("li")
    assert "visar: least_cost 30" in reading.text("li")


def test_figures_carry_their_intervals_and_none_is_a_dash(tmp_path: Path) -> None:
    _, reading = _write(tmp_path, METRICS, [])
    rows = reading.text("tr")
    assert "visar2.35[2.00, 2.70]2.0[1.0, 3.0]0.812[0.750, 0.880]0.500–0.619" in rows
    assert "top|55.00–––––" in rows
    assert "top|5–––" in rows


def test_only_corrected_p_values_below_the_level_count_as_differences(tmp_path: Path) -> None:
    _, reading = _write(tmp_path, METRICS, [])
    assert "visartop|5f1+0.100< 0.0010.020yes" in reading.text("tr")
    assert "visartop|5recall−0.0500.200–not shown" in reading.text("tr")


def test_wide_tables_scroll_in_their_own_box(tmp_path: Path) -> None:
    html, _ = _write(tmp_path, METRICS, [row(1)])
    assert html.count("<table") == len(re.findall(r'<div class="scroll[^>]*><table', html)) > 3


def test_the_worst_questions_come_first_and_unjudged_ones_last(tmp_path: Path) -> None:
    rows = [
        row(1, f1=1.0, recall=1.0),
        row(2, f1=None, recall=None, precision=None, evidence_pages=[], k_oracle=None),
        row(3, f1=0.0, recall=0.0),
        row(4, f1=0.5, recall=0.4),
        row(5, f1=0.5, recall=0.3),
        row(6, f1=0.5, recall=0.4, k=4),
    ]
    _, reading = _write(tmp_path, METRICS, rows)
    shown = [text.split("?")[0].removeprefix("Question ") for text in reading.text("td", class_="text")]
    assert shown == ["3", "5", "6", "4", "1", "2"]
    assert "visar: all 6 questions" in reading.text("summary")


def test_evidence_that_was_read_is_marked_and_labels_are_used(tmp_path: Path) -> None:
    _, reading = _write(tmp_path, METRICS, [row(1), row(2, first_label=51)])
    cells = reading.text("td", class_="left wrap")
    # Read are pages 3 and 0, evidence is 0 and 2 (0-based).
    assert cells == ["1, 3", "4, 1", "51, 53", "54, 51"]
    marked = [span.text for span in reading.all("span", class_="hit") if "td" in span.inside]
    assert marked == ["1", "1", "51", "51"]


def test_many_rows_and_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    rows = [row(i, selector, order=list(range(50)), k=45) for i in range(1000) for selector in ("visar", "top|5")]
    metrics = {**METRICS, "refused": [f"row {i}" for i in range(500)]}
    html, reading = _write(tmp_path, metrics, rows)
    assert len(reading.all("td", class_="text")) == 300
    assert "visar: the 150 worst of 1,000 questions" in reading.text("summary")
    assert any(text.endswith("and 25 more") for text in reading.text("td", class_="left wrap"))
    assert "The first 200 are shown; metrics.json holds all." in reading.text("p")
    assert len(html.encode()) < 500_000


def test_foreign_text_is_text(tmp_path: Path) -> None:
    metrics = copy.deepcopy(METRICS)
    metrics["dataset"] = metrics["encoder"] = EVIL
    metrics["selectors"] = {EVIL: metrics["selectors"]["visar"]}
    metrics["selectors"][EVIL]["reasons"] = {EVIL: 1}
    metrics["selectors"][EVIL]["at_k"]["f1"] = entry(0.6)
    metrics["failures"], metrics["warnings"] = [EVIL], {EVIL: 2}
    html, reading = _write(
        tmp_path, metrics, [row(1, EVIL, question=EVIL, document_id=EVIL, reason=EVIL)], {EVIL: EVIL}
    )
    assert "<script" not in html
    assert reading.text("h1") == [EVIL]
    assert EVIL in reading.text("figcaption")


def test_a_run_without_oracle_tests_and_ranking_leaves_those_parts_out(tmp_path: Path) -> None:
    metrics = copy.deepcopy(METRICS)
    metrics["tests"] = []
    metrics["selectors"] = {"visar": {**metrics["selectors"]["visar"], "ranking": None, "seconds": {}, "reasons": {}}}
    unjudged = row(1, evidence_pages=[], recall=None, precision=None, f1=None)
    del unjudged["k_oracle"]
    html, reading = _write(tmp_path, metrics, [unjudged])
    assert reading.text("h2") == [
        "The pages that were read",
        "How many pages are read",
        "Question by question",
        "Left out, and what was used",
    ]
    assert "nan" not in html.lower()


def test_a_run_in_which_nothing_worked_still_gives_a_page(tmp_path: Path) -> None:
    metrics = {**METRICS, "selectors": {"visar": {"at_k": {}, "ranking": {}, "seconds": {}}}, "tests": []}
    _, reading = _write(tmp_path, {**metrics, "failures": ["report.pdf: encrypted"]}, [])
    assert "report.pdf: encrypted" in reading.text("li")


def test_trade_off_places_selectors_by_their_figures() -> None:
    points = [
        Point("good", entry(0.8, 0.7, 0.9), entry(0.9, 0.8, 1.0)),
        Point("bad", entry(0.2, 0.1, 0.3), entry(0.3, 0.2, 0.4)),
        Point("unmeasured", {"value": None}, entry(0.3)),
    ]
    picture = read(trade_off(points, "precision", "recall", within_one=True))
    good, bad = picture.all("circle")
    assert (good.text.strip(), bad.text.strip()) == (
        "good: precision 0.8, recall 0.9",
        "bad: precision 0.2, recall 0.3",
    )
    assert float(good.attributes["cx"]) > float(bad.attributes["cx"])
    assert float(good.attributes["cy"]) < float(bad.attributes["cy"])
    ticks = {
        text: float(t.attributes["x"]) for t in picture.all("text") if (text := t.text) and t.attributes["y"] == "269"
    }
    low, high = min(ticks), max(ticks)
    share = (0.8 - float(low)) / (float(high) - float(low))
    expected = ticks[low] + share * (ticks[high] - ticks[low])
    assert float(good.attributes["cx"]) == pytest.approx(expected, abs=0.2)


def test_names_of_selectors_at_one_place_do_not_cover_each_other() -> None:
    points = [Point(f"selector {i}", entry(0.5), entry(0.5)) for i in range(20)]
    picture = read(trade_off(points, "precision", "recall", within_one=True))
    heights = sorted(float(t.attributes["y"]) for t in picture.all("text") if t.text.startswith("selector"))
    assert all(later - earlier >= 17.9 for earlier, later in zip(heights, heights[1:], strict=False))
    _, _, _, bottom = (picture.all("svg")[0].attributes["viewbox"] or "").split()
    assert heights[-1] < float(bottom)


def test_histograms_show_the_share_of_questions_for_each_k() -> None:
    rows = [row(i, k=k) for i, k in enumerate((1, 1, 2, 30))]
    (panel,) = k_histograms(rows, ["visar", "never ran"])
    bars = {bar.text.strip(): float(bar.attributes["height"]) for bar in read(panel.picture).all("rect")}
    assert list(bars) == [
        "k = 1: 50.0% of the questions",
        "k = 2: 25.0% of the questions",
        "k > 20: 25.0% of the questions",
    ]
    first, second, _ = bars.values()
    assert first == pytest.approx(2 * second, abs=0.2)


def test_oracle_curves_average_within_groups() -> None:
    rows = [
        row(1, k=4, k_oracle=1),
        row(2, k=1, k_oracle=1),
        row(3, k=2, k_oracle=12),
        row(4, k=6, k_oracle=15),
        row(5, k=6, k_oracle=99),
        row(6, k=6, k_oracle=None),
        row(1, "top|5", k=5, k_oracle=1),
    ]
    curves = oracle_curves(rows, ["visar", "top|5"], lambda r: r["k"] - r["k_oracle"], "difference", 1)
    assert curves is not None
    assert curves.header == ["1", "11–15", "36+"]
    assert curves.counts == [2, 2, 1]
    # (3 + 0) / 2, (-10 - 9) / 2, -93
    assert curves.table == [("visar", ["1.5", "−9.5", "−93.0"]), ("top|5", ["4.0", "–", "–"])]
    assert [panel.name for panel in curves.panels] == ["visar", "top|5"]
    circles = [circle.text.strip() for circle in read(curves.panels[0].picture).all("circle")]
    assert circles[0] == "difference 1.5 at an oracle's k of 1"


def test_groups_cover_every_k_of_the_oracle_once() -> None:
    rows = [row(k, k_oracle=k) for k in range(1, 60)]
    curves = oracle_curves(rows, ["visar"], lambda r: 1.0, "one", 0)
    assert curves is not None
    assert curves.header == [*map(str, range(1, 11)), "11–15", "16–20", "21–25", "26–35", "36+"]
    assert curves.counts == [1] * 10 + [5, 5, 5, 10, 24]
