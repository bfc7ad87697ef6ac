"""A Qwen2.5-VL small enough for a laptop, with random weights, in the layout of the checkpoints on the hub."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer, Qwen2VLImageProcessorPil

from conceptformer.backbones.checkpoint_folder import write_checkpoint
from conceptformer.errors import ConceptFormerError

_SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

# Turns as Qwen2.5-VL writes them, for text and images alone.
_CHAT_TEMPLATE = """\
{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content %}
            {{- '<|vision_start|><|image_pad|><|vision_end|>' if part.type == 'image' else part.text }}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# The real tables have spare rows beyond their tokenizer, 152,064 against 151,665; new tokens find room in them.
_TABLE_MULTIPLE = 64
_SPARE_ROWS = 16


@dataclass(frozen=True)
class TextSizes:
    """Sizes of the language model.

    Attributes:
        hidden_size: D; divided by ``heads`` it must be a multiple of 8, for the three axes of the rotary positions.
        key_value_heads: Divides ``heads``.
    """

    hidden_size: int = 64
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    intermediate_size: int = 128

    def __post_init__(self) -> None:
        _require_multiple("hidden_size", self.hidden_size, 8 * self.heads)
        _require_multiple("heads", self.heads, self.key_value_heads)


@dataclass(frozen=True)
class VisionSizes:
    """Sizes of the vision tower.

    Attributes:
        hidden_size: Divided by ``heads`` it must be a multiple of 4, for the two axes of the rotary positions.
        window: Side of the attention windows in pixels of the resized image, a multiple of 28.
        full_attention: Indices of the layers that attend to the whole page instead.
    """

    hidden_size: int = 32
    layers: int = 2
    heads: int = 2
    intermediate_size: int = 64
    window: int = 112
    full_attention: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        _require_multiple("hidden_size", self.hidden_size, 4 * self.heads)
        _require_multiple("window", self.window, 28)
        if not set(self.full_attention) <= set(range(self.layers)):
            raise ConceptFormerError(
                f"full_attention: expected layers within 0 to {self.layers - 1}, got {list(self.full_attention)}"
            )


def write_tiny_checkpoint(
    folder: Path,
    *,
    texts: Iterable[str],
    seed: int,
    vocabulary_size: int = 512,
    text: TextSizes | None = None,
    vision: VisionSizes | None = None,
) -> None:
    """Write config, random weights, tokenizer, image processor and chat template.

    Patches of 14 pixels, merged 2 by 2, as in the real model. Equal arguments give equal files.

    Args:
        folder: Made where it is missing.
        texts: What the byte-level tokenizer learns its merges from. Other text becomes more tokens, never unknown ones.
        seed: Of the weights; the global random state stays as it was.
        vocabulary_size: Entries of the tokenizer at most, special tokens aside; 256 of them are single bytes.
        text, vision: Sizes; those of the classes where they are left out.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    tokenizer = _train_tokenizer(texts, vocabulary_size)
    config = _config(tokenizer, text or TextSizes(), vision or VisionSizes())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2_5_VLForConditionalGeneration(config)
    write_checkpoint(folder, model, tokenizer, Qwen2VLImageProcessorPil(), hub_keys=True)


def _train_tokenizer(texts: Iterable[str], size: int) -> Qwen2Tokenizer:
    """Byte-level BPE in which text is normalised and split into words as Qwen's tokenizer does it."""
    pattern = Qwen2Tokenizer().backend_tokenizer
    learner = Tokenizer(BPE())
    learner.normalizer, learner.pre_tokenizer = pattern.normalizer, pattern.pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    learner.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    )
    learned = json.loads(learner.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],
        unk_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=False) for name in _SPECIAL_TOKENS])
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def _require_multiple(name: str, value: int, step: int) -> None:
    if value < 1 or value % step:
        raise ConceptFormerError(f"{name}: expected a multiple of {step}, got {value}")


def _config(tokenizer: Qwen2Tokenizer, text: TextSizes, vision: VisionSizes) -> Qwen2_5_VLConfig:
    half = text.hidden_size // text.heads // 2
    # 16, 24 and 24 of 64 in the real model: a quarter for time, the rest shared between height and width.
    sections = [half // 4, (half - half // 4) // 2, half - half // 4 - (half - half // 4) // 2]
    rows = -(-(len(tokenizer) + _SPARE_ROWS) // _TABLE_MULTIPLE) * _TABLE_MULTIPLE
    start, end, image, video = tokenizer.convert_tokens_to_ids(
        ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    )
    return Qwen2_5_VLConfig(
        text_config={
            "vocab_size": rows,
            "hidden_size": text.hidden_size,
            "num_hidden_layers": text.layers,
            "num_attention_heads": text.heads,
            "num_key_value_heads": text.key_value_heads,
            "intermediate_size": text.intermediate_size,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0, "mrope_section": sections},
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
            # No padding row: its embedding would be zero, and a zero vector has no direction.
            "pad_token_id": None,
        },
        vision_config={
            "depth": vision.layers,
            "hidden_size": vision.hidden_size,
            "num_heads": vision.heads,
            "intermediate_size": vision.intermediate_size,
            "out_hidden_size": text.hidden_size,
            "window_size": vision.window,
            "fullatt_block_indexes": list(vision.full_attention),
        },
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
    )
