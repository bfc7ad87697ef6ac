"""How the demo benchmark keeps its files: drawn once, checked at each load, drawn anew where damaged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("reportlab", reason="the demo documents are drawn with reportlab (extra offline)")

from visar.benchmarks import Demo
from visar.benchmarks.demo.blocks import DemoDocument
from visar.benchmarks.demo.documents.bees import BEES
from visar.benchmarks.demo.documents.field_guide import FIELD_GUIDE
from visar.errors import MissingExtraError
from visar.tensor_files import StoreError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Demo:
    """A benchmark of two of the documents, since the rules of keeping files do not depend on their number."""
    monkeypatch.setattr("visar.benchmarks.demo.benchmark.DOCUMENTS", (BEES, FIELD_GUIDE))
    return Demo(tmp_path / "small")


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_a_second_load_writes_nothing_and_does_not_need_reportlab(small: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small.load()
    before = times(small.folder)
    monkeypatch.setitem(sys.modules, "visar.benchmarks.demo.drawing", None)
    assert small.load() == first
    assert times(small.folder) == before


@pytest.mark.parametrize("damage", ["truncated", "changed", "missing"])
def test_only_the_damaged_document_is_drawn_anew(damage: str, small: Demo) -> None:
    first = small.load()
    victim, other = small.folder / f"{FIELD_GUIDE.id}.pdf", f"{BEES.id}.pdf"
    good, before = victim.read_bytes(), times(small.folder)
    if damage == "missing":
        victim.unlink()
    else:
        victim.write_bytes(good[:-500] if damage == "truncated" else good[:100] + b"#" + good[101:])
    assert small.load() == first
    assert victim.read_bytes() == good
    assert times(small.folder)[other] == before[other]


@pytest.mark.parametrize("damage", ["cut short", "other pages", "not a mapping"])
def test_a_damaged_manifest_is_not_believed(damage: str, small: Demo) -> None:
    first = small.load()
    manifest = small.folder / "manifest.json"
    good = manifest.read_bytes()
    if damage == "cut short":
        manifest.write_bytes(good[: len(good) // 2])
    elif damage == "not a mapping":
        manifest.write_text("[]")
    else:
        content = json.loads(good)
        content["documents"][FIELD_GUIDE.id]["evidence"]["guide-nets"] = [0]
        manifest.write_text(json.dumps(content))
    assert small.load() == first
    assert manifest.read_bytes() == good


def test_a_killed_run_continues_with_the_next_document(small: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Demo, document: DemoDocument) -> dict:
        if document is FIELD_GUIDE:
            raise KeyboardInterrupt
        return draw(self, document)

    draw = Demo._draw
    with monkeypatch.context() as patch:
        patch.setattr(Demo, "_draw", killed)
        with pytest.raises(KeyboardInterrupt):
            small.load()
    done = times(small.folder)
    assert set(done) == {"manifest.json", f"{BEES.id}.pdf"}
    assert len(small.load().documents) == 2
    assert times(small.folder)[f"{BEES.id}.pdf"] == done[f"{BEES.id}.pdf"]


def test_other_content_is_drawn_anew_and_gets_another_default_folder(
    small: Demo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = Demo().folder
    assert before.parent == tmp_path / "visar" and re.fullmatch(r"demo-[0-9a-f]{12}", before.name)
    small.load()
    first = times(small.folder)
    monkeypatch.setattr("visar.benchmarks.demo.benchmark.content_version", lambda: "0" * 12)
    assert Demo().folder.name == "demo-000000000000"
    small.load()
    assert all(first[name] != time for name, time in times(small.folder).items())


def test_without_reportlab_the_error_names_the_extra(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['reportlab'] = None\n"
        "from visar.benchmarks import Demo\n"
        "from visar.errors import MissingExtraError\n"
        "try:\n    Demo(sys.argv[1]).load()\n"
        "except MissingExtraError as error:\n    sys.exit(str(error))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True
    )
    assert run.returncode == 1
    assert run.stderr.decode().strip() == str(MissingExtraError("reportlab", "offline", "drawing the demo documents"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(StoreError, match="cannot write"):
        Demo(tmp_path / "taken").load()
