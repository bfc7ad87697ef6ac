"""One candidate set from all processes, with the gradient that belongs to it. Every call is made by every process.

A process computes the losses of its own rows over everyone's pages. Its gradient with respect to the gathered pages is
then only its own part, so that the backward pass adds up the parts of all processes before each takes its rows.
Data-parallel training afterwards averages gradients over the W processes; for the mean over the joint batch, each
process's loss is therefore

    W / (rows that count in the joint batch) * sum of the losses of its own rows that count

and the result is that of a single process with the joint batch. For the concept loss only rows with a concept count:
gather ``has_concept`` with :func:`gather_integers`.

The backward pass waits for the other processes. All must gather the same tensors in the same order and reach them in
their backward passes: for this reason the losses of :mod:`conceptformer.losses` keep their graph where no row counts.
"""

from __future__ import annotations

import math

import torch
from torch import distributed
from torch.autograd.function import once_differentiable

from conceptformer.errors import TrainingError


def process_count() -> int:
    """W, 1 without :mod:`torch.distributed`."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def process_offset(rows: int, device: torch.device) -> int:
    """Which gathered row is this process's first: the positive of its query i is candidate offset + i.

    Args:
        rows: Of this process.
        device: One that the processes' backend can send from (a GPU for NCCL).
    """
    if process_count() == 1:
        return 0
    sizes = _exchange([rows], device)
    return sum(size for (size,) in sizes[: distributed.get_rank()])


def all_gather_with_gradient(x: torch.Tensor) -> torch.Tensor:
    """The rows of all processes in the order of ranks: [B_r, ...] -> [sum B_r, ...].

    The gradient of ``x`` is the sum over all processes of their gradients of the gathered tensor, at the rows of this
    process. Processes may have different numbers of rows, none included. ``x`` itself is returned where there is one.

    Raises:
        TrainingError: The processes' rows differ in shape.
    """
    if process_count() == 1:
        return x
    wants_gradient = torch.is_grad_enabled() and x.requires_grad
    sizes, wanted = _agree(x, wants_gradient)
    if wanted and not wants_gradient:
        # Without a node in this process's graph the others would wait for its part in the backward pass for ever.
        x = x.detach().requires_grad_()
    return _Gather.apply(x, sizes)


def gather_integers(x: torch.Tensor) -> torch.Tensor:
    """As :func:`all_gather_with_gradient` for int64 or bool, e.g. page keys and masks; there is no gradient.

    Raises:
        TrainingError: The dtype is another one, or the processes' rows differ in shape.
    """
    if x.dtype not in (torch.int64, torch.bool):
        raise TrainingError(f"gather: a tensor of {x.dtype}; expected int64 or bool, other tensors have gradients")
    if process_count() == 1:
        return x
    sizes, _ = _agree(x, False)
    return _gathered(x.long(), sizes).to(x.dtype)


class _Gather(torch.autograd.Function):
    """Own, since the one in torch.distributed.nn takes rows of one number only and is being retired."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        ctx.sizes = sizes
        return _gathered(x, sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        # A copy: the sum is made in place, and autograd may use the gradient elsewhere. All-reduce and not
        # reduce-scatter: parts differ in size, and not every version of gloo has it.
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(gradient)
        return gradient.split(ctx.sizes)[distributed.get_rank()], None


def _gathered(x: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    """The collective itself; rows are padded to the largest process's number, as backends want equal shapes."""
    padded = x.new_zeros(max(sizes), *x.shape[1:])
    padded[: len(x)] = x.detach()
    parts = [torch.empty_like(padded) for _ in sizes]
    distributed.all_gather(parts, padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def _agree(x: torch.Tensor, wants_gradient: bool) -> tuple[tuple[int, ...], bool]:
    """Rows of each process, in the order of ranks, and whether any process wants a gradient."""
    width = math.prod(x.shape[1:])
    headers = _exchange([len(x), width, int(wants_gradient)], x.device)
    widths = [width for _, width, _ in headers]
    if len(set(widths)) > 1:
        raise TrainingError(f"gather: rows of {widths} numbers in the processes; expected one shape everywhere")
    return tuple(rows for rows, _, _ in headers), any(wanted for _, _, wanted in headers)


def _exchange(numbers: list[int], device: torch.device) -> list[list[int]]:
    """The numbers of every process, in the order of ranks."""
    own = torch.tensor(numbers, device=device)
    parts = [torch.empty_like(own) for _ in range(process_count())]
    distributed.all_gather(parts, own)
    return torch.stack(parts).tolist()
