"""What a training run would be: rows, tokens, trained parameters, steps, memory and time, short of the weights."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from conceptformer.backbones.protocol import Backbone
from conceptformer.concept_tokens import concept_token_ids
from conceptformer.errors import TrainingError
from conceptformer.plan.data_plan import DataPlan, StatedData, plan_data
from conceptformer.plan.flops import StepFlops, step_flops
from conceptformer.plan.memory import A100_40GB, GpuModel, MemoryEstimate, memory_per_gpu, step_bytes
from conceptformer.records import OnProgress, TrainingSet
from conceptformer.step.model import TrainingModel
from conceptformer.step.passes import SharedPrefix
from conceptformer.training.run import Method
from conceptformer.training.settings import Sharding, TrainingSettings

# Of the data sheet's speed; what trainers of this kind commonly reach.
_UTILISATION = 0.35
# Data, three cases of memory, operations.
_PARTS = 5
_PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class ParameterGroup:
    """Trained parameters whose names differ in numbers only.

    Attributes:
        pattern: The name, ``*`` for each number.
    """

    pattern: str
    shape: tuple[int, ...]
    tensors: int
    values: int


@dataclass(frozen=True)
class StepsPlan:
    """Steps of the optimiser.

    Attributes:
        at_a_time: Pairs on one GPU whose graph is held at a time.
        pairs: Of one step over all GPUs.
        candidates: Pages that each query of a step is compared with.
        left_over: Rows that an epoch does not reach, others in each epoch: too few for a batch.
    """

    gpus: int
    at_a_time: int
    pairs: int
    candidates: int
    per_epoch: int
    total: int
    warm_up: int
    left_over: int


@dataclass(frozen=True)
class MemoryCase:
    """Memory of one GPU under one setting.

    Attributes:
        row_length: Tokens of each row.
        chosen: Whether this is the run's own setting.
    """

    rows: str
    row_length: int
    checkpointing: bool
    sharded: bool
    chosen: bool
    estimate: MemoryEstimate
    fits: bool


@dataclass(frozen=True)
class RunPlan:
    """All of it.

    Attributes:
        parameters: Of backbone and adaptation, frozen ones and the trained.
        memory: The run's own setting first, with typical rows and with the longest.
        flops: Per pair of typical length.
        hours: An estimate at ``utilisation`` of the GPUs' speed; None where that is not known for the precision.
    """

    data: DataPlan
    parameters: int
    trained: tuple[ParameterGroup, ...]
    steps: StepsPlan
    gpu: GpuModel
    precision: str
    memory: tuple[MemoryCase, ...]
    flops: StepFlops
    flops_per_pair: int
    utilisation: float
    hours: float | None

    @property
    def trained_values(self) -> int:
        """Numbers that are trained."""
        return sum(group.values for group in self.trained)


def plan_run(
    backbone: Backbone,
    method: Method,
    data: TrainingSet | StatedData,
    settings: TrainingSettings,
    *,
    gpus: int,
    gpu: GpuModel = A100_40GB,
    on_progress: OnProgress = lambda done, total: None,
) -> RunPlan:
    """Work out what a run would be. No weights and no page is read.

    Args:
        backbone: On the meta device; the method's adaptation is attached to it.
        data: The pairs, or what to suppose of them.
        gpus: Processes, one for each.
        on_progress: Called with (parts done, all parts).

    Raises:
        TrainingError: There are fewer rows than one step needs, or the model does not lie on the meta device.
        DataError: No row can be used.
    """
    method.adaptation.attach(backbone, concept_token_ids(backbone.inputs.tokenizer))
    with torch.device("meta"):
        model = TrainingModel(backbone, method.concepts, method.passes, method.projection)
    on_progress(0, _PARTS)
    data_plan = plan_data(data, backbone.inputs, method.concepts)
    steps = plan_steps(settings, rows=data_plan.rows, gpus=gpus)
    on_progress(1, _PARTS)
    memory = []
    for number, case in enumerate(_cases(settings), start=2):
        memory += _memory(model, data_plan, settings, *case, gpus, gpu)
        on_progress(number, _PARTS)
    precision = _PRECISIONS[settings.precision]
    flops = step_flops(backbone, data_plan.typical, checkpointing=settings.checkpoint_activations, precision=precision)
    on_progress(_PARTS, _PARTS)
    per_pair = flops.of_run(shared=isinstance(method.passes, SharedPrefix), cached=settings.cache_gradients)
    return RunPlan(
        data=data_plan,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trained=group_parameters(model.trained_tensors()),
        steps=steps,
        gpu=gpu,
        precision=settings.precision,
        memory=tuple(sorted(memory, key=lambda case: not case.chosen)),
        flops=flops,
        flops_per_pair=per_pair,
        utilisation=_UTILISATION,
        hours=_hours(per_pair * steps.total * steps.pairs, precision, gpus, gpu),
    )


def plan_steps(settings: TrainingSettings, *, rows: int, gpus: int) -> StepsPlan:
    """Steps as transformers' Trainer counts them; a batch that is not full is dropped.

    Raises:
        TrainingError: There are fewer rows than one batch over all GPUs needs.
    """
    together = settings.rows_per_backward * gpus
    batches = rows // together
    if batches == 0:
        raise TrainingError(
            f"{rows} usable training pairs are fewer than the {together} of one batch over {gpus} GPUs: "
            "give more, or a smaller training.batch_size"
        )
    accumulated = 1 if settings.cache_gradients else settings.accumulation
    per_epoch = math.ceil(batches / accumulated)
    total = settings.max_steps or math.ceil(settings.epochs * per_epoch)
    return StepsPlan(
        gpus=gpus,
        at_a_time=settings.batch_size,
        pairs=together * accumulated,
        candidates=together,
        per_epoch=per_epoch,
        total=total,
        warm_up=math.ceil(total * settings.warm_up),
        left_over=rows - batches * together,
    )


def group_parameters(trained: Mapping[str, torch.Tensor]) -> tuple[ParameterGroup, ...]:
    """Put together the parameters whose names differ in numbers only, and whose shapes do not."""
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for name, tensor in trained.items():
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", name)
        groups.setdefault((pattern, tuple(tensor.shape)), []).append(tensor.numel())
    return tuple(ParameterGroup(*key, tensors=len(sizes), values=sum(sizes)) for key, sizes in groups.items())


def is_sharded(sharding: Sharding) -> bool:
    """Whether each GPU holds a part of every weight only: FSDP, or the third stage of DeepSpeed's ZeRO."""
    stage = ((sharding.deepspeed or {}).get("zero_optimization") or {}).get("stage")
    return bool(sharding.fsdp) or stage == 3


