"""Page numbers as people and benchmarks write them."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visar.benchmarks.admission import RowRefusedError
from visar.benchmarks.page_numbers import evidence_indexes, parse_page_list

NUMBERS = st.lists(st.integers(-999_999_999, 999_999_999))
BLANKS = st.text(alphabet=" \t\n", max_size=2)


@pytest.mark.parametrize(
    ("written", "numbers"),
    [
        ("[3, 5]", (3, 5)),
        ("[5, 18, 13, 19]", (5, 18, 13, 19)),
        ("[]", ()),
        ("  [ 7 ]\n", (7,)),
        ("[0]", (0,)),
        ("3;5", (3, 5)),
        ("3, 5", (3, 5)),
        ("12", (12,)),
        ("", ()),
        (" ", ()),
        (None, ()),
        (4, (4,)),
        ([4, 2], (4, 2)),
        ((), ()),
    ],
)
def test_page_lists_are_read_as_they_stand(written, numbers):
    assert parse_page_list(written) == numbers


@pytest.mark.parametrize(
    "written",
    ["3-5", "3.0", "[3, 5", "3]", "[3 5]", "3 5", "[[3]]", "['3']", "page 3", "three", "[3,]", ";3", "3;;5", "1" * 10,
     "٣", "__import__('os')", "[" * 10_000, True, [True], 3.0, [3.0], ["3"], [None], {"3": 5}, float("nan")],
)  # fmt: skip
def test_anything_else_is_refused_rather_than_guessed(written):
    with pytest.raises(RowRefusedError, match="page number"):
        parse_page_list(written)


@given(NUMBERS)
def test_every_list_is_read_back_from_python_and_json_notation_and_from_separated_numbers(numbers):
    for written in (numbers, tuple(numbers), str(numbers), json.dumps(numbers), ";".join(map(str, numbers))):
        assert parse_page_list(written) == tuple(numbers)


@given(NUMBERS, BLANKS, BLANKS)
def test_blanks_around_numbers_do_not_matter(numbers, before, after):
    written = "[" + ",".join(f"{before}{number}{after}" for number in numbers) + "]"
    assert parse_page_list(written) == tuple(numbers)


@given(st.text(alphabet="0123456789[],;- .'", max_size=12))
def test_what_is_accepted_in_brackets_means_the_same_to_python(text):
    # Python's own reader of literals is the witness; it takes more (nested lists, floats), never other numbers.
    try:
        numbers = parse_page_list(text)
    except RowRefusedError:
        return
    if text.strip().startswith("["):
        # Python refuses leading zeros, which mean nothing else here.
        plain = [str(int(part)) for part in text.strip()[1:-1].split(",") if part.strip()]
        assert list(numbers) == ast.literal_eval(f"[{','.join(plain)}]")


@given(st.text())
def test_no_text_ends_in_another_error(text):
    try:
        parse_page_list(text)
    except RowRefusedError as refusal:
        assert "\n" not in str(refusal)


def test_pages_become_indexes_by_hand():
    assert evidence_indexes((3, 5), first_number=1, page_count=5) == (2, 4)
    assert evidence_indexes((18, 5, 5), first_number=0, page_count=19) == (5, 18)
    assert evidence_indexes((54,), first_number=42, page_count=30) == (12,)
    assert evidence_indexes((), first_number=1, page_count=1) == ()


@given(st.lists(st.integers(-50, 150), max_size=5), st.integers(0, 60), st.integers(1, 60))
def test_an_index_is_inside_the_document_and_leads_back_to_its_number_or_the_row_is_refused(numbers, first, count):
    pages = range(first, first + count)
    if all(number in pages for number in numbers):
        indexes = evidence_indexes(tuple(numbers), first_number=first, page_count=count)
        assert list(indexes) == sorted(set(indexes))
        assert all(0 <= index < count for index in indexes)
        assert {pages[index] for index in indexes} == set(numbers)
    else:
        with pytest.raises(RowRefusedError, match=f"{first} to {first + count - 1}"):
            evidence_indexes(tuple(numbers), first_number=first, page_count=count)
