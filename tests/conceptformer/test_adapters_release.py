"""Adapters that other programs saved: every layout of names loads to the same model, all that does not fit is named."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from conceptformer.adapters import load_adapter
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.errors import CheckpointError
from conceptformer.inference import at_inference
from conceptformer.retriever import ConceptFormer
from conceptformer.step.passes import embed_pages
from tests.conceptformer.released_adapter import page_state, write_release
from tests.conceptformer.small_training import pages
from tests.conceptformer.tiny_models import tiny_backbone

SHARED = Path(__file__).parents[2].parent / "shared"
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
FIRST = "base_model.model.model.language_model.layers.0.mlp.down_proj"

# How the same tensors were named by versions and classes of transformers, from the newest to the oldest.
LAYOUTS: dict[str, Callable[[str], str]] = {
    "class with an output head, transformers 4.52 and later": lambda name: name,
    "the same, before transformers 4.52": lambda name: name.replace(
        ".model.model.language_model.", ".model.model."
    ).replace(".model.model.visual.", ".model.visual."),
    "class without an output head": lambda name: name.replace("base_model.model.model.", "base_model.model."),
    "without PEFT's prefix": lambda name: name.removeprefix("base_model.model."),
}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[torch.Tensor]]:
    """An adapter as another program saved it, and last states of its pages."""
    folder = tmp_path_factory.mktemp("release")
    adapted = write_release(folder)
    backbone = tiny_backbone()
    states = [page_state(adapted, backbone, backbone.inputs.read_page(page)) for page in pages()]
    return folder, states


def changed(release: Path, folder: Path, rename: Callable[[str], str] = lambda name: name, **settings: object) -> Path:
    """A copy of the adapter with other names and other settings."""
    folder.mkdir(exist_ok=True)
    tensors = load_file(release / WEIGHTS)
    save_file({rename(name): tensor for name, tensor in tensors.items()}, folder / WEIGHTS)
    config = json.loads((release / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | settings))
    return folder


def embeddings(backbone: Qwen2_5_VL) -> torch.Tensor:
    with at_inference(backbone.model):
        return embed_pages(backbone, [backbone.inputs.read_page(page) for page in pages()])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_embeddings_of_the_class_that_it_was_trained_with(
    release: tuple[Path, list[torch.Tensor]], tmp_path: Path, layout: str
) -> None:
    folder, states = release
    backbone = tiny_backbone()
    untrained = embeddings(backbone)
    load_adapter(backbone, changed(folder, tmp_path, LAYOUTS[layout]))
    loaded = embeddings(backbone)
    torch.testing.assert_close(loaded, torch.stack(states), rtol=0, atol=1e-5)
    assert (loaded - untrained).norm(dim=1).min() > 0.1


@pytest.mark.parametrize("layout", list(LAYOUTS)[:2])
def test_peft_alone_leaves_matrices_of_such_a_layout_at_zero_and_raises_nothing(
    release: tuple[Path, list[torch.Tensor]], tmp_path: Path, layout: str
) -> None:
    # The trap: PEFT goes by names and passes over those that it does not find.
    backbone = tiny_backbone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = peft.PeftModel.from_pretrained(backbone.model, changed(release[0], tmp_path, LAYOUTS[layout]))
    zero = [name for name, value in model.named_parameters() if ".lora_B." in name and not value.any()]
    assert len(zero) >= 14


def test_a_name_without_a_module_stops_the_load_and_is_listed(
    release: tuple[Path, list[torch.Tensor]], tmp_path: Path
) -> None:
    folder = changed(release[0], tmp_path, lambda name: name.replace(".layers.1.", ".layers.7."))
    with pytest.raises(CheckpointError, match=r"28 of 40 tensors fit no module .*layers\.7\.mlp\.down_proj") as caught:
        load_adapter(tiny_backbone(), changed(folder, tmp_path, lambda name: name.replace(".layers.0.", ".layers.8.")))
    assert "\n" not in str(caught.value)
    with pytest.raises(CheckpointError, match="14 of 40 tensors fit no module"):
        load_adapter(
            tiny_backbone(), changed(release[0], tmp_path, lambda name: name.replace(".layers.1.", ".layers.7."))
        )


def test_a_tensor_of_an_unknown_kind_stops_the_load(release: tuple[Path, list[torch.Tensor]], tmp_path: Path) -> None:
    folder = changed(
        release[0], tmp_path, lambda name: name.replace(f"{FIRST}.lora_A.weight", f"{FIRST}.lora_magnitude")
    )
    with pytest.raises(CheckpointError, match="1 of 40 tensors fit no module .*lora_magnitude"):
        load_adapter(tiny_backbone(), folder)


def test_half_a_pair_of_matrices_stops_the_load(release: tuple[Path, list[torch.Tensor]], tmp_path: Path) -> None:
    folder = changed(release[0], tmp_path)
    tensors = load_file(folder / WEIGHTS)
    del tensors[f"{FIRST}.lora_B.weight"]
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"1 tensors are missing \(.*layers.0.mlp.down_proj.lora_B.weight\)"):
        load_adapter(tiny_backbone(), folder)


def test_two_tensors_for_one_module_stop_the_load(release: tuple[Path, list[torch.Tensor]], tmp_path: Path) -> None:
    folder = changed(release[0], tmp_path)
    tensors = load_file(folder / WEIGHTS)
    tensors["base_model.model.layers.0.mlp.down_proj.lora_A.weight"] = tensors[f"{FIRST}.lora_A.weight"].clone()
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match="1 of 41 tensors fit no module"):
        load_adapter(tiny_backbone(), folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensor: tensor[:, :4].contiguous(), r"is \[64, 4\], expected \[64, 8\]"),
        (lambda tensor: tensor * 0, "1 of the adapter's B matrices are all zero"),
        (lambda tensor: tensor / 0, "1 tensors hold NaN or Inf"),
    ],
)
def test_a_matrix_of_another_shape_all_zero_or_not_finite_stops_the_load(
    release: tuple[Path, list[torch.Tensor]],
    tmp_path: Path,
    damage: Callable[[torch.Tensor], torch.Tensor],
    message: str,
) -> None:
    folder = changed(release[0], tmp_path)
    tensors = load_file(folder / WEIGHTS)
    tensors[f"{FIRST}.lora_B.weight"] = damage(tensors[f"{FIRST}.lora_B.weight"])
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=message):
        load_adapter(tiny_backbone(), folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, "sets use_dora"),
        ({"modules_to_save": ["lm_head"], "rank_pattern": {"q_proj": 4}}, "sets rank_pattern, modules_to_save"),
        ({"bias": "all"}, "sets bias"),
        ({"peft_type": "VERA"}, "expected a LoRA adapter"),
        ({"r": None}, "expected numbers r and lora_alpha"),
    ],
)
def test_other_kinds_of_adapters_are_refused(
    release: tuple[Path, list[torch.Tensor]], tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_adapter(tiny_backbone(), changed(release[0], tmp_path, **settings))


def test_rank_stabilised_scaling_is_taken_from_the_settings(
    release: tuple[Path, list[torch.Tensor]], tmp_path: Path
) -> None:
    # alpha / sqrt(r) = 64 / 8 when alpha is 8 * sqrt(8).
    folder, states = release
    backbone = tiny_backbone()
    load_adapter(backbone, changed(folder, tmp_path, use_rslora=True, lora_alpha=8 * 8**0.5))
    torch.testing.assert_close(embeddings(backbone), torch.stack(states), rtol=0, atol=1e-5)


def test_pickled_weights_are_refused_and_never_opened(
    release: tuple[Path, list[torch.Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(release[0] / CONFIG, tmp_path)
    with pytest.raises(CheckpointError, match=f"has no adapter: expected {WEIGHTS}"):
        load_adapter(tiny_backbone(), tmp_path)
    (tmp_path / "adapter_model.bin").write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    with pytest.raises(CheckpointError, match="only adapter_model.bin, a pickle, which can run code"):
        load_adapter(tiny_backbone(), tmp_path)
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_truncated_or_missing_file_is_an_error_of_one_line(
    release: tuple[Path, list[torch.Tensor]], tmp_path: Path, name: str
) -> None:
    folder = changed(release[0], tmp_path)
    (folder / name).write_bytes((folder / name).read_bytes()[:200])
    with pytest.raises(CheckpointError, match="fetch or save it again") as caught:
        load_adapter(tiny_backbone(), folder)
    assert "\n" not in str(caught.value)
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match="cannot be read|has no adapter"):
        load_adapter(tiny_backbone(), folder)


def test_concept_rows_can_be_asked_for_and_a_release_has_none(release: tuple[Path, list[torch.Tensor]]) -> None:
    backbone = tiny_backbone()
    with pytest.raises(CheckpointError, match="no rows for the concept tokens"):
        load_adapter(backbone, release[0], concept_token_ids(backbone.inputs.tokenizer))


def test_the_published_adapter_config_loads_with_tensors_of_its_shapes(
    release: tuple[Path, list[torch.Tensor]], tmp_path: Path
) -> None:
    published = SHARED / "data" / "tokenizers" / "qwen2_5_vl" / CONFIG
    if not published.is_file():
        pytest.skip(f"the published adapter's settings are not at {published}")
    folder = changed(release[0], tmp_path)
    shutil.copy(published, folder)
    retriever = ConceptFormer.from_adapter(folder, tiny_backbone(), device="cpu")
    expected = torch.stack(release[1]).numpy()
    assert abs(retriever.encode_pages(pages()) - expected).max() < 1e-5
