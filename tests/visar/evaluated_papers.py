"""A small folder of PDFs and questions that the tests of the evaluation command run on, and readers of its results."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reportlab.pdfgen.canvas import Canvas

from tests.visar.made_documents import draw_pdf, lines

SELECTORS = (
    "late_interaction_5", "late_interaction_10", "visar", "visar_approximate", "largest_gap", "score_cluster",
    "score_cluster_original", "score_threshold", "gaussian_mixture", "oracle",
)  # fmt: skip
QUICK = ("dataset=folder", "dataset.documents=papers", "cache=cache", "output=out", "ocr=none", "processes=1",
         "resampling.samples=200")  # fmt: skip
HARBOUR = (
    "The harbour of Rotterdam handled more containers in 2019 than Antwerp.",
    "Total revenue rose by 12.5 percent to 847 million euros.",
    "Seven engineers inspected the northern breakwater twice.",
    "The annual report was signed by Jane Miller in May.",
)
BEES = ("Bees collect nectar in spring and store it as honey.", "The hive weighs forty kilograms in August.")
QUESTIONS = (
    ("q1", "harbour.pdf", "How much did revenue rise?", "2"),
    ("q2", "harbour.pdf", "Who signed the report, and who inspected the breakwater?", "3;4"),
    ("q3", "harbour.pdf", "What is the capital of Peru?", ""),
    ("q4", "bees.pdf", "How heavy is the hive?", "2"),
    ("q5", "whale.pdf", "What do whales eat?", "1"),
    ("q6", "broken.pdf", "What is missing?", "1"),
    ("q7", "harbour.pdf", "Which page is this?", "9"),
)


def pages(*texts: str) -> list[Callable[[Canvas], None]]:
    return [lines([text]) for text in texts]


def write_questions(folder: Path, questions: tuple[tuple[str, ...], ...]) -> None:
    with (folder / "questions.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("id", "document", "question", "evidence_pages"), *questions])


def make_papers(folder: Path) -> Path:
    """Documents of four, two and one page, one that is cut short, and questions, two of which cannot be asked."""
    papers = folder / "papers"
    papers.mkdir()
    whole = draw_pdf(papers / "harbour.pdf", *pages(*HARBOUR))
    draw_pdf(papers / "bees.pdf", *pages(*BEES))
    draw_pdf(papers / "whale.pdf", *pages("Whales eat krill."))
    (papers / "broken.pdf").write_bytes(whole.read_bytes()[:700])
    write_questions(papers, QUESTIONS)
    return folder


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of a finished run; a half-written line would not be one."""
    return [json.loads(line) for line in (folder / "out" / "per_query.jsonl").read_bytes().split(b"\n")[:-1]]


def metrics_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "metrics.json").read_text(encoding="utf-8"))
