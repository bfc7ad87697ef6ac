"""The training objective (Eq. 17) over the pages of all processes, and what it counts on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from conceptformer.losses import concept_kl, false_negatives, info_nce, query_concept_matching
from conceptformer.step.gather import all_gather_with_gradient, gather_integers, process_count, process_offset
from conceptformer.step.model import Embeddings


@dataclass(frozen=True)
class Marks:
    """What the loss must know of a batch besides its embeddings.

    Attributes:
        has_concept: [B].
        page_keys, other_keys: [B] and [B, K], see :class:`~conceptformer.step.batch.TrainingBatch`.
    """

    has_concept: torch.Tensor
    page_keys: torch.Tensor
    other_keys: torch.Tensor


@dataclass(frozen=True)
class Candidates:
    """All pages of the step, and their samples' concepts.

    Attributes:
        page, concept: [N, D].
        has_concept: [N].
        positive: [B], each own query's page.
        excluded: [B, N], pages that answer a query too and are no negatives for it; None to exclude nothing.
    """

    page: torch.Tensor
    concept: torch.Tensor
    has_concept: torch.Tensor
    positive: torch.Tensor
    excluded: torch.Tensor | None


@dataclass(frozen=True)
class LossTerms:
    """The loss of this process, and its parts.

    The mean of ``total`` over all processes is the loss of the whole set of candidates; so are the means of the parts.

    Attributes:
        masked_pairs: Pairs of this process' queries with pages that were no negatives.
        without_concept: This process' samples without a concept.
    """

    total: torch.Tensor
    info_nce: torch.Tensor
    alignment: torch.Tensor
    masked_pairs: int
    without_concept: int


class Alignment(Protocol):
    """What makes concepts rank pages as queries do."""

    def losses(
        self, own: Embeddings, has_concept: torch.Tensor, candidates: Candidates, temperature: float
    ) -> torch.Tensor:
        """[B], one value a sample, 0 where it has no concept."""


@dataclass(frozen=True)
class RankingAlignment:
    """KL between the distributions over pages (Eq. 16).

    Attributes:
        reverse: KL(P(d | c) || P(d | q)) instead of the paper's KL(P(d | q) || P(d | c)).
    """

    reverse: bool = False

    def losses(
        self, own: Embeddings, has_concept: torch.Tensor, candidates: Candidates, temperature: float
    ) -> torch.Tensor:
        """See :class:`Alignment`."""
        return concept_kl(
            own.query,
            own.concept,
            candidates.page,
            temperature=temperature,
            has_concept=has_concept,
            excluded=candidates.excluded,
            reverse=self.reverse,
            reduction="none",
        )


@dataclass(frozen=True)
class QueryConceptMatching:
    """KL from the distribution over pages to one over the concepts of the batch (Table 2, 'Query-Concept Matching')."""

    def losses(
        self, own: Embeddings, has_concept: torch.Tensor, candidates: Candidates, temperature: float
    ) -> torch.Tensor:
        """See :class:`Alignment`."""
        return query_concept_matching(
            own.query,
            candidates.concept,
            candidates.page,
            temperature=temperature,
            has_concept=has_concept,
            candidate_has_concept=candidates.has_concept,
            excluded=candidates.excluded,
            reduction="none",
        )


@dataclass(frozen=True)
class Objective:
    """L = InfoNCE + concept_weight * alignment (Eq. 17).

    Attributes:
        temperature: tau.
        concept_weight: lambda.
        mask_false_negatives: Leave equal pages, and further positives of a query, out of its negatives.
    """

    temperature: float
    concept_weight: float
    alignment: Alignment
    mask_false_negatives: bool

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature: expected a number above 0, got {self.temperature}")
        if not self.concept_weight >= 0:
            raise ValueError(f"concept_weight: expected a number of at least 0, got {self.concept_weight}")

    def __call__(self, own: Embeddings, marks: Marks) -> LossTerms:
        """The loss over the pages of all processes."""
        candidates = self._gather(own, marks)
        losses = info_nce(
            own.query,
            candidates.page,
            temperature=self.temperature,
            positive=candidates.positive,
            excluded=candidates.excluded,
            reduction="none",
        )
        contrast = _share_of_mean(losses, len(candidates.page))
        if self.concept_weight:
            losses = self.alignment.losses(own, marks.has_concept, candidates, self.temperature)
            # Over the samples of all processes that have a concept, however they are spread over the processes.
            alignment = _share_of_mean(losses, max(1, int(candidates.has_concept.sum())))
        else:
            # Zero, and yet of the concepts: processes that exchange gradients wait for those of every parameter.
            alignment = 0 * own.concept.masked_fill(~marks.has_concept[:, None], 0).sum()
        return LossTerms(
            total=contrast + self.concept_weight * alignment,
            info_nce=contrast.detach(),
            alignment=alignment.detach(),
            masked_pairs=0 if candidates.excluded is None else int(candidates.excluded.sum()),
            without_concept=int((~marks.has_concept).sum()),
        )

    def _gather(self, own: Embeddings, marks: Marks) -> Candidates:
        page_keys = gather_integers(marks.page_keys)
        positive = torch.arange(len(own.query), device=own.query.device) + process_offset(
            len(own.query), own.query.device
        )
        excluded = None
        if self.mask_false_negatives:
            excluded = false_negatives(page_keys, positive, marks.other_keys)
        return Candidates(
            page=all_gather_with_gradient(own.page),
            concept=all_gather_with_gradient(own.concept),
            has_concept=gather_integers(marks.has_concept.long()).bool(),
            positive=positive,
            excluded=excluded,
        )


def _share_of_mean(losses: torch.Tensor, total: int) -> torch.Tensor:
    """This process' share of the mean over ``total`` samples, such that the mean over the processes is that mean."""
    return losses.sum() * (process_count() / total)
