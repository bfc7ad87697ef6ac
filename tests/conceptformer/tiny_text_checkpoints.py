"""Text embedding checkpoints with random weights, in the layout that the hub has the real ones in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, MistralConfig, MistralModel, PreTrainedTokenizerFast

WORDS = "bees store honey in hives whales eat krill revenue rose to forty million what do instruct given query retrieve"
SIZE = 12
LATENTS, HEADS, HEAD_SIZE = 5, 3, 4


def save_bert(folder: Path, pooling: str, positions: int = 16) -> None:
    """Like BGE (``cls``) and MiniLM (``mean``): a BERT, its pooling, and normalisation."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([WORDS], trainer)
    pairs = [(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=pairs)
    # As the real files have them.
    tokenizer.enable_truncation(7)
    tokenizer.enable_padding(length=7, pad_token="[PAD]")
    tokenizer.save(str(_made(folder) / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "BertTokenizer", "model_max_length": positions, "do_lower_case": True},
    )
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=SIZE,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=positions,
    )
    BertModel(config).eval().save_pretrained(folder)
    flags = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
    _save_modules(folder, {name: mode == pooling for mode, name in flags.items()})


def save_mistral(folder: Path) -> None:
    """Like E5-Mistral: its last token, in front of which no end-of-sequence token is put by the tokenizer."""
    _save_llama_tokenizer(folder, pads=True)
    mistral().save_pretrained(folder)
    _save_modules(folder, {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False})


def mistral() -> MistralModel:
    torch.manual_seed(0)
    return MistralModel(MistralConfig(**_mistral_settings())).eval()


def save_nv_embed(folder: Path, *, without: str = "") -> dict[str, torch.Tensor]:
    """Like NV-Embed-v2: names of the release's weights, its own classes named in its config. Returns the weights."""
    _save_llama_tokenizer(folder, pads=False)
    torch.manual_seed(1)
    inner, wide = HEADS * HEAD_SIZE, 4 * SIZE
    shapes: dict[str, tuple[int, ...]] = {
        "latents": (LATENTS, SIZE),
        "cross_attend_blocks.0.norm.weight": (SIZE,),
        "cross_attend_blocks.0.norm.bias": (SIZE,),
        "cross_attend_blocks.0.norm_context.weight": (SIZE,),
        "cross_attend_blocks.0.norm_context.bias": (SIZE,),
        "cross_attend_blocks.0.fn.to_q.weight": (inner, SIZE),
        "cross_attend_blocks.0.fn.to_kv.weight": (2 * inner, SIZE),
        "cross_attend_blocks.0.fn.to_out.weight": (SIZE, inner),
        "cross_attend_blocks.1.norm.weight": (SIZE,),
        "cross_attend_blocks.1.norm.bias": (SIZE,),
        "cross_attend_blocks.1.fn.net.0.weight": (2 * wide, SIZE),
        "cross_attend_blocks.1.fn.net.0.bias": (2 * wide,),
        "cross_attend_blocks.1.fn.net.2.weight": (SIZE, wide),
        "cross_attend_blocks.1.fn.net.2.bias": (SIZE,),
    }
    weights = {f"latent_attention_model.{name}": torch.randn(shape) for name, shape in shapes.items()}
    weights |= {f"embedding_model.{name}": tensor.clone() for name, tensor in mistral().state_dict().items()}
    kept = {name: tensor for name, tensor in weights.items() if name != without}
    save_file(kept, _made(folder) / "model.safetensors", metadata={"format": "pt"})
    latent = {"model_type": "latent_attention", "num_latents_value": LATENTS, "num_cross_heads": HEADS}
    _write(
        folder / "config.json",
        {
            "architectures": ["NVEmbedModel"],
            "auto_map": {"AutoModel": "modeling_nvembed.NVEmbedModel"},
            "model_type": "nvembed",
            "text_config": {**_mistral_settings(), "model_type": "bidir_mistral", "architectures": ["MistralModel"]},
            "latent_attention_config": {**latent, "cross_dim_head": HEAD_SIZE, "latent_dim": SIZE, "hidden_dim": SIZE},
        },
    )
    (folder / "modeling_nvembed.py").write_text("raise SystemExit('the code of a checkpoint was run')\n")
    return weights


def _mistral_settings() -> dict[str, Any]:
    return {
        "vocab_size": 200,
        "hidden_size": SIZE,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "sliding_window": 3,
    }


def _save_llama_tokenizer(folder: Path, *, pads: bool) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=180,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=list("abcdefghijklmnopqrstuvwxyzIQ:.\n"),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS], trainer)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    if pads:
        made.pad_token = "</s>"
    made.save_pretrained(folder)


def _save_modules(folder: Path, pooling: dict[str, bool]) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (path, kind) in enumerate(kinds.items())
    ]
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", {"max_seq_length": 8, "do_lower_case": False})
    _write(_made(folder / "1_Pooling") / "config.json", {"word_embedding_dimension": SIZE, **pooling})


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))
