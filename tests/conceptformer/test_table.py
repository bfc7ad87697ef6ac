"""Retrievers side by side: figures worked by hand, tests against scipy, and runs that cannot be compared."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import permutation_test
from statsmodels.stats.multitest import multipletests

from conceptformer.errors import DataError
from conceptformer.published import published_benchmarks, published_means
from conceptformer.retrieval.comparison import compare_retrievers
from conceptformer.retrieval.finished_runs import FinishedRun
from visar.significance import Resampling

MANY = Resampling(samples=10_000, seed=0)
KNOWN = published_benchmarks()


def made_run(
    retriever: str,
    benchmark: str,
    ndcg: Mapping[str, float],
    *,
    recall: Mapping[str, float] | None = None,
    relevant: Mapping[str, str] | None = None,
    **changes: object,
) -> FinishedRun:
    """A run whose queries have one answer each, by default a page of their own."""
    queries = {
        query: {"recall_at_10": (recall or ndcg)[query], "ndcg_at_10": value, "mrr_at_10": value}
        for query, value in ndcg.items()
    }
    answers = {query: frozenset([(relevant or {}).get(query, f"page of {query}")]) for query in ndcg}
    run = FinishedRun(Path(benchmark, retriever), benchmark, retriever, f"{retriever} 1", 40, 0, queries, answers)
    return dataclasses.replace(run, **changes)


def compared(*runs: FinishedRun, reference: str | None = None, order: tuple[str, ...] = ()):
    return compare_retrievers(runs, order=order, reference=reference, resampling=MANY)


SMALL = (
    made_run("ours", "infovqa", {"a": 1.0, "b": 0.5, "c": 1.0}),
    made_run("ours", "own", {"x": 0.25, "y": 0.75}),
    made_run("BM25", "infovqa", {"a": 0.0, "b": 0.5, "c": 0.1}, recall={"a": 0.0, "b": 1.0, "c": 1.0}),
)


# Figures.


def test_means_averages_and_the_reference_worked_by_hand():
    comparison = compared(*SMALL, order=("chartqa", "infovqa"))
    assert comparison.benchmarks == ("infovqa", "own")
    assert comparison.retrievers == ("ours", "BM25")
    assert comparison.reference == "ours"
    # (2.5 / 3 + 0.5) / 2; BM25 was not run on "own".
    assert comparison.average("ours", "ndcg_at_10") == pytest.approx((2.5 / 3 + 0.5) / 2)
    assert comparison.average("BM25", "ndcg_at_10") is None
    by_metric = {one.metric: one for one in comparison.differences}
    assert set(by_metric) == {"ndcg_at_10", "recall_at_10"} and len(comparison.differences) == 2
    assert by_metric["ndcg_at_10"].value == pytest.approx((1.0 + 0.0 + 0.9) / 3)
    assert by_metric["recall_at_10"].value == pytest.approx((1.0 - 0.5 + 0.0) / 3)
    # Two queries differ in nDCG, both in one direction: 2 of 4 sign patterns are as extreme. In recall: 1.0 and -0.5,
    # whose sum 0.5 is reached by all four patterns.
    assert by_metric["ndcg_at_10"].p == 0.5 and by_metric["recall_at_10"].p == 1.0
    assert [one.p_holm for one in comparison.differences] == [1.0, 1.0]


def test_the_reference_can_be_chosen():
    comparison = compared(*SMALL, reference="BM25")
    assert {one.other for one in comparison.differences} == {"ours"}
    assert comparison.differences[0].value == pytest.approx(-1.9 / 3)
    with pytest.raises(DataError, match="no retriever is called 'bm25'; expected one of ours, BM25"):
        compared(*SMALL, reference="bm25")


def test_the_one_with_the_most_benchmarks_comes_before_a_better_one():
    better = made_run("better", "own", {"x": 1.0, "y": 1.0})
    assert compared(*SMALL, better).reference == "ours"


@pytest.mark.parametrize("count", [9, 60])
def test_p_values_are_those_of_scipy_and_statsmodels(count):
    """Exact for few queries, to within what chance allows for many."""
    generator = np.random.default_rng(count)
    names = [f"q{number}" for number in range(count)]
    values = {name: dict(zip(names, generator.random(count).round(2), strict=True)) for name in ("a", "b", "c")}
    values["a"] = {query: min(1.0, value + 0.12) for query, value in values["a"].items()}
    comparison = compared(*(made_run(name, "own", own) for name, own in values.items()), reference="a")
    expected = {}
    for other in ("b", "c"):
        differences = np.array([values["a"][query] - values[other][query] for query in names])
        expected[other] = permutation_test(
            (differences,), np.mean, permutation_type="samples", n_resamples=20_000 if count > 12 else np.inf,
            rng=np.random.default_rng(1),
        ).pvalue  # fmt: skip
    for one in comparison.differences:
        if count <= 12:
            assert one.p == pytest.approx(expected[one.other], abs=1e-12)
        else:
            deviation = np.sqrt(expected[one.other] * (1 - expected[one.other]) * (1 / 10_000 + 1 / 20_000))
            assert one.p == pytest.approx(expected[one.other], abs=5 * deviation + 1e-4)
    _, adjusted, _, _ = multipletests([one.p for one in comparison.differences], method="holm")
    assert [one.p_holm for one in comparison.differences] == pytest.approx(adjusted.tolist())


def test_queries_about_one_page_count_as_one():
    """Eight queries about two pages that all gain: two signs, so p cannot be below 1/2."""
    names = [f"q{number}" for number in range(8)]
    about = {name: f"p{number % 2}" for number, name in enumerate(names)}
    runs = [
        made_run(name, "own", dict.fromkeys(names, value), relevant=about) for name, value in (("a", 1.0), ("b", 0.2))
    ]
    assert compared(*runs, reference="a").differences[0].p == 0.5
    alone = [made_run(name, "own", dict.fromkeys(names, value)) for name, value in (("a", 1.0), ("b", 0.2))]
    assert compared(*alone, reference="a").differences[0].p == pytest.approx(2 / 2**8)


# Which retriever is which.


def test_retrievers_of_one_name_are_told_apart_by_their_folders():
    base = made_run("ours", "own", {"x": 1.0})
    other = dataclasses.replace(base, fingerprint="another", folder=Path("own", "trained-longer"))
    third = dataclasses.replace(base, fingerprint="a third", folder=Path("elsewhere", "ours"), retriever="third")
    assert compared(base, other, third).retrievers == ("ours (ours)", "ours (trained-longer)", "third")
    same = dataclasses.replace(base, fingerprint="another", folder=Path("elsewhere", "ours"))
    assert compared(base, same).retrievers == ("ours (own/ours)", "ours (elsewhere/ours)")


def test_a_run_that_lies_there_twice_counts_once_and_two_that_differ_are_refused():
    base = made_run("ours", "own", {"x": 1.0})
    copy = dataclasses.replace(base, folder=Path("copy"))
    assert len(compared(base, copy).runs) == 1
    other = dataclasses.replace(made_run("ours", "own", {"x": 0.5}), folder=Path("other"))
    with pytest.raises(DataError, match="own/ours and other: different results of ours on own; remove the older one"):
        compared(base, other)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ndcg": {"x": 1.0}}, "different queries"),
        ({"relevant": {"x": "another page"}}, "different relevant pages"),
        ({"pages": 41}, "different numbers of pages"),
    ],
)
def test_runs_of_other_data_are_not_compared(changes, said):
    base = made_run("a", "own", {"x": 1.0, "y": 0.5})
    other = made_run("b", "own", changes.pop("ndcg", {"x": 0.5, "y": 0.5}), **changes)
    with pytest.raises(DataError, match=f"own/a and own/b: both are of a benchmark called own, with {said}"):
        compared(base, other)


# The paper's tables.


@pytest.mark.parametrize("table", [1, 2])
def test_the_averages_that_the_paper_prints_are_those_of_its_figures(table):
    """To the half hundredth that rounding leaves; what stands in the file's own columns of averages is never used."""
    path = Path(__file__).parents[2] / "conceptformer" / "published" / f"conceptformer_table{table}.csv"
    lines = path.read_text().splitlines()
    assert lines[0].startswith(f"# Source: Table {table} of Peng et al., ConceptFormer")
    printed = {
        line.rsplit(",", 2)[0].split(",")[0]: [float(cell) for cell in line.rsplit(",", 2)[1:]] for line in lines[2:]
    }
    means = published_means(table)
    assert list(means) == list(printed)
    for method, (recall, ndcg) in printed.items():
        for metric, value in (("recall_at_10", recall), ("ndcg_at_10", ndcg)):
            average = np.mean([means[method][benchmark, metric] for benchmark in KNOWN])
            assert 100 * average == pytest.approx(value, abs=0.011), (method, metric)


def test_published_figures_are_read_as_they_stand():
    assert published_means(1)["BM25"]["wikimedia_maps", "ndcg_at_10"] == pytest.approx(0.0326)
    assert published_means(2)["w/o KL Loss"]["infovqa", "recall_at_10"] == pytest.approx(0.9055)
    assert len(published_means(1)) == 14 and list(KNOWN)[-1] == "wikimedia_maps"
    with pytest.raises(DataError, match="tables of methods are 1 and 2, got 3"):
        published_means(3)


def test_sizes_of_the_benchmarks_are_those_of_their_manifests():
    folder = Path(__file__).parents[2].parent / "shared" / "data" / "conceptformer-eval"
    if not folder.is_dir():
        pytest.skip("the benchmarks' manifests are not here")
    named = {"owid_charts": "owid_charts_en", "wikimedia_maps": "wikimedia-commons-maps"}
    for name, benchmark in KNOWN.items():
        manifest = json.loads((folder / named.get(name, name) / "manifest.json").read_text())
        assert (benchmark.queries, benchmark.pages) == (manifest["query_rows"], manifest["corpus_rows"])
