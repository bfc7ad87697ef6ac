#!/usr/bin/env python3
"""What the concepts cost: a training step against InfoNCE alone and against three separate passes, in one run.

    python scripts/bench_train.py                     a small model, measured on this machine
    python scripts/bench_train.py --tokenizer FOLDER  and Qwen2.5-VL-7B, its operations counted without weights

Times are the least of some rounds in which the three forms take turns, forward and backward; the figures to look at are
their ratios. The sizes are the paper's median: 50 concepts on a page of about 1,200 visual tokens.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from PIL import Image

from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.backbones.tiny_checkpoint import TextSizes, VisionSizes, write_tiny_checkpoint
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.concepts.latent import DynamicLength, LatentConcepts, MeanPooling, TokenSlots
from conceptformer.concepts.protocol import ConceptSource
from conceptformer.concepts.proxies import NoConcepts
from conceptformer.plan.flops import step_flops
from conceptformer.plan.pair_tokens import stated_pair
from conceptformer.pooling import l2_normalise
from conceptformer.records import EvidenceBox, Page, TrainingExample
from conceptformer.step.batch import TrainingBatch
from conceptformer.step.batches import make_batch, read_example
from conceptformer.step.model import Embeddings, TrainingModel
from conceptformer.step.objective import Marks, Objective, RankingAlignment
from conceptformer.step.passes import SeparatePasses, SharedPrefix, embed_images, embed_texts
from visar.command_line import config_folder

CELL, ROWS, COLUMNS = 28, 40, 30
SIZE = (COLUMNS * CELL, ROWS * CELL)
BOXED_ROWS, BOXED_COLUMNS = 5, 10
QUERY = "How did revenue per full-time post change between the two years that the table shows?"
# What the issue of speed is about: at most so much over InfoNCE alone, at least so much faster than three passes.
WANTED_OVER_INFO_NCE, WANTED_SAVED = 1.3, 1.5


class ThreePasses(TrainingModel):
    """The plain form: queries, pages and concepts each for themselves, with the vision tower run again for concepts."""

    def forward(self, batch: TrainingBatch) -> Embeddings:
        """Embed a batch."""
        backbone, passes = self.backbone, SeparatePasses()
        query = embed_texts(backbone, batch.query_ids, batch.query_lengths)
        page = passes.page_states(backbone, batch, embed_images(backbone, batch.pixels, batch.grids))
        images = embed_images(backbone, batch.pixels, batch.grids)
        concept = MeanPooling().pool(passes.concept_states(backbone, batch, images, None), batch)
        return Embeddings(query, l2_normalise(page), l2_normalise(concept))


def examples(count: int) -> list[TrainingExample]:
    """Pairs whose pages are noise: the cost of a step depends on sizes alone."""
    folder = Path(tempfile.mkdtemp(prefix="bench-train-"))
    noise = np.random.default_rng(0)
    box = EvidenceBox(0.0, 0.0, BOXED_COLUMNS / COLUMNS, BOXED_ROWS / ROWS)
    pairs = []
    for number in range(count):
        path = folder / f"{number}.png"
        pixels = noise.integers(0, 256, (ROWS * CELL, COLUMNS * CELL, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
        page = Page(f"page-{number}", path)
        pairs.append(TrainingExample(f"query-{number}", f"{QUERY} ({number})", page, SIZE, (box,)))
    return pairs


def forms(folder: Path, pairs: list[TrainingExample]) -> dict[str, tuple[TrainingModel, TrainingBatch]]:
    """The three forms with equal weights, and each one's batch."""
    write_tiny_checkpoint(
        folder,
        texts=[QUERY],
        seed=0,
        text=TextSizes(hidden_size=512, layers=4, heads=8, key_value_heads=2, intermediate_size=1536),
        vision=VisionSizes(hidden_size=128, layers=4, heads=4, intermediate_size=384, window=112, full_attention=(3,)),
    )
    latent = LatentConcepts(DynamicLength(), TokenSlots(), MeanPooling())
    made: dict[str, tuple[TrainingModel, TrainingBatch]] = {}
    kinds: dict[str, tuple[type[TrainingModel], ConceptSource]] = {
        "InfoNCE alone": (TrainingModel, NoConcepts()),
        "shared prefix": (TrainingModel, latent),
        "three passes": (ThreePasses, latent),
    }
    for name, (kind, concepts) in kinds.items():
        backbone = Qwen2_5_VL.from_pretrained(folder, dtype="float32")
        batch = make_batch([read_example(pair, backbone.inputs, concepts) for pair in pairs])
        made[name] = (kind(backbone, concepts, SharedPrefix()), batch)
    return made


