"""Differences between trained variants and what they are worth, on figures worked by hand."""

from __future__ import annotations

from itertools import product

import pytest

from conceptformer.errors import TrainingError
from conceptformer.report.comparison_table import (
    comparison_markdown,
    conclusions,
    difference_table,
    figure_table,
    scope,
)
from conceptformer.retrieval.evaluation import METRICS
from conceptformer.training.comparison import (
    CheckpointResult,
    Comparison,
    ComparisonPlan,
    Difference,
    RunResult,
    compare,
    smallest_seed_p,
)

PLAN = ComparisonPlan(("plain", "new"), (1, 2, 3))
GROUPS = {"a": 0, "b": 1, "c": 2, "d": 3}


def run(variant: str, seed: int, last: list[float], best: list[float] | None = None) -> RunResult:
    """A run in which all three metrics of query a, b, ... have these values."""
    checkpoints = {
        name: CheckpointResult(
            step, {query: dict.fromkeys(METRICS, value) for query, value in zip("abcd", values, strict=False)}
        )
        for name, step, values in (("last", 500, last), ("best", 450, best or last))
    }
    return RunResult(variant, seed, checkpoints, {450: 0.5, 500: 0.25})


def compared(*runs: RunResult, plan: ComparisonPlan = PLAN, groups: dict[str, int] | None = None) -> Comparison:
    return compare(plan, {(one.variant, one.seed): one for one in runs}, groups or GROUPS, 7)


def main_difference(comparison: Comparison) -> Difference:
    (found,) = (one for one in comparison.differences if (one.checkpoint, one.metric) == ("last", "ndcg_at_10"))
    return found


# By hand: with seed 1 new is better on a and b, with seed 2 on a, with seed 3 worse on d.
RUNS = (
    run("plain", 1, [0, 0, 0.5, 1]),
    run("new", 1, [1, 1, 0.5, 1]),
    run("plain", 2, [0, 0, 0.5, 1]),
    run("new", 2, [1, 0, 0.5, 1]),
    run("plain", 3, [0, 0, 0.5, 1]),
    run("new", 3, [0, 0, 0.5, 0]),
)


def test_differences_by_hand() -> None:
    """Summed over seeds the queries differ by 2, 1, 0 and -1, in all by 2. Of the signs of 2, 1 and 1 those of a sum of
    at least 2 are 2 + 1 + 1, 2 + 1 - 1 and 2 - 1 + 1, and their opposites: 6 of 8. Over seeds the differences are 0.5,
    0.25 and -0.25, in all 0.5, and the signs are the same 6 of 8."""
    difference = main_difference(compared(*RUNS))
    assert difference.variant == "new"
    assert difference.by_seed == (0.5, 0.25, -0.25)
    assert difference.mean == pytest.approx(0.5 / 3)
    assert difference.p_queries == 6 / 8
    assert difference.p_seeds == 6 / 8
    assert difference.p_holm == 1.0


def test_queries_that_fare_alike_count_once() -> None:
    """With a and d as one, the sums are 1 and 1: only two of the four signs reach 2 in size."""
    difference = main_difference(compared(*RUNS, groups={**GROUPS, "d": 0}))
    assert difference.p_queries == 2 / 4 and difference.by_seed == (0.5, 0.25, -0.25)


def test_pooled_seeds_are_no_new_queries() -> None:
    """The same outcome with every seed makes nothing surer: a sign belongs to a query, not to a query and a seed."""
    pairs = [(run("plain", seed, [0, 0, 0, 0.5]), run("new", seed, [1, 1, 1, 0.5])) for seed in (1, 2, 3)]
    difference = main_difference(compared(*(one for pair in pairs for one in pair)))
    assert difference.p_queries == 2 / 8 and difference.p_seeds == 2 / 8 == smallest_seed_p(3)


def test_equal_variants_have_no_difference() -> None:
    """0.1 + 0.2 and its like must not leave a rest that has a sign."""
    orders = ([0.1, 0.2, 0.3, 0.7], [0.7, 0.3, 0.2, 0.1])
    runs = [run(name, seed, order) for name, order in zip(PLAN.variants, orders, strict=True) for seed in PLAN.seeds]
    difference = main_difference(compared(*runs))
    assert difference.by_seed == (0.0, 0.0, 0.0) and difference.p_seeds == 1.0


def test_best_and_last_checkpoints_are_kept_apart() -> None:
    runs = [run(name, seed, [0, 0, 0, 0], [float(name == "new")] * 4) for name in PLAN.variants for seed in PLAN.seeds]
    comparison = compared(*runs)
    assert main_difference(comparison).mean == 0.0
    assert {one.mean for one in comparison.differences if one.checkpoint == "best"} == {1.0}
    assert comparison.values("new", "best", "mrr_at_10") == (1.0, 1.0, 1.0)


def test_holm_counts_all_differences_of_the_comparison() -> None:
    plan = ComparisonPlan(("plain", "new", "third"), (1, 2, 3))
    comparison = compared(*RUNS, *(run("third", seed, [1, 1, 1, 1]) for seed in plan.seeds), plan=plan)
    assert len(comparison.differences) == 2 * 2 * 3
    least = min(one.p_queries for one in comparison.differences)
    assert min(one.p_holm for one in comparison.differences) == pytest.approx(min(1.0, 12 * least))


def test_only_complete_seeds_are_compared() -> None:
    comparison = compared(*RUNS[:4], run("plain", 3, [1, 1, 1, 1]))
    assert comparison.seeds == (1, 2) and not comparison.complete
    assert set(comparison.runs) == set(product(PLAN.variants, (1, 2)))
    assert main_difference(comparison).by_seed == (0.5, 0.25)
    assert "2 of 3 seeds so far" in scope(comparison)


