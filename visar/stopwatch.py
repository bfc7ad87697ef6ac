"""Wall time of consecutive stages, exact on a GPU too."""

from __future__ import annotations

import time

import torch


class Stopwatch:
    """Splits the time since its making into named stages.

    Attributes:
        seconds: Wall time of each stage so far.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}
        self._last = self._now()

    def lap(self, stage: str) -> None:
        """End the running stage under this name and begin the next."""
        now = self._now()
        self.seconds[stage] = now - self._last
        self._last = now

    def _now(self) -> float:
        # Kernels run behind Python's back: without this the last stage to wait would get the time of all others.
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
