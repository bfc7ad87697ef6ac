"""Comparisons of training variants: orders of runs, stops, files, and two real small runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from conceptformer.adapters import FullTraining
from conceptformer.concepts.latent import DynamicLength, LatentConcepts, MeanPooling, TokenSlots
from conceptformer.errors import TrainingError
from conceptformer.report.comparison_page import write_comparison_page
from conceptformer.report.lengths import concept_lengths
from conceptformer.report.training_report import write_training_report
from conceptformer.retrieval.evaluation import METRICS
from conceptformer.retriever import ConceptFormer
from conceptformer.step.objective import Objective, RankingAlignment
from conceptformer.step.passes import SharedPrefix
from conceptformer.training.compare import COMPARISON_FILES, measure_run, run_comparison
from conceptformer.training.comparison import CheckpointResult, Comparison, ComparisonPlan, RunResult
from conceptformer.training.data import DrawnData, TrainingData
from conceptformer.training.log import read_log
from conceptformer.training.run import Method, train
from conceptformer.training.settings import TrainingSettings
from tests.conceptformer.colour_pages import make_task
from tests.conceptformer.drawn_pages import rows, small_drawing
from tests.conceptformer.tiny_models import tiny_backbone
from tests.visar.report_reading import Reading, assert_self_contained, read

PLAN = ComparisonPlan(("plain", "new"), (5, 7))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory):
    return make_task(tmp_path_factory.mktemp("pages"), 9)


def result(task, variant: str, seed: int, folder: Path) -> RunResult:
    """Each query's metrics are what the run's file says, and three of four of that at the last checkpoint."""
    value = float((folder / "value.txt").read_text())
    checkpoints = {
        name: CheckpointResult(step, {query: dict.fromkeys(METRICS, share * value) for query in task.queries})
        for name, step, share in (("last", 500, 0.75), ("best", 450, 1.0))
    }
    return RunResult(variant, seed, checkpoints, {250: 0.1 * seed, 500: 0.75 * value})


def trained(log: list[str], values: dict[str, float], stop_before: str = "") -> Callable[[str, int, Path], None]:
    """Writes a value as a run's result, unless it is there."""

    def train_one(variant: str, seed: int, folder: Path) -> None:
        if folder.name == stop_before:
            raise SystemExit(143)
        if not (folder / "value.txt").is_file():
            log.append(folder.name)
            folder.mkdir(parents=True)
            (folder / "value.txt").write_text(str(values[variant] + 0.01 * seed))

    return train_one


def page(folder: Path) -> Reading:
    html = (folder / "comparison.html").read_text(encoding="utf-8")
    assert_self_contained(html)
    return read(html)


def test_runs_go_seed_by_seed_and_leave_their_files(task, tmp_path: Path) -> None:
    log: list[str] = []
    train_one = trained(log, {"plain": 0.2, "new": 0.4})
    comparison = run_comparison(PLAN, task, tmp_path, train_one=train_one, measure=partial(result, task))
    assert log == ["plain-seed5", "new-seed5", "plain-seed7", "new-seed7"]
    assert comparison.complete
    assert {path.name for path in tmp_path.iterdir()} == {*log, *COMPARISON_FILES}
    facts = json.loads((tmp_path / "comparison.json").read_text())
    assert (facts["variants"], facts["seeds"], facts["queries"], facts["pages"]) == (["plain", "new"], [5, 7], 3, 9)
    first = facts["runs"][0]
    assert (first["variant"], first["seed"], first["folder"]) == ("plain", 5, "plain-seed5")
    assert first["best"] == pytest.approx({"step": 450, **dict.fromkeys(METRICS, 0.25)})
    assert first["last"] == pytest.approx({"step": 500, **dict.fromkeys(METRICS, 0.1875)})
    assert first["history"] == pytest.approx({"250": 0.5, "500": 0.1875})
    for difference in facts["differences"]:
        expected = 0.2 if difference["checkpoint"] == "best" else 0.15
        assert difference["by_seed"] == pytest.approx([expected] * 2) and difference["variant"] == "new"
    per_query = rows(tmp_path / "per_query.jsonl")
    assert len(per_query) == 4 * 2 * len(task.queries)
    assert set(per_query[0]) == {"variant", "seed", "checkpoint", "query_id", *METRICS}


def test_a_stop_keeps_the_seeds_that_are_complete_and_the_next_call_goes_on(task, tmp_path: Path) -> None:
    log: list[str] = []
    values = {"plain": 0.2, "new": 0.1}
    call = partial(run_comparison, PLAN, task, tmp_path, measure=partial(result, task))
    with pytest.raises(SystemExit):
        call(train_one=trained(log, values, stop_before="new-seed7"))
    assert json.loads((tmp_path / "comparison.json").read_text())["seeds"] == [5]
    assert "2 variants, 1 of 2 seeds so far; 3 held-out queries over 9 pages." in page(tmp_path).text("p")
    call(train_one=trained(log, values))
    assert log == ["plain-seed5", "new-seed5", "plain-seed7", "new-seed7"]
    assert json.loads((tmp_path / "comparison.json").read_text())["seeds"] == [5, 7]


