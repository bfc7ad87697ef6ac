"""``python -m conceptformer.eval`` with an adapter that another program saved, on the weights that it belongs to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import peft
import pytest
from safetensors.torch import load_file, save_file

from conceptformer.data.images import open_image
from conceptformer.data.retrieval_files import read_retrieval_folder, write_retrieval_folder
from conceptformer.retriever import ConceptFormer
from tests.conceptformer.colour_pages import make_task
from tests.conceptformer.released_adapter import page_state, query_state, write_release
from tests.conceptformer.test_eval_command import FILES, metrics_in, rows_in, run
from tests.conceptformer.test_hub import put
from tests.conceptformer.tiny_models import SETTINGS, tiny_backbone, tiny_folder

FIRST, SECOND = "a" * 40, "b" * 40
CHOICE = ("retriever=conceptformer_adapter", *FILES)
SMALL = (
    "retriever.device=cpu",
    "retriever.backbone.dtype=float32",
    f"retriever.backbone.settings.max_pixels={SETTINGS.max_pixels}",
)
LOCAL = (*CHOICE, *SMALL, "checkpoint=release", "retriever.backbone.revision=null")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, peft.PeftModel]:
    """Seven pages and three queries in ``data``, and an adapter in ``release``."""
    folder = tmp_path_factory.mktemp("made")
    write_retrieval_folder(folder / "data", make_task(folder / "data" / "images", 7))
    return folder, write_release(folder / "release")


@pytest.fixture
def here(made, tmp_path) -> Path:
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_an_adapter_ranks_as_transformers_own_class_does_with_it(made, here):
    outcome = run(*LOCAL, f"retriever.backbone.name_or_folder={tiny_folder()}", folder=here)
    assert (outcome.status, outcome.err) == (0, "")
    assert "loading release" in outcome.out.splitlines()
    out = here / "runs" / "conceptformer" / "eval" / "files-data" / "release"
    assert metrics_in(out)["retriever"] == "ConceptFormer (adapter)"
    task, backbone = read_retrieval_folder(here / "data", skip_bad_rows=False), tiny_backbone()
    pages = {
        page.page_id: page_state(made[1], backbone, backbone.inputs.read_page(open_image(page.image)))
        for page in task.pages
    }
    for row in rows_in(out):
        query = query_state(made[1], backbone, row["query"])
        scores = {page_id: float(query @ page) for page_id, page in pages.items()}
        assert row["ranking"] == sorted(scores, key=lambda page_id: -scores[page_id])
        assert row["scores"] == pytest.approx([scores[page_id] for page_id in row["ranking"]], abs=1e-5)


def test_adapter_and_weights_may_lie_on_the_hub_each_at_a_commit(here, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(here / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    put(here / "hub", "owner/base", FIRST, tiny_folder())
    put(here / "hub", "owner/adapter", SECOND, here / "release")
    # The newest commits hold nothing that could be loaded.
    (here / "nothing").mkdir()
    for name in ("owner/base", "owner/adapter"):
        put(here / "hub", name, "c" * 40, here / "nothing")
    base = ("retriever.backbone.name_or_folder=owner/base", f"retriever.backbone.revision={FIRST}")
    settings = (*CHOICE, *SMALL, *base, "checkpoint=owner/adapter")
    outcome = run(*settings, folder=here)
    assert (
        "checkpoint: owner/adapter: no such folder; expected one, or a name on the hub and its commit" in outcome.error
    )
    assert run(*settings, "retriever.revision=main", folder=here).error == outcome.error
    outcome = run(*settings, f"retriever.revision={SECOND}", folder=here)
    assert (outcome.status, outcome.err) == (0, "")
    local = run(*LOCAL, f"retriever.backbone.name_or_folder={tiny_folder()}", "output=local", folder=here)
    assert local.status == 0
    hub = here / "runs" / "conceptformer" / "eval" / "files-data" / "owner-adapter"
    assert rows_in(hub) == rows_in(here / "local")


def test_an_adapter_that_names_other_weights_is_told(here, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(here / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    put(here / "hub", "owner/base", FIRST, tiny_folder())
    config = here / "release" / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": "owner/original"}))
    base = ("retriever.backbone.name_or_folder=owner/base", f"retriever.backbone.revision={FIRST}")
    outcome = run(*CHOICE, *SMALL, *base, "checkpoint=release", folder=here)
    assert outcome.status == 0
    assert (
        outcome.err
        == "warning: release: says that its base weights are owner/original, not owner/base; expected those\n"
    )


def test_what_does_not_fit_is_said_in_one_line(here):
    base = f"retriever.backbone.name_or_folder={tiny_folder()}"
    missing = run(*LOCAL[:-2], base, LOCAL[-1], folder=here)
    assert missing.error.startswith("checkpoint: expected the folder of a trained retriever")
    both = run(*LOCAL[:-1], base, folder=here)
    assert "a folder has no revision" in both.error
    (here / "release" / "adapter_model.safetensors").unlink()
    assert "release has no adapter: expected adapter_model.safetensors" in run(*LOCAL, base, folder=here).error


def test_other_weights_in_the_same_local_folder_are_another_retriever(here):
    base = shutil.copytree(tiny_folder(), here / "base")

    def fingerprint() -> str:
        return ConceptFormer.from_adapter(here / "release", tiny_backbone(base), device="cpu").fingerprint()

    before = fingerprint()
    assert fingerprint() == before
    (file,) = base.glob("*.safetensors")
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("embed_tokens.weight"))
    tensors[name] = tensors[name] + np.float32(0.01)
    save_file(tensors, file, metadata={"format": "pt"})
    assert fingerprint() != before
