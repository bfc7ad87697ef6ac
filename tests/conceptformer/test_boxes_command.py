"""``python -m conceptformer.boxes``: its three actions, the page that it draws, and its errors."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from conceptformer import boxes
from tests.conceptformer.box_rows import box_row, write_boxes
from tests.conceptformer.row_files import training_row, write_lines
from tests.visar.commands import ROOT, Outcome
from tests.visar.report_reading import assert_self_contained, read

EVIL = "</blockquote><script>alert('&')</script>{{ 7 * 7 }}"


def run(*arguments: str, folder: Path) -> Outcome:
    """The command in this process, which saves the time to load torch."""
    status, out, err = 0, io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["conceptformer.boxes", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "")
        with redirect_stdout(out), redirect_stderr(err):
            try:
                boxes.main(arguments)
            except SystemExit as end:
                status = int(end.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue())


def test_a_good_file_passes_the_check_in_a_process_of_its_own(tmp_path):
    write_boxes(tmp_path, box_row(1, [[0, 0, 140, 140]]), box_row(2, []))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "conceptformer.boxes", "check", "boxes.jsonl"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "pairs without boxes: 1\n" in done.stdout and "median 25, mean 25.0" in done.stdout
    assert json.loads((tmp_path / "boxes.check.json").read_text())["pairs"] == 2
    assert (tmp_path / "boxes.check.md").read_text().startswith("# Evidence boxes: boxes.jsonl\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "boxes.check.json", "boxes.check.md", "boxes.jsonl", "pages"
    ]  # fmt: skip


@pytest.mark.parametrize("row", [box_row(2, [[9, 9, 9, 9]]), box_row(2, [], frame="pixels"), b"{"])
def test_what_cannot_be_used_makes_the_exit_status_1(tmp_path, row):
    write_boxes(tmp_path, box_row(1, [[0, 0, 140, 140]]), row)
    done = run("check", "boxes.jsonl", "out=r/c.json", folder=tmp_path)
    assert done.status == 1
    assert "boxes.jsonl:2: " in done.out and "boxes.jsonl:2" in (tmp_path / "r" / "c.md").read_text()


def test_boxes_that_are_cut_off_are_told_and_no_fault(tmp_path):
    write_boxes(tmp_path, box_row(1, [[0, 0, 140, 300]]))
    done = run("check", "boxes.jsonl", folder=tmp_path)
    assert done.status == 0 and "boxes cut off: 1:\nboxes.jsonl:1: box 1" in done.out


def test_of_many_faults_the_first_are_shown(tmp_path):
    write_boxes(tmp_path, *(box_row(number, [[9, 9, 9, 9]]) for number in range(4)))
    done = run("check", "boxes.jsonl", folder=tmp_path)
    assert "boxes that cannot be used: 4, the first:\nboxes.jsonl:1: " in done.out and "boxes.jsonl:4: " not in done.out


def test_images_need_not_be_there(tmp_path):
    write_lines(tmp_path / "boxes.jsonl", box_row(1, [[0, 0, 140, 140]]))
    assert run("check", "boxes.jsonl", folder=tmp_path).status == 1
    assert run("check", "boxes.jsonl", "images=false", folder=tmp_path).status == 0


def test_the_page_draws_each_box_where_it_is(tmp_path):
    write_boxes(tmp_path, box_row(1, [[0, 70, 140, 280], [28, 28, 56, 84]], labels=["first", ""]))
    done = run("show", "boxes.jsonl", "out=page.html", folder=tmp_path)
    assert (done.status, done.err) == (0, "") and "rows shown: 1 of 1" in done.out
    html = (tmp_path / "page.html").read_text()
    assert_self_contained(html)
    page = read(html)
    assert [box.attributes["style"] for box in page.all("b")] == [
        "left:0.000%;top:25.000%;width:50.000%;height:75.000%", "left:10.000%;top:10.000%;width:10.000%;height:20.000%"
    ]  # fmt: skip
    labels = page.text("ol", class_="labels")[0]
    assert labels == "1 first (37.50%)2 no label (2.00%)"
    (picture,) = page.all("img")
    assert picture.attributes["alt"] == "Page p1, 2 evidence boxes drawn"
    card = page.text("article", class_="sheet card")[0]
    assert "largest area · smallest area · most boxes · at random" in card
    # The first box covers 5 columns and, from row 2.5 on, 8 rows; the second 1 column and 2 rows.
    facts = dict(zip(page.text("dt"), page.text("dd"), strict=True))
    assert facts["concept tokens"] == "42 of 100 (10 × 10)" and facts["frame"] == "absolute"
    assert page.text("blockquote") == ["Which ferry is number 1?"]


def test_the_page_says_whether_it_shows_all_rows(tmp_path):
    write_boxes(tmp_path, *(box_row(number, [[0, 0, 140, 140]]) for number in range(9)))
    assert run("show", "boxes.jsonl", "out=page.html", folder=tmp_path).status == 0
    assert "All rows of the file, those that stand out first." in (tmp_path / "page.html").read_text()
    done = run("show", "boxes.jsonl", "out=page.html", "count=1", folder=tmp_path)
    assert "rows shown: 3 of 9" in done.out or "rows shown: 4 of 9" in done.out
    assert "Rows are chosen by rule: up to 1 that are invalid" in (tmp_path / "page.html").read_text()


def test_foreign_text_is_shown_as_text(tmp_path):
    hostile = box_row(1, [[0, 0, 9, 9]], query=EVIL, query_id=EVIL, page_id=EVIL, labels=[EVIL], model=EVIL)
    write_boxes(tmp_path, hostile, box_row(2, [], frame=EVIL), box_row(3, [], query="W" * 5000))
    assert run("show", "boxes.jsonl", "out=page.html", folder=tmp_path).status == 0
    html = (tmp_path / "page.html").read_text()
    assert_self_contained(html)
    page = read(html)
    assert EVIL in page.text("blockquote") and EVIL in page.text("ol", class_="labels")[0]
    assert "49" not in page.text("ol", class_="labels")[0]
    assert any(text.startswith("WWW") and text.endswith("W…") and len(text) == 700 for text in page.text("blockquote"))


def test_rows_with_faults_are_shown_with_their_reasons(tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "4.png").write_bytes(b"no image")
    write_boxes(
        tmp_path,
        box_row(1, [[0.1, 0.1, 0.5, 0.5]]),
        box_row(2, [[5, 5, 5, 5], [0, 0, 9, 9]]),
        box_row(3, [[0, 0, 9, 999]]),
        box_row(4, []),
        b"not a row",
    )
    assert run("show", "boxes.jsonl", "out=page.html", folder=tmp_path).status == 0
    page = read((tmp_path / "page.html").read_text())
    cards = page.text("article", class_="sheet card bad")
    assert [re.match(r"[a-z ]+", card)[0].strip() for card in cards] == [
        "invalid", "invalid", "with a box that cannot be used", "with a box beyond its page"
    ]  # fmt: skip
    assert "likelier 'relative' (0 to 1)" in cards[0] and "not an image that can be read" in cards[1]
    # The box that is drawn has the number that it has in the file.
    assert page.text("ol", class_="labels")[0].startswith("2 label 1")
    assert "box 1 (5, 5, 5, 5): empty or turned round" in cards[2] and "reaches beyond the page" in cards[3]
    assert len(page.all("img")) == 3
    assert any("boxes.jsonl:5: expected a JSON object" in line for line in page.text("li"))


def test_the_rows_of_queries_can_be_asked_for(tmp_path):
    write_boxes(tmp_path, *(box_row(n, [], query_id=name) for n, name in enumerate(["a", "b", "c,d", "e"])))
    assert run("show", "boxes.jsonl", "out=p.html", "query_ids=b,e", folder=tmp_path).status == 0
    assert read((tmp_path / "p.html").read_text()).text("blockquote") == [
        "Which ferry is number 1?", "Which ferry is number 3?"
    ]  # fmt: skip
    assert run("show", "boxes.jsonl", "out=p.html", "query_ids=c,d", folder=tmp_path).status == 0
    assert read((tmp_path / "p.html").read_text()).text("blockquote") == ["Which ferry is number 2?"]
    for listed in ("query_ids=[b,e]", "query_ids=[b, e]", "query_ids=b, e,"):
        assert run("show", "boxes.jsonl", "out=p.html", listed, folder=tmp_path).status == 0
        assert len(read((tmp_path / "p.html").read_text()).all("blockquote")) == 2
    told = "query_ids: boxes.jsonl has no row of the query 'x'; expected ids of its rows, as query_ids=ID,ID"
    assert run("show", "boxes.jsonl", "out=p.html", "query_ids=x", folder=tmp_path).error == told
    assert run("show", "boxes.jsonl", "out=p.html", "query_ids=[]", folder=tmp_path).error.startswith("query_ids: expe")


def test_boxes_lost_when_they_were_proposed_are_said_by_check_and_show(tmp_path):
    write_boxes(tmp_path, *(box_row(n, [[0, 0, 140, 280]], clipped=1, dropped=2) for n in range(5)))
    done = run("check", "boxes.jsonl", folder=tmp_path)
    assert done.status == 0
    assert "of their page: 0\nboxes cut off at the edge when they were proposed: 5\n" in done.out
    assert "sign of a wrong frame: boxes of 5 of 5 rows reached beyond their pages when they were proposed" in done.out
    assert "boxes of 5 of 5 rows reached beyond" in (tmp_path / "boxes.check.md").read_text()
    assert run("show", "boxes.jsonl", "out=page.html", "query_ids=q3", folder=tmp_path).status == 0
    page = read((tmp_path / "page.html").read_text())
    facts = dict(zip(page.text("dt"), page.text("dd"), strict=True))
    assert (facts["cut off when proposed"], facts["dropped when proposed"]) == ("1 box", "2 boxes")
    assert facts["boxes dropped when they were proposed"] == "10"
    assert "boxes of 5 of 5 rows reached beyond" in page.text("div", class_="notes")[0]


def test_a_wrong_frame_is_said_before_images_are_opened(tmp_path):
    write_lines(tmp_path / "boxes.jsonl", box_row(1, [[0, 0, 140, 140]]))
    done = run("convert", "boxes.jsonl", "out=b.jsonl", "frame=relativ", folder=tmp_path)
    assert done.status == 2 and done.error.startswith("the frame is stated as 'relativ'; expected 'absolute'")
    assert "looking at images" not in done.out
    # The images are not there.
    done = run("convert", "boxes.jsonl", "out=b.jsonl", "frame=relative", folder=tmp_path)
    assert "looking at images" in done.out and "no such file" in done.error


@pytest.mark.parametrize(
    ("action", "explained"),
    [
        ("check", ["images=false", "max_pixels=1003520", "min_pixels"]),
        ("show", ["count=12 up to 12 rows of each group", "query_ids=a,b"]),
        ("convert", ["corpus=FOLDER the release, with pages out of", "pages=FOLDER the release, with pages that are"]),
    ],
)
def test_help_explains_the_settings(tmp_path, action, explained):
    told = " ".join(run(action, "--help", folder=tmp_path).out.split())
    assert [part for part in explained if part not in told.partition("Settings,")[0]] == []


def test_a_training_file_is_converted(tmp_path):
    write_boxes(tmp_path, training_row(), name="train=1, (new).jsonl")
    done = run("convert", "train=1, (new).jsonl", "out=boxes.jsonl", "frame=relative", folder=tmp_path)
    assert done.status == 0 and done.out.endswith("rows written: 1; frame: relative\nwritten: boxes.jsonl\n")
    row = json.loads((tmp_path / "boxes.jsonl").read_text())
    assert row["boxes"] == [[round(4 / 280, 8), round(6 / 280, 8), round(20 / 280, 8), round(30 / 280, 8)]]
    assert run("check", "boxes.jsonl", folder=tmp_path).status == 0
    write_lines(tmp_path / "bad.jsonl", training_row(), b"{")
    done = run("convert", "bad.jsonl", "out=b.jsonl", folder=tmp_path)
    assert done.status == 1 and done.out.endswith("written: b.jsonl, b.skipped.jsonl\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "boxes: expected check, show, convert; write check FILE, or --help"),
        (["chekc", "boxes.jsonl"], "boxes: expected check, show, convert, got 'chekc'; write check FILE, or --help"),
        (["check"], "file: expected a file with boxes; write its name after the action"),
        (["check", "gone.jsonl"], "gone.jsonl: no such file; expected one JSON object per line with query_id,"),
        (["check", "boxes.jsonl", "out=report"], "out: report: expected a file name that ends in .json"),
        (["check", "boxes.jsonl", "images=no way"], "images: expected true or false, got 'no way'"),
        (["check", "boxes.jsonl", "max_pixels=9"], "pixels: expected 0 < min_pixels <= max_pixels"),
        (["check", "boxes.jsonl", "seed=1"], "seed: no such setting"),
        (["show", "boxes.jsonl"], "out: expected the page to write; write out=PAGE.html"),
        (["show", "boxes.jsonl", "out=p.html", "count=0"], "count: expected a whole number of at least 1, got 0"),
        (["show", "boxes.jsonl", "out=p.html", "seed=x"], "seed: expected a whole number, got 'x'"),
        (["convert", "boxes.jsonl"], "out: expected the file to write; write out=BOXES.jsonl"),
        (["convert", "boxes.jsonl", "out=./boxes.jsonl"], "out: boxes.jsonl is the file of boxes itself"),
        (["convert", "boxes.jsonl", "out=b.jsonl", "frame=px"], "the frame is stated as 'px'; expected 'absolute'"),
        (["convert", "boxes.jsonl", "out=b.jsonl", "pages=."], "pages, corpus, from_frame: they are for the columns"),
        (["convert", "gone.parquet", "out=b.jsonl"], "pages: the file names pages by their ids; write pages=FOLDER"),
        (["convert", "gone.parquet", "out=b.jsonl", "pages=."], "gone.parquet: no such file; expected a table"),
        (["convert", "gone.jsonl", "out=b.jsonl"], "gone.jsonl: cannot be read (No such file or directory)"),
    ],
)
def test_what_the_user_can_mend_is_one_line(tmp_path, arguments, told):
    write_boxes(tmp_path, box_row(1, [[0, 0, 140, 140]]))
    done = run(*arguments, folder=tmp_path)
    assert done.status == 2 and done.error.startswith(told)


@pytest.mark.parametrize("arguments", [[], ["check"], ["show"], ["convert"]])
def test_help_says_how_it_is_used(tmp_path, arguments):
    done = run(*arguments, "--help", folder=tmp_path)
    assert done.status == 0
    usage = " ".join(["python -m conceptformer.boxes", *(arguments or ["check|show|convert"]), "FILE"])
    assert f"Usage: {usage}" in done.out
