"""The model as it is used rather than trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def at_inference(model: nn.Module) -> Iterator[None]:
    """Without dropout and without gradients; afterwards every module is in the mode that it was in before."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        # Not inference_mode: parameters that FSDP gathers within it would be of no use to training afterwards.
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
