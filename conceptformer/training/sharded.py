"""Models of which each process holds a part of every weight (FSDP2): the whole, where the trainer needs it.

FSDP gathers weights when a wrapped module runs. Layers are such modules; what lies outside of them, as the token table
does, belongs to the outermost one, which evaluation does not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, distribute_tensor


@contextmanager
def outermost_gathered(model: nn.Module) -> Iterator[None]:
    """Parts of the model can run without the whole. In all processes, and after a step; nothing without FSDP."""
    if not isinstance(model, FSDPModule):
        yield
        return
    model.unshard()
    try:
        yield
    finally:
        model.reshard()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor of which each process may hold a part. In all processes."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def fill(target: torch.Tensor, value: torch.Tensor) -> None:
    """Copy the whole value into a tensor of which each process may hold a part. In all processes."""
    with torch.no_grad():
        if isinstance(target, DTensor):
            value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
        target.copy_(value)
