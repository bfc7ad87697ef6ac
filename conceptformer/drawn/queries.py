"""Which things stand on which page, and queries that name some of them and fit that page alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations
from random import Random

from conceptformer.drawn.things import Thing
from conceptformer.errors import DataError

SENTENCES: tuple[str, ...] = (
    "{things}",
    "Which page shows {things}?",
    "Find the page with {things}.",
    "Where can I see {things}?",
    "I am looking for {things}.",
    "Is there a page with {things}?",
    "Show me {things}.",
    "It was a page that had {things}.",
)
"""What a query may sound like, in every split."""

_ROUNDS = 100


def wording(things: Sequence[Thing], random: Random) -> str:
    """A query for these things, named in this order."""
    return _sentence(random.choice(SENTENCES), [thing.phrase for thing in things])


def vocabulary(things: Sequence[Thing]) -> list[str]:
    """Texts that hold every word and sign of every query about these things; a tokenizer can be trained on them."""
    return [_sentence(sentence, [thing.phrase] * 3) for thing in things for sentence in SENTENCES]


class Holders:
    """Which pages hold a thing, for all things.

    Args:
        sets: The things on each page.
    """

    def __init__(self, sets: Sequence[frozenset[int]]) -> None:
        self._sets = sets
        # One bit for each page: the pages that hold several things are found by "and", thousands of pages at a time.
        self._pages: dict[int, int] = {}
        for page, things in enumerate(sets):
            for thing in things:
                self._pages[thing] = self._pages.get(thing, 0) | 1 << page

    def unique(self, page: int, names: int) -> list[tuple[int, ...]]:
        """All sets of ``names`` things, each in ascending order, that this page holds and no other."""
        return [chosen for chosen in combinations(sorted(self._sets[page]), names) if self._only(page, chosen)]

    def choose(self, page: int, names: int, random: Random, *, besides: Collection[tuple[int, ...]]) -> tuple[int, ...]:
        """A random set of ``names`` things, or of as few more as it takes, that this page holds and no other.

        Args:
            besides: Sets that are not to be chosen again. With some number of names the page has a set that is none of
                them.
        """
        unused = [chosen for chosen in self.unique(page, names) if chosen not in besides]
        return random.choice(unused) if unused else self.choose(page, names + 1, random, besides=besides)

    def _only(self, page: int, chosen: tuple[int, ...]) -> bool:
        first, *others = chosen
        held_by = self._pages[first]
        for thing in others:
            held_by &= self._pages[thing]
        return held_by == 1 << page


def distinct_sets(
    draw: Callable[[int, int], frozenset[int]],
    pages: int,
    *,
    names: int,
    queries: int,
    forbidden: Collection[frozenset[int]] = (),
) -> list[frozenset[int]]:
    """The things of each page, such that ``queries`` queries of ``names`` names fit this page and no other.

    Args:
        draw: (page, attempt) to a set of at least ``names`` things. A page for which too few queries are found is drawn
            again.
        forbidden: Sets that no page may have.

    Raises:
        DataError: Pages that can be told apart were not found.
    """
    attempts = [0] * pages
    sets = [draw(page, 0) for page in range(pages)]
    for _ in range(_ROUNDS):
        holders = Holders(sets)
        again = [
            page
            for page, things in enumerate(sets)
            if things in forbidden or len(holders.unique(page, names)) < queries
        ]
        if not again:
            return sets
        for page in again:
            attempts[page] += 1
            sets[page] = draw(page, attempts[page])
    raise DataError(
        f"pages: {len(again):,} of {pages:,} pages cannot be told apart by {queries} queries of {names} names each; "
        "ask for fewer pages or queries, or for more things per page, names per query, words, colours or shapes"
    )


def _sentence(sentence: str, phrases: Sequence[str]) -> str:
    *first, last = phrases
    text = sentence.format(things=f"{', '.join(first)} and {last}" if first else last)
    return text[0].upper() + text[1:]
