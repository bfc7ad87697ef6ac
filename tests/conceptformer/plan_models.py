"""What the tests of plans share: a tiny Qwen2.5-VL with weights, the same without, and pairs with pages of one size."""

from __future__ import annotations

import io
import json
from pathlib import Path

from PIL import Image

from conceptformer.adapters import LowRankAdaptation
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.backbones.tiny_checkpoint import TextSizes, VisionSizes, write_tiny_checkpoint
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.concepts.latent import DynamicLength, LatentConcepts, MeanPooling, TokenSlots
from conceptformer.records import EvidenceBox, Page, TrainingExample

LATENT = LatentConcepts(DynamicLength(), TokenSlots(), MeanPooling())
TEXT = TextSizes(hidden_size=128, layers=2, heads=4, key_value_heads=2, intermediate_size=320)
VISION = VisionSizes(hidden_size=64, layers=2, heads=4, intermediate_size=192, window=112, full_attention=(1,))
IMAGE_SIZE = (168, 224)


def write_checkpoint(folder: Path) -> None:
    """A tiny checkpoint."""
    write_tiny_checkpoint(folder, texts=["which page shows a red square"], seed=0, text=TEXT, vision=VISION)


def without_weights(folder: Path, dtype: str = "float32", more_layers: int = 0) -> Qwen2_5_VL:
    """The checkpoint's model on the meta device, with more layers in both of its parts."""
    architecture = json.loads((folder / "config.json").read_text())
    architecture["text_config"] |= {"num_hidden_layers": TEXT.layers + more_layers, "layer_types": None}
    architecture["vision_config"]["depth"] += more_layers
    return Qwen2_5_VL.without_weights(folder, architecture, dtype=dtype)


def adapted(backbone: Qwen2_5_VL, *, dropout: float = 0.0, language_model_only: bool = False) -> Qwen2_5_VL:
    """The same backbone with LoRA attached."""
    adaptation = LowRankAdaptation(rank=4, dropout=dropout, language_model_only=language_model_only)
    adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    return backbone


def example(
    query_id: str = "q",
    query: str = "which page shows a red square",
    image_size: tuple[int, int] = IMAGE_SIZE,
    boxes: tuple[EvidenceBox, ...] = (EvidenceBox(0.1, 0.1, 0.6, 0.5),),
    *,
    drawn: bool = False,
) -> TrainingExample:
    """A pair; its page is a white image, or nothing at all, since plans open no page."""
    content = io.BytesIO()
    if drawn:
        Image.new("RGB", image_size, "white").save(content, "PNG")
    return TrainingExample(query_id, query, Page(f"page of {query_id}", content.getvalue()), image_size, boxes)
