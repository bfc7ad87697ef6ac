"""The small Qwen2.5-VL of the tests: written once per process, to a folder that goes with it."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.backbones.qwen2_5_vl_inputs import InputSettings
from conceptformer.backbones.tiny_checkpoint import write_tiny_checkpoint

TEXTS = (
    "What is shown in this image? Query: the red square and the blue circle on this page",
    "Find everything on this page that helps to answer the query.",
    "You are a helpful assistant. system user assistant",
)
# Pages of at most 24 tokens.
SETTINGS = InputSettings(max_pixels=24 * 28 * 28)

REAL_TOKENIZER = Path(__file__).parents[2].parent / "shared" / "data" / "tokenizers" / "qwen2_5_vl"
needs_real_tokenizer = pytest.mark.skipif(
    not REAL_TOKENIZER.is_dir(), reason="the files of Qwen2.5-VL's tokenizer are not beside the repository"
)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tiny-qwen-")


@cache
def tiny_folder() -> Path:
    """Folder of a checkpoint in the hub's layout, the same one at each call. Do not write to it."""
    folder = Path(_temporary().name) / "checkpoint"
    write_tiny_checkpoint(folder, texts=TEXTS, seed=7)
    return folder


def tiny_backbone(
    folder: Path | str | None = None,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    attention: str = "sdpa",
    settings: InputSettings = SETTINGS,
) -> Qwen2_5_VL:
    """A fresh backbone of ``tiny_folder()``, or of another: D 64, two layers in each tower; equal at each call."""
    return Qwen2_5_VL.from_pretrained(
        folder or tiny_folder(), revision=revision, dtype=dtype, attention=attention, settings=settings
    )


@torch.no_grad()
def sequence_states(backbone: Qwen2_5_VL) -> torch.Tensor:
    """Hidden states [1, L, D] of a page with a query and concept tokens: all weights of a backbone take part."""
    page = backbone.inputs.read_page(noise_image(100, 150))
    prefix, suffix = backbone.inputs.prefix_ids(page.grid), backbone.inputs.concept_suffix_ids("red", 2)
    positions, following = backbone.prefix_positions(prefix, page.grid)
    positions = torch.cat([positions, torch.arange(following, following + len(suffix)).expand(3, -1)], dim=1)
    ids = torch.tensor([prefix + suffix])
    features = backbone.embed_images(page.pixels, [page.grid])
    embeddings = backbone.embed_tokens(ids).masked_scatter(backbone.image_mask(ids)[..., None], features)
    return backbone.hidden_states(embeddings, positions[:, None], None)


def noise_image(width: int, height: int, seed: int = 0) -> Image.Image:
    """An RGB image of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)
