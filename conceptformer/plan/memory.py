"""Memory of a training step on one GPU, by part. All numbers are bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from conceptformer.backbones.protocol import Backbone, PageInput
from conceptformer.plan.meta_step import (
    GpuOperations,
    LiveBytes,
    concept_states,
    joint_states,
    page_features,
    page_pixels,
    page_states,
    prepared,
    resident_tensors,
    text_states,
)
from conceptformer.plan.pair_tokens import PairTokens

GIB = 2**30

_FLOAT32 = 4
# Value, gradient, and AdamW's two moments.
_COPIES_TRAINED = 4
# The unit in use and the one that is fetched meanwhile.
_UNITS_GATHERED = 2
# The driver's context, the libraries' workspaces and the buffers of the exchange between GPUs; with the next, an
# allowance, not a measurement.
_RUNTIME_BYTES = GIB
# Of what is allocated and freed all the time: blocks that the allocator holds and cannot use.
_FRAGMENTATION = 0.1


@dataclass(frozen=True)
class GpuModel:
    """A kind of GPU.

    Attributes:
        memory: What programs can have of it, in GiB; a little less than its name says.
        bf16_tflops: Dense bfloat16 matrix products, 10^12 operations per second, by its data sheet.
    """

    name: str
    memory: float
    bf16_tflops: float


A100_40GB = GpuModel("A100 40 GB", memory=39.4, bf16_tflops=312)


@dataclass(frozen=True)
class StepBytes:
    """What a step holds besides the model.

    Attributes:
        kept: When the loss is there and the way back begins.
        peak: At its worst moment.
    """

    kept: int
    peak: int


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one GPU.

    Attributes:
        weights: Frozen parameters and buffers, or this GPU's share of them.
        gathered: Sharded weights while they are in use: the two largest units, a layer or the token table.
        trained: Trained parameters, gradients, AdamW's moments, and the copy that is exchanged between GPUs.
        activations: The worst moment of a step, the copy of the token table that PEFT makes in it.
        runtime, fragmentation: Allowances.
    """

    weights: int
    gathered: int
    trained: int
    activations: int
    runtime: int
    fragmentation: int

    @property
    def total(self) -> int:
        """All parts."""
        return self.weights + self.gathered + self.trained + self.activations + self.runtime + self.fragmentation

    def fits(self, gpu: GpuModel) -> bool:
        """Whether it is no more than the GPU has."""
        return self.total <= gpu.memory * GIB


def step_bytes(
    backbone: Backbone,
    tokens: PairTokens,
    rows: int,
    *,
    checkpointing: bool,
    shared: bool = True,
    precision: torch.dtype = torch.bfloat16,
) -> StepBytes:
    """Count what a step holds: forth and back on the meta device, adding up tensors as they come and go.

    Every row is as long as ``tokens``. The vision tower is run on one page whose tensors count ``rows`` times: its cost
    grows with the pages and with nothing else, and small windows make it slow to run on many. Gradients of parameters
    are not counted, nor what kernels use inside.

    By hand, with gradient checkpointing and no other than linear layers trained, the language model keeps
    ``layers * rows * joint * D * 2`` bytes in bfloat16, the input of each layer, and the vision tower
    ``depth * rows * patches * width * 2`` where anything of it is trained; the peak adds one layer computed again.

    Args:
        backbone: On the meta device, with its adaptation attached.
        rows: Pairs whose graph is held at a time.
        shared: Page and concept share their prefix; else each has a pass of its own.

    Raises:
        TrainingError: The model lies elsewhere, or none of it is trained.
    """
    model = backbone.model
    with prepared(backbone, checkpointing=checkpointing, precision=precision), _gradients(model):
        live = LiveBytes(resident_tensors(model))
        live.times = rows
        with live:
            # A batch stays on the GPU until the step is done, its pixels too.
            page = page_pixels(backbone, tokens)
            with GpuOperations(precision):
                loss = _loss(backbone, tokens, page, rows, live, shared)
            kept = live.now
            loss.backward()
    return StepBytes(kept, live.peak)


def _loss(
    backbone: Backbone, tokens: PairTokens, page: PageInput, rows: int, live: LiveBytes, shared: bool
) -> torch.Tensor:
    """Something that all states of a step lead to."""
    features = page_features(backbone, page)
    live.times = 1
    if features.requires_grad:
        # What was made last is left first on the way back: after this gradient only the vision tower is to come.
        features.register_hook(lambda _: setattr(live, "times", rows))
    states = [text_states(backbone, rows, tokens.query)]
    if shared or not tokens.concept_suffix:
        states.append(joint_states(backbone, rows, tokens, features))
    else:
        states.append(page_states(backbone, rows, tokens, features))
        states.append(concept_states(backbone, rows, tokens, features))
    if tokens.text:
        states.append(text_states(backbone, rows, tokens.text))
    return torch.stack(states).sum()


@contextmanager
def _gradients(model: nn.Module) -> Iterator[None]:
    """Room for the gradients of trained parameters, as if a step had gone before."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    before = [parameter.grad for parameter in trained]
    for parameter in trained:
        parameter.grad = torch.empty_like(parameter)
    try:
        yield
    finally:
        for parameter, gradient in zip(trained, before, strict=True):
            parameter.grad = gradient


def memory_per_gpu(model: nn.Module, step: StepBytes, *, gpus: int, sharded: bool) -> MemoryEstimate:
    """Add the model, its training state and allowances to what a step holds.

    Args:
        model: All that is trained, frozen parameters in it.
        gpus: Processes, one for each.
        sharded: Every parameter and its state is spread over the GPUs and gathered for use (FSDP, DeepSpeed ZeRO-3);
            else each GPU has all of them (DDP).
    """
    share = gpus if sharded else 1
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
    gathered = sum(sorted(_unit_bytes(model))[-_UNITS_GATHERED:]) if sharded and gpus > 1 else 0
    # Optimizer and master copy are float32 whatever the parameter is.
    state = _COPIES_TRAINED * _FLOAT32 * sum(parameter.numel() for parameter in trained)
    exchanged = _size(trained) if gpus > 1 else 0
    return MemoryEstimate(
        weights=_size(frozen) // share + _size(list(model.buffers())),
        gathered=gathered,
        trained=(state + exchanged) // share,
        activations=step.peak,
        runtime=_RUNTIME_BYTES,
        fragmentation=int(_FRAGMENTATION * (step.peak + gathered)),
    )


def _unit_bytes(model: nn.Module) -> list[int]:
    """Sizes of what is gathered at a time: each layer of a stack of them, and every module outside of stacks."""
    stacks = [name for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    units: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        within = min((stack for stack in stacks if name.startswith(f"{stack}.")), key=len, default=None)
        if within is None:
            unit = name.rpartition(".")[0]
        else:
            unit = f"{within}.{name.removeprefix(f'{within}.').partition('.')[0]}"
        units[unit] = units.get(unit, 0) + _size([parameter])
    return list(units.values())


def _size(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