# The page.


def test_the_page_says_the_same_as_the_table(task, tmp_path: Path) -> None:
    train_one = trained([], {"plain": 0.4, "new": 0.2})
    run_comparison(PLAN, task, tmp_path, train_one=train_one, measure=partial(result, task))
    reading, table = page(tmp_path), (tmp_path / "table.md").read_text(encoding="utf-8")
    assert reading.text("h1") == ["plain, new"]
    written = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    shown, group = [], ""
    for text in ("".join(text.split()) for text in reading.text("tr")):
        if text.endswith("checkpoint"):
            metric, group = text.removesuffix("checkpoint").split(",")
            group = f"{group}{metric}"
        else:
            group = "checkpointmetric" if text.startswith(("variant", "difference")) else group
            shown.append(group + text)
    assert shown == ["".join("".join(row).split()) for row in written if not row[0].startswith(":--")]
    sentences = [line.removeprefix("- ") for line in table.splitlines() if line.startswith("- ")]
    assert reading.text("li")[: len(sentences)] == sentences
    assert sentences[0].startswith("nDCG@10 of the last checkpoints: new: 0.195; plain: 0.345; difference: −0.150")
    assert "last" in table and all(svg.attributes["aria-label"] for svg in reading.all("svg"))
    assert len(reading.all("svg")) == 3
    dots = [circle.text for circle in reading.all("circle")]
    assert dots[:4] == ["plain, seed 5: 0.338", "new, seed 5: 0.188", "plain, seed 7: 0.353", "new, seed 7: 0.203"]


def without_history(comparison: Comparison) -> Comparison:
    return replace(comparison, runs={key: replace(run, history={}) for key, run in comparison.runs.items()})


def test_runs_without_a_history_have_no_curve(task, tmp_path: Path) -> None:
    train_one = trained([], {"plain": 0.4, "new": 0.4})
    comparison = run_comparison(PLAN, task, tmp_path, train_one=train_one, measure=partial(result, task))
    write_comparison_page(tmp_path / "comparison.html", without_history(comparison))
    assert len(page(tmp_path).all("svg")) == 2
    assert "While training" not in page(tmp_path).text("h3")


def test_runs_that_were_measured_once_are_dots(task, tmp_path: Path) -> None:
    train_one = trained([], {"plain": 0.4, "new": 0.2})
    comparison = run_comparison(PLAN, task, tmp_path, train_one=train_one, measure=partial(result, task))
    once = {key: replace(run, history={400: 0.1 * run.seed}) for key, run in comparison.runs.items()}
    once["plain", 7] = comparison.runs["plain", 7]
    write_comparison_page(tmp_path / "comparison.html", replace(comparison, runs=once))
    found = page(tmp_path)
    (lines,) = (svg for svg in found.all("svg") if "over training steps" in svg.attributes["aria-label"])
    assert [one for one in PLAN.variants if one in lines.attributes["aria-label"]] == list(PLAN.variants)
    dots = [(one.attributes["cx"], one.text) for one in found.all("circle") if ":" not in one.text]
    # Of the steps from 250 to 500, between 48 and 388.
    assert dots == [("252", "plain, seed 5"), ("252", "new, seed 5"), ("252", "new, seed 7")]
    assert len([line for line in found.all("polyline") if line.text == "plain, seed 7"]) == 1


def test_small_values_over_steps_have_room_for_their_labels(task, tmp_path: Path) -> None:
    train_one = trained([], {"plain": 0.4, "new": 0.2})
    comparison = run_comparison(PLAN, task, tmp_path, train_one=train_one, measure=partial(result, task))
    low = {key: replace(run, history={250: 0.0, 500: 0.001}) for key, run in comparison.runs.items()}
    write_comparison_page(tmp_path / "comparison.html", replace(comparison, runs=low))
    (label,) = (text for text in page(tmp_path).all("text") if text.text == "0.0002")
    # Of DejaVu Sans, the widest of the usual fonts: five digits of 0.636 em and a point of 0.318.
    assert float(label.attributes["x"]) > 13 * (5 * 0.636 + 0.318)
    starts = {
        line.attributes["points"].split(",")[0] for line in page(tmp_path).all("polyline") if ":" not in line.text
    }
    assert f"{float(label.attributes['x']) + 6:g}" in starts


def test_names_of_many_variants_stand_below_each_other(task, tmp_path: Path) -> None:
    plan = ComparisonPlan(("plain", "with_projection", "without_pooling", "fixed_length"), (5,))
    train_one = trained([], dict.fromkeys(plan.variants, 0.3))
    run_comparison(plan, task, tmp_path, train_one=train_one, measure=partial(result, task))
    places = {one.text: one.attributes["y"] for one in page(tmp_path).all("text") if one.text in plan.variants}
    assert [places[name] for name in plan.variants] == ["147", "162", "177", "192"]


