"""The embedded default: a small Qwen2.5-VL with random weights, made on the spot, to be trained from scratch."""

from __future__ import annotations

from pathlib import Path

from torch import distributed

from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.backbones.qwen2_5_vl_inputs import InputSettings
from conceptformer.backbones.tiny_checkpoint import TextSizes, VisionSizes, write_tiny_checkpoint
from conceptformer.drawn import DrawnPages

# Every page and every query goes through these words; without merges of its own each letter would cost a token.
_EMPHASIS = 200


def embedded_backbone(
    folder: Path | str,
    drawing: DrawnPages,
    *,
    seed: int,
    vocabulary_size: int,
    text: TextSizes,
    vision: VisionSizes,
    settings: InputSettings,
) -> Qwen2_5_VL:
    """Write the checkpoint, in the layout of the hub, and load it as any other.

    Args:
        folder: Written anew: equal arguments give equal files. Of processes that train together the first writes it,
            and has to be done before the others begin.
        drawing: Whose words the tokenizer learns.
        seed: Of the weights.
        vocabulary_size: See :func:`~conceptformer.backbones.tiny_checkpoint.write_tiny_checkpoint`.

    Raises:
        StoreError: The disk is full or the folder cannot be written.
    """
    prompts = ["system\nYou are a helpful assistant.", "assistant\n", settings.page_question, settings.concept_turn]
    texts = [*drawing.vocabulary(), *(prompt for prompt in prompts for _ in range(_EMPHASIS))]
    # In the other processes transformers would write all files but the weights.
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        write_tiny_checkpoint(
            Path(folder), texts=texts, seed=seed, vocabulary_size=vocabulary_size, text=text, vision=vision
        )
    return Qwen2_5_VL.from_pretrained(folder, dtype="float32", settings=settings)
