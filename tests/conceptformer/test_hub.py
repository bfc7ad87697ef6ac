"""Checkpoints by their names on the hub: from a cache as the hub's own client lays it out, without a connection."""

from __future__ import annotations

import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from conceptformer.adapters import LowRankAdaptation
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.checkpoint import save_checkpoint
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.errors import CheckpointError
from conceptformer.hub import local_folder
from conceptformer.manifest import Manifest
from conceptformer.retriever import ConceptFormer
from tests.conceptformer.small_training import manifest_of, train_steps
from tests.conceptformer.tiny_models import SETTINGS, tiny_folder

FIRST, SECOND = "1" * 40, "2" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no connection."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def put(cache: Path, name: str, commit: str, content: Path) -> Path:
    """Lay a folder into the cache as a repository's commit, the main branch's newest."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    snapshot = repository / "snapshots" / commit
    shutil.copytree(content, snapshot)
    return snapshot


def test_a_folder_is_itself_and_a_name_is_what_the_cache_has_at_that_revision(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "content").mkdir()
    first, second = (put(cache, "owner/name", commit, tmp_path / "content") for commit in (FIRST, SECOND))
    assert local_folder(tmp_path, None) == tmp_path
    assert local_folder("owner/name", None) == second
    assert local_folder("owner/name", FIRST) == first


def test_what_cannot_be_fetched_is_an_error_of_one_line(cache: Path) -> None:
    with pytest.raises(CheckpointError, match="owner/unknown: cannot be fetched from the hub") as caught:
        local_folder("owner/unknown", None)
    assert "\n" not in str(caught.value)


def test_an_adapter_goes_back_to_the_commit_of_its_base_when_the_hub_has_a_newer_one(
    cache: Path, tmp_path: Path
) -> None:
    put(cache, "owner/base", FIRST, tiny_folder())
    backbone = Qwen2_5_VL.from_pretrained("owner/base", dtype="float32", settings=SETTINGS)
    adaptation = LowRankAdaptation()
    adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    train_steps(backbone)
    made = tmp_path / "made"
    save_checkpoint(made, backbone, adaptation, manifest_of(backbone, adaptation))
    described = Manifest.read(made).backbone
    assert (described["name"], described["commit"]) == ("owner/base", FIRST)
    assert "relative_path" not in described
    put(cache, "owner/made", SECOND, made)
    # The newer commit of the base holds nothing that could be loaded.
    (tmp_path / "nothing").mkdir()
    put(cache, "owner/base", SECOND, tmp_path / "nothing")
    loaded = ConceptFormer.from_pretrained("owner/made", device="cpu")
    queries = ["red", "the blue circle"]
    assert np.array_equal(loaded.encode_queries(queries), ConceptFormer(backbone, "live").encode_queries(queries))
