from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from torch.utils.data import BatchSampler

from conceptformer.adapters import LowRankAdaptation
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.errors import DataError, TrainingError
from conceptformer.plan.data_plan import PAPER_DATA, StatedData
from conceptformer.plan.memory import GIB, GpuModel
from conceptformer.plan.printed import plan_facts, plan_lines, write_plan
from conceptformer.plan.run_plan import ParameterGroup, RunPlan, group_parameters, is_sharded, plan_run, plan_steps
from conceptformer.records import TrainingSet
from conceptformer.step.objective import Objective, RankingAlignment
from conceptformer.step.passes import SharedPrefix
from conceptformer.training.run import Method
from conceptformer.training.settings import Sharding, TrainingSettings
from tests.conceptformer.plan_models import IMAGE_SIZE, LATENT, example, without_weights, write_checkpoint

CONFIGS = Path(__file__).parents[2] / "configs" / "conceptformer"
TOKENIZER = Path(__file__).parents[2].parent / "shared" / "data" / "tokenizers" / "qwen2_5_vl"

PAPER = TrainingSettings(
    epochs=3,
    batch_size=8,
    accumulation=4,
    cache_gradients=False,
    learning_rate=1e-4,
    warm_up=0.1,
    weight_decay=0.0,
    max_gradient_norm=1.0,
    precision="bf16",
    checkpoint_activations=True,
    log_every=10,
    evaluate_every=0,
    save_every=200,
    keep=2,
    seed=42,
    workers=0,
    bucket=16,
)
SMALL = replace(PAPER, batch_size=1, accumulation=2)
OBJECTIVE = Objective(0.01, 0.2, RankingAlignment(), mask_false_negatives=False)
METHOD = Method(LowRankAdaptation(rank=4), LATENT, SharedPrefix(), OBJECTIVE, projection=False)
STATED = StatedData(
    name="a set",
    source="figures by word of mouth",
    rows=1000,
    image_size=IMAGE_SIZE,
    longest_image_size=IMAGE_SIZE,
    query=9,
    longest_query=11,
    concepts=5,
    concepts_p90=7,
    longest_concepts=48,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def training_set() -> TrainingSet:
    rows = [example(f"q{number}") for number in range(9)]
    long = example("long", query="a red square " * 9)
    return TrainingSet(
        "a folder", (*rows, long, example("bare", boxes=()), example("silent", query="")), ("row 3: no page",), "0" * 64
    )


@pytest.fixture(scope="module")
def counted(folder: Path, training_set: TrainingSet) -> RunPlan:
    return plan_run(without_weights(folder, "bfloat16"), METHOD, training_set, SMALL, gpus=2)


@pytest.fixture(scope="module")
def sharded(folder: Path) -> tuple[RunPlan, list[tuple[int, int]]]:
    """A plan without data in which much is otherwise, and the progress that was reported."""
    settings = replace(SMALL, precision="fp32", cache_gradients=True, sharding=Sharding(fsdp=True))
    method = replace(METHOD, projection=True)
    gpu = GpuModel("a small one", 1.0, 100)
    seen = []
    backbone = without_weights(folder)
    plan = plan_run(backbone, method, STATED, settings, gpus=2, gpu=gpu, on_progress=lambda *pair: seen.append(pair))
    return plan, seen


def test_rows_and_lengths_of_data_at_hand(counted: RunPlan) -> None:
    data = counted.data
    assert (data.assumed, data.rows, data.without_boxes) == (None, 11, 1)
    assert data.refused[0] == "row 3: no page"
    assert data.refused[1].startswith("query silent, page page of silent: query: expected a text")
    assert data.lengths["visual"].maximum == 48
    assert data.lengths["concept"].median == data.lengths["concept"].maximum == data.typical.concepts
    assert data.lengths["query"].longest[0] == data.lengths["row"].longest[0] == ("long", "page of long")
    assert data.longest.joint == data.lengths["row"].maximum > data.typical.joint == data.lengths["row"].median
    assert "text" not in data.lengths


def test_trained_parameters_by_name(counted: RunPlan, folder: Path) -> None:
    groups = {group.pattern: group for group in counted.trained}
    query = groups["network.language_model.layers.*.self_attn.q_proj.lora_A.default.weight"]
    assert (query.shape, query.tensors, query.values) == ((4, 128), 2, 2 * 4 * 128)
    rows = [group for name, group in groups.items() if "embed_tokens" in name]
    assert [(group.shape, group.tensors) for group in rows] == [((3, 128), 1)]
    backbone = without_weights(folder)
    frozen = sum(parameter.numel() for parameter in backbone.model.parameters())
    trained = METHOD.adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    assert counted.trained_values == trained.values
    assert counted.parameters == frozen + trained.values


def test_a_projection_is_trained_too(sharded: tuple) -> None:
    assert ParameterGroup("projection.weight", (128, 128), 1, 128 * 128) in sharded[0].trained


def test_memory_of_the_own_setting_comes_first_with_typical_and_longest_rows(counted: RunPlan, sharded: tuple) -> None:
    for plan, shares in ((counted, False), (sharded[0], True)):
        own = [("typical", True), ("longest", True), ("typical", False)]
        assert [(case.rows, case.chosen) for case in plan.memory[:3]] == own
        assert len(plan.memory) == 6
        typical, longest = plan.memory[:2]
        assert {case.sharded for case in plan.memory[:2]} == {shares}
        assert typical.checkpointing and longest.checkpointing
        assert typical.estimate.activations < longest.estimate.activations
        assert all(case.fits == (case.estimate.total <= plan.gpu.memory * GIB) for case in plan.memory)


def test_hours_are_operations_over_speed(counted: RunPlan, sharded: tuple) -> None:
    # 11 rows, two GPUs, one row each: 5 batches an epoch, 3 steps of up to 4 pairs, 9 steps in all.
    assert (counted.steps.pairs, counted.steps.per_epoch, counted.steps.total) == (4, 3, 9)
    assert counted.flops_per_pair == counted.flops.shared
    assert counted.hours == pytest.approx(counted.flops.shared * 36 / (2 * 312e12 * 0.35) / 3600)
    assert sharded[0].hours is None, "the speed is that of bfloat16"


def test_gradient_caching_runs_forth_twice(sharded: tuple) -> None:
    flops = sharded[0].flops
    forth = flops.vision.forward + flops.query.forward + flops.joint.forward
    assert sharded[0].flops_per_pair == flops.shared + forth


def test_progress_reaches_its_end(sharded: tuple) -> None:
    assert sharded[1] == [(done, 5) for done in range(6)]


def test_data_without_a_usable_row_are_refused(folder: Path) -> None:
    data = TrainingSet("silence", (example(query=" "),), (), "0" * 64)
    with pytest.raises(DataError, match=r"silence: none of its 1 rows can be used; the first: query q, page page of q"):
        plan_run(without_weights(folder), METHOD, data, SMALL, gpus=1)


def test_assumed_figures_are_marked_in_words(sharded: tuple) -> None:
    text = "\n".join(plan_lines(sharded[0]))
    assert "- assumed, not read: 1,000 pairs, as in a set" in text
    assert "- figures by word of mouth" in text
    assert "## Tokens of a pair (assumed)" in text
    assert "| concept | 5 | 7 | 48 |  |" in text
    assert sharded[0].data.without_boxes is None


def test_plan_in_words(counted: RunPlan) -> None:
    text = "\n".join(plan_lines(counted))
    assert "- a folder: 11 pairs, 1 of them without evidence boxes" in text
    assert "- left out: 2 rows or boxes\n  - row 3: no page" in text
    assert "long, page of long; " in text
    assert f"{counted.trained_values:,} of {counted.parameters:,}" in text
    assert "- 4 pairs a step on 2 GPUs, 1 on each at a time; every query is compared with 2 pages" in text
    assert "| **typical, " in text
    assert "**It fits A100 40 GB**, with typical rows and with the longest." in text
    assert text.count("estimate") >= 2


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"checkpointing": False}, "set training.checkpoint_activations=true"),
        ({}, "spread the weights over the GPUs (sharding=zero3): 0.7 GiB"),
        ({"sharded": True}, "halve training.batch_size and double training.accumulation"),
    ],
)
def test_what_does_not_fit_says_what_to_change(counted: RunPlan, changes: dict, advice: str) -> None:
    estimate = replace(counted.memory[0].estimate, activations=0, runtime=0, fragmentation=0, weights=7 * GIB // 10)
    estimate = replace(estimate, gathered=0, trained=0)
    own = [replace(case, fits=False, **changes) for case in counted.memory[:2]]
    other = replace(counted.memory[3], rows="longest", sharded=True, chosen=False, fits=True, estimate=estimate)
    lines = plan_lines(replace(counted, memory=(*own, other), steps=replace(counted.steps, at_a_time=2)))
    assert f"**It does not fit A100 40 GB** with typical and longest rows: {advice}." in lines
    alone = [replace(case, sharded=True) for case in own]
    last = plan_lines(replace(counted, memory=(*alone, other)))
    assert changes == {"checkpointing": False} or any("let pages have fewer pixels" in line for line in last)


def test_plan_file_holds_all_of_it(counted: RunPlan, tmp_path: Path) -> None:
    path = write_plan(counted, tmp_path / "new")
    assert path.name == "plan.json"
    facts = json.loads(path.read_text())
    assert facts == json.loads(json.dumps(plan_facts(counted)))
    assert facts["data"]["refused"] == list(counted.data.refused)
    assert facts["memory"][0]["estimate"]["total"] == counted.memory[0].estimate.total
    assert facts["flops"]["over_info_nce"] == pytest.approx(counted.flops.shared / counted.flops.info_nce)
    assert facts["trained_parameters"] == counted.trained_values


def test_steps_of_the_paper_by_hand() -> None:
    # 37,966 rows: 1,186 batches of 32 and 14 rows left; 4 batches a step; a tenth of 891 steps, rounded up.
    steps = plan_steps(PAPER, rows=37_966, gpus=4)
    assert (steps.pairs, steps.candidates, steps.left_over) == (128, 32, 14)
    assert (steps.per_epoch, steps.total, steps.warm_up) == (297, 891, 90)
    cached = plan_steps(replace(PAPER, cache_gradients=True), rows=37_966, gpus=4)
    assert (cached.pairs, cached.candidates, cached.left_over) == (128, 128, 37_966 - 296 * 128)
    assert (cached.per_epoch, cached.total) == (296, 888)


@pytest.mark.parametrize(("rows", "gpus", "accumulation", "epochs"), [(37, 3, 2, 1.5), (101, 4, 3, 2), (24, 4, 5, 1)])
def test_steps_are_those_of_the_trainers_own_loader(
    tmp_path: Path, rows: int, gpus: int, accumulation: int, epochs: float
) -> None:
    settings = replace(PAPER, batch_size=2, accumulation=accumulation, epochs=epochs, loggers=())
    arguments = settings.arguments(tmp_path, evaluates=False)
    batches = BatchSampler(range(rows), arguments.train_batch_size, drop_last=arguments.dataloader_drop_last)
    shares = {len(BatchSamplerShard(batches, num_processes=gpus, process_index=index)) for index in range(gpus)}
    assert len(shares) == 1
    per_epoch = math.ceil(shares.pop() / arguments.gradient_accumulation_steps)
    steps = plan_steps(settings, rows=rows, gpus=gpus)
    assert steps.per_epoch == per_epoch
    assert steps.total == math.ceil(arguments.num_train_epochs * per_epoch)
    assert steps.warm_up == arguments.get_warmup_steps(steps.total)


def test_a_stated_number_of_steps_wins_and_too_few_rows_are_refused() -> None:
    assert plan_steps(replace(PAPER, max_steps=7), rows=64, gpus=1).total == 7
    with pytest.raises(TrainingError, match="31 usable training pairs are fewer than the 32 of one batch over 4 GPUs"):
        plan_steps(PAPER, rows=31, gpus=4)


def test_names_that_differ_in_numbers_only_are_one_group() -> None:
    tensors = {f"layers.{number}.a1.weight": torch.zeros(2, 3) for number in range(12)}
    tensors |= {"layers.0.a2.weight": torch.zeros(2, 3), "layers.99.a1.weight": torch.zeros(3, 2)}
    assert group_parameters(tensors) == (
        ParameterGroup("layers.*.a1.weight", (2, 3), 12, 72),
        ParameterGroup("layers.*.a2.weight", (2, 3), 1, 6),
        ParameterGroup("layers.*.a1.weight", (3, 2), 1, 6),
    )


def test_what_shards_the_weights() -> None:
    assert is_sharded(Sharding(fsdp=True))
    assert is_sharded(Sharding(deepspeed={"zero_optimization": {"stage": 3}}))
    assert not is_sharded(Sharding(deepspeed={"zero_optimization": {"stage": 2}}))
    assert not is_sharded(Sharding())


def test_the_model_of_the_paper_has_the_published_number_of_parameters_and_lora_those_worked_by_hand() -> None:
    if not TOKENIZER.is_dir():
        pytest.skip("needs the tokenizer files of Qwen2.5-VL beside the checkout")
    with initialize_config_dir(str(CONFIGS), version_base=None):
        config = compose("train", overrides=["backbone=qwen2_5_vl_7b", f"tokenizer='{TOKENIZER}'", "adaptation=lora"])
    backbone = instantiate(config.backbone.without_weights)
    head = 152_064 * 3584
    assert sum(parameter.numel() for parameter in backbone.model.parameters()) == 8_292_166_656 - head
    assert sum(parameter.numel() for parameter in backbone.model.visual.parameters()) == 676_550_144
    assert {parameter.dtype for parameter in backbone.model.parameters()} == {torch.bfloat16}
    trained = instantiate(config.adaptation).attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    # Rank 8: a map from m to n numbers gets 8 (m + n). Queries and outputs, keys and values, the MLP's three.
    language = 28 * 8 * (2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18_944))
    vision = 32 * 8 * 3 * (1280 + 3420)
    assert (language, vision) == (20_185_088, 3_609_600)
    assert trained.values == language + vision + 3 * 3584


def test_the_papers_figures() -> None:
    assert (PAPER_DATA.rows, PAPER_DATA.concepts, PAPER_DATA.concepts_p90) == (37_966, 50, 224)
    assert math.prod(PAPER_DATA.image_size) == 1200 * 28 * 28
    assert math.prod(PAPER_DATA.longest_image_size) == 1280 * 28 * 28
