"""Some steps of training, enough for every trained number to move, and the manifest that goes with them."""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image

from conceptformer.adapters import Adaptation, LowRankAdaptation
from conceptformer.backbones.protocol import Backbone
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.checkpoint import save_checkpoint
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.manifest import Manifest
from conceptformer.probe import probe_embeddings
from conceptformer.step.passes import embed_pages, embed_queries
from tests.conceptformer.tiny_models import tiny_backbone

LOW_RANK = LowRankAdaptation(rank=4, alpha=32, language_model_only=True)
QUERIES = ("the red square", "a blue circle on this page")


def manifest_of(backbone: Backbone, adaptation: Adaptation, step: int = 2) -> Manifest:
    """What the trainer would say of such a run."""
    return Manifest(
        backbone=backbone.describe(),
        inputs=backbone.inputs.describe(),
        adaptation=adaptation.describe(),
        concepts={"source": "latent"},
        temperature=0.01,
        concept_weight=0.2,
        data_fingerprint="f" * 64,
        step=step,
        metrics={"ndcg@10": 0.5},
    )


def pages() -> list[Image.Image]:
    """Three pages of different shapes."""
    sizes = {"red": (110, 90), "blue": (60, 140), "green": (84, 84)}
    images = []
    for colour, size in sizes.items():
        image = Image.new("RGB", size, "white")
        image.paste(colour, (20, 10, 50, 60))
        images.append(image)
    return images


def train_steps(backbone: Backbone, steps: int = 2) -> None:
    """AdamW on InfoNCE with concept sequences among the queries; ends in training mode."""
    torch.manual_seed(0)
    inputs = backbone.inputs
    read = [inputs.read_page(page) for page in pages()]
    texts = [inputs.query_ids(QUERIES[0]), inputs.concept_suffix_ids(QUERIES[1], 3), inputs.query_ids("green")]
    trained = [parameter for parameter in backbone.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2, weight_decay=0)
    backbone.model.train()
    for _ in range(steps):
        scores = embed_queries(backbone, texts) @ embed_pages(backbone, read).T
        torch.nn.functional.cross_entropy(scores * 10, torch.arange(len(texts))).backward()
        optimizer.step()
        optimizer.zero_grad()


def saved(folder: Path, adaptation: Adaptation, backbone: Qwen2_5_VL | None = None, steps: int = 2) -> Qwen2_5_VL:
    """Train a backbone a little, save it, and give it back."""
    backbone = backbone or tiny_backbone()
    adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    train_steps(backbone, steps)
    save_checkpoint(folder, backbone, adaptation, manifest_of(backbone, adaptation, steps))
    return backbone


def assert_equal_embeddings(one: Backbone, other: Backbone) -> None:
    first, second = probe_embeddings(one), probe_embeddings(other)
    assert all(torch.equal(first[name], second[name]) for name in first)
