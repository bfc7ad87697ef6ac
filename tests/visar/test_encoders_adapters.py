"""Adapters in colpali-engine's layout: written by peft itself, merged by us, and equal to peft's own forward pass."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoProcessor

from tests.visar.tiny_checkpoints import page_image, save_colmodernvbert, save_colpali, save_colqwen
from visar.encoders import MultiVector, PageContent, colpali_engine
from visar.errors import EmbeddingError

peft = pytest.importorskip("peft", reason="peft writes the adapters that these tests read")

PAGE = [PageContent(image=page_image(40, 32))]
LAYERS = "down_proj|gate_proj|up_proj|k_proj|q_proj|v_proj|o_proj"
TARGETS = {
    # The first is that of the published adapters of ColPali; the others are of the same make.
    "colpali": rf"(.*(language_model).*({LAYERS}).*$|.*(custom_text_proj).*$)",
    "colqwen": rf"(.*(model).*({LAYERS}).*$|.*(custom_text_proj).*$)",
    "colmodernvbert": r"(.*(text_model).*(Wqkv|Wo|Wi).*$|.*(custom_text_proj).*$)",
}


def container(**modules: nn.Module) -> nn.Module:
    holder = nn.Module()
    for name, module in modules.items():
        holder.add_module(name, module)
    return holder


def as_colpali_engine_names_it(kind: str, model: nn.Module) -> nn.Module:
    """The same modules under the names that colpali-engine's classes gave them when these checkpoints were saved."""
    backbone, projection = model.vlm, model.embedding_proj_layer
    head = nn.Linear(32, 5, bias=False)
    if kind == "colpali":
        language = container(model=backbone.language_model, lm_head=head)
        vision = container(vision_model=backbone.vision_tower)
        projector = backbone.multi_modal_projector
        whole = container(language_model=language, vision_tower=vision, multi_modal_projector=projector)
        return container(model=whole, custom_text_proj=projection)
    if kind == "colqwen":
        return container(
            model=backbone.language_model, visual=backbone.visual, lm_head=head, custom_text_proj=projection
        )
    return container(model=backbone, custom_text_proj=projection)


def save_adapter(kind: str, folder: Path) -> SimpleNamespace:
    """A base, an adapter on it, and what the network with the unmerged adapter makes of a page."""
    save = {"colpali": save_colpali, "colqwen": save_colqwen, "colmodernvbert": save_colmodernvbert}[kind]
    native, base, adapter = folder / "native", folder / "base", folder / "adapter"
    model = save(native)
    engine = as_colpali_engine_names_it(kind, model)
    base.mkdir()
    save_file({name: tensor.clone() for name, tensor in engine.state_dict().items()}, base / "model.safetensors")
    config = model.config.vlm_config.to_dict() | {"architectures": ["ColEngine"]}
    (base / "config.json").write_text(json.dumps(config), encoding="utf-8")
    settings = peft.LoraConfig(
        r=3, lora_alpha=12, target_modules=TARGETS[kind], init_lora_weights="gaussian", task_type="FEATURE_EXTRACTION"
    )
    adapted = peft.get_peft_model(engine, settings)
    # peft puts its layers into the very modules of `model`, which from here on computes with the adapter, unmerged.
    # Only the projection hangs directly on `model`, under another name.
    model.embedding_proj_layer = engine.custom_text_proj
    torch.manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(weight, std=0.3)
    adapted.save_pretrained(adapter)
    processor = AutoProcessor.from_pretrained(native)
    # The files of the time: a tokenizer, an image processor and, for ModernVBERT, the number of tokens in a tile.
    processor.tokenizer.save_pretrained(adapter)
    processor.image_processor.save_pretrained(adapter)
    if kind == "colmodernvbert":
        (adapter / "processor_config.json").write_text('{"image_seq_len": 4}', encoding="utf-8")
    inputs = processor.process_images([PAGE[0].image])
    if kind == "colqwen":
        is_image = (inputs["input_ids"] == model.config.vlm_config.image_token_id).int()
        inputs["position_ids"], _ = model.vlm.get_rope_index(
            inputs["input_ids"], is_image, image_grid_thw=inputs["image_grid_thw"]
        )
    with torch.no_grad():
        expected = model.eval()(**inputs).embeddings[0]
    return SimpleNamespace(native=native, base=base, adapter=adapter, expected=expected, cache=folder / "cache")


