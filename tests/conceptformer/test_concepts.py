"""Where concepts come from: what is prepared for each example, and what the embeddings are made of."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from conceptformer.concept_tokens import concept_token_ids
from conceptformer.concepts.latent import (
    DynamicLength,
    EndState,
    FixedLength,
    LatentConcepts,
    MeanPooling,
    TokenSlots,
    VisualSlots,
)
from conceptformer.concepts.protocol import ConceptInput, ConceptMaterial
from conceptformer.concepts.proxies import NoConcepts, TextConcepts, VisionConcepts
from conceptformer.errors import BoxError
from conceptformer.records import EvidenceBox
from tests.conceptformer.plain_step import covered
from tests.conceptformer.step_examples import OVERLAPPING, batch_of, example, mixed, without_boxes
from tests.conceptformer.tiny_models import tiny_backbone

# Five rows of four tokens. The boxes cover (0, 0) to (1, 1) and, half a cell over it, (1, 1) to (3, 2).
SIZE = (112, 140)
BOXES = (EvidenceBox(0.1, 0.1, 0.4, 0.3, "left"), EvidenceBox(0.3, 0.3, 0.7, 0.7, "middle"))
LEFT, MIDDLE = [0, 1, 4, 5], [5, 6, 9, 10, 13, 14]
LATENT = LatentConcepts(DynamicLength(), TokenSlots(), MeanPooling())


@pytest.fixture(scope="module")
def inputs():
    return tiny_backbone().inputs


def pair(boxes=BOXES, query="the red square"):
    return example(0, SIZE, query, boxes)


def prepared(concepts, inputs, one) -> ConceptInput:
    return concepts.prepare(one, inputs.grid_of(SIZE), inputs)


def test_a_dynamic_length_counts_overlap_twice_and_the_union_once(inputs):
    twice = prepared(LATENT, inputs, pair())
    assert (twice.slots, list(twice.patch_index)) == (10, LEFT + MIDDLE)
    once = prepared(replace(LATENT, union=True), inputs, pair())
    assert (once.slots, list(once.patch_index)) == (9, sorted({*LEFT, *MIDDLE}))
    assert list(twice.patch_index) == covered(pair(), inputs.grid_of(SIZE))


@pytest.mark.parametrize("length", [1, 3, 64])
def test_a_fixed_length_is_the_same_for_all_that_have_boxes(inputs, length):
    concepts = LatentConcepts(FixedLength(length), TokenSlots(), MeanPooling())
    for boxes in (BOXES, BOXES[:1], OVERLAPPING):
        assert prepared(concepts, inputs, pair(boxes)).slots == length
    assert prepared(concepts, inputs, pair(())) == ConceptInput()


def test_the_suffix_is_the_query_and_then_slots_between_their_marks(inputs):
    found = prepared(LATENT, inputs, pair())
    assert found.exists
    assert list(found.suffix_ids) == inputs.concept_suffix_ids("the red square", 10)
    start, concept, end = concept_token_ids(inputs.tokenizer)
    first = found.first_slot
    assert found.suffix_ids[first - 1] == start
    assert found.suffix_ids[first : first + 10] == [concept] * 10
    assert found.suffix_ids[first + 10 :] == [end]


def test_a_query_that_names_the_slot_token_gets_no_slot_of_its_own(inputs):
    found = prepared(LATENT, inputs, pair(query="what does <|lcon|> mean? <|lcon_end|>"))
    _, concept, _ = concept_token_ids(inputs.tokenizer)
    places = [place for place, number in enumerate(found.suffix_ids) if number == concept]
    assert places == list(range(found.first_slot, found.first_slot + 10))


@pytest.mark.parametrize(
    "concepts", [LATENT, TextConcepts(), VisionConcepts(), NoConcepts()], ids=lambda one: type(one).__name__
)
def test_without_boxes_there_is_no_concept_and_no_sequence_for_it(inputs, concepts):
    found = prepared(concepts, inputs, pair(()))
    assert not found.exists
    assert (len(found.suffix_ids), found.slots, len(found.patch_index)) == (0, 0, 0)


def test_without_any_label_a_lone_eos_keeps_the_text_pass_in_step_with_that_of_other_processes(inputs):
    found = prepared(TextConcepts(), inputs, pair(()))
    assert list(found.text_ids) == [inputs.tokenizer.eos_token_id]
    batch = batch_of(without_boxes(mixed()), inputs, TextConcepts())
    assert batch.text_ids.shape == (5, 1) and not batch.has_concept.any()


def test_boxes_beyond_the_page_are_an_error(inputs):
    for concepts in (LATENT, VisionConcepts()):
        with pytest.raises(BoxError, match="expected 0 <= left"):
            prepared(concepts, inputs, pair((EvidenceBox(0.1, 0.1, 1.2, 0.3),)))


def test_labels_are_encoded_as_a_query_one_a_line(inputs):
    boxes = (*BOXES, EvidenceBox(0.5, 0.1, 0.6, 0.2), EvidenceBox(0.5, 0.1, 0.6, 0.2, "top\nright"))
    found = prepared(TextConcepts(), inputs, pair(boxes))
    assert found == ConceptInput(exists=True, text_ids=inputs.query_ids("left\nmiddle\ntop\nright"))


@pytest.mark.parametrize("label", ["", " ", "\n\t"])
def test_samples_without_a_label_have_no_text_concept(inputs, label):
    boxes = tuple(replace(box, label=label) for box in BOXES)
    assert not prepared(TextConcepts(), inputs, pair(boxes)).exists
    assert prepared(TextConcepts(), inputs, pair((*boxes, BOXES[0]))).text_ids == inputs.query_ids("left")


def test_vision_concepts_hold_the_boxed_tokens_and_no_sequence(inputs):
    assert prepared(VisionConcepts(), inputs, pair()) == ConceptInput(exists=True, patch_index=LEFT + MIDDLE)


def test_visual_slots_are_refused_with_a_fixed_length():
    with pytest.raises(ValueError, match="expected a dynamic length, got a fixed one"):
        LatentConcepts(FixedLength(8), VisualSlots(), MeanPooling())


def images_of(batch, width=6):
    """For each page numbers of its own, with gradient."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(len(grid), width, generator=generator).requires_grad_() for grid in batch.grids]


