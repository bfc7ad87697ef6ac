"""What the READMEs say is true: commands compose, code runs, files exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from visar.command_line import config_folder, literal_argument

ROOT = Path(__file__).parents[1]
READMES = (ROOT / "README.md", ROOT / "visar" / "README.md")
COMMAND = re.compile(r"python -m visar\.(eval|ask)((?: [^\n`#]+)?)")


def commands() -> list[tuple[str, str]]:
    found = {match.groups() for path in READMES for match in COMMAND.finditer(path.read_text(encoding="utf-8"))}
    return sorted((command, arguments.strip()) for command, arguments in found)


@pytest.mark.parametrize(("command", "arguments"), commands())
def test_every_command_composes(command, arguments):
    overrides = [literal_argument(word, ("document", "question")) for word in shlex.split(arguments)]
    overrides = [word.removeprefix("+") if word.startswith("+exp=") else word for word in overrides]
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        compose(command, overrides=[word for word in overrides if word != "--help"])


def test_code_of_the_package_readme_runs(tmp_path, monkeypatch):
    canvas = pytest.importorskip("reportlab.pdfgen.canvas", reason="the PDF is made with reportlab (extra offline)")
    blocks = re.findall(r"```python\n(.*?)```", READMES[1].read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 2
    report = canvas.Canvas(str(tmp_path / "report.pdf"))
    for text in ("Revenue rose by a tenth to 40 million.", "Staff and offices.", "Risks of the coming year."):
        report.drawString(72, 700, text)
        report.showPage()
    report.save()
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(compile(block, "visar/README.md", "exec"), {})  # the project's own text


def test_the_file_map_names_every_module_and_nothing_else():
    text = READMES[0].read_text(encoding="utf-8").split("## File map")[1]
    named = set(re.findall(r"[a-z_]+\.py\b", text)) | {f"{name}/" for name in re.findall(r"\b([a-z]+)/", text)}
    visar = ROOT / "visar"
    modules = {path.name for path in visar.glob("*.py")} - {"__init__.py"}
    folders = {f"{path.name}/" for path in visar.iterdir() if (path / "__init__.py").exists()}
    assert modules | folders <= named
    known = {path.name for folder in ("visar", "scripts", "tests") for path in (ROOT / folder).rglob("*.py")}
    assert {name for name in named if name.endswith(".py")} <= known


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_links_and_pictures_lead_to_files(path):
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_every_choice_and_experiment_is_named():
    text = "".join(path.read_text(encoding="utf-8") for path in READMES)
    for group in ("dataset", "encoder", "ocr", "selector"):
        for option in (config_folder() / group).glob("*.yaml"):
            assert f"`{option.stem}`" in text, f"{group}={option.stem}"
    for experiment in (config_folder() / "exp").glob("sensitivity_*.yaml"):
        assert experiment.stem in text
