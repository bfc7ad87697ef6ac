"""Checkpoints: everything comes back, nothing half written or changed afterwards is taken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conceptformer.adapters import FullTraining
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.backbones.qwen2_5_vl_inputs import InputSettings
from conceptformer.checkpoint import load_checkpoint, save_checkpoint
from conceptformer.errors import CheckpointError
from conceptformer.probe import TOLERANCES, probe_embeddings
from tests.conceptformer.small_training import LOW_RANK, assert_equal_embeddings, manifest_of, saved
from tests.conceptformer.tiny_models import SETTINGS, tiny_folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Qwen2_5_VL]:
    folder = tmp_path_factory.mktemp("run") / "checkpoint-2"
    return folder, saved(folder, LOW_RANK)


@pytest.fixture
def copied(trained: tuple[Path, Qwen2_5_VL], tmp_path: Path) -> Path:
    """A copy of the trained checkpoint, with its base weights where the manifest says that they lie."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(trained[0], folder)
    return folder


def change_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_an_adapter_checkpoint_comes_back_with_equal_embeddings(trained: tuple[Path, Qwen2_5_VL]) -> None:
    folder, backbone = trained
    loaded, manifest = load_checkpoint(folder)
    assert_equal_embeddings(loaded, backbone)
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert (manifest.step, manifest.metrics, manifest.probe_tolerance) == (2, {"ndcg@10": 0.5}, 1e-3)
    assert set(manifest.files) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    assert loaded.inputs.settings == SETTINGS


def test_saving_leaves_the_model_in_training(trained: tuple[Path, Qwen2_5_VL]) -> None:
    assert all(module.training for module in trained[1].model.modules())


def test_full_training_comes_back_with_equal_embeddings_and_needs_no_other_folder(tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_folder(), base)
    backbone = Qwen2_5_VL.from_pretrained(base, dtype="float32", settings=SETTINGS)
    saved(tmp_path / "made", FullTraining(), backbone)
    shutil.rmtree(base)
    (tmp_path / "made").rename(tmp_path / "moved")
    loaded, _ = load_checkpoint(tmp_path / "moved")
    assert_equal_embeddings(loaded, backbone)


def test_a_model_that_was_not_trained_can_be_saved_and_loaded(tmp_path: Path) -> None:
    backbone = saved(tmp_path / "start", LOW_RANK, steps=0)
    loaded, manifest = load_checkpoint(tmp_path / "start")
    assert manifest.step == 0
    assert_equal_embeddings(loaded, backbone)


def test_matrices_that_are_still_zero_after_training_are_refused(copied: Path) -> None:
    weights = copied / "adapter_model.safetensors"
    tensors = load_file(weights)
    save_file({name: tensor * (".lora_B." not in name) for name, tensor in tensors.items()}, weights)
    with pytest.raises(CheckpointError, match="14 of the adapter's B matrices are all zero"):
        load_checkpoint(copied)


@pytest.mark.parametrize("changed", ["layers.0.self_attn.q_proj.lora_A", "embed_tokens.token_adapter"])
def test_an_adapter_changed_after_saving_does_not_give_the_stored_embeddings(copied: Path, changed: str) -> None:
    weights = copied / "adapter_model.safetensors"
    tensors = load_file(weights)
    save_file({name: tensor * (2 if changed in name else 1) for name, tensor in tensors.items()}, weights)
    with pytest.raises(CheckpointError, match="does not give the embedding of the"):
        load_checkpoint(copied)


