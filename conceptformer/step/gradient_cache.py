"""Large candidate sets in little memory, with exact gradients (Gao et al., 2021, "Scaling deep contrastive learning").

The batch is embedded in chunks without a graph; the loss over all embeddings gives their gradients; each chunk is then
embedded again, with its graph, and passes its share of the gradients on to the parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from conceptformer.step.batch import TrainingBatch
from conceptformer.step.model import Embeddings
from conceptformer.step.objective import LossTerms


class RandomState:
    """The state of the random generators of the CPU and of one accelerator, to draw the same dropout twice."""

    def __init__(self, device: torch.device) -> None:
        self._accelerator = None if device.type == "cpu" else torch.get_device_module(device)
        self._states = (torch.get_rng_state(), self._accelerator and self._accelerator.get_rng_state(device))

    def restore(self) -> None:
        """Put the generators back to where they were."""
        torch.set_rng_state(self._states[0])
        if self._accelerator is not None:
            self._accelerator.set_rng_state(self._states[1])


def cached_backward(
    chunks: Sequence[TrainingBatch],
    embed: Callable[[TrainingBatch], Embeddings],
    loss: Callable[[Embeddings], LossTerms],
    backward: Callable[[torch.Tensor], None],
    without_sync: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> LossTerms:
    """Add the gradients of the loss over all chunks to the parameters, holding the graph of one chunk at a time.

    Args:
        embed: The model. Its dropout is drawn alike both times.
        loss: Of the embeddings of all chunks, one after the other.
        backward: Called once for each chunk with a scalar.
        without_sync: Entered around every chunk but the last, for wrappers that exchange gradients between processes.

    Returns:
        The terms of the loss, without a graph behind them.
    """
    states, cached = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(RandomState(chunk.joint_ids.device))
            cached.append(embed(chunk))
    leaves = Embeddings(
        *(
            torch.cat(parts).requires_grad_()
            for parts in zip(*((e.query, e.page, e.concept) for e in cached), strict=True)
        )
    )
    terms = loss(leaves)
    # The loss is scaled for accumulation and mixed precision when the chunks pass it on, not here.
    gradients = torch.autograd.grad(terms.total, (leaves.query, leaves.page, leaves.concept), allow_unused=True)
    start = 0
    for number, (chunk, state) in enumerate(zip(chunks, states, strict=True), start=1):
        state.restore()
        with nullcontext() if number == len(chunks) else without_sync():
            embeddings = embed(chunk)
            parts = zip((embeddings.query, embeddings.page, embeddings.concept), gradients, strict=True)
            end = start + len(chunk)
            # What the loss did not look at gets a zero, so that every parameter takes part in every process.
            backward(
                sum(
                    (part * gradient[start:end]).sum() if gradient is not None else 0 * part.sum()
                    for part, gradient in parts
                )
            )
        start = end
    return replace(terms, total=terms.total.detach())
