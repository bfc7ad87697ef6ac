"""The shape of the code: which module may import which, what is imported at all, and how large things are."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = [name for name in ("visar", "conceptformer") if (ROOT / name).is_dir()]
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# From the bottom up; a module may import its own layer and those below. A name with a dot at its end is a package.
LAYERS = {
    "visar": (
        ("records", ("errors", "records")),
        ("pure math", ("adaptive_k", "algorithm", "late_interaction", "matches", "metrics", "selection", "significance",
                       "similarity", "stopwatch", "weights")),
        ("adapters", ("benchmarks.", "documents.", "encoders.", "report.", "store", "tensor_files")),
        ("assembly", ("page_encoding", "selectors.", "worker_processes")),
        ("stages", ("evaluation", "indexing", "run_folder", "summary")),
        ("commands", ("ask", "command_line", "config_keys", "eval", "progress")),
    ),
    "conceptformer": (
        ("contracts", ("backbones.protocol", "errors", "records", "step.batch")),
        ("pure math", ("losses", "pooling", "regions", "training.bucketing")),
        ("adapters", ("adapter_files", "backbones.", "concept_tokens", "data.", "drawn.", "hub", "inference",
                      "processes", "published", "questions", "step.gather")),
        ("assembly", ("adapters", "baselines.", "benchmarks.", "checkpoint", "concepts.", "manifest", "opendocvqa.",
                      "probe", "proposals.", "retrieval.", "retriever", "step.")),
        ("stages", ("box_files.", "plan.", "report.", "training.")),
        ("commands", ("boxes", "eval", "opendocvqa.__main__", "pairs", "propose", "run_config", "table", "train")),
    ),
}  # fmt: skip
PURE = {"adaptive_k", "late_interaction", "metrics", "significance", "similarity", "weights"}
COMMANDS = {
    "visar.ask", "visar.command_line", "visar.config_keys", "visar.eval", "conceptformer.boxes", "conceptformer.eval",
    "conceptformer.opendocvqa.__main__", "conceptformer.pairs", "conceptformer.propose", "conceptformer.run_config",
    "conceptformer.table", "conceptformer.train",
}  # fmt: skip
# What truly is one thing for both packages lives in visar, and conceptformer imports it by its public name.
SHARED = {
    "visar", "visar.benchmarks.hub", "visar.benchmarks.page_numbers", "visar.benchmarks.protocol",
    "visar.benchmarks.question_files", "visar.command_line", "visar.documents", "visar.documents.discovery",
    "visar.documents.images", "visar.documents.ocr", "visar.encoders.checkpoints", "visar.errors", "visar.metrics",
    "visar.progress", "visar.records", "visar.report.axes", "visar.report.images", "visar.report.page",
    "visar.report.wording", "visar.run_folder", "visar.significance", "visar.tensor_files",
}  # fmt: skip
# A selection shows itself in notebooks; the import happens only there.
UPWARDS = {("visar.selection", "visar.report.selection_html")}

HEAVY = (
    "hydra", "matplotlib", "omegaconf", "onnxruntime", "peft", "pytesseract", "rapidocr", "reportlab",
    "sentence_transformers", "sklearn", "transformers",
)  # fmt: skip
MAX_FILE, MAX_FUNCTION = 300, 50


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in SOURCES}


def imports(path: Path) -> Iterator[str]:
    """Full names of what a file imports, inside functions too; of ``from a import b`` the module a.b if it is one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else str(node.module)


def layer(module: str) -> int:
    package, _, rest = module.partition(".")
    for height, (_, members) in enumerate(LAYERS[package]):
        if any(rest == name.rstrip(".") or (name.endswith(".") and rest.startswith(name)) for name in members):
            return height
    raise AssertionError(f"{module}: in no layer of tests/test_architecture.py; put it into one")


def inner_imports(package: str) -> set[tuple[str, str]]:
    """All (importer, imported) pairs within a package, its ``__init__`` aside, which gathers the public names."""
    return {
        (module, name)
        for module, path in MODULES.items()
        if module.startswith(f"{package}.")
        for name in imports(path)
        if name.startswith(f"{package}.")
    }


def test_every_package_has_its_layers():
    assert set(LAYERS) == set(PACKAGES)


@pytest.mark.parametrize("package", list(LAYERS))
def test_imports_point_downwards(package):
    wrong = {pair for pair in inner_imports(package) if layer(pair[0]) < layer(pair[1])}
    assert wrong == {pair for pair in UPWARDS if pair[0].startswith(f"{package}.")}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_modules_need_each_other(package):
    pairs = inner_imports(package) - UPWARDS
    below = {module: {name for importer, name in pairs if importer == module} for module in MODULES}

    def reaches(start: str) -> set[str]:
        seen, waiting = set(), list(below[start])
        while waiting:
            name = waiting.pop()
            if name not in seen:
                seen.add(name)
                waiting += below[name]
        return seen

    assert [module for module in MODULES if module in reaches(module)] == []


def test_pure_math_needs_nothing_but_math():
    allowed = {f"visar.{name}" for name in PURE | {"errors", "records"}}
    assert {name for module, name in inner_imports("visar") if module.removeprefix("visar.") in PURE} <= allowed
    formulas = {"conceptformer.losses", "conceptformer.pooling"}
    needed = {name for module, name in inner_imports("conceptformer") if module in formulas}
    assert needed <= formulas | {"conceptformer.errors"}


def test_configs_are_known_to_the_commands_alone():
    config_libraries = {"hydra", "omegaconf"}
    knowing = {name for name, path in MODULES.items() if config_libraries & {i.split(".")[0] for i in imports(path)}}
    assert knowing == COMMANDS


def test_the_packages_share_what_is_listed_and_nothing_else():
    crossing = {
        (module.split(".")[0], name)
        for module, path in MODULES.items()
        for name in imports(path)
        if name.split(".")[0] in PACKAGES and name.split(".")[0] != module.split(".")[0]
    }
    assert crossing == {("conceptformer", name) for name in SHARED}


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_the_method_loads_no_heavy_library():
    loaded = loaded_by("import visar")
    assert "torch" in loaded
    assert loaded.isdisjoint({*HEAVY, "PIL", "jinja2", "pypdfium2", "rich", "scipy"})


def test_the_formulas_of_training_load_no_heavy_library():
    loaded = loaded_by("import conceptformer")
    assert "torch" in loaded
    assert loaded.isdisjoint({*HEAVY, "jinja2", "pypdfium2", "rich", "scipy"})


def test_the_library_loads_a_heavy_library_only_where_it_is_used():
    parts = ("benchmarks", "documents", "encoders", "evaluation", "indexing", "selectors", "summary")
    loaded = loaded_by("import " + ", ".join(f"visar.{part}" for part in parts))
    assert loaded.isdisjoint({*HEAVY, "pypdfium2"})


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_runs_code_from_data(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert roots.isdisjoint({"cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"})
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"eval", "exec", "torch.load", "yaml.load"}, f"line {node.lineno} calls {called}"
            assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords), f"line {node.lineno}"


@pytest.mark.parametrize("path", [*SOURCES, *SCRIPTS, *TESTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_named_for_an_idea_and_of_a_size_to_be_read(path):
    assert path.stem not in {"common", "helpers", "misc", "util", "utils"}
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_FILE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # Without the docstring, which should be as long as it has to be.
            first = node.body[1 if ast.get_docstring(node) is not None and len(node.body) > 1 else 0]
            assert node.end_lineno - first.lineno < MAX_FUNCTION, f"{node.name} is too long"
