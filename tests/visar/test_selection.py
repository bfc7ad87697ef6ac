"""What a selection says of itself: each reason has its sentence, and every selector's outcome shows itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

import visar
from tests.visar.report_reading import read
from visar.command_line import config_folder
from visar.late_interaction import PackedPages
from visar.selection import EXPLANATIONS, Selection

PACKAGE = Path(visar.__file__).parent
SELECTORS = sorted(path.stem for path in (config_folder() / "selector").glob("*.yaml"))


def texts(node: ast.AST | None) -> set[str]:
    """The string literals that an expression may become."""
    if isinstance(node, ast.IfExp):
        return texts(node.body) | texts(node.orelse)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    return set()


def reasons_in(tree: ast.Module) -> set[str]:
    """Literals at the places where a reason is given: keywords, a Cutoff's second argument, (k, reason, cost)."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in ("reason", "fallback"):
                    found |= texts(keyword.value)
            if ast.unparse(node.func) == "Cutoff" and len(node.args) > 1:
                found |= texts(node.args[1])
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 3:
            found |= texts(node.value.elts[1])
    return found


def test_each_reason_has_its_sentence_and_each_sentence_its_reason():
    given: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        given |= reasons_in(ast.parse(path.read_text(encoding="utf-8")))
    assert given == set(EXPLANATIONS)


def test_sentences_are_sentences():
    for sentence in EXPLANATIONS.values():
        assert sentence[0].isupper() and sentence.endswith(".") and "  " not in sentence


def test_a_reason_of_ones_own_speaks_for_itself():
    selection = Selection([0], torch.zeros(1), 1, "my rule", torch.zeros(1))
    assert selection.explanation == "my rule"
    assert "my rule" in selection._repr_html_()


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("count", [1, 2, 3, 11])
def test_every_selectors_outcome_shows_itself(name, count):
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        selector = instantiate(compose("eval", overrides=[f"selector={name}"]).selectors[name])
    generator = torch.Generator().manual_seed(count)
    pages = PackedPages.pack([torch.randn(13, 17, generator=generator) for _ in range(count)])
    selection = selector.select(torch.randn(5, 17, generator=generator), pages, evidence_pages=(0,))
    assert selection.reason in EXPLANATIONS
    assert sorted(selection.order) == list(range(count)) and 1 <= selection.k <= count
    said = " ".join(read(selection._repr_html_()).text("p"))
    assert selection.explanation in said
    assert f"of {count} (k = {selection.k})" in said
