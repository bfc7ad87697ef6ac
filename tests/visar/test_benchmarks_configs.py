"""The configs of the benchmarks build the loaders, at fixed revisions and with the settings that the README names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from tests.visar.benchmark_files import write_json, write_pdf
from visar.benchmarks import Folder, LongDocUrl, MMLongBench

CONFIGS = Path(__file__).parents[2] / "configs" / "visar"


def built(*overrides):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return instantiate(compose(overrides=list(overrides)).dataset)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("mmlongbench", MMLongBench), ("mmlongbench_2025", MMLongBench), ("longdocurl", LongDocUrl)],
)
def test_benchmarks_on_the_hub_are_pinned_to_a_commit(name, kind):
    benchmark = built(f"+dataset={name}")
    assert type(benchmark) is kind
    assert benchmark.root is None
    assert re.fullmatch("[0-9a-f]{40}", benchmark.hub.revision)
    assert list(benchmark.hub.files)


def test_a_local_folder_takes_the_place_of_the_hub(tmp_path):
    write_pdf(tmp_path / "documents" / "a.pdf", 1)
    row = {"doc_id": "a.pdf", "question": "Who?", "evidence_pages": "[1]", "answer": "x"}
    write_json(tmp_path / "samples.json", [row])
    assert len(built("+dataset=mmlongbench", f"dataset.root={tmp_path}").load().questions) == 1
    write_json(tmp_path / "samples.json", [{**row, "question_id": "q", "evidence_pages": [0]}])
    loaded = built("+dataset=longdocurl", f"dataset.root={tmp_path}", "dataset.page_base=0").load()
    assert loaded.questions[0].evidence_pages == (0,)


def test_own_documents_need_two_settings(tmp_path):
    write_pdf(tmp_path / "a.pdf", 1)
    questions = write_json(tmp_path / "own.json", [{"document": "a.pdf", "question": "Who?"}])
    benchmark = built("+dataset=folder", f"dataset.documents={tmp_path}", f"dataset.questions={questions}")
    assert type(benchmark) is Folder
    assert len(benchmark.load().questions) == 1
