"""Models of which each process holds a part: FSDP2 on two processes, and what can be said of DeepSpeed without it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.utils.deepspeed import HfDeepSpeedConfig
from torch import nn
from transformers import TrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from conceptformer.retriever import ConceptFormer
from tests.conceptformer.training_parts import examples, settings, small_trainer
from tests.conceptformer.training_runs import (
    HELD_OUT,
    LORA,
    assert_same_training,
    log_of,
    relative_difference,
    run,
    run_together,
    start_together,
    trained,
    write_data,
)
from visar.command_line import config_folder

SETTINGS = ("training.max_steps=2", "training.save_every=1", "training.keep=9")
MEASURED = (*HELD_OUT, "training.evaluate_every=2")
FSDP = "sharding=fsdp"
CACHED = ("training.accumulation=2", "training.cache_gradients=true")


def sharded(folder: Path, *arguments: str) -> None:
    run_together(*SETTINGS, *arguments, FSDP, folder=folder, shard=True)


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [(MEASURED, 3), ((*LORA, "adaptation.dropout=0", "projection=true", *CACHED), 2)],
    ids=["everything trained", "LoRA with cached gradients"],
)
def test_parts_train_to_the_weights_of_a_whole_model(tmp_path, arguments, rows):
    folder = write_data(tmp_path)
    run(*SETTINGS, *arguments, f"training.batch_size={2 * rows}", "output=whole", folder=folder)
    sharded(folder, *arguments, f"training.batch_size={rows}", "output=parts")
    whole, parts = folder / "whole", folder / "parts"
    assert relative_difference(trained(parts, 2), trained(whole, 2), trained(whole, 1)) < 2e-3
    for left, right in zip(log_of(whole), log_of(parts), strict=True):
        assert left.pop("padding_share", 1) >= right.pop("padding_share", 0)
        assert left == pytest.approx(right, rel=1e-3, abs=1e-5)
    ConceptFormer.from_pretrained(parts / "retriever", device="cpu")


def test_parts_in_bfloat16_leave_a_retriever_that_loads_and_go_on_after_a_kill(tmp_path):
    """Weights are then gathered in bfloat16, in which the stored embeddings are computed too."""
    chosen = (*MEASURED, "training.batch_size=3", "training.precision=bf16", "training.checkpoint_activations=true")
    folder = write_data(tmp_path)
    sharded(folder, *chosen, "output=parts")
    retriever = ConceptFormer.from_pretrained(folder / "parts" / "retriever", device="cpu")
    assert retriever.backbone.model.dtype == torch.float32
    shutil.copytree(folder / "parts", folder / "killed", ignore=shutil.ignore_patterns("checkpoint-2", "retriever"))
    sharded(folder, *chosen, "output=killed")
    assert_same_training(folder / "killed", folder / "parts", 2)


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        (FSDP, "sharding: a process of its own has nobody to share with; use torchrun, or sharding=none"),
        ("sharding=zero3", "needs the package 'deepspeed': pip install deepspeed"),
    ],
)
def test_what_cannot_be_sharded_is_said_in_one_line(tmp_path, argument, said):
    assert said in run(argument, folder=write_data(tmp_path), status=2).error


def test_without_gpus_no_process_pretends_to_shard(tmp_path):
    """accelerate would say nothing and hold whole models."""
    for one in start_together(*SETTINGS, FSDP, folder=write_data(tmp_path)):
        assert "FSDP shards models over GPUs only" in one.finish(2).error


# DeepSpeed is not there to be run: what transformers and accelerate do with its config before they call it.


class Config(HfTrainerDeepSpeedConfig, HfDeepSpeedConfig):
    """transformers' class on top of accelerate's, as it is where DeepSpeed is installed."""

    def __init__(self, stated: dict) -> None:
        HfDeepSpeedConfig.__init__(self, stated)
        self._dtype, self.mismatches = None, []


def deepspeed_config(arguments: TrainingArguments) -> Config:
    """With the values that the trainer fills in."""
    stated = yaml.safe_load((config_folder("conceptformer") / "sharding" / "zero3.yaml").read_text())
    config = Config(stated["deepspeed"])
    config.trainer_config_process(arguments)
    config.trainer_config_finalize(arguments, nn.Linear(1, 1), num_training_steps=10)
    return config


@pytest.mark.parametrize("cached", [False, True])
def test_every_value_of_the_deepspeed_config_follows_from_the_settings(tmp_path, cached):
    chosen = settings(batch_size=8, accumulation=4, precision="bf16", max_gradient_norm=1.0, cache_gradients=cached)
    config = deepspeed_config(chosen.arguments(tmp_path, evaluates=False))
    assert config.is_zero3() and config.dtype() == torch.bfloat16
    assert "auto" not in json.dumps(config.config)
    each, steps = (32, 1) if cached else (8, 4)
    assert config.get_value("train_micro_batch_size_per_gpu") == each
    assert config.get_value("gradient_accumulation_steps") == steps
    assert config.get_value("train_batch_size") == 32
    assert config.get_value("gradient_clipping") == 1.0
    assert config.get_value("zero_optimization.stage3_gather_16bit_weights_on_model_save") is True


def test_deepspeed_makes_one_step_of_all_chunks(tmp_path, monkeypatch):
    """Its optimiser makes a step in each backward pass that is not said to come before another."""
    trainer = small_trainer(tmp_path, examples(tmp_path), batch_size=2, accumulation=3, cache_gradients=True)
    passes = []

    def backward(loss: torch.Tensor, scale_wrt_gas: bool) -> None:
        passes.append((trainer.accelerator.sync_gradients, scale_wrt_gas))

    monkeypatch.setattr(trainer, "is_deepspeed_enabled", True)
    monkeypatch.setattr(trainer.accelerator, "backward", backward)
    trainer.current_gradient_accumulation_steps = 1
    inputs = next(iter(trainer.get_train_dataloader()))
    trainer.training_step(trainer.model, inputs)
    assert passes == [(False, False), (False, False), (True, False)]
