"""Query-to-page and page-to-query weights (ViSAR, Eq. 3 to 9), as pure functions.

Symbols: N pages, m question tokens, page p has n_p patches; p and i index pages and tokens, j patches.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

EPSILON = 1e-6
"""Added to the range in min-max normalisation and to the denominator of Eq. 6, as in the authors' runs."""


ROUNDING = 1e-5
"""Weights of order 1 that differ by less come out of float32 different by chance."""


def min_max(values: torch.Tensor, epsilon: float = EPSILON) -> torch.Tensor:
    """(x - min) / (max - min + epsilon). Equal values give zeros, with and without epsilon."""
    low, high = values.min(), values.max()
    if low == high:
        return torch.zeros_like(values)
    return (values - low) / (high - low + epsilon)


def contrast(values: torch.Tensor, epsilon: float = EPSILON) -> torch.Tensor:
    """Min-max normalised weights; ones where none stands out.

    Min-max would silence equal weights, and blow up weights that differ by rounding only.
    """
    if values.max() - values.min() <= ROUNDING * values.abs().max().clamp_min(1):
        return torch.ones_like(values)
    return min_max(values, epsilon)


def informative_tokens(activation: torch.Tensor) -> torch.Tensor:
    """[m] bool: tokens that Eq. 3 is defined for, those whose mean activation [N, m] over pages is above zero.

    The mean is Eq. 3's denominator. At zero the quotient does not exist, and below zero it would turn the order of
    the pages round; such a token matches nothing in the document and has nothing to say about it.
    """
    return activation.mean(dim=0) > EPSILON


def scaled_activation(activation: torch.Tensor) -> torch.Tensor:
    """Activation relative to its mean, times the token's relative spread over pages (Eq. 3 and 4).

    Args:
        activation: [N, m], N >= 2, every token informative.

    Returns:
        [N, m]. All zeros where no token varies over the pages.
    """
    spread = activation.std(dim=0, correction=1)
    mean_spread = spread.mean()
    # Equal pages differ by rounding only: below this, the quotient would blow noise up to signal.
    if mean_spread <= EPSILON:
        return torch.zeros_like(activation)
    return activation / activation.mean(dim=0) * (spread / mean_spread)


def token_weight(scaled: torch.Tensor) -> torch.Tensor:
    """w_i = log(N / (1 + sum_p scaled)) for scaled activations [N, m] (Eq. 5). Returns [m].

    The sum equals N times the relative spread, hence the argument of the logarithm is positive.
    """
    return torch.log(len(scaled) / (1 + scaled.sum(dim=0)))


def page_weight(scaled: torch.Tensor) -> torch.Tensor:
    """Co-activation of all token pairs, relative to the pairs' mean activations (Eq. 6 and 7).

    The double sum over i and i' of scaled_i scaled_i' / (mean_i mean_i' + epsilon) is a quadratic form of each
    page's row, so that the [N, m, m] tensor of Eq. 6 is never made.

    Args:
        scaled: [N, m].

    Returns:
        [N].
    """
    mean = scaled.mean(dim=0)
    pair_scale = 1 / (torch.outer(mean, mean) + EPSILON)
    return ((scaled @ pair_scale) * scaled).sum(dim=1) / scaled.shape[1]


def token_page_gain(scaled: torch.Tensor, token_weight: torch.Tensor, page_weight: torch.Tensor) -> torch.Tensor:
    """(scaled * w_i * w_p)^2, the factor of <v, q> in Eq. 8, from normalised weights [m] and [N]. Returns [N, m]."""
    return (scaled * token_weight * page_weight[:, None]).square()


def patch_relevance(cosine: torch.Tensor, starts: Sequence[int], gain: torch.Tensor) -> torch.Tensor:
    """r_j = max over tokens of <v_j, q_i> times the gain of token and page (Eq. 8).

    Args:
        cosine: [m, sum n_p], all question tokens against all patches.
        starts: N + 1 column numbers; page p holds columns ``starts[p]:starts[p + 1]``.
        gain: [N, m], see :func:`token_page_gain`.

    Returns:
        [sum n_p].
    """
    relevance = cosine.new_zeros(cosine.shape[1])
    for page in gain.amax(dim=1).nonzero().flatten().tolist():  # a page without gain has relevance 0 everywhere
        columns = slice(starts[page], starts[page + 1])
        relevance[columns] = (cosine[:, columns] * gain[page][:, None]).amax(dim=0)
    return relevance


def patch_weight(relevance: torch.Tensor) -> torch.Tensor:
    """max(0, r - mean r), the mean over all patches of all pages (Eq. 9), on [sum n_p].

    Zeros where the relevances differ by rounding only.
    """
    weight = (relevance - relevance.mean()).clamp_min(0)
    return weight if weight.max() > ROUNDING * relevance.abs().max() else torch.zeros_like(weight)
