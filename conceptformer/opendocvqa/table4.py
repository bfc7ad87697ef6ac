"""How many queries and pages the sources give, beside what the paper says (Table 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PUBLISHED = {
    "docvqa": (12_767, 6_382),
    "infovqa": (5_485, 9_592),
    "visualmrc": (10_229, 6_126),
    "openwikitable": (1_257, 4_261),
    "dude": (27_955, 2_135),
    "mhdocvqa": (28_550, 9_470),
}
"""Images and queries of each source."""


@dataclass(frozen=True)
class SourceCount:
    """A row of the table: what was found, and what the paper says."""

    source: str
    images: int
    queries: int
    published_images: int
    published_queries: int

    @property
    def differs(self) -> bool:
        """Whether one of the numbers is another one than the paper's."""
        return (self.images, self.queries) != (self.published_images, self.published_queries)


def beside_table4(images: Mapping[str, int], queries: Mapping[str, int]) -> list[SourceCount]:
    """The six rows in the paper's order.

    Args:
        images, queries: Counts by source; sources that are missing have none.
    """
    return [
        SourceCount(source, images.get(source, 0), queries.get(source, 0), *published)
        for source, published in PUBLISHED.items()
    ]
