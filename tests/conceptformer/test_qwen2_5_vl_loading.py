"""Checkpoints are loaded as a whole or not at all, in every layout, and come back as they were saved."""

from __future__ import annotations

import json
import logging
import shutil

import huggingface_hub
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, Qwen2_5_VLModel

from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.errors import CheckpointError
from tests.conceptformer.tiny_models import (
    sequence_states,
    tiny_backbone,
    tiny_folder,
)

HUB = {"": ""}
NEWER = {"visual.": "model.visual.", "model.": "model.language_model."}
WITHOUT_HEAD = {"visual.": "visual.", "model.": "language_model."}
WEIGHTS = "model.safetensors"
TABLE = "model.embed_tokens.weight"


@pytest.fixture
def folder(tmp_path):
    """A copy of the tiny checkpoint that may be spoilt."""
    return shutil.copytree(tiny_folder(), tmp_path / "copy")


@pytest.fixture(scope="module")
def backbone():
    return tiny_backbone()


def change_weights(folder, change):
    tensors = load_file(folder / WEIGHTS)
    save_file(change(tensors), folder / WEIGHTS, metadata={"format": "pt"})


def change_json(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def renamed(tensors, names):
    """Keys with their beginnings exchanged; the head stays only where the keys are those of a whole model."""
    changed = {}
    for key, tensor in tensors.items():
        beginning = next((name for name in names if key.startswith(name)), "")
        changed[names.get(beginning, "") + key.removeprefix(beginning)] = tensor
    if names is WITHOUT_HEAD:
        del changed["lm_head.weight"]
    return changed


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("names", [HUB, NEWER, WITHOUT_HEAD], ids=["hub", "newer", "without head"])
def test_every_layout_loads_the_same_weights(backbone, folder, names, sharded):
    change_weights(folder, lambda tensors: renamed(tensors, names))
    if sharded:
        split(folder)
    loaded = tiny_backbone(folder)
    for (name, weight), other in zip(
        backbone.model.state_dict().items(), loaded.model.state_dict().values(), strict=True
    ):
        assert torch.equal(weight, other), name
    original = load_file(tiny_folder() / WEIGHTS)
    assert torch.equal(loaded.model.language_model.norm.weight, original["model.norm.weight"])
    query = "model.layers.1.self_attn.q_proj.weight"
    assert torch.equal(loaded.model.language_model.layers[1].self_attn.q_proj.weight, original[query])
    assert torch.equal(loaded.model.visual.blocks[0].attn.qkv.weight, original["visual.blocks.0.attn.qkv.weight"])
    loaded.save_pretrained(folder / "saved")
    assert {key.split(".")[0] for key in load_file(folder / "saved" / WEIGHTS)} == {"visual", "language_model"}
    assert torch.equal(sequence_states(tiny_backbone(folder / "saved")), sequence_states(backbone))


def test_the_head_that_is_left_aside_is_not_reported_as_a_fault(caplog):
    # Other loggers hand their records up to the one that caplog listens to; that of transformers does not.
    logging.getLogger("transformers").addHandler(caplog.handler)
    verbosity = transformers.logging.get_verbosity()
    # Commands that ran in this process before have turned it down.
    transformers.logging.set_verbosity_warning()
    try:
        Qwen2_5_VLModel.from_pretrained(tiny_folder())
        assert "lm_head.weight" in caplog.text
        caplog.clear()
        tiny_backbone()
        assert caplog.text == ""
    finally:
        transformers.logging.set_verbosity(verbosity)
        logging.getLogger("transformers").removeHandler(caplog.handler)


def split(folder):
    """One file into three and their index, as the hub has large checkpoints."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    index = {}
    for number in range(3):
        name = f"model-{number + 1:05d}-of-00003.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[number::3]}
        save_file(part, folder / name, metadata={"format": "pt"})
        index |= dict.fromkeys(part, name)
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)


def test_a_config_as_the_hub_has_it_loads(backbone, folder):
    config = json.loads((folder / "config.json").read_text())
    text, vision = config["text_config"], config["vision_config"]
    flat = {name: text[name] for name in text if name not in {"rope_parameters", "layer_types", "model_type"}}
    flat |= {"rope_theta": 1000000.0, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    flat |= {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}
    flat |= {"image_token_id": config["image_token_id"], "torch_dtype": "bfloat16", "use_sliding_window": False}
    flat["vision_config"] = {name: vision[name] for name in vision if name not in {"rope_parameters", "in_channels"}}
    flat["vision_config"] |= {"in_chans": 3, "spatial_patch_size": 14}
    (folder / "config.json").write_text(json.dumps(flat))
    # The hub's file has its pixel budget in names of its own; the settings decide.
    processor = {"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2}
    processor |= {"merge_size": 2, "image_processor_type": "Qwen2VLImageProcessor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    assert torch.equal(sequence_states(tiny_backbone(folder)), sequence_states(backbone))


def test_only_the_head_may_be_left_over(folder):
    change_weights(folder, lambda tensors: tensors | {"model.layers.2.mlp.up_proj.weight": torch.zeros(2)})
    with pytest.raises(CheckpointError, match=r"1 are left over \(.*layers.2.mlp.up_proj.weight\)"):
        tiny_backbone(folder)


@pytest.mark.parametrize("key", ["visual.merger.mlp.0.bias", "model.embed_tokens.weight"])
def test_a_missing_key_is_refused(folder, key):
    change_weights(folder, lambda tensors: {name: tensors[name] for name in tensors if name != key})
    with pytest.raises(CheckpointError, match="1 are missing") as caught:
        tiny_backbone(folder)
    assert key.removeprefix("model.") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_of_another_shape_is_refused(folder):
    change_weights(folder, lambda tensors: tensors | {"model.norm.weight": torch.zeros(65)})
    with pytest.raises(CheckpointError, match=r"1 are of another shape \(language_model.norm.weight\)"):
        tiny_backbone(folder)


def test_damaged_missing_and_pickled_weights_are_refused(folder):
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="its weights cannot be loaded"):
        tiny_backbone(folder)
    (folder / WEIGHTS).unlink()
    torch.save({"model.norm.weight": torch.zeros(64)}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="its weights cannot be loaded .*safetensors"):
        tiny_backbone(folder)


def test_folders_without_their_files_are_refused(folder, tmp_path):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="tokenizer: expected that of Qwen2.5-VL, this one lacks"):
        tiny_backbone(folder)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(CheckpointError, match="its tokenizer cannot be loaded|this one lacks"):
        tiny_backbone(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match="its config cannot be loaded"):
        tiny_backbone(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="its config cannot be loaded"):
        tiny_backbone(folder)
    with pytest.raises(CheckpointError, match="a folder has no revision main; leave the revision out"):
        tiny_backbone(folder, revision="main")
    for name in (tmp_path / "nothing", "./nothing", "nothing", "a/b/c"):
        with pytest.raises(CheckpointError, match="neither a folder nor a hub name"):
            tiny_backbone(name)


def test_checkpoints_of_other_models_are_refused(folder):
    change_json(folder / "config.json", model_type="qwen2_vl")
    with pytest.raises(CheckpointError, match="expected a checkpoint of model type qwen2_5_vl, got qwen2_vl"):
        tiny_backbone(folder)


def test_files_that_do_not_fit_each_other_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    change_json(folder / "config.json", image_token_id=config["image_token_id"] + 1)
    with pytest.raises(CheckpointError, match="image token: the model has"):
        tiny_backbone(folder)
    change_json(folder / "config.json", image_token_id=config["image_token_id"])
    change_json(folder / "preprocessor_config.json", patch_size=16)
    with pytest.raises(CheckpointError, match="patch size: the model has 14, its tokenizer or image processor 16"):
        tiny_backbone(folder)
    (folder / "preprocessor_config.json").unlink()
    change_json(folder / "config.json", text_config=config["text_config"] | {"use_sliding_window": True})
    tiny_backbone(folder)
    windows = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1, "layer_types": None}
    change_json(folder / "config.json", text_config=config["text_config"] | windows)
    with pytest.raises(CheckpointError, match="use_sliding_window: expected false"):
        tiny_backbone(folder)


def test_number_types_and_attentions_without_use_are_refused():
    with pytest.raises(CheckpointError, match="flash attention takes no mask of pairs"):
        tiny_backbone(attention="flash_attention_2")
    with pytest.raises(CheckpointError, match=r"dtype: expected one of \['bfloat16', 'float32'\], got float16"):
        tiny_backbone(dtype="float16")
    loaded = Qwen2_5_VL.from_pretrained(tiny_folder(), dtype=torch.bfloat16)
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.bfloat16}


def test_concept_rows_start_at_the_mean_of_the_tokens_before_them(backbone):
    table = backbone.model.language_model.embed_tokens.weight
    original = load_file(tiny_folder() / WEIGHTS)["model.embed_tokens.weight"]
    ids = concept_token_ids(backbone.inputs.tokenizer)
    assert table.shape == original.shape
    mean = original[: min(ids)].mean(dim=0)
    for token in ids:
        torch.testing.assert_close(table[token], mean, rtol=0, atol=1e-7)
    others = [row for row in range(len(table)) if row not in ids]
    assert torch.equal(table[others], original[others])


def test_a_table_without_spare_rows_grows(folder):
    tokens = len(AutoTokenizer.from_pretrained(folder))
    shrink(folder, tokens)
    loaded = tiny_backbone(folder)
    table = loaded.model.language_model.embed_tokens
    assert table.weight.shape[0] == table.num_embeddings == loaded.model.config.text_config.vocab_size == tokens + 3
    mean = table.weight[:tokens].mean(dim=0)
    torch.testing.assert_close(table.weight[tokens:], mean.expand(3, -1), rtol=0, atol=1e-7)


def test_a_table_without_rows_for_the_tokenizers_own_tokens_is_refused(folder):
    shrink(folder, len(AutoTokenizer.from_pretrained(folder)) - 1)
    with pytest.raises(CheckpointError, match="tokenizer: expected ids below the embedding table's"):
        tiny_backbone(folder)


def shrink(folder, rows):
    change_weights(folder, lambda tensors: tensors | {TABLE: tensors[TABLE][:rows].clone()})
    config = json.loads((folder / "config.json").read_text())
    change_json(folder / "config.json", text_config=config["text_config"] | {"vocab_size": rows})


def test_the_description_names_class_and_origin(backbone):
    assert backbone.describe() == {
        "class": "conceptformer.backbones.qwen2_5_vl.Qwen2_5_VL",
        "name": str(tiny_folder()),
        "revision": None,
        "commit": None,
        "dtype": "float32",
        "attention": "sdpa",
    }


def test_the_revision_is_passed_on_and_its_commit_described(backbone, folder, tmp_path, monkeypatch):
    """A cache of the hub with two commits, of which the branch ``main`` names the second."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "hub" / "models--owner--model"
    first, second = "1" * 40, "2" * 40
    shutil.copytree(tiny_folder(), repository / "snapshots" / first)
    change_weights(folder, lambda tensors: tensors | {"model.norm.weight": tensors["model.norm.weight"] * 2})
    shutil.copytree(folder, repository / "snapshots" / second)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(second)

    pinned = tiny_backbone("owner/model", revision=first)
    assert torch.equal(sequence_states(pinned), sequence_states(backbone))
    assert (pinned.describe()["revision"], pinned.describe()["commit"]) == (first, first)
    newest = tiny_backbone("owner/model")
    assert not torch.equal(sequence_states(newest), sequence_states(backbone))
    assert (newest.describe()["revision"], newest.describe()["commit"]) == (None, second)
    with pytest.raises(CheckpointError, match="owner/model: its config cannot be loaded"):
        tiny_backbone("owner/model", revision="3" * 40)
