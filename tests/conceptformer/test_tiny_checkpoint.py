"""The small checkpoint: the hub's layout, any text without unknown tokens, equal files from equal arguments."""

from __future__ import annotations

import json
import unicodedata

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, Qwen2_5_VLForConditionalGeneration, Qwen2VLImageProcessorPil

from conceptformer.backbones.tiny_checkpoint import TextSizes, VisionSizes, write_tiny_checkpoint
from conceptformer.errors import ConceptFormerError
from tests.conceptformer.tiny_models import TEXTS, tiny_folder


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(tiny_folder(), local_files_only=True)


def test_the_keys_are_those_of_the_hub():
    with safe_open(tiny_folder() / "model.safetensors", "pt") as file:
        keys = set(file.keys())
    assert {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"} <= keys
    assert {"visual.patch_embed.proj.weight", "visual.merger.mlp.2.weight"} <= keys
    assert {key.split(".")[0] for key in keys} == {"lm_head", "model", "visual"}


def test_transformers_loads_every_part():
    model, report = Qwen2_5_VLForConditionalGeneration.from_pretrained(tiny_folder(), output_loading_info=True)
    assert not any(report.values())
    assert (model.config.vision_config.patch_size, model.config.vision_config.spatial_merge_size) == (14, 2)
    processor = Qwen2VLImageProcessorPil.from_pretrained(tiny_folder())
    assert (processor.patch_size, processor.merge_size, processor.temporal_patch_size) == (14, 2, 2)


def test_the_table_has_no_padding_row_and_room_for_new_tokens(tokenizer):
    text = AutoConfig.from_pretrained(tiny_folder()).text_config
    assert text.pad_token_id is None
    assert text.vocab_size >= len(tokenizer) + 3


@settings(max_examples=60)
@given(st.text())
def test_any_text_comes_back_from_its_tokens(tokenizer, text):
    ids = tokenizer(text, split_special_tokens=True)["input_ids"]
    assert None not in ids
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)


def test_texts_are_learned(tokenizer):
    assert len(tokenizer("the red square")["input_ids"]) <= 4
    assert len(tokenizer("xqzvkjwp")["input_ids"]) >= 7


def test_special_tokens_are_one_token_each(tokenizer):
    names = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
    assert tokenizer("".join(names))["input_ids"] == tokenizer.convert_tokens_to_ids(names)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")


def test_equal_arguments_give_equal_files_and_leave_the_random_state(tmp_path):
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    write_tiny_checkpoint(tmp_path, texts=list(TEXTS), seed=7)
    assert torch.equal(state, torch.random.get_rng_state())
    for file in tiny_folder().iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name


def test_sizes_and_seed_are_taken(tmp_path):
    text = TextSizes(hidden_size=96, layers=3, heads=2, key_value_heads=1, intermediate_size=48)
    vision = VisionSizes(hidden_size=16, layers=3, heads=4, intermediate_size=24, window=56, full_attention=(0, 2))
    write_tiny_checkpoint(tmp_path / "sized", texts=TEXTS, seed=7, vocabulary_size=280, text=text, vision=vision)
    config = json.loads((tmp_path / "sized" / "config.json").read_text())
    written = config["text_config"]
    assert (written["hidden_size"], written["num_hidden_layers"], written["num_attention_heads"]) == (96, 3, 2)
    assert (written["num_key_value_heads"], written["intermediate_size"]) == (1, 48)
    # Half of a head of 48, shared out between time, height and width.
    assert written["rope_parameters"]["mrope_section"] == [6, 9, 9]
    seen = config["vision_config"]
    assert (seen["hidden_size"], seen["depth"], seen["num_heads"], seen["intermediate_size"]) == (16, 3, 4, 24)
    assert (seen["window_size"], seen["fullatt_block_indexes"], seen["out_hidden_size"]) == (56, [0, 2], 96)
    # 280 learned tokens and 7 special ones.
    assert len(AutoTokenizer.from_pretrained(tmp_path / "sized")) == 287

    write_tiny_checkpoint(tmp_path / "other", texts=TEXTS, seed=8)
    other, same = tmp_path / "other" / "model.safetensors", tiny_folder() / "model.safetensors"
    assert other.read_bytes() != same.read_bytes()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (lambda: TextSizes(hidden_size=60), "hidden_size: expected a multiple of 32, got 60"),
        (lambda: TextSizes(key_value_heads=3), "heads: expected a multiple of 3, got 4"),
        (lambda: VisionSizes(hidden_size=20), "hidden_size: expected a multiple of 8, got 20"),
        (lambda: VisionSizes(window=100), "window: expected a multiple of 28, got 100"),
        (lambda: VisionSizes(layers=1), r"full_attention: expected layers within 0 to 0, got \[1\]"),
    ],
)
def test_sizes_of_no_model_are_refused(sizes, message):
    with pytest.raises(ConceptFormerError, match=message):
        sizes()
