"""Tables of an evaluation run for the terminal and as Markdown."""

from __future__ import annotations

import copy
import re

from visar.report.table import markdown_table, ranking_names, stage_names, table_rows


def entry(value: float, low: float | None = None, high: float | None = None) -> dict[str, float | None]:
    return {"value": value, "low": low, "high": high}


METRICS = {
    "dataset": "demo",
    "encoder": "MiniLM",
    "questions": 30,
    "questions_with_evidence": 24,
    "documents": 1,
    "pages": 1200,
    "refused": ["row 7: page 40 of 12"],
    "failures": [],
    "warnings": {"no text layer": 1500},
    "selectors": {
        "visar": {
            "at_k": {
                "mean_k": entry(2.345, 2.0, 2.7),
                "median_k": entry(2, 1, 3),
                "recall": entry(0.81234, 0.75, 0.88),
                "precision": entry(0.5),
                "f1": None,
                "f1_of_means": entry(0.619),
            },
            "ranking": {"recall@5": entry(0.9, 0.8, 0.95), "ndcg@5": entry(0.7), "ndcg_retrieved@10": entry(0.75)},
            "seconds": {"total": {"median": 0.031, "p95": 1.2}, "weights": {"median": 0.004, "p95": 0.005}},
            "reasons": {"least_cost": 30},
        },
        "top|5": {
            "at_k": {"mean_k": entry(5.0)},
            "ranking": None,
            "seconds": {"total": {"median": 0.0004, "p95": None}},
            "reasons": {},
        },
    },
    "tests": [
        {"selector": "visar", "baseline": "top|5", "metric": "f1", "difference": 0.1, "p": 0.0001, "p_holm": 0.02},
        {"selector": "visar", "baseline": "top|5", "metric": "recall", "difference": -0.05, "p": 0.2, "p_holm": None},
    ],
}

EXPECTED = """\
# Page selection on demo

2 selectors on 30 questions (24 with known evidence pages) about 1 document of 1,200 pages in all; encoder: MiniLM.

Brackets hold 95 % bootstrap intervals.

| selector | mean k | median k | recall | precision | F1 | F1 of means |
| :-- | --: | --: | --: | --: | --: | --: |
| visar | 2.35 [2.00, 2.70] | 2.0 [1.0, 3.0] | 0.812 [0.750, 0.880] | 0.500 | – | 0.619 |
| top\\|5 | 5.00 | – | – | – | – | – |

## Ranking

| selector | recall@5 | ndcg@5 | ndcg_retrieved@10 |
| :-- | --: | --: | --: |
| visar | 0.900 [0.800, 0.950] | 0.700 | 0.750 |
| top\\|5 | – | – | – |

## Time per question, median / 95th percentile

Page selection alone, without encoding.

| selector | total | weights |
| :-- | --: | --: |
| visar | 31 ms / 1.20 s | 4.00 ms / 5.00 ms |
| top\\|5 | 0.40 ms / – | – / – |

## Paired tests

| selector | baseline | metric | difference | p | p (Holm) |
| :-- | :-- | :-- | --: | --: | --: |
| visar | top\\|5 | f1 | +0.100 | < 0.001 | 0.020 |
| visar | top\\|5 | recall | −0.050 | 0.200 | – |

## Refused rows

- row 7: page 40 of 12

## Warnings

- 1,500 × no text layer
"""


def test_the_whole_markdown_of_a_small_run() -> None:
    assert markdown_table(METRICS) == EXPECTED


def test_names_cannot_break_the_table() -> None:
    metrics = copy.deepcopy(METRICS)
    metrics["selectors"] = {"a|b\n| c <b>*x*": METRICS["selectors"]["visar"]}
    metrics["tests"] = []
    lines = [line for line in markdown_table(metrics).splitlines() if line.startswith("|")]
    cells = [len(re.split(r"(?<!\\)\|", line)) for line in lines]
    assert cells == [9, 9, 9, 6, 6, 6, 5, 5, 5]
    assert "<b>" not in re.sub(r"\\<", "", "\n".join(lines))


def test_terminal_rows_are_rectangular_and_short() -> None:
    assert table_rows(METRICS) == [
        ["selector", "mean k", "median k", "recall", "precision", "F1", "recall@5", "ndcg@5", "median time"],
        ["visar", "2.35", "2.0", "0.812", "0.500", "–", "0.900", "0.700", "31 ms"],
        ["top|5", "5.00", "–", "–", "–", "–", "–", "–", "0.40 ms"],
    ]


def test_names_keep_the_order_of_their_first_appearance() -> None:
    assert ranking_names(METRICS) == ["recall@5", "ndcg@5", "ndcg_retrieved@10"]
    assert stage_names(METRICS) == ["weights"]
