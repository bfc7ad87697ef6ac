"""What is counted between two lines of the training log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from conceptformer.step.batch import TrainingBatch
from conceptformer.step.objective import LossTerms
from conceptformer.training.rows import Chunks


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
    _losses: list[torch.Tensor] = field(default_factory=list)
    _longest: int = 0
    _since: float | None = None
    _paused: float = 0.0

    def begin_step(self) -> None:
        """A step begins: with the first one of the run the clock does."""
        if self._since is None:
            self._since = time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done within takes no time of the steps."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - began

    def add(self, terms: LossTerms, chunks: Chunks) -> None:
        """Count one step.

        Args:
            chunks: On the CPU, where they came from: on a GPU each number that is read waits for all its work.
        """
        self._steps += 1
        self.unreadable.update({row.pair: row.reason for row in chunks.unreadable})
        slots = torch.cat([batch.slots.sum(dim=1) for batch in chunks.batches])
        self._longest = max(self._longest, int(slots.max()))
        self._losses.append(torch.stack([terms.info_nce.float(), terms.alignment.float()]))
        tokens = sum(batch.tokens for batch in chunks.batches)
        new = {
            "masked_pairs": terms.masked_pairs,
            "without_concept": terms.without_concept,
            "unreadable": len(chunks.unreadable),
            "concept_tokens": int(slots.sum()),
            "with_concept_tokens": int((slots > 0).sum()),
            "tokens": tokens,
            "padding": sum(map(_places, chunks.batches)) - tokens,
        }
        for name, value in new.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def drain(self, accelerator: Accelerator) -> dict[str, float]:
        """Figures over all processes for the log, and a fresh start.

        Returns:
            Means per step of the loss terms; sums since the last time of masked pairs, of samples without a concept and
            of unreadable rows; mean and greatest number of concept tokens per sample that has any; tokens per second
            of the time since the last time, or since the first step, with whatever was done in it but what was paused.
        """
        mean, total, longest = self._over_processes(accelerator)
        if total["unreadable"]:
            for pair, reason in gather_object(list(self.unreadable.items())):
                self.unreadable[pair] = reason
        steps = max(self._steps, 1)
        self._steps, self._sums, self._losses, self._longest = 0, {}, [], 0
        self._since, self._paused = time.perf_counter(), 0.0
        return {
            "info_nce": mean["info_nce"] / steps,
            "alignment": mean["alignment"] / steps,
            "masked_pairs": total["masked_pairs"],
            "without_concept": total["without_concept"],
            "unreadable": total["unreadable"],
            "concept_tokens_mean": total["concept_tokens"] / max(total["with_concept_tokens"], 1),
            "concept_tokens_max": float(longest),
            "padding_share": total["padding"] / max(total["padding"] + total["tokens"], 1),
            "tokens_per_second": total["tokens"] / max(mean["seconds"], 1e-9),
        }

    def _over_processes(self, accelerator: Accelerator) -> tuple[dict[str, float], dict[str, float], int]:
        """Means and sums over the processes of what was added up, and the longest of all."""
        info_nce, alignment = torch.stack(self._losses).cpu().double().sum(dim=0).tolist()
        # The losses were waited for, thus all the steps' work is done.
        seconds = time.perf_counter() - (self._since or 0.0) - self._paused
        sums = {**self._sums, "info_nce": info_nce, "alignment": alignment, "seconds": seconds}
        names = sorted(sums)
        own = torch.tensor([[sums[name] for name in names]], dtype=torch.float64)
        longest = torch.tensor([self._longest])
        if accelerator.num_processes > 1:
            # Not every accelerator knows double precision; the figures are for people.
            own = accelerator.gather(own.float().to(accelerator.device)).cpu()
            longest = accelerator.gather(longest.to(accelerator.device)).cpu()
        mean, total = (dict(zip(names, part.tolist(), strict=True)) for part in (own.mean(dim=0), own.sum(dim=0)))
        return mean, total, int(longest.max())


def _places(batch: TrainingBatch) -> int:
    """Tokens of the language model, padding included."""
    return batch.joint_ids.numel() + batch.query_ids.numel() + batch.text_ids.numel()
