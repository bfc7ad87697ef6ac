"""What metrics are worth without any learning, against the mean over all orders."""

from __future__ import annotations

import math
from itertools import combinations
from statistics import mean

import pytest

from conceptformer.errors import DataError
from conceptformer.report.chance import chance_levels
from conceptformer.retrieval.evaluation import query_metrics


def over_all_orders(pages: int, relevant: int) -> dict[str, float]:
    """The metrics' means over all places that the relevant pages can stand at."""
    wanted = frozenset(f"wanted {number}" for number in range(relevant))
    found = []
    for places in combinations(range(pages), relevant):
        order = [f"other {number}" for number in range(pages)]
        for place, name in zip(places, sorted(wanted), strict=True):
            order[place] = name
        found.append(query_metrics(order, wanted))
    return {name: mean(row[name] for row in found) for name in found[0]}


def test_two_hundred_pages_by_hand() -> None:
    levels = chance_levels(200, [1])
    assert levels["recall_at_10"] == pytest.approx(0.05)
    assert levels["ndcg_at_10"] == pytest.approx(4.543559 / 200)  # the sum of 1 / log2(rank + 1) up to 10
    assert levels["mrr_at_10"] == pytest.approx(2.928968 / 200)  # 1 + 1/2 + ... + 1/10


@pytest.mark.parametrize(("pages", "relevant"), [(1, 1), (7, 1), (7, 3), (11, 2), (13, 5), (17, 4)])
def test_it_is_the_mean_over_all_orders(pages: int, relevant: int) -> None:
    assert chance_levels(pages, [relevant]) == pytest.approx(over_all_orders(pages, relevant))


def test_more_relevant_pages_than_ranks() -> None:
    """All pages are relevant: the first ten always are, which is all that recall can see of 23."""
    levels = chance_levels(23, [23])
    assert levels == pytest.approx({"recall_at_10": 10 / 23, "ndcg_at_10": 1, "mrr_at_10": 1})


def test_queries_with_different_numbers_of_pages_are_averaged() -> None:
    one, three, both = (chance_levels(19, counts) for counts in ([1], [3], [1, 3, 3]))
    for name, value in both.items():
        assert value == pytest.approx((one[name] + 2 * three[name]) / 3)
        assert math.isfinite(value)


@pytest.mark.parametrize(("pages", "relevant"), [(5, []), (5, [0]), (5, [1, 6]), (0, [1])])
def test_impossible_counts_are_refused(pages: int, relevant: list[int]) -> None:
    with pytest.raises(DataError, match=f"expected 1 to {pages} relevant pages"):
        chance_levels(pages, relevant)
