"""``report.html`` of a training run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from conceptformer.records import EvidenceBox, Page, RetrievalTask, TrainingSet
from conceptformer.report.lengths import summarise_lengths
from conceptformer.report.training_page import TrainingFigures, write_training_page
from conceptformer.report.training_report import write_training_report
from conceptformer.training.data import TrainingData
from tests.conceptformer.colour_pages import ColourRetriever, make_task, png
from tests.visar.report_reading import Reading, assert_self_contained, read

EVIL = "</blockquote><script>alert('&')</script>{{ 7 * 7 }}"


def step(number: int, **changes: object) -> dict:
    row = {
        "step": number,
        "loss": 4.5,
        "info_nce": 4.0,
        "alignment": 2.5,
        "grad_norm": 1.25,
        "learning_rate": 0.0005,
        "masked_pairs": 2.0,
        "without_concept": 0.0,
        "unreadable": 0.0,
        "concept_tokens_mean": 7.5,
        "concept_tokens_max": 12.0,
        "padding_share": 0.03,
        "tokens_per_second": 2659.3,
        "epoch": 0.1,
    }
    return {**row, **changes}


def evaluation(number: int, ndcg: float) -> dict:
    return {"step": number, "eval_ndcg_at_10": ndcg, "eval_recall_at_10": ndcg + 0.2, "eval_mrr_at_10": ndcg - 0.1}


FIGURES = TrainingFigures(
    title="tiny",
    source="own/train.jsonl",
    log=[
        step(1),
        step(10, info_nce=3.0),
        evaluation(10, 0.25),
        step(20, info_nce=1.0, grad_norm=None),
        evaluation(20, 0.5),
        step(30, info_nce=2.0),
        evaluation(30, 0.375),
        {"step": 30, "train_runtime": 60.0, "train_loss": 2.5},
    ],
    finished=True,
    pairs=1130,
    chance={"recall_at_10": 0.05, "ndcg_at_10": 0.0227, "mrr_at_10": 0.0146},
    held_out=(200, 200),
    lengths=summarise_lengths([2, 2, 3, 5, 0]),
    settings={"backbone": "tiny"},
)


def written(tmp_path: Path, figures: TrainingFigures) -> tuple[str, Reading]:
    path = tmp_path / "report.html"
    write_training_page(path, figures)
    html = path.read_text(encoding="utf-8")
    assert_self_contained(html)
    return html, read(html)


def pictures(reading: Reading) -> list[str]:
    return [svg.attributes["aria-label"] or "" for svg in reading.all("svg")]


def test_says_what_was_trained_and_how_it_ended(tmp_path: Path) -> None:
    _, reading = written(tmp_path, FIGURES)
    assert reading.text("h1") == ["tiny"]
    assert (
        "The run is finished after 30 steps on 1,130 pairs (own/train.jsonl); 200 held-out queries search 200 pages; "
        "its retriever is the best checkpoint, that of step 20."
    ) in reading.text("p")
    (so_far,) = (text for text in written(tmp_path, replace(FIGURES, finished=False))[1].text("p") if "The run" in text)
    assert "not finished; so far 30 steps" in so_far and so_far.endswith("best checkpoint so far: step 20.")
    assert reading.text("dd")[:3] == ["0.500chance 0.023", "0.700chance 0.050", "0.400chance 0.015"]
    assert reading.text("h2") == [
        "Loss",
        "Held-out queries",
        "Learning rate and speed",
        "Lengths of the concept sequences",
        "Left out, and what was used",
    ]
    assert "8 times a page of the batch answered the query and was no negative" in reading.text("li")
    assert reading.text("dt")[-1] == "backbone" and reading.text("dd")[-1] == "tiny"


def test_every_picture_is_told_in_words(tmp_path: Path) -> None:
    _, reading = written(tmp_path, FIGURES)
    assert pictures(reading) == [
        "InfoNCE (Eq. 5): 4 at step 1; 2 at step 30; lowest 1, highest 4.",
        "Alignment (Eq. 16): 2.5 at step 1; 2.5 at step 30; lowest 2.5, highest 2.5.",
        "nDCG@10: 0.25 at step 10; 0.375 at step 30; lowest 0.25, highest 0.5; best checkpoint at step 20: 0.5; "
        "chance 0.0227.",
        "recall@10: 0.45 at step 10; 0.575 at step 30; lowest 0.45, highest 0.7; best checkpoint at step 20: 0.7; "
        "chance 0.05.",
        "MRR@10: 0.15 at step 10; 0.275 at step 30; lowest 0.15, highest 0.4; best checkpoint at step 20: 0.4; "
        "chance 0.0146.",
        "Learning rate: 0.0005 at step 1; 0.0005 at step 30; lowest 0.0005, highest 0.0005.",
        "Tokens per second: 2,659 at step 1; 2,659 at step 30; lowest 2,659, highest 2,659.",
        "Numbers of concept tokens of 4 pairs: median 2.5, 90th percentile 4.4, longest 5. The table holds the groups.",
    ]


def test_curves_and_levels_stand_where_their_values_are(tmp_path: Path) -> None:
    """An axis from 0 (at 128) to 1 (at 14), steps from 10 (at 52) to 30 (at 286)."""
    html, _ = written(tmp_path, FIGURES)
    ndcg = html[html.index('aria-label="nDCG@10') : html.index('aria-label="recall@10')]
    line = re.findall(r'polyline points="([^"]*)"', ndcg)[0]
    points = [tuple(map(float, pair.split(","))) for pair in line.split()]
    assert points == [(52, pytest.approx(99.5, abs=0.1)), (169, 71), (286, pytest.approx(85.3, abs=0.1))]
    (dashed,) = re.findall(r'd="M52 ([\d.]+)H286"[^>]*stroke-dasharray', ndcg)
    assert float(dashed) == pytest.approx(128 - 114 * 0.0227, abs=0.1)
    (ring,) = re.findall(r'cx="([\d.]+)" cy="([\d.]+)" r="6"', ndcg)
    assert ring == ("169", "71")


def test_the_tables_hold_what_the_pictures_show(tmp_path: Path) -> None:
    _, reading = written(tmp_path, FIGURES)
    rows = reading.text("tr")
    assert rows[0].startswith("steplossInfoNCEalignmentgradient normlearning ratetokens/s")
    assert "14.542.51.250.00052,6590.037.512200" in rows
    assert "204.512.5–0.00052,6590.037.512200" in rows
    assert rows[rows.index("chance0.0230.0500.015") :][:4] == [
        "chance0.0230.0500.015",
        "100.2500.4500.150",
        "200.5000.7000.400best",
        "300.3750.5750.275",
    ]
    assert "2250.0%" in rows  # two tokens: two pairs, half of those with any


def test_a_long_log_is_thinned_and_says_so(tmp_path: Path) -> None:
    figures = replace(FIGURES, log=[step(number) for number in range(1, 5001)])
    html, reading = written(tmp_path, figures)
    assert "As a table: one line in 50 of the 5000 of the log" in reading.text("summary")
    assert any(text.startswith("5,0004.5") for text in reading.text("tr"))
    assert "Faint: means of 25 log lines each." in reading.text("p")
    assert len(html) < 200_000


def test_an_unfinished_run_shows_what_there_is(tmp_path: Path) -> None:
    _, reading = written(tmp_path, replace(FIGURES, log=[step(1)], finished=False))
    assert any(text.startswith("The run is not finished; so far 1 step on") for text in reading.text("p"))
    assert "Not measured yet." in reading.text("p")
    assert pictures(reading)[0] == "InfoNCE (Eq. 5): 4 at step 1."
    _, reading = written(tmp_path, replace(FIGURES, log=[], finished=False, lengths=None))
    assert {"The log has no step yet.", "Not measured yet.", "No pair has concept tokens."} <= set(reading.text("p"))
    assert pictures(reading) == []


def test_without_a_held_out_set_nothing_is_claimed(tmp_path: Path) -> None:
    log = [row for row in FIGURES.log if "eval_ndcg_at_10" not in row]
    html, reading = written(tmp_path, replace(FIGURES, log=log, held_out=None, chance={}))
    assert any("there is no held-out set" in text for text in reading.text("p"))
    assert not any("nDCG" in label for label in pictures(reading)) and "chance" not in html


def test_without_weight_on_concepts_no_alignment_is_drawn(tmp_path: Path) -> None:
    _, reading = written(tmp_path, replace(FIGURES, log=[step(1, alignment=0.0), step(2, alignment=0.0)]))
    assert not any(label.startswith("Alignment") for label in pictures(reading))
    assert any("no weight on them" in text for text in reading.text("p"))


def test_the_best_of_equal_evaluations_is_the_first(tmp_path: Path) -> None:
    log = [step(1), evaluation(10, 0.0), evaluation(20, 0.4), evaluation(30, 0.4)]
    _, reading = written(tmp_path, replace(FIGURES, log=log))
    assert [text for text in reading.text("tr") if text.endswith("best")] == ["200.4000.6000.300best"]


def test_what_was_left_out_is_listed(tmp_path: Path) -> None:
    _, reading = written(tmp_path, replace(FIGURES, refused=[f"line {number}: no image" for number in range(1002)]))
    assert any(text.startswith("Left out: 1,002 rows or boxes") for text in reading.text("p"))
    items = [text for text in reading.text("li") if text.startswith("line ")]
    assert len(items) == 1000 and items[0] == "line 0: no image"
    assert "The first 1,000 are shown; refused.txt holds all." in reading.text("p")
    _, reading = written(tmp_path, replace(FIGURES, refused=["one"]))
    assert any(text.startswith("Left out: 1 row or box,") for text in reading.text("p"))


# From a run folder.


def run_folder(folder: Path, rows: list[dict]) -> Path:
    folder.mkdir(exist_ok=True)
    content = "".join(f"{json.dumps(row)}\n" for row in rows)
    (folder / "log.jsonl").write_text(content + '{"step": 31, "loss": 1.')  # a kill cut the last line
    return folder


def data_of(task: RetrievalTask | None) -> TrainingData:
    return TrainingData(TrainingSet("colours", (), (), "f" * 64), task)


def report(folder: Path, task: RetrievalTask | None, **changes: object) -> Reading:
    settings = {"lengths": [3, 0], "refused": [], "settings": {}, "finished": True, "retriever": ColourRetriever()}
    path = write_training_report(folder, data_of(task), **{**settings, **changes})
    assert path == folder / "report.html"
    html = path.read_text(encoding="utf-8")
    assert_self_contained(html)
    return read(html)


def test_a_report_is_made_of_a_run_folder(tmp_path: Path) -> None:
    task = make_task(tmp_path / "pages", 23)
    boxes = {("q3", "page 3"): (EvidenceBox(0.25, 0.5, 0.75, 1.0),)}
    reading = report(run_folder(tmp_path / "run 1", list(FIGURES.log)), replace(task, boxes=boxes))
    assert reading.text("h1") == ["run 1"]
    assert any("8 held-out queries search 23 pages" in text for text in reading.text("p"))
    # 4.5436 / 23 for the six queries with one page, 2 * 4.5436 / 1.6309 / 23 for the two with two.
    assert reading.text("dd")[0] == "0.500chance 0.209"
    headings = reading.text("h3")
    assert [heading.split(":")[0] for heading in headings] == [
        "A relevant page comes first", "Second to 10th", "Not among the first 10"
    ]  # fmt: skip
    assert sum(int(re.search(r": (\d+) of 8 queries", heading)[1]) for heading in headings) == 8
    assert set(reading.text("blockquote")) <= set(task.queries.values())
    relevant = [image for image in reading.all("img") if "relevant" in (image.attributes["alt"] or "")]
    assert len(reading.all("li", class_="relevant")) == len(relevant) > 0
    assert "Page page 3, rank 1, relevant, 1 evidence box drawn" in [image.attributes["alt"] for image in relevant]
    styles = [box.attributes["style"] for box in reading.all("b")]
    assert styles == ["left:25.00%;top:50.00%;width:50.00%;height:50.00%"]


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    page = Page(EVIL, png(Image.new("RGB", (12, 21), "red")))
    task = RetrievalTask(EVIL, {EVIL: EVIL}, (page,), {EVIL: frozenset({EVIL})})
    folder = run_folder(tmp_path / "run", [step(1), evaluation(1, 0.5)])
    reading = report(folder, task, refused=[EVIL], settings={EVIL: EVIL})
    assert reading.text("blockquote") == [EVIL]
    assert EVIL in reading.text("li") and reading.text("dt")[-1] == reading.text("dd")[-1] == EVIL
    assert reading.all("img")[0].attributes["alt"] == f"Page {EVIL}, rank 1, relevant, 0 evidence boxes drawn"


def test_a_report_of_nothing_yet(tmp_path: Path) -> None:
    reading = report(tmp_path, None, lengths=[], finished=False, retriever=None)
    assert "The log has no step yet." in reading.text("p") and reading.all("img") == []


def test_without_a_retriever_there_is_no_gallery(tmp_path: Path) -> None:
    task = make_task(tmp_path / "pages", 5)
    reading = report(run_folder(tmp_path / "run", [step(1)]), task, retriever=None, finished=False)
    assert "What is found" not in reading.text("h2") and reading.all("img") == []
    reading = report(tmp_path / "run", task)
    assert "What is found" in reading.text("h2") and len(reading.all("img")) > 0
