"""Checkpoints that lack weights, which the libraries would fill with random numbers without an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import MultiVectorEncoder

from tests.visar.tiny_checkpoints import save_colbert, save_colmodernvbert, save_colpali, save_colqwen
from visar.encoders import MultiVector, TokenStates, checkpoints
from visar.errors import EmbeddingError

SAVE = {
    "colpali": save_colpali,
    "colqwen": save_colqwen,
    "colmodernvbert": save_colmodernvbert,
    "colbert": save_colbert,
}
# A weight of the language model and one of another part, each by the end of its name.
GAPS = [
    ("colpali", "layers.0.self_attn.q_proj.weight"),
    ("colpali", "embedding_proj_layer.weight"),
    ("colqwen", "language_model.layers.0.self_attn.q_proj.weight"),
    ("colqwen", "visual.merger.mlp.2.bias"),
    ("colmodernvbert", "text_model.layers.0.attn.Wqkv.weight"),
    ("colmodernvbert", "embedding_proj_layer.bias"),
    ("colbert", "layer.0.attention.self.query.weight"),
    ("colbert", "embeddings.LayerNorm.bias"),
]


def encoder(kind: str, folder: Path) -> MultiVector:
    return MultiVector(folder, needs="text" if kind == "colbert" else "image", device="cpu")


def remove(path: Path, ending: str) -> None:
    weights = load_file(path)
    del weights[next(name for name in weights if name.endswith(ending))]
    save_file(weights, path, metadata={"format": "pt"})


@pytest.mark.parametrize("kind", list(SAVE))
def test_complete_checkpoints_load_and_say_the_same_twice(kind, tmp_path):
    """Also what no embedding depends on may be missing: ColBERT's checkpoints have no pooler."""
    SAVE[kind](tmp_path)
    one, other = (encoder(kind, tmp_path).encode_query("what is the revenue") for _ in range(2))
    assert torch.equal(one.vectors, other.vectors)


@pytest.mark.parametrize(("kind", "ending"), GAPS)
def test_a_missing_weight_is_refused_and_named(kind, ending, tmp_path):
    SAVE[kind](tmp_path)
    remove(tmp_path / "model.safetensors", ending)
    with pytest.raises(EmbeddingError, match="lacks 1 weights of .*, such as ") as caught:
        encoder(kind, tmp_path).encode_query("what is the revenue")
    named = str(caught.value).rpartition("such as ")[2].partition(":")[0]
    assert named.endswith(ending)
    assert "\n" not in str(caught.value)


def test_the_librarys_own_format_is_looked_through_in_its_folder_too(tmp_path):
    """Older checkpoints of sentence-transformers have the network in a folder of its own."""
    stanford, saved = tmp_path / "stanford", tmp_path / "saved"
    save_colbert(stanford)
    MultiVectorEncoder(str(stanford), device="cpu").save_pretrained(str(saved))
    modules = json.loads((saved / "modules.json").read_text(encoding="utf-8"))
    inner = saved / "0_Transformer"
    inner.mkdir()
    for path in list(saved.iterdir()):
        if path.is_file() and path.name not in ("modules.json", "config_sentence_transformers.json"):
            shutil.move(path, inner / path.name)
    modules[0]["path"] = inner.name
    (saved / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    whole = encoder("colbert", saved).encode_query("what is the revenue").vectors
    assert torch.allclose(whole, encoder("colbert", stanford).encode_query("what is the revenue").vectors, atol=1e-6)
    remove(inner / "model.safetensors", "layer.0.attention.self.query.weight")
    with pytest.raises(EmbeddingError, match="lacks 1 weights of BertModel, such as encoder.layer.0"):
        encoder("colbert", saved).encode_query("what is the revenue")


def test_only_what_no_embedding_depends_on_may_be_missing(tmp_path):
    unused = {"pooler.dense.weight", "lm_head.weight", "vlm.lm_head.weight"}
    checkpoints.refuse_gaps(tmp_path, "a network", {"missing_keys": unused})
    with pytest.raises(EmbeddingError, match=r"lacks 2 weights of a network, such as vlm\.pooler\.weight"):
        used = {"vlm.pooler.weight", "vlm.pooler_layers.weight"}
        checkpoints.refuse_gaps(tmp_path, "a network", {"missing_keys": unused | used})


def test_the_text_encoder_refuses_gaps_as_well(tmp_path):
    folder = shutil.copytree(checkpoints.packaged_minilm(), tmp_path / "model")
    remove(folder / "model.safetensors", "encoder.layer.3.output.dense.weight")
    with pytest.raises(EmbeddingError, match=r"lacks 1 weights.*encoder\.layer\.3\.output\.dense\.weight"):
        TokenStates(folder).encode_query("What is missing?")
