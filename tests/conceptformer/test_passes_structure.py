"""What is computed once, who sees whom, and where each token stands."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import pytest
import torch

from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.step.batch import CONCEPT_SUFFIX, PADDING, PAGE_SUFFIX, PREFIX, TrainingBatch
from conceptformer.step.passes import Passes, SeparatePasses, SharedPrefix, embed_images, joint_positions, tree_mask
from tests.conceptformer import plain_step
from tests.conceptformer.step_cases import CASES, LATENT, PASSES, TEMPERATURE, model_of, step
from tests.conceptformer.step_examples import batch_of, mixed
from tests.conceptformer.tiny_models import tiny_backbone


@pytest.fixture(scope="module")
def backbone() -> Qwen2_5_VL:
    return tiny_backbone()


def counted(backbone: Qwen2_5_VL, forward: Callable[[], object]) -> tuple[list[int], list[int]]:
    """Patches of each call of the vision tower, and tokens of each call of the language model."""
    patches, tokens = [], []

    def see_patches(_module, arguments, _named):
        patches.append(len(arguments[0]))

    def see_tokens(_module, _arguments, named):
        tokens.append(named["inputs_embeds"].shape[:2].numel())

    hooks = [
        backbone.model.visual.register_forward_pre_hook(see_patches, with_kwargs=True),
        backbone.model.language_model.register_forward_pre_hook(see_tokens, with_kwargs=True),
    ]
    forward()
    for hook in hooks:
        hook.remove()
    return patches, tokens


@pytest.mark.parametrize("name", ["dynamic length", "visual slots", "vision", "none"])
def test_a_page_goes_through_the_vision_tower_once_and_its_prefix_through_the_language_model_once(backbone, name):
    case = CASES[name]
    batch = batch_of(mixed(), backbone.inputs, case.concepts)
    model = model_of(backbone, case, SharedPrefix())
    patches, tokens = counted(backbone, lambda: step(model, batch).total.backward())
    assert patches == [4 * sum(len(grid) for grid in batch.grids)]
    lengths = batch.prefix_lengths + batch.suffix_lengths + batch.concept_lengths
    assert tokens == [batch.query_ids.numel(), len(batch) * int(lengths.max())]


def test_separate_passes_run_the_vision_tower_once_too(backbone):
    case = CASES["dynamic length"]
    batch = batch_of(mixed(), backbone.inputs, case.concepts)
    patches, tokens = counted(backbone, functools.partial(model_of(backbone, case, SeparatePasses()), batch))
    assert patches == [4 * sum(len(grid) for grid in batch.grids)]
    assert len(tokens) == 3


def states_of(backbone: Qwen2_5_VL, batch: TrainingBatch, passes: Passes):
    with torch.no_grad():
        return passes.states(backbone, batch, embed_images(backbone, batch.pixels, batch.grids), None)


def changed(backbone: Qwen2_5_VL, batch: TrainingBatch, segment: int) -> TrainingBatch:
    """The batch with other tokens in one segment, images aside."""
    place = (batch.segments == segment) & ~backbone.image_mask(batch.joint_ids)
    assert place.any()
    return dataclasses.replace(batch, joint_ids=torch.where(place, (batch.joint_ids + 11) % 97, batch.joint_ids))


@pytest.mark.parametrize("passes", PASSES, ids=lambda passes: type(passes).__name__)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_no_ending_influences_the_other_and_padding_nothing(attention, passes):
    backbone = tiny_backbone(attention=attention)
    batch = batch_of(mixed(), backbone.inputs, LATENT)
    page, concept = states_of(backbone, batch, passes)
    seen = {}
    for segment in (PREFIX, PAGE_SUFFIX, CONCEPT_SUFFIX, PADDING):
        other_page, other_concept = states_of(backbone, changed(backbone, batch, segment), passes)
        # A state that was not reached is equal in its last bit.
        seen[segment] = (not torch.equal(other_page, page), not torch.equal(other_concept, concept))
    assert seen == {
        PREFIX: (True, True),
        PAGE_SUFFIX: (True, False),
        CONCEPT_SUFFIX: (False, True),
        PADDING: (False, False),
    }


@pytest.mark.parametrize("passes", PASSES, ids=lambda passes: type(passes).__name__)
def test_concept_states_are_zero_beyond_the_suffix_and_where_there_is_none(backbone, passes):
    batch = batch_of(mixed(), backbone.inputs, LATENT)
    _, concept = states_of(backbone, batch, passes)
    assert concept.shape == (5, int(batch.concept_lengths.max()), backbone.hidden_size)
    filled = concept.abs().sum(dim=2) > 0
    assert filled.sum(dim=1).tolist() == batch.concept_lengths.tolist()
    assert batch.concept_lengths.tolist()[1::3] == [0, 0]


@pytest.mark.parametrize("passes", PASSES, ids=lambda passes: type(passes).__name__)
def test_slot_embeddings_stand_at_the_slots_and_nowhere_else(backbone, passes):
    """Given the table's own row for each slot, nothing changes; given others, all states from the slots on do."""
    batch = batch_of(mixed(), backbone.inputs, LATENT)
    images = [image.detach() for image in embed_images(backbone, batch.pixels, batch.grids)]
    _, concept, _ = concept_token_ids(backbone.inputs.tokenizer)
    row = backbone.model.get_input_embeddings().weight[concept].detach()
    slots = int(batch.slots.sum())
    with torch.no_grad():
        plain = passes.states(backbone, batch, images, None)
        same = passes.states(backbone, batch, images, row.expand(slots, -1))
        other = passes.states(backbone, batch, images, torch.zeros(slots, len(row)))
    assert all(torch.equal(left, right) for left, right in zip(plain, same, strict=True))
    assert torch.equal(plain[0], other[0])
    differs = (plain[1] != other[1]).any(dim=2)
    # The slots, and the end token that sees them.
    assert differs.sum().item() == slots + 3
    assert differs[batch.slots].all()


