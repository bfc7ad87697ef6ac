"""Tables of retrievers as people see them: measured rows beside the paper's, what is explained, page and Markdown."""

from __future__ import annotations

import dataclasses
import html
import re
from html.parser import HTMLParser
from pathlib import Path

from conceptformer.published import published_means
from conceptformer.report.retriever_page import write_retriever_page
from conceptformer.report.retriever_tables import (
    difference_table,
    explanation,
    figure_tables,
    notes,
    retriever_markdown,
)
from tests.conceptformer.test_table import KNOWN, SMALL, compared, made_run


class Cells(HTMLParser):
    """The texts of a page's cells, row by row."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._within = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag == "tr":
            self.rows.append([])
        self._within = tag in {"td", "th"}
        if self._within:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = self._within and tag not in {"td", "th"}

    def handle_data(self, text: str) -> None:
        if self._within:
            self.rows[-1][-1] += text


def test_tables_show_measured_rows_and_beside_them_the_papers():
    comparison = compared(*SMALL, order=tuple(KNOWN))
    ndcg, recall = figure_tables(comparison, published_means(1), KNOWN)
    assert ndcg.header == ("retriever", "InfoVQA", "own", "average")
    assert ndcg.rows[:2] == (("ours", "83.33", "50.00", "66.67"), ("BM25", "20.00", "–", "–"))
    assert ndcg.rows[2] == ("paper: BM25", "68.91", "–", "–") and len(ndcg.rows) == 2 + 14
    assert recall.rows[1][1] == "66.67"
    own = compared(*(run for run in SMALL if run.benchmark == "own"))
    assert [len(table.rows) for table in figure_tables(own, published_means(1), KNOWN)] == [1, 1]
    differences = difference_table(comparison, KNOWN)
    assert differences.rows[0] == ("InfoVQA", "ours − BM25", "nDCG@10", "+63.33", "0.500", "1.000")


def test_one_benchmark_has_no_average_beside_itself():
    comparison = compared(*(run for run in SMALL if run.benchmark == "infovqa"), order=tuple(KNOWN))
    for table in figure_tables(comparison, published_means(1), KNOWN):
        assert table.header == ("retriever", "InfoVQA") and len(table.rows) == 2 + 14
        assert {len(row) for row in table.rows} == {2}


def test_what_is_explained_is_what_is_there():
    """A reader looks for p in vain where nothing was tested."""
    assert explanation(compared(SMALL[1])) == "Means over queries."
    two = explanation(compared(*SMALL[:2]))
    assert "Average: over all benchmarks" in two and "none where a retriever lacks one" in two and "Holm" not in two
    tested = explanation(compared(SMALL[0], SMALL[2]))
    assert "p: paired permutation test" in tested and "Holm" in tested and "Average" not in tested
    assert all(said in explanation(compared(*SMALL)) for said in ("Average", "Points", "Holm"))


def test_the_papers_average_is_shown_where_all_six_benchmarks_are():
    comparison = compared(*(made_run("ours", name, {"x": 0.5}) for name in KNOWN), order=tuple(KNOWN))
    ndcg, _ = figure_tables(comparison, published_means(1), KNOWN)
    rows = {row[0]: row for row in ndcg.rows}
    assert rows["paper: ConceptFormer (Qwen)"][-1] == "75.97" and rows["paper: BM25"][-1] == "49.27"


def test_data_that_are_not_the_papers_are_told():
    comparison = compared(*SMALL, dataclasses.replace(SMALL[2], retriever="left", fingerprint="l", left_out=3))
    told = notes(comparison, KNOWN, [Path("runs/begun")])
    assert told == [
        "infovqa: 3 queries, 40 pages; the paper's has 1,048 queries and 5,485 pages: its figures are of other data.",
        "own: 2 queries, 40 pages.",
        "left on infovqa: pages that could not be read, which count as missed: 3.",
        "Not finished and left out: runs/begun.",
    ]
    whole = made_run("a", "owid_charts", {f"q{number}": 1.0 for number in range(131)}, pages=131)
    assert notes(compared(whole), KNOWN, []) == ["owid_charts: 131 queries, 131 pages."]


def test_page_and_markdown_hold_the_same_cells_and_no_foreign_markup(tmp_path):
    odd = made_run("<b>|odd*", "infovqa", {"a": 0.5, "b": 0.5, "c": 0.5})
    comparison = compared(*SMALL, odd, order=tuple(KNOWN))
    tables = [*figure_tables(comparison, published_means(1), KNOWN), difference_table(comparison, KNOWN)]
    lines = notes(comparison, KNOWN, [])
    told = explanation(comparison)
    write_retriever_page(tmp_path / "table.html", tables, told, lines)
    page = (tmp_path / "table.html").read_text(encoding="utf-8")
    expected = [list(row) for table in tables for row in (table.header, *table.rows)]
    assert Cells(page).rows == expected
    assert "<b>" not in page and "<script" not in page and "http" not in page.replace("http-equiv", "")
    markdown = retriever_markdown(tables, told, lines)
    cells = [
        [re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in markdown.splitlines()
        if line.startswith("|") and ":--" not in line
    ]
    assert cells == expected
    assert told in html.unescape(page) and told in markdown
    assert all(line in html.unescape(page) and line in re.sub(r"\\(.)", r"\1", markdown) for line in lines)
