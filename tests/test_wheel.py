"""The package as people get it: a wheel, installed away from the checkout, with its configs and templates."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.visar.made_documents import draw_pdf, lines

ROOT = Path(__file__).parents[1]
PACKAGES = ("visar", "conceptformer")


def python(*arguments: str, folder: Path, installed: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if installed is not None:
        # In front of everything, an editable installation of the checkout included.
        environment["PYTHONPATH"] = str(installed)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = ("-m", "pip", "--disable-pip-version-check")
    built = python(*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT), folder=folder)
    if built.returncode != 0 and "hatchling" in built.stderr and "No matching distribution" in built.stderr:
        pytest.skip("no package index to get the build backend hatchling from")
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    pip = ("-m", "pip", "--disable-pip-version-check")
    done = python(*pip, "install", "--no-deps", "--no-index", "--target", str(folder), str(wheel), folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_holds_the_packages_their_configs_and_their_templates(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        wanted = {
            path.relative_to(ROOT).as_posix()
            for pattern in ("*.py", "*.j2", "*.csv", "*.schema.json")
            for path in (ROOT / package).rglob(pattern)
        }
        configs = ROOT / "configs" / package
        wanted |= {f"{package}/configs/{path.relative_to(configs).as_posix()}" for path in configs.rglob("*.yaml")}
        assert {name for name in names if name.startswith(f"{package}/") and not name.endswith(".md")} == wanted
    (rest,) = {name.split("/")[0] for name in names} - set(PACKAGES)
    assert rest.startswith("evidence_retrieval-") and rest.endswith(".dist-info")
    assert f"{rest}/licenses/LICENSE" in names


def test_an_installed_package_finds_its_configs(installed, tmp_path):
    done = python("-m", "visar.eval", "--help", folder=tmp_path, installed=installed)
    assert done.returncode == 0, done.stderr
    assert "encoder: colbertv2, colmodernvbert" in done.stdout
    assert "exp: sensitivity_leakage_weight" in done.stdout


def test_the_installed_trainer_finds_its_configs(installed, tmp_path):
    done = python("-m", "conceptformer.train", "--help", folder=tmp_path, installed=installed)
    assert done.returncode == 0, done.stderr
    assert "backbone: qwen2_5_vl_7b, tiny" in done.stdout


def test_an_installed_package_answers_a_question(installed, tmp_path):
    draw_pdf(
        tmp_path / "report.pdf", lines(["Bees store honey."]), lines(["Revenue rose."]), lines(["Whales eat krill."])
    )
    where = python("-c", "import visar; print(visar.__file__)", folder=tmp_path, installed=installed)
    assert where.stdout.strip() == str(installed / "visar" / "__init__.py")
    arguments = ("document=report.pdf", "question=What do whales eat?", "cache=cache", "ocr=none")
    done = python("-m", "visar.ask", *arguments, folder=tmp_path, installed=installed)
    assert done.returncode == 0, done.stderr
    assert "of 3 pages" in done.stdout
    assert done.stderr == ""
    assert (tmp_path / "runs" / "ask" / "report.pdf.html").stat().st_size > 10_000
