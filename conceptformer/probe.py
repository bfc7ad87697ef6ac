"""A few embeddings that are stored with a model: who loads it computes them again and compares.

This finds what no list of names can: other base weights, another resolution, other prompts, a library that computes
something else than it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from conceptformer.backbones.protocol import Backbone
from conceptformer.errors import CheckpointError
from conceptformer.inference import at_inference
from conceptformer.step.passes import embed_pages, embed_queries
from visar.tensor_files import load, to_bytes, write_atomically

PROBE_FILE = "probe.safetensors"
# Euclidean distances of vectors of length 1. Kernels of another machine sum in another order; in bfloat16, with 8 bits
# of fraction and dozens of layers, that shows in the second digit. A model without its adapter is off by far more.
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.1}
_QUERY = "Which colour has the largest square?"
_SLOTS = 3
_SIDE = 112


def probe_embeddings(backbone: Backbone) -> dict[str, torch.Tensor]:
    """Embeddings, each [D] float32, of a fixed query, a fixed page, and a sequence with concept tokens in it.

    A model that is spread over processes has to be asked in all of them.
    """
    inputs = backbone.inputs
    texts = [inputs.query_ids(_QUERY), inputs.concept_suffix_ids(_QUERY, _SLOTS)]
    with at_inference(backbone.model):
        query, concept = embed_queries(backbone, texts).cpu().clone()
        (page,) = embed_pages(backbone, [inputs.read_page(_picture())]).cpu().clone()
    return {"query": query, "page": page, "concept tokens": concept}


def write_probe(folder: Path, embeddings: Mapping[str, torch.Tensor]) -> None:
    """Store embeddings; raises a StoreError."""
    contiguous = {name: vector.detach().to("cpu", torch.float32).contiguous() for name, vector in embeddings.items()}
    write_atomically(folder / PROBE_FILE, to_bytes({}, contiguous))


def check_probe(folder: Path, backbone: Backbone, tolerance: float) -> None:
    """Compare the model's embeddings with those in the folder.

    Raises:
        CheckpointError: They are damaged, or further apart than ``tolerance``.
    """
    stored = load(folder / PROBE_FILE)
    computed = probe_embeddings(backbone)
    if stored is None or stored[1].keys() != computed.keys():
        raise CheckpointError(f"{folder / PROBE_FILE}: missing or damaged; fetch or save the checkpoint again")
    for name, vector in computed.items():
        expected = stored[1][name]
        distance = float((expected - vector).norm()) if expected.shape == vector.shape else float("inf")
        # A NaN, which is never near anything, must not pass.
        if not distance <= tolerance:
            raise CheckpointError(
                f"{folder}: the model does not give the embedding of the {name} that was stored with it "
                f"(distance {distance:.2g}, expected at most {tolerance:g}); base weights, settings or libraries are "
                "not those in manifest.json"
            )


def _picture() -> Image.Image:
    """Squares of different colours on a slope from dark to light, by whole-number arithmetic."""
    rows, columns = np.mgrid[:_SIDE, :_SIDE]
    pixels = np.stack([rows * 2, columns * 2, (rows + columns)], axis=-1).astype(np.uint8)
    for place, (side, colour) in enumerate([(10, (220, 30, 30)), (20, (30, 160, 60)), (30, (40, 60, 200))]):
        start = 8 + 34 * place
        pixels[start : start + side, start : start + side] = colour
    return Image.fromarray(pixels)
