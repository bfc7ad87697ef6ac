"""What the READMEs say is true: commands compose, code runs, files exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from visar.command_line import config_folder, literal_argument

ROOT = Path(__file__).parents[1]
PACKAGES = ("visar", "conceptformer")
READMES = (ROOT / "README.md", *(ROOT / package / "README.md" for package in PACKAGES))
COMMAND = re.compile(r"-m (visar|conceptformer)\.([a-z]+)((?: [^\n`#|]+)?)")


def commands() -> list[tuple[str, str, str]]:
    found = {match.groups() for path in READMES for match in COMMAND.finditer(path.read_text(encoding="utf-8"))}
    return sorted((package, command, arguments.strip()) for package, command, arguments in found)


@pytest.mark.parametrize(("package", "command", "arguments"), commands())
def test_every_command_composes(package, command, arguments):
    words = [word for word in shlex.split(arguments) if word != "--help"]
    if command == "boxes" and words:
        # An action and a file, as its own main takes them.
        action, file, *words = words
        command, words = f"boxes_{action}", [f"file={file}", *words]
    overrides = [literal_argument(word, ("document", "question")) for word in words]
    overrides = [word.removeprefix("+") if word.startswith("+exp=") else word for word in overrides]
    with initialize_config_dir(str(config_folder(package)), version_base="1.3"):
        compose(command, overrides=[word.replace("exp=NAME", "exp=qwen") for word in overrides])


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


@pytest.mark.parametrize("package", PACKAGES)
def test_the_file_map_names_every_module_and_nothing_else(package):
    text = READMES[0].read_text(encoding="utf-8").split("## File map")[1].split(f"\n{package}/\n")[1].split("\n\n")[0]
    named = set(re.findall(r"[a-z0-9_]+\.py\b", text)) | {f"{name}/" for name in re.findall(r"\b([a-z_]+)/", text)}
    modules = {path.name for path in (ROOT / package).glob("*.py")} - {"__init__.py"}
    folders = {f"{path.name}/" for path in (ROOT / package).iterdir() if (path / "__init__.py").exists()}
    assert modules | folders <= named
    known = {path.name for folder in (package, "scripts", "tests") for path in (ROOT / folder).rglob("*.py")}
    assert {name for name in named if name.endswith(".py")} <= known


def test_the_formulas_of_the_trainers_readme_run():
    blocks = re.findall(r"```python\n(.*?)```", READMES[2].read_text(encoding="utf-8"), flags=re.DOTALL)
    (formulas,) = (block for block in blocks if "info_nce" in block)
    exec(compile(formulas, "conceptformer/README.md", "exec"), {})  # the project's own text


@pytest.mark.parametrize("path", READMES, ids=lambda path: path.parent.name)
def test_links_and_pictures_lead_to_files(path):
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("package", PACKAGES)
def test_every_choice_and_experiment_is_named(package):
    text = "".join(path.read_text(encoding="utf-8") for path in READMES)
    for option in config_folder(package).glob("*/*.yaml"):
        if option.parent.name != "exp":
            assert f"`{option.stem}`" in text, f"{option.parent.name}={option.stem}"
    for experiment in (config_folder(package) / "exp").glob("*.yaml"):
        number = re.sub(r".*_", "..._", experiment.stem)
        assert experiment.stem in text or number in text, experiment.stem
