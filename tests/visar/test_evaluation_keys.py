"""When a row of an earlier run may stand for one of this run: its key names everything that it depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from visar import evaluation
from visar.evaluation import row_key
from visar.records import Document, Question
from visar.selectors import FixedK, Visar

BASE: dict[str, Any] = {
    "facts": "{}",
    "document": Document("report.pdf", (Path("report.pdf"),), first_label=1),
    "question": Question("q1", "report.pdf", "Who?", (1, 2)),
    "name": "visar",
    "selector": Visar(),
    "leave_out_broken": False,
}


@pytest.mark.parametrize(
    "change",
    [
        {"facts": '{"dpi": 72}'},
        {"document": Document("other.pdf", (Path("report.pdf"),))},
        {"document": Document("report.pdf", (Path("report.pdf"),), first_label=2)},
        {"question": Question("q2", "report.pdf", "Who?", (1, 2))},
        {"question": Question("q1", "report.pdf", "Who? ", (1, 2))},
        {"question": Question("q1", "report.pdf", "Who?", (1,))},
        {"question": Question("q1", "report.pdf", "Who?", (12,))},
        {"name": "visar2"},
        {"leave_out_broken": True},
        *({"selector": Visar(**setting)} for setting in (
            {"top_patches": 25}, {"leakage_weight": 1.0}, {"patches_per_page": 450}, {"max_pages": 75},
            {"search_limit": 10}, {"k_range": "authors"}, {"block_size": 64},
        )),
        {"selector": FixedK(50)},
    ],
    ids=lambda change: "-".join(map(str, change)),
)  # fmt: skip
def test_the_key_changes_with_everything_that_a_row_depends_on(change):
    assert row_key(**{**BASE, **change}) != row_key(**BASE)


def test_the_key_does_not_depend_on_where_files_lie_or_on_the_answer():
    same = {
        "document": Document("report.pdf", (Path("elsewhere/report.pdf"),)),
        "question": replace(BASE["question"], answer="Ada"),
        "selector": Visar(top_patches=50, leakage_weight=1e5),
    }
    assert row_key(**{**BASE, **same}) == row_key(**BASE)


@pytest.mark.parametrize("change", [("__version__", "9.9"), ("version", lambda library: f"{library} 9.9")])
def test_the_key_changes_with_the_code_and_its_libraries(change: tuple[str, str | Callable[[str], str]], monkeypatch):
    before = row_key(**BASE)
    evaluation.code_fingerprint.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, *change)
        changed = row_key(**BASE)
    evaluation.code_fingerprint.cache_clear()
    assert changed != before == row_key(**BASE)
