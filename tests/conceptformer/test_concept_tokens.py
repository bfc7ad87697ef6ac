"""The concept tokens: what is added to a tokenizer and where their rows start."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoTokenizer

from conceptformer.concept_tokens import (
    CONCEPT,
    CONCEPT_END,
    CONCEPT_START,
    add_concept_tokens,
    concept_token_ids,
    initialise_rows,
)
from tests.conceptformer.tiny_models import REAL_TOKENIZER, needs_real_tokenizer, tiny_folder


def tiny_tokenizer():
    return AutoTokenizer.from_pretrained(tiny_folder(), local_files_only=True)


def test_three_tokens_are_added_behind_all_others_and_read_as_one_token_each():
    tokenizer = tiny_tokenizer()
    before = len(tokenizer)
    assert add_concept_tokens(tokenizer) == (before, before + 1, before + 2)
    start, concept, end = concept_token_ids(tokenizer)
    assert {start, concept, end} == {before, before + 1, before + 2}
    written = f"a{CONCEPT_START}{CONCEPT}{CONCEPT}{CONCEPT_END}b"
    assert tokenizer(written)["input_ids"][1:-1] == [start, concept, concept, end]
    assert tokenizer.decode([start, concept, end, *tokenizer("b")["input_ids"]], skip_special_tokens=True) == "b"


def test_tokens_that_are_there_are_not_added_again():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([CONCEPT], special_tokens=True)
    held = len(tokenizer) - 1
    assert add_concept_tokens(tokenizer) == (held + 1, held + 2)
    assert tokenizer.convert_tokens_to_ids(CONCEPT) == held
    assert add_concept_tokens(tokenizer) == ()


def test_ids_do_not_depend_on_whether_the_tokenizer_came_with_the_slot_token():
    without, with_slot = tiny_tokenizer(), tiny_tokenizer()
    with_slot.add_tokens([CONCEPT], special_tokens=True)
    add_concept_tokens(without)
    add_concept_tokens(with_slot)
    assert concept_token_ids(without) == concept_token_ids(with_slot)


@needs_real_tokenizer
def test_the_published_tokenizer_has_the_slot_token_and_gets_the_other_two():
    tokenizer = AutoTokenizer.from_pretrained(REAL_TOKENIZER, local_files_only=True)
    assert add_concept_tokens(tokenizer) == (151666, 151667)
    assert concept_token_ids(tokenizer) == (151666, 151665, 151667)


def test_new_rows_are_the_mean_of_the_rows_before_them():
    # By hand: the mean of (1, 10) and (3, 20) is (2, 15); the spare last row takes no part and stays.
    weight = torch.tensor([[1.0, 10.0], [3.0, 20.0], [7.0, 7.0], [8.0, 8.0], [100.0, 100.0]])
    initialise_rows(weight, (2, 3))
    assert weight.tolist() == [[1, 10], [3, 20], [2, 15], [2, 15], [100, 100]]


def test_a_table_of_bfloat16_is_averaged_in_float32():
    weight = torch.ones(2000, 1, dtype=torch.bfloat16)
    weight[::2] = 3.0
    initialise_rows(weight, [1999])
    # A sum of 1,999 numbers in bfloat16 would stick at 256.
    assert weight[1999].item() == 2.0


def test_a_table_that_is_trained_can_be_initialised():
    table = torch.nn.Embedding(4, 2)
    before = table.weight.detach().clone()
    initialise_rows(table.weight, (3,))
    assert table.weight.requires_grad
    torch.testing.assert_close(table.weight[3], before[:3].mean(dim=0))
    assert torch.equal(table.weight[:3], before[:3])


@pytest.mark.parametrize("ids", [(), (0, 1), (3, 4), (-1,)])
def test_ids_without_a_row_are_refused(ids):
    with pytest.raises(ValueError, match="expected new tokens within 1 to 3"):
        initialise_rows(torch.zeros(4, 2), ids)
