"""Uncertainty of means over questions that share documents.

Questions about one document are alike, so the document, called cluster here, is the unit that is resampled or flipped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from visar.errors import VisarError
from visar.metrics import f1_of_means

# Resamples handled at once: keeps memory at this many times the number of questions.
BLOCK = 500
# Up to this many documents that differ, all 2^n sign patterns are tried.
EXACT_CLUSTERS = 14

Statistic = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def weighted_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Means [samples] of ``values`` [n] under each row of ``weights`` [samples, n]."""
    return weights @ values / weights.sum(axis=1)


def weighted_median(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Medians [samples] of ``values`` [n], each taken as often as ``weights`` [samples, n], whole numbers, say."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[:, order], axis=1)
    total = reached[:, -1:]
    lower, upper = ((reached <= place).sum(axis=1) for place in ((total - 1) // 2, total // 2))
    return (values[order][lower] + values[order][upper]) / 2


def weighted_f1_of_means(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """F1 [samples] of mean recall and mean precision; ``values`` [n, 2] holds each question's recall and precision."""
    recall, precision = weighted_mean(values[:, 0], weights), weighted_mean(values[:, 1], weights)
    return np.array([f1_of_means(*pair) for pair in zip(recall, precision, strict=True)])


def bootstrap_interval(
    values: Sequence[float] | np.ndarray,
    clusters: Sequence[Hashable],
    *,
    statistic: Statistic = weighted_mean,
    samples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval | None:
    """Percentile bootstrap in which whole documents are drawn with replacement.

    Args:
        values: [n] one value per question, or [n, c] where ``statistic`` takes several.
        clusters: n document ids.
        statistic: From (values, weights [samples, n]) to [samples]; weights say how often each question was drawn. Give
            :func:`weighted_mean`, :func:`weighted_median`, :func:`weighted_f1_of_means` or your own.
        samples: Number of resamples.
        level: Coverage, 0.95 for 95 %.
        seed: Of the resampling.

    Returns:
        The interval, or None where all questions are about one document: then nothing can be resampled and the
        uncertainty is unknown, not zero.

    Raises:
        VisarError: No values, values that are not finite, unequal lengths, or settings out of range.
    """
    values, index = _checked(values, clusters, samples)
    if not 0 < level < 1:
        raise VisarError(f"bootstrap: level is {level}; expected a number between 0 and 1")
    count = int(index.max()) + 1
    if count == 1:
        return None
    drawn = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), size=samples)
    blocks = [statistic(values, drawn[start : start + BLOCK, index]) for start in range(0, samples, BLOCK)]
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(blocks), [tail, 1 - tail])
    return Interval(float(low), float(high))


@dataclass(frozen=True)
class Resampling:
    """How uncertainty is estimated.

    Attributes:
        samples: Bootstrap resamples, and sign flips of the paired tests.
        seed: Of both.

    Raises:
        VisarError: A setting is out of range. Better now than after the hours that a run may take.
    """

    samples: int
    seed: int

    def __post_init__(self) -> None:
        for name, least in {"samples": 1, "seed": 0}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise VisarError(f"resampling.{name}: expected a whole number of at least {least}, got {value!r}")

    def estimate(
        self, values: Sequence[float] | np.ndarray, clusters: Sequence[Hashable], statistic: Statistic = weighted_mean
    ) -> dict[str, float | None]:
        """Value of the statistic with its 95 % interval, whole clusters resampled.

        Args:
            values, clusters, statistic: See :func:`bootstrap_interval`.

        Returns:
            "value", and "low" and "high", which are None where all is one cluster.
        """
        values = np.asarray(values, dtype=float)
        value = float(statistic(values, np.ones((1, len(values))))[0])
        interval = bootstrap_interval(values, clusters, statistic=statistic, samples=self.samples, seed=self.seed)
        low, high = interval if interval is not None else (None, None)
        return {"value": value, "low": low, "high": high}


def paired_permutation_test(
    differences: Sequence[float] | np.ndarray,
    clusters: Sequence[Hashable],
    *,
    samples: int = 10_000,
    seed: int = 0,
) -> float:
    """Two-sided sign-flip test that the mean difference of two methods is 0; signs flip per document.

    All sign patterns are tried for up to 14 documents whose differences do not sum to 0, which makes the p-value exact
    and 2 / 2^documents the smallest one possible. Beyond that ``samples`` random patterns are drawn, and the observed
    one is counted with them, so that p is never 0.

    Args:
        differences: [n] value of one method minus value of the other, question by question.
        clusters: n document ids.
        samples: Number of random patterns.
        seed: Of the random patterns.

    Returns:
        The p-value; 1 where the differences of every document sum to 0.

    Raises:
        VisarError: No differences, differences that are not finite, unequal lengths, or ``samples`` < 1.
    """
    differences, index = _checked(differences, clusters, samples)
    sums = np.bincount(index, weights=differences)
    sums = sums[sums != 0]
    if len(sums) == 0:
        return 1.0
    # Patterns that equal the observed one but for rounding must count as equal.
    observed = abs(sums.sum()) - 1e-12 * np.abs(differences).sum()
    if len(sums) <= EXACT_CLUSTERS:
        patterns = np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums)) & 1
        return float(np.mean(np.abs((2 * patterns - 1) @ sums) >= observed))
    generator = np.random.default_rng(seed)
    as_large = 0
    for start in range(0, samples, BLOCK):
        signs = 2 * generator.integers(0, 2, size=(min(BLOCK, samples - start), len(sums))) - 1
        as_large += int(np.count_nonzero(np.abs(signs @ sums) >= observed))
    return (as_large + 1) / (samples + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment of a family of p-values, in the order given. Compare the results with alpha itself.

    Raises:
        VisarError: A p-value outside 0 .. 1.
    """
    outside = [p for p in p_values if not 0 <= p <= 1]
    if outside:
        raise VisarError(f"holm: {outside} are no p-values; expected numbers from 0 to 1")
    adjusted = [0.0] * len(p_values)
    reached = 0.0
    for done, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        reached = max(reached, min(1.0, (len(p_values) - done) * p_values[place]))
        adjusted[place] = reached
    return adjusted


def _checked(
    values: Sequence[float] | np.ndarray, clusters: Sequence[Hashable], samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values as float64 and the cluster number [n] of each, numbered by first occurrence."""
    values = np.asarray(values, dtype=np.float64)
    if len(values) == 0 or len(values) != len(clusters):
        raise VisarError(
            f"significance: got {len(values)} values and {len(clusters)} document ids; expected as many, at least one"
        )
    if not np.isfinite(values).all():
        raise VisarError("significance: values hold NaN or Inf; leave out questions for which the metric is undefined")
    if samples < 1:
        raise VisarError(f"significance: samples is {samples}; expected a whole number of at least 1")
    numbers: dict[Hashable, int] = {}
    return values, np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters])
