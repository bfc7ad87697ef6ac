"""Models come back as they were saved; full-size ones are built without weights."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2_5_VLForConditionalGeneration

from conceptformer.backbones import checkpoint_folder
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concept_tokens import CONCEPT, concept_token_ids
from conceptformer.errors import CheckpointError
from tests.conceptformer.tiny_models import (
    REAL_TOKENIZER,
    SETTINGS,
    needs_real_tokenizer,
    noise_image,
    sequence_states,
    tiny_backbone,
    tiny_folder,
)
from visar.tensor_files import StoreError

SEVEN_BILLION = {
    "text_config": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": [16, 24, 24]},
    },
    "vision_config": {"hidden_size": 1280, "out_hidden_size": 3584},
}


def test_a_saved_model_comes_back_with_equal_outputs(tmp_path):
    trained = tiny_backbone()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in trained.model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator)
    trained.save_pretrained(tmp_path / "saved")
    loaded = tiny_backbone(tmp_path / "saved")
    assert torch.equal(sequence_states(loaded), sequence_states(trained))
    # Trained rows of concept tokens are kept, not started again.
    slot = loaded.inputs.tokenizer.convert_tokens_to_ids(CONCEPT)
    table = loaded.model.language_model.embed_tokens.weight
    assert torch.equal(table[slot], trained.model.language_model.embed_tokens.weight[slot])
    assert not torch.allclose(table[slot], table[: slot - 1].mean(dim=0), atol=1e-3)
    # Once more over itself, and by transformers alone.
    loaded.save_pretrained(tmp_path / "saved")
    assert torch.equal(sequence_states(tiny_backbone(tmp_path / "saved")), sequence_states(trained))
    whole = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "saved")
    assert torch.equal(whole.model.language_model.norm.weight, trained.model.language_model.norm.weight)


def test_many_files_replace_the_one_that_stood_there(tmp_path, monkeypatch):
    tiny_backbone().save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_text("kept")
    (tmp_path / ".writing-by-one-that-was-killed").mkdir()
    changed = tiny_backbone()
    with torch.no_grad():
        changed.model.language_model.norm.weight += 1
    # Files of the size that 7 billion parameters need would take a while.
    monkeypatch.setattr(checkpoint_folder, "_SHARD", "200KB")
    changed.save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 1
    assert not list(tmp_path.glob(".writing-*"))
    assert (tmp_path / "notes.txt").read_text() == "kept"
    assert torch.equal(sequence_states(tiny_backbone(tmp_path)), sequence_states(changed))


def test_what_could_not_be_saved_whole_is_not_taken_for_a_checkpoint(tmp_path):
    folder = shutil.copytree(tiny_folder(), tmp_path / "copy")
    # A folder stands where a file belongs: the writing stops half way.
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").mkdir()
    with pytest.raises(StoreError):
        tiny_backbone().save_pretrained(folder)
    assert not (folder / "config.json").exists()
    with pytest.raises(CheckpointError, match="its config cannot be loaded"):
        tiny_backbone(folder)


def test_a_model_with_adapters_is_not_saved_as_a_plain_one(tmp_path):
    backbone = tiny_backbone()
    get_peft_model(backbone.model, LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(CheckpointError, match="merge or unload the adapters first"):
        backbone.save_pretrained(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@needs_real_tokenizer
def test_the_full_size_model_is_built_without_weights():
    full = Qwen2_5_VL.without_weights(REAL_TOKENIZER, SEVEN_BILLION)
    # 8,292,166,656 parameters are published; 152,064 x 3,584 of them are the head.
    assert sum(weight.numel() for weight in full.model.parameters()) == 8_292_166_656 - 152_064 * 3_584
    assert {weight.device.type for weight in full.model.parameters()} == {"meta"}
    assert full.model.dtype == torch.bfloat16
    assert full.hidden_size == 3584
    assert concept_token_ids(full.inputs.tokenizer) == (151666, 151665, 151667)
    assert full.model.language_model.embed_tokens.num_embeddings == 152_064
    assert full.describe()["name"] is None
    # A letter page at 200 dpi.
    grid = full.inputs.grid_of((1700, 2200))
    assert len(full.inputs.prefix_ids(grid)) > len(grid) == 1240


def test_a_model_without_weights_has_the_shapes_of_the_loaded_one():
    config = json.loads((tiny_folder() / "config.json").read_text())
    architecture = {name: config[name] for name in ("text_config", "vision_config", "image_token_id")}
    empty = Qwen2_5_VL.without_weights(tiny_folder(), architecture, dtype="float32", settings=SETTINGS)
    shapes = {name: weight.shape for name, weight in tiny_backbone().model.state_dict().items()}
    assert {name: weight.shape for name, weight in empty.model.state_dict().items()} == shapes
    page = empty.inputs.read_page(noise_image(100, 150))
    features = empty.embed_images(page.pixels.to("meta"), [page.grid])
    assert (features.device.type, features.shape) == ("meta", (len(page.grid), 64))
    positions, _ = empty.prefix_positions(empty.inputs.prefix_ids(page.grid), page.grid)
    assert positions.device.type == "cpu"
    embeddings = torch.empty(2, 5, 64, device="meta")
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool, device="meta")
    places = torch.zeros(3, 2, 5, dtype=torch.long, device="meta")
    assert empty.hidden_states(embeddings, places, mask).shape == (2, 5, 64)


@pytest.mark.parametrize(
    "architecture",
    [{"text_config": {"hidden_size": "wide"}}, {"text_config": {"hidden_size": 65, "num_attention_heads": 4}}],
)
def test_an_architecture_of_no_model_is_refused(architecture):
    with pytest.raises(CheckpointError, match="architecture: no Qwen2.5-VL can be made of it"):
        Qwen2_5_VL.without_weights(tiny_folder(), architecture)
