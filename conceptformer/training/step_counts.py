"""What is counted between two lines of the training log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from conceptformer.step.batch import TrainingBatch
from conceptformer.step.objective import LossTerms
from conceptformer.training.rows import Unreadable


@dataclass
class StepCounts:
    """Sums over the steps of one process since :meth:`drain`.

    Attributes:
        unreadable: All rows of the run whose image could not be read, by (query id, page id); those of other processes
            since they were last drained.
    """

    unreadable: dict[tuple[str, str], str] = field(default_factory=dict)
    _steps: int = 0
    _sums: dict[str, float] = field(default_factory=dict)
    _longest: int = 0

    def add(
        self, terms: LossTerms, batches: Sequence[TrainingBatch], unreadable: Sequence[Unreadable], seconds: float
    ) -> None:
        """Count one step."""
        self._steps += 1
        self.unreadable.update({row.pair: row.reason for row in unreadable})
        slots = [int(number) for batch in batches for number in batch.slots.sum(dim=1)]
        self._longest = max(self._longest, *slots)
        new = {
            "info_nce": float(terms.info_nce),
            "alignment": float(terms.alignment),
            "masked_pairs": terms.masked_pairs,
            "without_concept": terms.without_concept,
            "unreadable": len(unreadable),
            "concept_tokens": sum(slots),
            "with_concept_tokens": sum(number > 0 for number in slots),
            "tokens": sum(batch.tokens for batch in batches),
            "padding": sum(_places(batch) - batch.tokens for batch in batches),
            "seconds": seconds,
        }
        for name, value in new.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def drain(self, accelerator: Accelerator) -> dict[str, float]:
        """Figures over all processes for the log, and a fresh start.

        Returns:
            Means per step of the loss terms; sums since the last time of masked pairs, of samples without a concept and
            of unreadable rows; mean and greatest number of concept tokens per sample that has any; tokens per second.
        """
        names = sorted(self._sums)
        own = torch.tensor([[self._sums[name] for name in names]], dtype=torch.float64)
        longest = torch.tensor([self._longest])
        if accelerator.num_processes > 1:
            # Not every accelerator knows double precision; the figures are for people.
            own = accelerator.gather(own.float().to(accelerator.device)).cpu()
            longest = accelerator.gather(longest.to(accelerator.device)).cpu()
        total = dict(zip(names, own.sum(dim=0).tolist(), strict=True))
        mean = dict(zip(names, own.mean(dim=0).tolist(), strict=True))
        if total["unreadable"]:
            for pair, reason in gather_object(list(self.unreadable.items())):
                self.unreadable[pair] = reason
        steps = max(self._steps, 1)
        self._steps, self._sums, self._longest = 0, {}, 0
        return {
            "info_nce": mean["info_nce"] / steps,
            "alignment": mean["alignment"] / steps,
            "masked_pairs": total["masked_pairs"],
            "without_concept": total["without_concept"],
            "unreadable": total["unreadable"],
            "concept_tokens_mean": total["concept_tokens"] / max(total["with_concept_tokens"], 1),
            "concept_tokens_max": float(longest.max()),
            "padding_share": total["padding"] / max(total["padding"] + total["tokens"], 1),
            "tokens_per_second": total["tokens"] / max(mean["seconds"], 1e-9),
        }


def _places(batch: TrainingBatch) -> int:
    """Tokens of the language model, padding included."""
    return batch.joint_ids.numel() + batch.query_ids.numel() + batch.text_ids.numel()