def test_tree_mask_by_hand():
    # A row with both endings of two tokens, and one with a shorter prefix, no concept and padding.
    segments = torch.tensor([[0, 0, 1, 1, 2, 2], [0, 1, 3, 3, 3, 3]])
    mask = tree_mask(segments)
    assert mask.shape == (2, 1, 6, 6) and mask.dtype == torch.bool
    assert mask[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1],
    ]
    # What padding sees does not matter, as long as no other token sees padding.
    assert mask[1, 0, :2].int().tolist() == [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]


def test_positions_are_those_that_transformers_gives_either_sequence(backbone):
    """Also the trap of this model: counted up on all axes, they would raise no error anywhere."""
    batch = batch_of(mixed(), backbone.inputs, LATENT)
    positions = joint_positions(backbone, batch)
    assert positions.shape == (3, *batch.joint_ids.shape)
    for row, grid in enumerate(batch.grids):
        for hidden in (CONCEPT_SUFFIX, PAGE_SUFFIX):
            kept = (batch.segments[row] != PADDING) & (batch.segments[row] != hidden)
            ids = batch.joint_ids[row, kept][None]
            kinds = backbone.image_mask(ids).int()
            expected, _ = backbone.model.get_rope_index(
                ids, mm_token_type_ids=kinds, image_grid_thw=plain_step.image_grid(grid)
            )
            assert torch.equal(positions[:, row, kept], expected[:, 0])
            assert not torch.equal(expected[0, 0], expected[1, 0])


class CountedUp(Qwen2_5_VL):
    """With positions that count up on all axes."""

    def prefix_positions(self, ids, grid):
        return torch.arange(len(ids)).expand(3, -1), len(ids)


class AfterThePage(Qwen2_5_VL):
    """With positions right for the page, and a concept that goes on from the page's end as if it saw it."""

    def hidden_states(self, embeddings, positions, mask):
        if mask is not None:
            hidden = (mask[:, 0, -1] == 0) & (mask[:, 0].sum(dim=1) > 1)
            after = hidden.cumsum(dim=1) == hidden.sum(dim=1, keepdim=True)
            positions = positions + hidden.sum(dim=1, keepdim=True) * (after & ~hidden)
        return super().hidden_states(embeddings, positions, mask)


@pytest.mark.parametrize("wrong", [CountedUp, AfterThePage])
def test_wrong_positions_would_not_pass_for_the_plain_form(backbone, wrong):
    case = CASES["dynamic length"]
    other = wrong(backbone.model, backbone.inputs, {})
    with torch.no_grad():
        expected = torch.stack(plain_step.losses(*plain_step.embeddings(backbone, mixed(), case.plain), TEMPERATURE))
        batch = batch_of(mixed(), backbone.inputs, LATENT)
        terms = step(model_of(other, case, SharedPrefix()), batch)
    assert (torch.stack((terms.info_nce, terms.alignment)) - expected).abs().max() > 2e-4
