"""What will be drawn and asked: all pages and queries of a split, settled before the first picture is made."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random

from conceptformer.drawn.pages import Sheet, Standing
from conceptformer.drawn.papers import PAPERS, Paper
from conceptformer.drawn.queries import Holders, distinct_sets, wording


@dataclass(frozen=True)
class PlannedQuery:
    """A query and the things that it names, in its order."""

    query_id: str
    text: str
    named: tuple[Standing, ...]


@dataclass(frozen=True)
class PlannedPage:
    """A page, everything that stands on it, and the queries that it alone answers."""

    page_id: str
    paper: Paper
    standing: tuple[Standing, ...]
    queries: tuple[PlannedQuery, ...]

    @property
    def things(self) -> frozenset[int]:
        """Indices of the things on the page."""
        return frozenset(one.thing for one in self.standing)


@dataclass(frozen=True)
class SplitPlan:
    """How the pages and queries of one split are drawn by lot.

    Attributes:
        name: Begins the ids, and decides the lots together with ``seed``.
        names_per_query: Fewest and most names in a query.
    """

    name: str
    sheet: Sheet
    seed: int
    pages: int
    queries_per_page: int
    things_per_page: tuple[int, int]
    names_per_query: tuple[int, int]

    def settle(
        self, wanted_names: Callable[[Random], int], *, forbidden: Collection[frozenset[int]] = ()
    ) -> list[PlannedPage]:
        """The pages of the split.

        Args:
            wanted_names: Number of names of the next query; it gets more where so few names fit another page too.
            forbidden: Sets of things that no page may have.

        Raises:
            DataError: So many pages cannot be told apart, or things do not fit on a page.
        """
        sets = distinct_sets(
            self._draw_things,
            self.pages,
            names=self.names_per_query[1],
            queries=self.queries_per_page,
            forbidden=forbidden,
        )
        holders = Holders(sets)
        return [self._page(number, things, holders, wanted_names) for number, things in enumerate(sets)]

    def _draw_things(self, page: int, attempt: int) -> frozenset[int]:
        random = Random(f"{self.seed} {self.name} {page} {attempt}")
        return frozenset(random.sample(range(len(self.sheet.things)), random.randint(*self.things_per_page)))

    def _page(
        self, number: int, things: frozenset[int], holders: Holders, wanted_names: Callable[[Random], int]
    ) -> PlannedPage:
        page_id = f"{self.name}-{number:05d}"
        random = Random(f"{self.seed} {page_id}")
        paper = random.choice(PAPERS)
        places = {one.thing: one for one in self.sheet.place(sorted(things), random)}
        asked: list[tuple[int, ...]] = []
        queries = []
        for query in range(self.queries_per_page):
            chosen = holders.choose(number, wanted_names(random), random, besides=asked)
            asked.append(chosen)
            order = random.sample(chosen, len(chosen))
            text = wording([self.sheet.things[thing] for thing in order], random)
            queries.append(PlannedQuery(f"{page_id}-{query}", text, tuple(places[thing] for thing in order)))
        return PlannedPage(page_id, paper, tuple(places.values()), tuple(queries))