def test_visual_slots_begin_as_the_boxed_features_row_after_row_and_detached(inputs):
    concepts = LatentConcepts(DynamicLength(), VisualSlots(), MeanPooling())
    batch = batch_of(mixed(), inputs, concepts)
    images = images_of(batch)
    found = concepts.slot_embeddings(batch, images)
    rows = zip(mixed(), images, batch.grids, strict=True)
    expected = [image[number] for one, image, grid in rows for number in covered(one, grid)]
    assert torch.equal(found, torch.stack(expected))
    assert len(found) == int(batch.slots.sum())
    assert not found.requires_grad


def test_only_visual_slots_replace_the_tables_row(inputs):
    for concepts in (LATENT, TextConcepts(), VisionConcepts(), NoConcepts()):
        batch = batch_of(mixed(), inputs, concepts)
        assert concepts.slot_embeddings(batch, images_of(batch)) is None


def material(batch, width=6) -> ConceptMaterial:
    """States that are not zero anywhere, as those of a model beyond a row's end would be."""
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(*batch.slots.shape, width, generator=generator)
    return ConceptMaterial(states, images_of(batch, width), torch.randn(len(batch), width, generator=generator))


def test_mean_pooling_takes_the_slots_and_the_end_state_the_last_token(inputs):
    batch = batch_of(mixed(), inputs, LATENT)
    given = material(batch)
    mean = LATENT.embed(batch, given)
    end = replace(LATENT, pooling=EndState()).embed(batch, given)
    assert mean.shape == end.shape == (5, 6)
    for row in (0, 2, 3):
        concept = LATENT.prepare(mixed()[row], batch.grids[row], inputs)
        states = given.states[row, : len(concept.suffix_ids)]
        chosen = states[concept.first_slot : concept.first_slot + concept.slots]
        torch.testing.assert_close(mean[row], chosen.mean(dim=0))
        assert torch.equal(end[row], states[-1])


@pytest.mark.parametrize("pooling", [MeanPooling(), EndState()])
def test_a_batch_without_any_boxes_is_pooled_to_numbers(inputs, pooling):
    concepts = replace(LATENT, pooling=pooling)
    batch = batch_of(without_boxes(mixed()), inputs, concepts)
    found = concepts.embed(batch, material(batch))
    assert found.shape == (5, 6) and found.isfinite().all()


def test_the_text_concept_is_the_texts_embedding(inputs):
    batch = batch_of(mixed(), inputs, TextConcepts())
    given = material(batch)
    assert TextConcepts().embed(batch, given) is given.texts


def test_the_vision_concept_is_the_mean_of_the_boxed_features_and_passes_a_gradient_to_them_alone(inputs):
    batch = batch_of(mixed(), inputs, VisionConcepts())
    given = material(batch)
    found = VisionConcepts().embed(batch, given)
    found.sum().backward()
    for row, (one, image) in enumerate(zip(mixed(), given.images, strict=True)):
        boxed = covered(one, batch.grids[row])
        weights = torch.zeros(len(image))
        for number in boxed:
            # A token under two boxes counts twice.
            weights[number] += 1 / len(boxed)
        torch.testing.assert_close(found[row], weights @ image)
        gradient = torch.zeros_like(image) if image.grad is None else image.grad
        torch.testing.assert_close(gradient, weights[:, None].expand_as(image))


def test_bfloat16_features_are_averaged_in_float32(inputs):
    batch = batch_of(mixed(), inputs, VisionConcepts())
    given = material(batch)
    rounded = replace(given, images=[image.bfloat16() for image in given.images])
    found = VisionConcepts().embed(batch, rounded)
    exact = replace(given, images=[image.bfloat16().double() for image in given.images])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, VisionConcepts().embed(batch, exact).float(), rtol=0, atol=1e-6)


def test_no_concepts_are_zeros_as_wide_as_the_model(inputs):
    batch = batch_of(mixed(), inputs, NoConcepts())
    assert torch.equal(NoConcepts().embed(batch, material(batch)), torch.zeros(5, 6))
    assert not batch.has_concept.any()
    assert batch.slots.shape == batch.text_ids.shape == (5, 0)


def test_each_says_what_it_is_in_json_and_no_two_say_the_same():
    sources = [
        LATENT,
        replace(LATENT, union=True),
        replace(LATENT, pooling=EndState()),
        replace(LATENT, slot_input=VisualSlots()),
        replace(LATENT, length=FixedLength(8)),
        replace(LATENT, length=FixedLength(16)),
        TextConcepts(),
        VisionConcepts(),
        NoConcepts(),
    ]
    assert len({json.dumps(source.describe(), sort_keys=True) for source in sources}) == len(sources)