def test_runs_that_were_asked_other_queries_are_refused() -> None:
    with pytest.raises(TrainingError, match="new, seed 3: measured on other queries"):
        compared(*RUNS[:5], run("new", 3, [1, 1, 1]))


@pytest.mark.parametrize(
    ("variants", "seeds"),
    [(("one",), (1,)), (("a", "b"), ()), (("a", "a"), (1,)), (("a", "b"), (1, 1)), (("a", "../b"), (1,)),
     (("a", ""), (1,)), (("a", "b c"), (1,)), (("a", ".."), (1,))],
)  # fmt: skip
def test_plans_that_make_no_sense_are_refused(variants: tuple[str, ...], seeds: tuple[int, ...]) -> None:
    with pytest.raises(TrainingError, match=r"compare\.(variants|seeds)"):
        ComparisonPlan(variants, seeds)


# Tables and sentences.


def test_the_table_holds_every_seed_the_mean_and_the_spread() -> None:
    table = figure_table(compared(*RUNS))
    assert table.header == (
        "checkpoint", "metric", "variant", "seed 1", "seed 2", "seed 3", "mean", "SD of seeds"
    )  # fmt: skip
    assert len(table.rows) == 2 * 3 * 2
    assert table.rows[0] == ("last", "nDCG@10", "plain", "0.375", "0.375", "0.375", "0.375", "0.000")
    # 0.875, 0.625 and 0.125: their squared distances from 0.542 are 0.111, 0.007 and 0.174, over 2 and the root.
    assert table.rows[1] == ("last", "nDCG@10", "new", "0.875", "0.625", "0.125", "0.542", "0.382")
    assert [row[:2] for row in table.rows[::2]] == [
        (checkpoint, metric) for checkpoint in ("last", "best") for metric in ("nDCG@10", "recall@10", "MRR@10")
    ]


def test_differences_have_signs_and_all_three_p_values() -> None:
    table = difference_table(compared(*RUNS))
    assert table.rows[0] == (
        "last", "nDCG@10", "new − plain", "+0.500", "+0.250", "−0.250", "+0.167", "0.750", "1.000", "0.750"
    )  # fmt: skip


def test_markdown_holds_both_tables_and_the_conclusions() -> None:
    comparison = compared(*RUNS)
    text = comparison_markdown(comparison)
    for table in (figure_table(comparison), difference_table(comparison)):
        for row in (table.header, *table.rows):
            assert f"| {' | '.join(row)} |\n" in text
    assert all(f"- {sentence}\n" in text for sentence in conclusions(comparison))
    assert "2 variants, 3 seeds; 4 held-out queries over 7 pages." in text


def test_nothing_is_claimed_that_is_not_shown() -> None:
    outcome, queries, seeds, best = conclusions(compared(*RUNS))
    assert outcome == (
        "nDCG@10 of the last checkpoints: new: 0.542; plain: 0.375; difference: +0.167; "
        "above 0 with 2 and below 0 with 1 of 3 seeds."
    )
    assert queries == (
        "Over queries no difference between these trained models is shown (p = 0.750, 1.000 after correction)."
    )
    assert seeds == (
        "Whether other seeds would differ is not shown (over 3 seeds p = 0.750), and cannot be with so few: no outcome "
        "of theirs has p below 0.25."
    )
    assert best.startswith("The best checkpoints were chosen by the queries")


@pytest.mark.parametrize("better", ["new", "plain"])
def test_a_clear_outcome_is_told_whichever_way_it_comes_out(better: str) -> None:
    """All of 14 queries differ alike: p is 2 / 2^14."""
    groups = {f"q{number}": number for number in range(14)}
    runs = [
        RunResult(
            name,
            seed,
            {
                checkpoint: CheckpointResult(
                    9, {query: dict.fromkeys(METRICS, float(name == better)) for query in groups}
                )
                for checkpoint in ("last", "best")
            },
            {},
        )
        for name in PLAN.variants
        for seed in PLAN.seeds
    ]
    _, queries, seeds, _ = conclusions(compared(*runs, groups=groups))
    assert queries == (
        f"On such queries these trained models differ, in favour of {better} (p < 0.001, < 0.001 after correction)."
    )
    # Three seeds that agree still say nothing of a fourth.
    assert "is not shown (over 3 seeds p = 0.250), and cannot be with so few" in seeds


def test_many_agreeing_seeds_say_something_of_others() -> None:
    plan = ComparisonPlan(PLAN.variants, tuple(range(6)))
    runs = [run(name, seed, [float(name == "new"), 0, 0, 0]) for name in plan.variants for seed in plan.seeds]
    _, _, seeds, _ = conclusions(compared(*runs, plan=plan))
    assert seeds == "Other seeds can be expected to differ in the same direction (over 6 seeds p = 0.031)."
    runs[-1] = run("new", 5, [0, 0, 0, 0])
    _, _, seeds, _ = conclusions(compared(*runs, plan=plan))
    assert seeds == "Whether other seeds would differ is not shown (over 6 seeds p = 0.062)."


def test_a_single_seed_says_nothing_of_others() -> None:
    plan = ComparisonPlan(PLAN.variants, (1,))
    comparison = compared(*RUNS[:2], plan=plan)
    outcome, _, seeds, _ = conclusions(comparison)
    assert outcome.endswith("difference: +0.500, with a single seed.")
    assert seeds.endswith("(over 1 seed p = 1.000), and cannot be with so few: no outcome of theirs has p below 1.")
    assert figure_table(comparison).rows[0][-1] == "–"
