"""The templates of this package, in the look of the other reports."""

from __future__ import annotations

from visar.report.page import Templates

render = Templates("conceptformer.report").render
"""Fills ``templates/<name>.html.j2``."""

METRIC_NAMES = {"ndcg_at_10": "nDCG@10", "recall_at_10": "recall@10", "mrr_at_10": "MRR@10"}
"""How people call the metrics, the main one first."""


def figure(value: float) -> str:
    """Three digits, as short as they can be: ``0.0005``, ``2e-5``, ``7,512``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}".replace("e-0", "e-")