def step(model: TrainingModel, batch: TrainingBatch, objective: Objective) -> tuple[float, float]:
    """Forward and backward once; seconds and loss."""
    model.zero_grad(set_to_none=True)
    started = time.perf_counter()
    terms = objective(model(batch), Marks(batch.has_concept, batch.page_keys, batch.other_keys))
    terms.total.backward()
    return time.perf_counter() - started, float(terms.total.detach())


def measure(rows: int, rounds: int) -> None:
    """Print times and ratios of the small model."""
    objective = Objective(0.05, 0.2, RankingAlignment(), mask_false_negatives=False)
    with tempfile.TemporaryDirectory() as folder:
        made = forms(Path(folder), examples(rows))
    batch = made["shared prefix"][1]
    print(f"{rows} pairs, {batch.tokens // rows} tokens and {int(batch.slots.sum()) // rows} concepts each, float32")
    for model, own in made.values():
        step(model, own, objective)
    seconds: dict[str, float] = {}
    losses: dict[str, float] = {}
    for _ in range(rounds):
        for name, (model, own) in made.items():
            taken, losses[name] = step(model, own, objective)
            seconds[name] = min(taken, seconds.get(name, taken))
    for name, value in seconds.items():
        print(f"{name:15} {value:7.3f} s  {value / seconds['InfoNCE alone']:.2f} of InfoNCE alone")
    over, saved = (
        seconds["shared prefix"] / seconds["InfoNCE alone"],
        seconds["three passes"] / seconds["shared prefix"],
    )
    print(f"shared prefix: {over:.2f} of InfoNCE alone (wanted at most {WANTED_OVER_INFO_NCE}),")
    print(f"               {saved:.2f} times as fast as three passes (wanted at least {WANTED_SAVED});")
    print(f"               losses differ by {abs(losses['shared prefix'] - losses['three passes']):.1e}")


def count(tokenizer: Path) -> None:
    """Print the operations of one pair of Qwen2.5-VL-7B, counted on a model without weights."""
    with initialize_config_dir(str(config_folder("conceptformer")), version_base="1.3"):
        config = compose("train", overrides=["exp=qwen"])
    config.tokenizer = str(tokenizer)
    backbone = instantiate(config.backbone.without_weights)
    concepts = instantiate(config.concepts)
    instantiate(config.adaptation, _convert_="all").attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    tokens = stated_pair(backbone.inputs, concepts, image_size=SIZE, query_tokens=30, box_tokens=50)
    flops = step_flops(backbone, tokens, checkpointing=True, precision=torch.bfloat16)
    print("\nQwen2.5-VL-7B, LoRA, checkpointing, one pair, operations counted:")
    for name, value in (
        ("InfoNCE alone", flops.info_nce),
        ("shared prefix", flops.shared),
        ("three passes", flops.separate),
    ):
        print(f"{name:15} {value / 1e12:7.1f} T  {value / flops.info_nce:.2f} of InfoNCE alone")
    print(f"shared prefix: {flops.saved:.2f} times fewer than three passes")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2, help="pairs in a batch")
    parser.add_argument("--rounds", type=int, default=5, help="turns that each form takes")
    parser.add_argument("--tokenizer", type=Path, help="folder of Qwen2.5-VL's tokenizer, to count operations too")
    arguments = parser.parse_args()
    measure(arguments.rows, arguments.rounds)
    if arguments.tokenizer is not None:
        count(arguments.tokenizer)


if __name__ == "__main__":
    main()