def test_wide_tables_show_that_they_go_on_and_keep_their_names_in_sight(task, tmp_path: Path) -> None:
    train_one = trained([], {"plain": 0.4, "new": 0.2})
    run_comparison(PLAN, task, tmp_path, train_one=train_one, measure=partial(result, task))
    style = (tmp_path / "comparison.html").read_text(encoding="utf-8").split("</main>")[0]
    assert "background-attachment: local, local, scroll, scroll" in style
    assert [table.attributes["class"] for table in page(tmp_path).all("table")] == ["pinned groups"] * 2
    for table in page(tmp_path).all("div", class_="scroll"):
        assert table.attributes["tabindex"] == "0" and table.attributes["aria-label"]


# Real runs.

SETTINGS = TrainingSettings(
    epochs=1, max_steps=4, batch_size=6, accumulation=1, cache_gradients=False, learning_rate=2e-3, warm_up=0.0,
    weight_decay=0.0, max_gradient_norm=1.0, precision="fp32", checkpoint_activations=False, log_every=1,
    evaluate_every=2, save_every=2, keep=1, seed=3, workers=0, bucket=2, loggers=(),
)  # fmt: skip


def concepts() -> LatentConcepts:
    return LatentConcepts(DynamicLength(), TokenSlots(), MeanPooling())


def real_run(data: TrainingData, weight: float, folder: Path) -> None:
    objective = Objective(0.05, weight, RankingAlignment(), mask_false_negatives=True)
    method = Method(FullTraining(), concepts(), SharedPrefix(), objective, projection=False)
    train(tiny_backbone(), method, data, SETTINGS, folder, skip_bad_rows=False)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    drawing = small_drawing(tmp_path_factory.mktemp("drawing"), pages=30, held_out_pages=12, queries_per_page=1)
    return DrawnData(drawing).load(lambda done, total: None)


@pytest.fixture(scope="module")
def real(drawn: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the comparison of two real runs."""
    folder = tmp_path_factory.mktemp("real")
    weights = {"weight_0": 0.0, "weight_1": 1.0}
    run_comparison(
        ComparisonPlan(tuple(weights), (3,)),
        drawn.held_out,
        folder,
        train_one=lambda variant, seed, run: real_run(drawn, weights[variant], run),
        measure=partial(measure_run, task=drawn.held_out),
    )
    return folder


def test_real_runs_measure_what_training_measured(real: Path) -> None:
    for run in json.loads((real / "comparison.json").read_text())["runs"]:
        evaluations = {
            row["step"]: row for row in read_log(real / run["folder"] / "log.jsonl") if "eval_ndcg_at_10" in row
        }
        assert set(evaluations) == {2, 4} == {int(step) for step in run["history"]}
        best = max(evaluations, key=lambda step: evaluations[step]["eval_ndcg_at_10"])
        assert (run["last"]["step"], run["best"]["step"]) == (4, best)
        for name in ("last", "best"):
            for metric in METRICS:
                assert run[name][metric] == pytest.approx(evaluations[run[name]["step"]][f"eval_{metric}"], abs=1e-6)


def test_runs_of_a_seed_differ_by_the_weight_alone(real: Path) -> None:
    """The first step begins with equal weights and the same batch."""
    plain, weighted = (read_log(real / f"weight_{weight}-seed3" / "log.jsonl")[0] for weight in (0, 1))
    assert plain["info_nce"] == pytest.approx(weighted["info_nce"], rel=1e-6)
    assert plain["alignment"] == 0 and weighted["alignment"] > 0


def test_the_report_of_a_real_run(real: Path, drawn: TrainingData) -> None:
    folder = real / "weight_1-seed3"
    lengths = concept_lengths(drawn.train.examples, tiny_backbone().inputs, concepts())
    retriever = ConceptFormer.from_pretrained(folder / "retriever")
    path = write_training_report(
        folder, drawn, lengths=lengths, refused=(), settings={}, finished=True, retriever=retriever
    )
    html = path.read_text(encoding="utf-8")
    assert_self_contained(html)
    reading = read(html)
    assert any(text.startswith("The run is finished after 4 steps on 30 pairs") for text in reading.text("p"))
    groups = [int(heading.split(": ")[1].split(" of 12")[0]) for heading in reading.text("h3")]
    assert sum(groups) == 12
    # Each query has one page, which is found if it is in one of the first two groups.
    recall = next(text for text in reading.text("dd") if "chance 0.833" in text)
    assert recall.startswith(f"{(groups[0] + groups[1]) / 12:.3f}")
    # Every drawn query has evidence on its page.
    relevant = [image.attributes["alt"] for image in reading.all("img") if "relevant" in image.attributes["alt"]]
    assert relevant and all("0 evidence" not in alternative for alternative in relevant)


def test_a_run_that_is_not_finished_is_not_measured(real: Path, drawn: TrainingData, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="holds no finished run"):
        measure_run("plain", 3, tmp_path, task=drawn.held_out)


def test_a_run_without_evaluations_is_not_measured(drawn: TrainingData, tmp_path: Path) -> None:
    real_run(replace(drawn, held_out=None), 0.0, tmp_path)
    with pytest.raises(TrainingError, match=r"no checkpoint was evaluated; set training\.evaluate_every above 0"):
        measure_run("plain", 3, tmp_path, task=drawn.held_out)