def test_other_base_weights_or_other_prompts_do_not_give_the_stored_embeddings(tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(tiny_folder(), base)
    saved(tmp_path / "made", LOW_RANK, Qwen2_5_VL.from_pretrained(base, dtype="float32", settings=SETTINGS))
    described = InputSettings(**{**SETTINGS.__dict__, "page_question": "What is this?"})
    change_manifest(tmp_path / "made", inputs=described.__dict__)
    with pytest.raises(CheckpointError, match="does not give the embedding of the page"):
        load_checkpoint(tmp_path / "made")
    change_manifest(tmp_path / "made", inputs=SETTINGS.__dict__)
    load_checkpoint(tmp_path / "made")
    tensors = load_file(base / "model.safetensors")
    name = next(name for name in tensors if "layers.1.mlp.up_proj" in name)
    save_file({**tensors, name: tensors[name].flip(0)}, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="does not give the embedding of the"):
        load_checkpoint(tmp_path / "made")


def test_base_weights_are_found_beside_a_checkpoint_that_moved_with_them(tmp_path: Path) -> None:
    base = tmp_path / "here" / "base"
    shutil.copytree(tiny_folder(), base)
    backbone = Qwen2_5_VL.from_pretrained(base, dtype="float32", settings=SETTINGS)
    saved(tmp_path / "here" / "runs" / "made", LOW_RANK, backbone)
    (tmp_path / "here").rename(tmp_path / "there")
    loaded, _ = load_checkpoint(tmp_path / "there" / "runs" / "made")
    assert_equal_embeddings(loaded, backbone)
    (tmp_path / "there" / "base").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="its base weights are neither in .* nor in") as caught:
        load_checkpoint(tmp_path / "there" / "runs" / "made")
    assert "\n" not in str(caught.value)
    (tmp_path / "elsewhere").rename(base.parent.parent / "base")
    change_manifest(
        tmp_path / "there" / "runs" / "made",
        backbone={**backbone.describe(), "name": str(tmp_path / "base"), "relative_path": "missing"},
    )
    assert_equal_embeddings(load_checkpoint(tmp_path / "there" / "runs" / "made")[0], backbone)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "probe.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        load_checkpoint(copied)


@pytest.mark.filterwarnings("ignore::visar.tensor_files.StoreWarning")
def test_a_damaged_probe_is_refused(copied: Path) -> None:
    path = copied / "probe.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="missing or damaged"):
        load_checkpoint(copied)


@pytest.mark.parametrize(
    "name", ["os.system", "conceptformer.backbones.qwen2_5_vl.Nothing", "conceptformer.backbones.x.Y", None]
)
def test_a_manifest_can_name_nothing_but_the_packages_backbones(copied: Path, name: str | None) -> None:
    content = json.loads((copied / "manifest.json").read_text())
    change_manifest(copied, backbone={**content["backbone"], "class": name})
    with pytest.raises(CheckpointError, match="expected a class in conceptformer.backbones"):
        load_checkpoint(copied)


def test_inputs_that_no_backbone_takes_are_refused(copied: Path) -> None:
    change_manifest(copied, inputs={"colours": 3})
    with pytest.raises(CheckpointError, match="the manifest's inputs are of no use"):
        load_checkpoint(copied)


def test_another_number_type_may_be_asked_for(trained: tuple[Path, Qwen2_5_VL]) -> None:
    loaded, _ = load_checkpoint(trained[0], dtype="bfloat16")
    assert loaded.model.dtype == torch.bfloat16
    expected = probe_embeddings(trained[1])
    distance = max(float((vector - expected[name]).norm()) for name, vector in probe_embeddings(loaded).items())
    assert TOLERANCES[torch.float32] < distance < TOLERANCES[torch.bfloat16]


def test_a_gathered_state_and_a_probe_computed_elsewhere_are_what_is_saved(
    trained: tuple[Path, Qwen2_5_VL], tmp_path: Path
) -> None:
    backbone = trained[1]
    state, probe = dict(backbone.model.state_dict()), probe_embeddings(backbone)
    # What a process sees of its own parameters where they are spread: nothing.
    hollow, _ = load_checkpoint(trained[0])
    with torch.no_grad():
        for parameter in hollow.model.parameters():
            parameter.zero_()
    manifest = manifest_of(backbone, LOW_RANK)
    save_checkpoint(tmp_path / "made", hollow, LOW_RANK, manifest, state_dict=state, probe=probe)
    assert_equal_embeddings(load_checkpoint(tmp_path / "made")[0], backbone)
