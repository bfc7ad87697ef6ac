from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.plan.flops import PartFlops, StepFlops, step_flops
from conceptformer.plan.pair_tokens import PairTokens, tokens_of
from conceptformer.step.batches import make_batch, read_example
from conceptformer.step.passes import SharedPrefix, embed_images
from tests.conceptformer.plan_models import LATENT, TEXT, VISION, adapted, example, without_weights, write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def backbone(folder: Path) -> Qwen2_5_VL:
    return adapted(without_weights(folder))


@pytest.fixture(scope="module")
def tokens(backbone: Qwen2_5_VL) -> PairTokens:
    return tokens_of(example(), backbone.inputs, LATENT)


@pytest.fixture(scope="module")
def counted(backbone: Qwen2_5_VL, tokens: PairTokens) -> StepFlops:
    return step_flops(backbone, tokens, checkpointing=False, precision=torch.float32)


def weights(module: nn.Module, *, lora: bool) -> int:
    """Numbers of the matrices of linear maps, those of LoRA or the others."""
    maps = [(name, part) for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    return sum(part.weight.numel() for name, part in maps if ("lora_" in name) == lora)


@pytest.mark.parametrize("part", ["query", "page", "concept", "joint"])
def test_language_passes_by_hand(backbone: Qwen2_5_VL, tokens: PairTokens, counted: StepFlops, part: str) -> None:
    length = {
        "query": tokens.query,
        "page": tokens.page,
        "concept": tokens.prefix + tokens.concept_suffix,
        "joint": tokens.joint,
    }[part]
    layers = backbone.model.language_model.layers
    frozen, lora = (2 * length * weights(layers, lora=flag) for flag in (False, True))
    # Scores and their weighted sum; on the way back the scores again, and the gradients of four factors.
    attention = 2 * TEXT.layers * 2 * length**2 * TEXT.hidden_size
    expected = PartFlops(frozen + lora + attention, frozen + 2 * lora + attention * 5 // 2)
    assert getattr(counted, part) == expected


def test_vision_tower_forth_by_hand(backbone: Qwen2_5_VL, tokens: PairTokens, counted: StepFlops) -> None:
    patches, width, visual = 4 * tokens.visual, VISION.hidden_size, backbone.model.visual
    # 8 x 6 tokens in windows of 4 x 4 tokens, with 4 patches to a token: the last column of windows is half.
    windows = [4 * rows * columns for rows in (4, 4) for columns in (4, 2)]
    assert sum(windows) == patches
    attended = sum(4 * size**2 * width for size in windows) * (VISION.layers - 1) + 4 * patches**2 * width
    linear = 2 * patches * sum(weights(visual.blocks, lora=flag) for flag in (False, True))
    merged = 2 * tokens.visual * weights(visual.merger, lora=False)
    cut = 2 * patches * visual.patch_embed.proj.weight.numel()
    assert counted.vision.forward == cut + linear + attended + merged


def test_forth_equals_a_real_run_with_plain_attention(folder: Path, tokens: PairTokens, counted: StepFlops) -> None:
    real = adapted(Qwen2_5_VL.from_pretrained(folder, dtype="float32", attention="eager"))
    batch = make_batch([read_example(example(drawn=True), real.inputs, LATENT)])
    with torch.no_grad(), FlopCounterMode(display=False) as vision:
        images = embed_images(real, batch.pixels, batch.grids)
    with torch.no_grad(), FlopCounterMode(display=False) as joint:
        SharedPrefix().states(real, batch, images, None)
    assert vision.get_total_flops() == counted.vision.forward
    # The rotary embedding of the real positions may be a product of matrices as well; it is small.
    assert joint.get_total_flops() == pytest.approx(counted.joint.forward, rel=1e-3)


def test_checkpointing_runs_the_layers_forth_once_more(
    backbone: Qwen2_5_VL, tokens: PairTokens, counted: StepFlops
) -> None:
    again = step_flops(backbone, tokens, checkpointing=True, precision=torch.float32)
    for part in ("query", "page", "concept", "joint"):
        plain, checkpointed = getattr(counted, part), getattr(again, part)
        assert checkpointed.forward == plain.forward
        # The last product of a layer is left out: nothing on the way back needs it.
        assert 0.95 * plain.forward < checkpointed.backward - plain.backward <= plain.forward
    assert again.vision.forward == counted.vision.forward
    assert 0 < again.vision.backward - counted.vision.backward < counted.vision.forward


def test_a_frozen_vision_tower_costs_nothing_on_the_way_back(folder: Path, tokens: PairTokens) -> None:
    frozen = adapted(without_weights(folder), language_model_only=True)
    assert step_flops(frozen, tokens, precision=torch.float32).vision.backward == 0


def test_counting_leaves_no_gradients(backbone: Qwen2_5_VL, counted: StepFlops) -> None:
    assert all(parameter.grad is None for parameter in backbone.model.parameters())


def test_a_pair_without_concept_has_the_page_pass_alone(backbone: Qwen2_5_VL, tokens: PairTokens) -> None:
    alone = step_flops(backbone, replace(tokens, concept_suffix=0, concepts=0), precision=torch.float32)
    assert alone.concept == PartFlops(0, 0)
    assert alone.joint == alone.page
    assert alone.over_info_nce == 1


def test_sums_by_hand() -> None:
    parts = StepFlops(
        vision=PartFlops(1, 2),
        query=PartFlops(3, 4),
        page=PartFlops(10, 20),
        concept=PartFlops(30, 40),
        joint=PartFlops(11, 22),
        text=PartFlops(5, 6),
    )
    assert parts.info_nce == 3 + 7 + 30
    assert parts.shared == 3 + 7 + 33 + 11
    assert parts.separate == 2 * 3 + 7 + 30 + 70 + 11
    assert (parts.over_info_nce, parts.saved) == (54 / 40, 124 / 54)
    assert parts.of_run(shared=True, cached=False) == 54
    assert parts.of_run(shared=True, cached=True) == 54 + 1 + 3 + 5 + 11
    assert parts.of_run(shared=False, cached=False) == 3 + 7 + 11 + 30 + 70
