"""How many pages to read (ViSAR, Eq. 12 to 14 and the transition rule of Algorithm S1)."""

from __future__ import annotations

import math

import torch

from visar.weights import min_max


def cost_curve(similarity: torch.Tensor, order: list[int], leakage_weight: float, longest: int) -> torch.Tensor:
    """J(k) for k = 1 .. longest (Eq. 14), all at once from cumulative sums of the re-ordered matrix.

    The cohesion of a relevant page is its mean similarity to the k relevant pages (Eq. 12), its leakage the mean
    similarity to all others (Eq. 13), inactive ones included. J(N) has no other pages: it is the cohesion alone.

    Args:
        similarity: [N, N].
        order: All N pages, best first.
        leakage_weight: gamma.
        longest: Largest k looked at, 1 <= longest <= N.

    Returns:
        [longest] float64: gamma of 1e5 costs float32 five of its seven digits.
    """
    index = torch.tensor(order, device=similarity.device)
    ordered = similarity.to(torch.float64)[index][:, index]
    pages = len(order)
    share = ordered.diagonal() / ordered.diagonal().sum()
    inside = ordered.cumsum(dim=1)[:, :longest]
    outside = ordered.sum(dim=1, keepdim=True) - inside
    k = torch.arange(1, longest + 1, device=ordered.device, dtype=torch.float64)
    cohesion = inside / k
    leakage = torch.where(k < pages, outside / (pages - k).clamp_min(1), torch.zeros_like(outside))
    per_page = share[:, None] * (cohesion - leakage_weight * leakage)
    # Column k - 1 is summed over the first k rows, the relevant pages.
    return per_page.cumsum(dim=0)[:longest].diagonal()


def choose_k(cost: torch.Tensor) -> tuple[int, bool]:
    """k with the least cost, one more where the cost changes more sharply beyond it than before it.

    The rule (Algorithm S1, lines 38 to 44) looks n = round(ln k) steps to either side, and is tried only where k > 1
    and the curve reaches that far. Ties go to the smaller k.

    Args:
        cost: [K] J(1) .. J(K), finite, K >= 1.

    Returns:
        k and whether the transition rule added a page.
    """
    curve = min_max(cost, epsilon=0.0).tolist()
    best = min(range(len(curve)), key=curve.__getitem__)
    reach = round(math.log(best + 1))
    if best == 0 or best + reach >= len(curve):
        return best + 1, False
    steps = [abs(later - earlier) for earlier, later in zip(curve, curve[1:])]  # noqa: B905
    beyond, before = sum(steps[best : best + reach]), sum(steps[best - reach : best])
    return (best + 2, True) if beyond > before else (best + 1, False)
