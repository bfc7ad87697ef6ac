"""Writing checkpoints: a kill or a full disk leaves the earlier one or none, never half of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from conceptformer.adapters import FullTraining
from conceptformer.backbones.protocol import Backbone
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.checkpoint import load_checkpoint, save_checkpoint
from conceptformer.errors import CheckpointError
from conceptformer.manifest import Manifest
from conceptformer.probe import probe_embeddings
from tests.conceptformer.small_training import LOW_RANK, assert_equal_embeddings, manifest_of, saved


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


def test_a_checkpoint_takes_the_place_of_an_earlier_one_and_leaves_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "best"
    folder.mkdir()
    (folder / "optimizer.pt").write_bytes(b"another's")
    saved(folder, LOW_RANK)
    whole = saved(folder, FullTraining())
    assert (folder / "optimizer.pt").read_bytes() == b"another's"
    assert not (folder / "adapter_model.safetensors").exists()
    assert_equal_embeddings(load_checkpoint(folder)[0], whole)
    low_rank = saved(folder, LOW_RANK)
    assert not (folder / "backbone").exists()
    assert_equal_embeddings(load_checkpoint(folder)[0], low_rank)


@dataclass(frozen=True)
class KilledWhileSaving:
    """Dies, as by SIGKILL, after a part of the files is written."""

    status: int

    def describe(self) -> dict[str, object]:
        return {"kind": "low rank"}

    def save(self, folder: Path, backbone: Backbone, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
        (folder / "adapter_model.safetensors").write_bytes(b"half of")
        os._exit(self.status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that can be killed halfway")
@pytest.mark.parametrize("earlier", [True, False])
def test_a_kill_while_saving_keeps_the_earlier_checkpoint_or_leaves_none(
    trained: tuple[Path, Qwen2_5_VL], tmp_path: Path, earlier: bool
) -> None:
    folder, backbone = tmp_path / "best", trained[1]
    probe = probe_embeddings(backbone)
    if earlier:
        shutil.copytree(trained[0], folder)
        content = {path.name: path.read_bytes() for path in folder.iterdir()}
    child = os.fork()
    if child == 0:
        save_checkpoint(folder, backbone, KilledWhileSaving(77), manifest_of(backbone, LOW_RANK), probe=probe)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
    if earlier:
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == content
    else:
        with pytest.raises(CheckpointError, match="has no manifest.json"):
            load_checkpoint(folder)
    manifest = replace(manifest_of(backbone, LOW_RANK), step=5)
    save_checkpoint(folder, backbone, LOW_RANK, manifest, probe=probe)
    assert not list(folder.glob(".*"))
    assert Manifest.read(folder).step == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that can be killed halfway")
def test_a_kill_between_the_moves_leaves_nothing_that_could_be_taken_for_a_checkpoint(
    trained: tuple[Path, Qwen2_5_VL], copied: Path
) -> None:
    backbone, probe = trained[1], probe_embeddings(trained[1])
    child = os.fork()
    if child == 0:
        replace_file = os.replace

        def replace_and_die(source: Path, target: Path) -> None:
            replace_file(source, target)
            if Path(source).parent != Path(target).parent:
                os._exit(77)

        os.replace = replace_and_die
        save_checkpoint(copied, backbone, LOW_RANK, manifest_of(backbone, LOW_RANK), probe=probe)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
    with pytest.raises(CheckpointError, match="has no manifest.json"):
        load_checkpoint(copied)
    save_checkpoint(copied, backbone, LOW_RANK, manifest_of(backbone, LOW_RANK), probe=probe)
    assert_equal_embeddings(load_checkpoint(copied)[0], backbone)


class FullDisk:
    """Finds no space."""

    def describe(self) -> dict[str, object]:
        return {"kind": "low rank"}

    def save(self, folder: Path, backbone: Backbone, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_one_line_and_keeps_the_earlier_checkpoint(
    trained: tuple[Path, Qwen2_5_VL], copied: Path
) -> None:
    content = {path.name: path.read_bytes() for path in copied.iterdir()}
    with pytest.raises(CheckpointError, match="No space left on device"):
        save_checkpoint(copied, trained[1], FullDisk(), manifest_of(trained[1], LOW_RANK), probe={})
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == content


def test_a_manifest_that_cannot_be_written_keeps_the_earlier_checkpoint(
    trained: tuple[Path, Qwen2_5_VL], copied: Path
) -> None:
    content = {path.name: path.read_bytes() for path in copied.iterdir()}
    manifest = replace(manifest_of(trained[1], LOW_RANK), metrics={"ndcg@10": float("nan")})
    with pytest.raises(CheckpointError, match="the manifest cannot be written"):
        save_checkpoint(copied, trained[1], LOW_RANK, manifest)
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == content
