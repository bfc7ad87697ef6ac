"""What is trained: the full list of names, that nothing else moves, and that all of it is saved and comes back."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file

from conceptformer.adapter_files import adapter_parameters
from conceptformer.adapters import FullTraining, LowRankAdaptation, load_adapter
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.errors import CheckpointError, TrainingError
from conceptformer.inference import at_inference
from conceptformer.step.passes import embed_pages, embed_queries
from tests.conceptformer.small_training import QUERIES, pages, train_steps
from tests.conceptformer.tiny_models import SETTINGS, tiny_backbone

ROWS = "language_model.embed_tokens.token_adapter.trainable_tokens_delta"
ATTENTION = [f"self_attn.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj")]
PERCEPTRON = [f"mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")]
LANGUAGE = [f"language_model.layers.{layer}.{name}" for layer in (0, 1) for name in (*ATTENTION, *PERCEPTRON)]
VISION = [f"visual.blocks.{block}.{name}" for block in (0, 1) for name in PERCEPTRON]


def ids_of(backbone: Qwen2_5_VL) -> tuple[int, ...]:
    return concept_token_ids(backbone.inputs.tokenizer)


def attached(adaptation: LowRankAdaptation | None = None, **settings: str) -> Qwen2_5_VL:
    backbone = tiny_backbone(**settings)
    (adaptation or LowRankAdaptation()).attach(backbone, ids_of(backbone))
    return backbone


def page_embeddings(backbone: Qwen2_5_VL) -> torch.Tensor:
    with at_inference(backbone.model):
        return embed_pages(backbone, [backbone.inputs.read_page(page) for page in pages()])


def concept_embeddings(backbone: Qwen2_5_VL) -> torch.Tensor:
    with at_inference(backbone.model):
        return embed_queries(backbone, [backbone.inputs.concept_suffix_ids(query, 4) for query in QUERIES])


@pytest.mark.parametrize(("language_model_only", "modules"), [(True, LANGUAGE), (False, LANGUAGE + VISION)])
def test_the_trained_parameters_are_the_matrices_of_the_named_modules_and_the_concept_rows(
    language_model_only: bool, modules: list[str]
) -> None:
    backbone = tiny_backbone()
    shapes = {name: backbone.model.get_submodule(name).weight.shape for name in modules}
    trainable = LowRankAdaptation(rank=4, language_model_only=language_model_only).attach(backbone, ids_of(backbone))
    expected = {f"{name}.lora_{side}.default.weight" for name in modules for side in "AB"} | {f"{ROWS}.default"}
    assert set(trainable.names) == expected
    assert len(trainable.names) == len(expected)
    assert trainable.values == sum(4 * (rows + columns) for rows, columns in shapes.values()) + 3 * 64


def test_only_the_concept_rows_and_the_matrices_move_and_all_other_values_stay_bit_for_bit() -> None:
    backbone = attached()
    before = {name: tensor.clone() for name, tensor in backbone.model.state_dict().items()}
    table = backbone.model.get_submodule(backbone.token_table).weight.detach().clone()
    train_steps(backbone)
    after = backbone.model.state_dict()
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    trained = {name for name, parameter in backbone.model.named_parameters() if parameter.requires_grad}
    assert moved == trained
    rows = (backbone.model.get_submodule(backbone.token_table).weight != table).any(dim=1).nonzero().flatten()
    assert sorted(rows.tolist()) == sorted(ids_of(backbone))


def test_concept_rows_and_matrices_come_back_from_the_file_with_no_difference(tmp_path: Path) -> None:
    adaptation = LowRankAdaptation()
    backbone = attached(adaptation)
    train_steps(backbone)
    adaptation.save(tmp_path, backbone)
    loaded = tiny_backbone()
    untrained = loaded.embed_tokens(torch.tensor(ids_of(loaded)))
    load_adapter(loaded, tmp_path, ids_of(loaded))
    ids = torch.tensor(ids_of(backbone))
    assert torch.equal(loaded.embed_tokens(ids), backbone.embed_tokens(ids))
    assert not torch.equal(loaded.embed_tokens(ids), untrained)
    assert torch.equal(page_embeddings(loaded), page_embeddings(backbone))
    assert torch.equal(concept_embeddings(loaded), concept_embeddings(backbone))
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())


def test_the_files_are_those_of_peft_and_peft_loads_them_to_the_same_model(tmp_path: Path) -> None:
    adaptation = LowRankAdaptation()
    backbone = attached(adaptation)
    train_steps(backbone)
    adaptation.save(tmp_path, backbone)
    expected = peft.get_peft_model_state_dict(backbone.model, save_embedding_layers=False)
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert {name.removeprefix("base_model.model.") for name in saved} == set(expected)
    other = tiny_backbone()
    peft.PeftModel.from_pretrained(other.model, tmp_path)
    assert torch.equal(page_embeddings(other), page_embeddings(backbone))
    assert torch.equal(concept_embeddings(other), concept_embeddings(backbone))


def test_saved_tensors_do_not_change_when_training_goes_on() -> None:
    backbone = attached()
    state = LowRankAdaptation().trained_state(backbone)
    copies = {name: tensor.clone() for name, tensor in state.items()}
    train_steps(backbone)
    assert all(torch.equal(tensor, copies[name]) for name, tensor in state.items())


def test_a_gathered_state_is_saved_in_place_of_the_models_own_parameters() -> None:
    backbone = attached()
    gathered = {name: tensor + 1 for name, tensor in backbone.model.state_dict().items()}
    own, given = (LowRankAdaptation().trained_state(backbone, state) for state in (None, gathered))
    assert len(own) == len(given) == 2 * len(LANGUAGE + VISION) + 1
    assert all(torch.equal(given[name], tensor + 1) for name, tensor in own.items())


def test_a_state_that_lacks_a_tensor_or_holds_a_shard_is_refused() -> None:
    backbone = attached()
    state = dict(backbone.model.state_dict())
    name = f"{LANGUAGE[0]}.lora_A.default.weight"
    with pytest.raises(CheckpointError, match="a part of it only"):
        LowRankAdaptation().trained_state(backbone, {**state, name: state[name].flatten()})
    del state[name]
    with pytest.raises(CheckpointError, match=f"lacks {name}"):
        LowRankAdaptation().trained_state(backbone, state)


def test_dropout_acts_in_training_and_not_at_inference() -> None:
    backbone = attached(LowRankAdaptation(dropout=0.5))
    train_steps(backbone, steps=1)  # B matrices that are zero hide what dropout does to A.
    ids = [backbone.inputs.query_ids(QUERIES[0])]
    with torch.no_grad():
        assert not torch.equal(embed_queries(backbone, ids), embed_queries(backbone, ids))
    with at_inference(backbone.model):
        assert torch.equal(embed_queries(backbone, ids), embed_queries(backbone, ids))


def test_an_untrained_adapter_leaves_every_embedding_as_it_was() -> None:
    assert torch.equal(page_embeddings(attached()), page_embeddings(tiny_backbone()))
    assert torch.equal(concept_embeddings(attached()), concept_embeddings(tiny_backbone()))


def test_the_matrices_are_float32_on_a_bfloat16_model() -> None:
    backbone = attached(dtype="bfloat16")
    assert backbone.model.dtype == torch.bfloat16
    assert {parameter.dtype for parameter in adapter_parameters(backbone.model).values()} == {torch.float32}


def test_the_names_and_number_of_parameters_are_known_without_weights(tmp_path: Path) -> None:
    tiny = tiny_backbone()
    tiny.inputs.tokenizer.save_pretrained(tmp_path)
    without = Qwen2_5_VL.without_weights(tmp_path, tiny.model.config.to_dict(), dtype="float32", settings=SETTINGS)
    adaptation = LowRankAdaptation()
    assert adaptation.attach(without, ids_of(without)) == adaptation.attach(tiny, ids_of(tiny))
    assert without.model.device.type == "meta"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    adaptation = LowRankAdaptation(rank=4, alpha=8, language_model_only=True)
    backbone = attached(adaptation)
    train_steps(backbone)
    adaptation.save(folder, backbone)
    return folder


def test_training_can_start_from_an_adapter(trained: Path) -> None:
    started = attached(LowRankAdaptation(rank=4, alpha=8, language_model_only=True, start=trained))
    saved = load_file(trained / "adapter_model.safetensors")
    state = LowRankAdaptation().trained_state(started)
    assert state.keys() == saved.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in saved.items())
    assert all(parameter.requires_grad for parameter in adapter_parameters(started.model).values())


def test_an_adapter_of_another_scope_rank_or_scaling_cannot_be_the_start(trained: Path) -> None:
    with pytest.raises(CheckpointError, match="12 tensors are missing"):
        attached(LowRankAdaptation(rank=4, alpha=8, start=trained))
    with pytest.raises(CheckpointError, match="rank 4 and scaling 2, expected 8 and 1"):
        attached(LowRankAdaptation(rank=8, alpha=8, language_model_only=True, start=trained))
    with pytest.raises(CheckpointError, match="rank 4 and scaling 2, expected 4 and 4"):
        attached(LowRankAdaptation(rank=4, alpha=16, language_model_only=True, start=trained))
    with pytest.raises(CheckpointError, match="neither a folder nor a hub name"):
        attached(LowRankAdaptation(rank=4, alpha=8, start=trained / "missing"))


def test_rows_of_other_tokens_than_those_of_the_tokenizer_are_refused(trained: Path) -> None:
    backbone = tiny_backbone()
    ids = ids_of(backbone)
    with pytest.raises(CheckpointError, match="the tokenizer is not the one"):
        load_adapter(backbone, trained, (ids[1], ids[0], ids[2]))


def test_modules_that_the_backbone_does_not_have_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="conceptformer.adapters"):
        attached(LowRankAdaptation(modules=["q_proj", "qkv_proj"]))
    assert "no linear module named qkv_proj" in caplog.text
    with pytest.raises(TrainingError, match="no linear module is named qkv_proj, W_pack"):
        attached(LowRankAdaptation(modules=["qkv_proj", "W_pack"]))


def test_a_second_adapter_on_the_same_model_is_refused() -> None:
    backbone = attached()
    with pytest.raises(TrainingError, match="has an adapter already"):
        LowRankAdaptation().attach(backbone, ids_of(backbone))


@pytest.mark.parametrize("settings", [{"rank": 0}, {"alpha": 0}, {"dropout": 1.0}, {"dropout": -0.1}])
def test_settings_that_make_no_adapter_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(TrainingError, match="expected rank >= 1, alpha > 0 and 0 <= dropout < 1"):
        LowRankAdaptation(**settings)


def test_descriptions_are_json_that_makes_the_adaptation_again() -> None:
    adaptation = LowRankAdaptation(rank=2, modules=["q_proj"], start="owner/adapter")
    described = json.loads(json.dumps(adaptation.describe()))
    assert described.pop("kind") == "low rank"
    assert LowRankAdaptation(**described) == adaptation
    assert json.loads(json.dumps(FullTraining().describe())) == {"kind": "full"}


def test_full_training_moves_every_parameter_and_saves_it(tmp_path: Path) -> None:
    backbone = tiny_backbone()
    before = {name: tensor.clone() for name, tensor in backbone.model.state_dict().items()}
    trainable = FullTraining().attach(backbone, ids_of(backbone))
    assert trainable.names == tuple(name for name, _ in backbone.model.named_parameters())
    assert trainable.values == sum(parameter.numel() for parameter in backbone.model.parameters())
    train_steps(backbone)
    assert not [name for name, tensor in backbone.model.state_dict().items() if torch.equal(tensor, before[name])]
    FullTraining().save(tmp_path, backbone)
    loaded = Qwen2_5_VL.from_pretrained(tmp_path / "backbone", dtype="float32", settings=SETTINGS)
    state = FullTraining().trained_state(backbone)
    assert state.keys() == loaded.model.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.model.state_dict().items())


def test_full_training_saves_a_gathered_state_in_place_of_its_own(tmp_path: Path) -> None:
    backbone = tiny_backbone()
    own = backbone.model.state_dict()
    gathered = {name: tensor + 1 for name, tensor in own.items()}
    FullTraining().save(tmp_path, backbone, gathered)
    loaded = Qwen2_5_VL.from_pretrained(tmp_path / "backbone", dtype="float32").model.state_dict()
    assert all(torch.equal(loaded[name], tensor + 1) for name, tensor in own.items())
    with pytest.raises(CheckpointError, match="not that of the whole model"):
        FullTraining().save(tmp_path, backbone, dict(list(gathered.items())[1:]))