@pytest.fixture(scope="module", params=list(TARGETS))
def saved(request, tmp_path_factory):
    return save_adapter(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def colpali(tmp_path):
    return save_adapter("colpali", tmp_path)


def encoder(saved: SimpleNamespace, **settings: object) -> MultiVector:
    return MultiVector(
        saved.adapter, **{"needs": "image", "base": saved.base, "cache": saved.cache, "device": "cpu", **settings}
    )


def test_a_merged_adapter_equals_pefts_own_forward_pass(saved):
    (found,) = encoder(saved).encode_pages(PAGE)
    (without,) = MultiVector(saved.native, needs="image", device="cpu").encode_pages(PAGE)
    assert torch.allclose(found.vectors, saved.expected, atol=1e-5)
    assert (found.vectors - without.vectors).abs().max() > 0.01, "an adapter that changes nothing shows nothing"


def test_merging_happens_once_and_leaves_nothing_unfinished(saved):
    encoder(saved).encode_query("growth")
    (merged,) = saved.cache.iterdir()
    before = {path: path.stat().st_mtime_ns for path in merged.iterdir()}
    encoder(saved).encode_query("growth")
    assert list(saved.cache.iterdir()) == [merged]
    assert {path: path.stat().st_mtime_ns for path in merged.iterdir()} == before


def test_base_and_adapter_are_both_part_of_the_fingerprint(saved):
    usual = encoder(saved).fingerprint()
    assert usual["weights"] != usual["base_weights"]
    assert encoder(saved, base=saved.native).fingerprint() != usual


def test_the_rules_of_merging_are_part_of_the_fingerprint(saved, monkeypatch):
    before = encoder(saved).fingerprint()
    monkeypatch.setattr(colpali_engine, "MERGING_VERSION", "other")
    assert encoder(saved).fingerprint() == before | {"merging": "other"} != before


def test_an_unknown_home_folder_is_one_line_that_says_what_to_set(colpali, monkeypatch):
    def nobody(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(EmbeddingError, match="the home folder is unknown.*: set cache to a folder"):
        encoder(colpali, cache=None).encode_query("growth")
    with pytest.raises(EmbeddingError, match="~/merged: the home folder is unknown; write the path out in full"):
        encoder(colpali, cache="~/merged").encode_query("growth")


def test_an_adapter_without_its_base_is_refused(saved):
    with pytest.raises(EmbeddingError, match="is a LoRA adapter: give its base .* and base_revision"):
        encoder(saved, base=None).encode_query("growth")


def change(path: Path, **settings: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings), encoding="utf-8")


@pytest.mark.parametrize(
    "setting", [{"use_dora": True}, {"rank_pattern": {"q_proj": 8}}, {"peft_type": "IA3"}, {"fan_in_fan_out": True}]
)
def test_an_adapter_of_another_kind_is_refused(colpali, setting):
    change(colpali.adapter / "adapter_config.json", **setting)
    with pytest.raises(EmbeddingError, match="is not a plain LoRA adapter"):
        encoder(colpali).encode_query("growth")


def test_an_adapter_of_zeros_is_refused(colpali):
    path = colpali.adapter / "adapter_model.safetensors"
    save_file({name: torch.zeros_like(tensor) for name, tensor in load_file(path).items()}, path)
    with pytest.raises(EmbeddingError, match="changes nothing: all its lora_B weights are zero"):
        encoder(colpali).encode_query("growth")


def test_an_adapter_for_layers_that_the_base_lacks_is_refused(colpali):
    path = colpali.adapter / "adapter_model.safetensors"
    weights = {name.replace("layers.0.", "layers.7."): tensor for name, tensor in load_file(path).items()}
    save_file(weights, path)
    with pytest.raises(EmbeddingError, match=r"does not fit its base: no weight .*layers\.7\."):
        encoder(colpali).encode_query("growth")


def test_half_of_a_pair_is_refused(colpali):
    path = colpali.adapter / "adapter_model.safetensors"
    weights = load_file(path)
    weights.pop(next(name for name in weights if "lora_A" in name))
    save_file(weights, path)
    with pytest.raises(EmbeddingError, match="half of its pair missing"):
        encoder(colpali).encode_query("growth")


def test_a_base_that_lacks_a_weight_is_refused_and_nothing_is_kept(colpali):
    path = colpali.base / "model.safetensors"
    weights = load_file(path)
    weights.pop(next(name for name in weights if name.endswith("multi_modal_projector.linear.bias")))
    save_file(weights, path)
    with pytest.raises(EmbeddingError, match="does not fit ColPaliForRetrieval: 1 missing_keys, such as vlm.multi_"):
        encoder(colpali).encode_query("growth")
    assert list(colpali.cache.iterdir()) == []


def test_a_base_without_projection_or_of_another_kind_is_refused(colpali):
    path = colpali.base / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if "custom" not in name}, path)
    with pytest.raises(EmbeddingError, match="has no custom_text_proj"):
        encoder(colpali).encode_query("growth")
    change(colpali.base / "config.json", model_type="bert")
    with pytest.raises(EmbeddingError, match="is of type bert, expected a base among"):
        encoder(colpali).encode_query("growth")


def test_a_folder_that_cannot_be_written_is_one_line(colpali):
    colpali.cache.touch()
    with pytest.raises(EmbeddingError, match="cannot be written") as caught:
        encoder(colpali).encode_query("growth")
    assert "\n" not in str(caught.value)


def test_a_damaged_configuration_of_an_adapter_is_one_line(colpali):
    (colpali.adapter / "adapter_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(EmbeddingError, match=r"adapter_config\.json cannot be read") as caught:
        encoder(colpali, base=None).encode_query("growth")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_understood_are_one_line(colpali):
    (colpali.adapter / "preprocessor_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(EmbeddingError, match="cannot be") as caught:
        encoder(colpali).encode_query("growth")
    assert "\n" not in str(caught.value)
    assert list(colpali.cache.iterdir()) == []
