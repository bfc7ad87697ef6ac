"""Queries about drawn pages: each fits its page alone, says what it names, and uses words a tokenizer has seen."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conceptformer.drawn.drawing import CELL
from conceptformer.drawn.pages import Sheet
from conceptformer.drawn.plan import SplitPlan
from conceptformer.drawn.queries import SENTENCES, Holders, distinct_sets, vocabulary, wording
from conceptformer.drawn.things import Shape, Word, all_things
from conceptformer.errors import DataError

THINGS = all_things(colours=8, shapes=6, words=40)
SHEET = Sheet(THINGS, (6 * CELL, 8 * CELL), 2, 1, seed=3)
FEW_THINGS = Sheet(all_things(colours=3, shapes=2, words=6), (6 * CELL, 8 * CELL), 2, 1, seed=3)


def plan(sheet: Sheet = SHEET, **settings) -> SplitPlan:
    usual = {
        **{"name": "train", "sheet": sheet, "seed": 1, "pages": 300, "queries_per_page": 2},
        **{"things_per_page": (4, 7), "names_per_query": (2, 3)},
    }
    return SplitPlan(**{**usual, **settings})


def two_or_three(random: Random) -> int:
    return random.randint(2, 3)


@pytest.mark.parametrize("sheet", [SHEET, FEW_THINGS], ids=["all things", "few things"])
def test_a_reader_who_looks_through_all_pages_finds_one_for_each_query(sheet):
    """Names are read out of the text again, and the pages compared one by one."""
    pages = plan(sheet, pages=80).settle(two_or_three)
    names_on = [{sheet.things[one.thing].phrase for one in page.standing} for page in pages]
    phrases = {thing.phrase for thing in sheet.things}
    for number, page in enumerate(pages):
        for query in page.queries:
            named = {phrase for phrase in phrases if re.search(rf"\b{phrase}\b", query.text, re.IGNORECASE)}
            assert named == {sheet.things[one.thing].phrase for one in query.named}
            assert [other for other, names in enumerate(names_on) if named <= names] == [number]


def test_boxes_are_those_of_the_named_things_in_the_order_of_the_text():
    for page in plan(pages=100).settle(two_or_three):
        for query in page.queries:
            assert set(query.named) <= set(page.standing)
            places = [query.text.lower().index(SHEET.things[one.thing].phrase) for one in query.named]
            assert places == sorted(places)


def test_numbers_of_things_and_names_lie_in_their_ranges_and_use_them():
    pages = plan().settle(two_or_three)
    assert set(Counter(len(page.things) for page in pages)) == {4, 5, 6, 7}
    assert set(Counter(len(query.named) for page in pages for query in page.queries)) == {2, 3}


def test_queries_of_one_page_differ_in_what_they_name():
    for page in plan(queries_per_page=4).settle(two_or_three):
        assert len({frozenset(query.named) for query in page.queries}) == 4


def test_ids_are_unique_and_say_the_split():
    pages = plan(name="held-out").settle(two_or_three)
    ids = [page.page_id for page in pages] + [query.query_id for page in pages for query in page.queries]
    assert len(ids) == len(set(ids)) == 900
    assert all(name.startswith("held-out-") for name in ids)


def test_every_sentence_and_every_thing_occurs():
    pages = plan(pages=600).settle(two_or_three)
    assert {thing for page in pages for thing in page.things} == set(range(len(THINGS)))
    texts = [query.text for page in pages for query in page.queries]
    for sentence in SENTENCES[1:]:
        before, after = sentence.split("{things}")
        assert any(text.startswith(before) and text.endswith(after) for text in texts)


def test_no_page_gets_a_forbidden_set_of_things():
    first = plan(FEW_THINGS, pages=60).settle(two_or_three)
    forbidden = {page.things for page in first[:40]}
    second = plan(FEW_THINGS, pages=60).settle(two_or_three, forbidden=forbidden)
    assert not forbidden & {page.things for page in second}
    # Only because of that: by the same lots the pages would have been the same.
    assert [page.things for page in first] == [page.things for page in plan(FEW_THINGS, pages=60).settle(two_or_three)]


def test_a_query_gets_more_names_only_where_fewer_fit_another_page():
    pages = [frozenset({0, 1, 2, 3}), frozenset({0, 1, 2, 4}), frozenset({5, 6, 7, 8})]
    holders = Holders(pages)
    assert holders.unique(0, 1) == [(3,)]
    assert holders.unique(0, 2) == [(0, 3), (1, 3), (2, 3)]
    assert len(holders.choose(2, 2, Random(0), besides=())) == 2
    assert holders.choose(0, 1, Random(0), besides=[(3,)]) in [(0, 3), (1, 3), (2, 3)]
    twins = Holders([frozenset({0, 1, 2}), frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 2})])
    assert twins.choose(0, 2, Random(0), besides=()) == (0, 1, 2)


@given(st.lists(st.frozensets(st.integers(0, 7), min_size=2, max_size=5), min_size=1, max_size=12), st.integers(1, 3))
def test_unique_sets_are_those_that_a_search_through_all_pages_finds(pages, names):
    holders = Holders(pages)
    for number, things in enumerate(pages):
        expected = [
            chosen
            for chosen in combinations(sorted(things), names)
            if sum(set(chosen) <= other for other in pages) == 1
        ]
        assert holders.unique(number, names) == expected


def test_pages_that_cannot_be_told_apart_are_refused_in_one_line():
    with pytest.raises(DataError, match=r"^pages: \d+ of 3 pages cannot be told apart by 1 queries of 2 names [^\n]+$"):
        distinct_sets(lambda page, attempt: frozenset({0, 1, 2}), 3, names=2, queries=1)


def test_queries_read_like_sentences():
    things = [Shape("orange", "star"), Word("harbour"), Shape("red", "circle")]
    texts = {wording(things, Random(lot)) for lot in range(60)}
    assert "Which page shows an orange star, the word harbour and a red circle?" in texts
    assert "An orange star, the word harbour and a red circle" in texts
    assert len(texts) == len(SENTENCES)
    assert wording(things[1:2], Random(0)).lower().count("the word harbour") == 1
    assert " and " not in wording(things[1:2], Random(0))


def test_the_vocabulary_holds_every_word_and_sign_of_every_query():
    def pieces(texts: list[str]) -> set[str]:
        return {piece for text in texts for piece in re.findall(r"\w+|[^\w\s]", text)}

    texts = [query.text for page in plan(pages=600).settle(two_or_three) for query in page.queries]
    assert pieces(texts) <= pieces(vocabulary(THINGS))
    # Not a mere list of words: a word begins a sentence as it does in queries.
    assert {text.split()[0] for text in texts} <= {text.split()[0] for text in vocabulary(THINGS)}