def _hours(operations: int, precision: torch.dtype, gpus: int, gpu: GpuModel) -> float | None:
    """At the assumed share of the data sheet's speed, which is that of bfloat16."""
    if precision != torch.bfloat16:
        return None
    return operations / (gpus * gpu.bf16_tflops * 1e12 * _UTILISATION) / 3600


def _cases(settings: TrainingSettings) -> tuple[tuple[str, bool], ...]:
    """Which rows, and whether with gradient checkpointing."""
    own = settings.checkpoint_activations
    return (("typical", own), ("longest", own), ("typical", not own))


def _memory(
    model: TrainingModel,
    data: DataPlan,
    settings: TrainingSettings,
    rows: str,
    checkpointing: bool,
    gpus: int,
    gpu: GpuModel,
) -> list[MemoryCase]:
    """One setting of checkpointing, with whole weights on each GPU and, where there are several, with shares."""
    tokens = data.typical if rows == "typical" else data.longest
    step = step_bytes(
        model.backbone,
        tokens,
        settings.batch_size,
        checkpointing=checkpointing,
        shared=isinstance(model.passes, SharedPrefix),
        precision=_PRECISIONS[settings.precision],
    )
    own = is_sharded(settings.sharding) and gpus > 1
    cases = []
    for sharded in (False, True) if gpus > 1 else (False,):
        estimate = memory_per_gpu(model, step, gpus=gpus, sharded=sharded)
        chosen = sharded == own and checkpointing == settings.checkpoint_activations
        cases.append(MemoryCase(rows, tokens.joint, checkpointing, sharded, chosen, estimate, estimate.fits(gpu)))
    return cases
