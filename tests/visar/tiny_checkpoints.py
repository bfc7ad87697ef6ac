"""Checkpoints with random weights, small enough to compute in milliseconds, in the layout that the hub has them in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    ColModernVBertConfig,
    ColModernVBertForRetrieval,
    ColModernVBertProcessor,
    ColPaliConfig,
    ColPaliForRetrieval,
    ColPaliProcessor,
    ColQwen2Config,
    ColQwen2ForRetrieval,
    ColQwen2Processor,
    ModernVBertConfig,
    PaliGemmaConfig,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

DIMENSION = 8
CORPUS = ["describe the image question query what is the revenue of the company user assistant"]


def page_image(width: int, height: int, seed: int = 0) -> Image.Image:
    """A page of noise."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def byte_tokenizer(special: list[str], **names: str) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that knows the given special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, padding_side="left", **names)


def save_colpali(folder: Path, layers: int = 1) -> ColPaliForRetrieval:
    """ColPali: a page of 32 x 32 pixels in 4 x 4 patches. Without layers each vector depends on its own patch alone."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<image>"]
    tokenizer = byte_tokenizer(special, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>")
    images = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    processor = ColPaliProcessor(images, tokenizer)
    vocabulary = len(processor.tokenizer)
    vision: dict[str, Any] = {
        "model_type": "siglip_vision_model",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "projection_dim": 32,
        "vision_use_head": False,
    }
    text: dict[str, Any] = {
        "model_type": "gemma",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "vocab_size": vocabulary,
        "pad_token_id": None,
    }
    backbone = PaliGemmaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=processor.image_token_id,
        image_token_id=processor.image_token_id,
        projection_dim=32,
    )
    torch.manual_seed(0)
    model = ColPaliForRetrieval(ColPaliConfig(vlm_config=backbone, embedding_dim=DIMENSION)).eval()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model


def save_colqwen(folder: Path, layers: int = 1) -> ColQwen2ForRetrieval:
    """ColQwen2.5: patches of 4 pixels, merged 2 x 2 to tokens of 8 x 8 pixels, pages of any size."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"]
    special += ["<|image_pad|>", "<|video_pad|>"]
    tokenizer = byte_tokenizer(special, pad_token="<|endoftext|>", eos_token="<|im_end|>")
    images = Qwen2VLImageProcessorPil(
        patch_size=4, merge_size=2, temporal_patch_size=2, min_pixels=8 * 8 * 4, max_pixels=8 * 8 * 24
    )
    processor = ColQwen2Processor(images, tokenizer)
    vision: dict[str, Any] = {
        "depth": layers,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "window_size": 16,
        "fullatt_block_indexes": [0],
        "out_hidden_size": 32,
    }
    text: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": len(tokenizer),
        "pad_token_id": None,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
    }
    backbone = Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
    )
    torch.manual_seed(0)
    model = ColQwen2ForRetrieval(ColQwen2Config(vlm_config=backbone, embedding_dim=DIMENSION)).eval()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model


def save_colmodernvbert(folder: Path, layers: int = 1) -> ColModernVBertForRetrieval:
    """ColModernVBERT: tiles of 32 x 32 pixels, each 2 x 2 tokens, and the whole page scaled down to one more."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "<|begin_of_text|>", "<global-img>", "<end_of_utterance>"]
    special += ["<fake_token_around_image>", "<image>"]
    special += [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    tokenizer = byte_tokenizer(special, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    images = Idefics3ImageProcessorPil(
        size={"longest_edge": 96}, max_image_size={"longest_edge": 32}, do_image_splitting=True
    )
    processor = ColModernVBertProcessor(images, tokenizer, image_seq_len=4)
    vocabulary = len(processor.tokenizer)
    text: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": vocabulary,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
        "max_position_embeddings": 512,
    }
    vision: dict[str, Any] = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    backbone = ModernVBertConfig(
        text_config=text,
        vision_config=vision,
        pixel_shuffle_factor=2,
        image_token_id=processor.image_token_id,
    )
    torch.manual_seed(0)
    model = ColModernVBertForRetrieval(ColModernVBertConfig(vlm_config=backbone, embedding_dim=DIMENSION)).eval()
    if layers == 0:
        # ModernBERT cannot be built without layers; one that adds nothing to its input is as good.
        for layer in model.vlm.text_model.layers:
            torch.nn.init.zeros_(layer.attn.Wo.weight)
            torch.nn.init.zeros_(layer.mlp.Wo.weight)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model


def save_colbert(folder: Path, document_length: int = 24, query_length: int = 12) -> BertModel:
    """ColBERTv2 in Stanford's layout: BERT and ``linear.weight`` in one file, the recipe in artifact.metadata."""
    words = sorted({*" ".join(CORPUS).split(), *"abcdefgh.", "growth", "market", "energy", "policy"})
    vocabulary = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", *words]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        architectures=["HF_ColBERT"],
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    weights = {f"bert.{name}": tensor for name, tensor in model.state_dict().items()}
    weights["linear.weight"] = torch.randn(DIMENSION, 32) / 32**0.5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_dict() | {"architectures": ["HF_ColBERT"]}), "utf-8")
    recipe = {
        "query_token_id": "[unused0]",
        "doc_token_id": "[unused1]",
        "doc_maxlen": document_length,
        "query_maxlen": query_length,
        "mask_punctuation": True,
        "attend_to_mask_tokens": False,
    }
    (folder / "artifact.metadata").write_text(json.dumps(recipe), encoding="utf-8")
    return model
