from __future__ import annotations

import pytest

from conceptformer.backbones.protocol import TokenGrid
from conceptformer.backbones.qwen2_5_vl import Qwen2_5_VL
from conceptformer.concepts.latent import FixedLength, LatentConcepts, MeanPooling, TokenSlots
from conceptformer.concepts.proxies import TextConcepts
from conceptformer.errors import DataError
from conceptformer.plan.pair_tokens import (
    LengthSummary,
    PairTokens,
    longest_pair,
    stated_pair,
    summarise,
    tokens_of,
    tokens_of_all,
    typical_pair,
)
from conceptformer.records import EvidenceBox
from conceptformer.step.batches import make_batch, read_example, row_size
from tests.conceptformer.plan_models import IMAGE_SIZE, LATENT, example, without_weights, write_checkpoint


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Qwen2_5_VL:
    folder = tmp_path_factory.mktemp("tiny")
    write_checkpoint(folder)
    return without_weights(folder)


def pair(joint: int, query: int = 5, text: int = 0) -> PairTokens:
    return PairTokens(TokenGrid(2, 3, (84, 56), (84, 56)), query, 8, 4, joint - 12, 3, text)


@pytest.mark.parametrize("boxes", [(), (EvidenceBox(0, 0, 1, 0.5), EvidenceBox(0.5, 0.25, 1, 0.75))])
def test_counted_tokens_are_those_of_the_batch_that_training_makes(backbone: Qwen2_5_VL, boxes: tuple) -> None:
    row = example(boxes=boxes, drawn=True)
    batch = make_batch([read_example(row, backbone.inputs, LATENT)])
    counted = tokens_of(row, backbone.inputs, LATENT)
    assert counted.joint == batch.joint_ids.shape[1] == row_size(row, backbone.inputs, LATENT).tokens
    assert counted.prefix == batch.prefix_lengths.item()
    assert counted.page_suffix == batch.suffix_lengths.item()
    assert counted.concept_suffix == batch.concept_lengths.item()
    assert counted.concepts == batch.slots.sum() == (24 + 12 if boxes else 0)
    assert counted.query == batch.query_ids.shape[1]
    assert counted.visual == int(backbone.image_mask(batch.joint_ids).sum()) == 48
    assert counted.page == counted.prefix + counted.page_suffix


def test_a_text_in_place_of_the_concept_is_counted(backbone: Qwen2_5_VL) -> None:
    row = example(boxes=(EvidenceBox(0, 0, 1, 1, "a red square"),))
    counted = tokens_of(row, backbone.inputs, TextConcepts())
    assert counted.text == len(backbone.inputs.query_ids("a red square"))
    assert (counted.concept_suffix, counted.joint) == (0, counted.page)


def test_rows_that_cannot_be_used_are_listed_with_their_reason(backbone: Qwen2_5_VL) -> None:
    rows = [example("good"), example("silent", query=" "), example("thread", image_size=(1, 900))]
    counted, refused = tokens_of_all(rows, backbone.inputs, LATENT)
    assert list(counted) == [("good", "page of good")]
    assert [line.split(":")[0] for line in refused] == [
        "query silent, page page of silent",
        "query thread, page page of thread",
    ]
    assert "expected a text" in refused[0]
    assert "1 x 900" in refused[1]


@pytest.mark.parametrize("tokens", [1, 5, 6, 7, 25, 47, 48])
def test_stated_pairs_have_the_stated_tokens(backbone: Qwen2_5_VL, tokens: int) -> None:
    stated = stated_pair(backbone.inputs, LATENT, image_size=IMAGE_SIZE, query_tokens=23, box_tokens=tokens)
    assert (stated.visual, stated.concepts) == (48, tokens)
    # A word of the tiny tokenizer may have several tokens: the last whole one that fits.
    assert 23 - 4 < stated.query <= 23


def test_a_stated_pair_without_boxes_has_no_concept(backbone: Qwen2_5_VL) -> None:
    stated = stated_pair(backbone.inputs, LATENT, image_size=IMAGE_SIZE, query_tokens=9, box_tokens=0)
    assert (stated.concept_suffix, stated.joint) == (0, stated.page)


def test_a_fixed_length_overrules_the_stated_one(backbone: Qwen2_5_VL) -> None:
    fixed = LatentConcepts(FixedLength(8), TokenSlots(), MeanPooling())
    assert stated_pair(backbone.inputs, fixed, image_size=IMAGE_SIZE, query_tokens=9, box_tokens=20).concepts == 8


def test_boxes_larger_than_the_stated_page_are_refused(backbone: Qwen2_5_VL) -> None:
    with pytest.raises(DataError, match="49 tokens on a page of 48"):
        stated_pair(backbone.inputs, LATENT, image_size=IMAGE_SIZE, query_tokens=9, box_tokens=49)


def test_summary_of_ten_lengths_by_hand() -> None:
    tokens = {(f"q{number}", "p"): pair(12 + number) for number in (7, 1, 10, 4, 2, 9, 3, 8, 5, 6)}
    longest = (("q10", "p"), ("q9", "p"), ("q8", "p"))
    assert summarise(tokens, lambda counted: counted.concept_suffix) == LengthSummary(5, 9, 10, longest)


def test_summary_leaves_out_pairs_that_have_none_of_a_kind() -> None:
    tokens = {("a", "p"): pair(12), ("b", "p"): pair(13), ("c", "p"): pair(13)}
    summary = summarise(tokens, lambda counted: counted.concept_suffix)
    assert summary == LengthSummary(1, 1, 1, (("b", "p"), ("c", "p")))
    assert summarise({("a", "p"): pair(12)}, lambda counted: counted.concept_suffix) is None


def test_typical_is_the_median_row_and_longest_has_the_longest_query_and_text() -> None:
    tokens = {(name, "p"): pair(*sizes) for name, sizes in {"a": (40, 9), "b": (20, 5, 7), "c": (30, 6)}.items()}
    assert typical_pair(tokens) == pair(30, 6)
    assert longest_pair(tokens) == pair(40, 9, 7)
