"""The outcome of page selection: what was chosen, in which order, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

EXPLANATIONS = {
    "least_cost": "The cost J(k), which weighs what these pages share with each other and with the pages left unread, "
    "is least here.",
    "sharp_transition": "The cost J(k) is least one page earlier, but it jumps more right after that page than before "
    "it, so the next page is read too.",
    "search_limit": "The cost J(k) asks for more pages than the search limit, which is read.",
    "one_active_page": "Only one page stands out for the question.",
    "no_choice": "So few pages stand out for the question that there is no other k to compare with.",
    "one_page": "Only one page can be read.",
    "two_pages": "Two pages are too few to compare, so they are ranked by late interaction alone.",
    "pages_alike": "All pages match the question alike, so nothing tells them apart and only the first is read.",
    "no_active_page": "No part of any page stands out for the question, so the best page by late interaction is read.",
    "no_informative_token": "No word of the question matches the document, so the best page by late interaction is "
    "read.",
    "fixed_k": "A fixed number of pages is read.",
    "document_shorter_than_k": "The document has fewer pages than the fixed number, so all are read.",
    "largest_gap": "The late-interaction score falls most after these pages.",
    "cluster_border": "The widest border between clusters of scores comes after these pages.",
    "no_clusters": "The scores form no clusters, so the largest fall of the score decides.",
    "score_threshold": "These pages reach the threshold between the worst and the best score.",
    "higher_component": "These pages belong to the higher of two groups of scores.",
    "too_few_pages": "Two pages are too few to fit two groups, so one is read.",
    "all_evidence": "These are the fewest top pages that hold all evidence.",
    "no_evidence": "The question has no evidence pages, so one page is read.",
}
"""What each :attr:`Selection.reason` means, in a sentence."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Pages chosen for one question.

    Attributes:
        order: 0-based page numbers, best first. Pages left out for broken embeddings are not in it.
        scores: [N] the ranking's score of each page, indexed by page number; -inf for pages left out.
        k: How many pages to read, 1 <= k <= len(order).
        reason: Short name of the rule that decided k; :attr:`explanation` says it in a sentence.
        late_interaction: [N] late-interaction scores (Eq. 1), indexed by page number; -inf for pages left out.
        similarity: [N, N] page similarities (Eq. 11, min-max normalised), empty [0, 0] where none was computed.
        cost: J(k) for k = 1, 2, ... (Eq. 14), empty where none was computed.
        sparsity: Share of pages whose self-similarity is at most 0.01; None where no matrix was computed.
        warnings: What the caller should know, one sentence each.
        seconds: Wall time of each stage.
    """

    order: list[int]
    scores: torch.Tensor
    k: int
    reason: str
    late_interaction: torch.Tensor
    similarity: torch.Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    cost: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    sparsity: float | None = None
    warnings: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def pages(self) -> list[int]:
        """The chosen 0-based pages, best first."""
        return self.order[: self.k]

    @property
    def explanation(self) -> str:
        """The rule that decided k, in a sentence; the reason itself where a selector of your own gave it."""
        return EXPLANATIONS.get(self.reason, self.reason)

    def _repr_html_(self) -> str:
        """The form that notebooks show: chosen pages, the similarity matrix and the curve of J(k)."""
        # Imported here, since the pictures need matplotlib and are rarely asked for in batch runs.
        from visar.report.selection_html import selection_html

        return selection_html(self, labels=None)
