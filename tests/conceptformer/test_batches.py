"""How examples are laid out side by side."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace

import pytest
import torch

from conceptformer.concept_tokens import concept_token_ids
from conceptformer.concepts.latent import DynamicLength, LatentConcepts, MeanPooling, TokenSlots
from conceptformer.concepts.proxies import NoConcepts, TextConcepts, VisionConcepts
from conceptformer.errors import DataError
from conceptformer.losses import page_key
from conceptformer.step.batch import CONCEPT_SUFFIX, PADDING, PAGE_SUFFIX, PREFIX
from conceptformer.step.batches import make_batch, pad, read_example, row_size
from tests.conceptformer.step_examples import OVERLAPPING, batch_of, example, mixed, without_boxes
from tests.conceptformer.tiny_models import tiny_backbone

LATENT = LatentConcepts(DynamicLength(), TokenSlots(), MeanPooling())
SOURCES = (LATENT, TextConcepts(), VisionConcepts(), NoConcepts())


@pytest.fixture(scope="module")
def inputs():
    return tiny_backbone().inputs


@pytest.fixture(scope="module")
def batch(inputs):
    return batch_of(mixed(), inputs, LATENT)


def test_pad_by_hand():
    ids, lengths = pad([[5, 6, 7], [], [8]], -1)
    assert ids.tolist() == [[5, 6, 7], [-1, -1, -1], [8, -1, -1]]
    assert lengths.tolist() == [3, 0, 1]
    assert ids.dtype == lengths.dtype == torch.int64
    assert pad([[], []], 9)[0].shape == (2, 0)


def test_numbers_of_63_bits_survive_padding():
    largest = 2**63 - 1
    assert pad([[largest], [largest - 1, largest]], -1)[0].tolist() == [[largest, -1], [largest - 1, largest]]


def test_a_row_is_prefix_page_suffix_concept_suffix_and_padding(inputs, batch):
    assert batch.pairs == tuple((f"q{number}", f"p{number}") for number in range(5))
    for row, one in enumerate(mixed()):
        read = read_example(one, inputs, LATENT)
        parts = [read.prefix_ids, read.page_suffix_ids, list(read.concept.suffix_ids)]
        assert [int(part[row]) for part in (batch.prefix_lengths, batch.suffix_lengths, batch.concept_lengths)] == [
            len(part) for part in parts
        ]
        for segment, part in zip((PREFIX, PAGE_SUFFIX, CONCEPT_SUFFIX), parts, strict=True):
            assert batch.joint_ids[row, batch.segments[row] == segment].tolist() == part
        joined = sum(parts, [])
        assert batch.joint_ids[row, : len(joined)].tolist() == joined
        assert (batch.segments[row, len(joined) :] == PADDING).all()
        assert batch.query_ids[row, : batch.query_lengths[row]].tolist() == inputs.query_ids(one.query)


def test_rows_are_as_long_as_the_longest_and_padding_is_no_image(inputs, batch):
    lengths = batch.prefix_lengths + batch.suffix_lengths + batch.concept_lengths
    assert batch.joint_ids.shape == batch.segments.shape == (5, int(lengths.max()))
    assert len(set(lengths.tolist())) == 5
    assert batch.query_ids.shape == (5, int(batch.query_lengths.max()))
    assert (batch.joint_ids[batch.segments == PADDING] != inputs.image_token_id).all()
    images = (batch.joint_ids == inputs.image_token_id).sum(dim=1)
    assert images.tolist() == [len(grid) for grid in batch.grids]


def test_slots_are_where_the_slot_tokens_stand(inputs, batch):
    _, concept, _ = concept_token_ids(inputs.tokenizer)
    assert batch.slots.shape == (5, int(batch.concept_lengths.max()))
    for row in range(5):
        suffix = batch.joint_ids[row, batch.segments[row] == CONCEPT_SUFFIX]
        assert torch.equal(batch.slots[row, : len(suffix)], suffix == concept)
        assert not batch.slots[row, len(suffix) :].any()
        assert len(batch.patch_index[row]) == int(batch.slots[row].sum())
    assert batch.has_concept.tolist() == [True, False, True, True, False]


def test_pixels_follow_each_other_as_the_grids_say(inputs, batch):
    read = [read_example(one, inputs, LATENT).page for one in mixed()]
    assert batch.grids == tuple(page.grid for page in read)
    parts = batch.pixels.split([4 * len(grid) for grid in batch.grids])
    assert all(torch.equal(part, page.pixels) for part, page in zip(parts, read, strict=True))


def test_pages_go_by_keys_and_further_positives_are_padded(inputs):
    examples = [
        example(0, (60, 60), "red", others=["p4", "p7", "elsewhere"]),
        example(1, (60, 60), "blue"),
        example(2, (60, 60), "green", others=["p0"]),
    ]
    batch = batch_of(examples, inputs, NoConcepts())
    assert batch.page_keys.tolist() == [page_key("p0"), page_key("p1"), page_key("p2")]
    assert batch.other_keys.tolist() == [
        [page_key("p4"), page_key("p7"), page_key("elsewhere")],
        [-1, -1, -1],
        [page_key("p0"), -1, -1],
    ]
    assert batch_of(examples[1:2], inputs, NoConcepts()).other_keys.shape == (1, 0)


@pytest.mark.parametrize("concepts", SOURCES, ids=lambda one: type(one).__name__)
def test_tokens_are_counted_without_padding(inputs, concepts):
    expected = 0
    for one in mixed():
        read = read_example(one, inputs, concepts)
        parts = (read.query_ids, read.prefix_ids, read.page_suffix_ids, read.concept.suffix_ids, read.concept.text_ids)
        expected += sum(map(len, parts))
    assert batch_of(mixed(), inputs, concepts).tokens == expected


@pytest.mark.parametrize("concepts", SOURCES, ids=lambda one: type(one).__name__)
def test_lengths_known_from_image_sizes_are_those_of_the_real_rows(inputs, concepts):
    batch = batch_of(mixed(), inputs, concepts)
    lengths = (batch.segments != PADDING).sum(dim=1)
    assert [row_size(one, inputs, concepts).tokens for one in mixed()] == lengths.tolist()


def test_a_length_needs_no_image_file_but_a_shape_that_the_model_can_take(inputs, tmp_path):
    one = example(0, (60, 60), "red", OVERLAPPING)
    absent = replace(one, page=replace(one.page, image=tmp_path / "absent.png"))
    assert row_size(absent, inputs, LATENT).tokens == row_size(one, inputs, LATENT).tokens
    with pytest.raises(DataError, match="up to 200 times as long"):
        row_size(replace(one, image_size=(3, 20_000)), inputs, LATENT)
    with pytest.raises(DataError, match="no such file"):
        read_example(absent, inputs, LATENT)


def test_to_moves_every_tensor_and_keeps_the_rest(batch):
    moved = batch.to("meta")
    for field in fields(batch):
        before, after = getattr(batch, field.name), getattr(moved, field.name)
        if isinstance(before, torch.Tensor):
            assert after.is_meta and after.shape == before.shape and not before.is_meta
        elif field.name == "patch_index":
            assert all(index.is_meta for index in after) and len(after) == 5
        else:
            assert after == before
    assert len(moved) == len(batch) == 5


def test_a_batch_without_concepts_and_one_of_a_single_row(inputs):
    none = batch_of(without_boxes(mixed()), inputs, LATENT)
    assert none.slots.shape == (5, 0) and not none.has_concept.any()
    assert (none.segments != CONCEPT_SUFFIX).all()
    single = make_batch([read_example(mixed()[0], inputs, LATENT)])
    assert len(single) == 1 and (single.segments != PADDING).all()


def test_batches_travel_between_processes(batch):
    copied = pickle.loads(pickle.dumps(batch))  # noqa: S301 - as the data loader does
    assert copied.pairs == batch.pairs and torch.equal(copied.joint_ids, batch.joint_ids)
