"""A training step on the meta device: every operation of the real model, without weights and without computing.

What is counted on the way (bytes that are alive, floating-point operations) is what the model does, not what a formula
says that it does; LoRA, dropout, trained token rows and recomputation are all in it.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from PIL import Image
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from conceptformer.backbones.protocol import Backbone, PageInput
from conceptformer.errors import TrainingError
from conceptformer.plan.pair_tokens import PairTokens
from conceptformer.pooling import last_state
from conceptformer.step.batch import CONCEPT_SUFFIX, PAGE_SUFFIX, PREFIX
from conceptformer.step.passes import tree_mask

# Masks of the memory-efficient kernel have rows that are a multiple of this many numbers long.
_MASK_ALIGNMENT = 8


class GpuOperations(TorchFunctionMode):
    """Meta tensors take the way that tensors on a GPU would take.

    Attention goes to the fused kernels, which keep no attention weights (a mask becomes numbers, as they need it), and
    dropout to the one that keeps a byte for each number; left alone, meta tensors take paths that keep much more.
    Linear maps are done in ``precision``, as under autocast, which knows no meta device.
    """

    def __init__(self, precision: torch.dtype) -> None:
        super().__init__()
        self._precision = precision

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is functional.dropout:
            return self._dropout(*args, **kwargs)
        if func is functional.linear:
            args, kwargs = map(self._cast, args), {name: self._cast(value) for name, value in kwargs.items()}
        return func(*args, **kwargs)

    def _cast(self, value: Any) -> Any:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(self._precision) if is_float else value

    @staticmethod
    def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        return torch.native_dropout(input, p, True)[0] if training and p > 0 else input

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        query, key, value = map(self._cast, (query, key, value))
        if attn_mask is None:
            flash = torch.ops.aten._scaled_dot_product_flash_attention
            return flash(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
        if enable_gqa:
            key, value = (kept.repeat_interleave(query.shape[1] // kept.shape[1], 1) for kept in (key, value))
        width = math.ceil(attn_mask.shape[-1] / _MASK_ALIGNMENT) * _MASK_ALIGNMENT
        bias = query.new_empty(*attn_mask.shape[:-1], width)[..., : attn_mask.shape[-1]]
        bias = bias.expand(*query.shape[:3], key.shape[2])
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(query, key, value, bias, torch.is_grad_enabled(), dropout_p, False, scale=scale)[0]


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the meta tensors that are alive.

    Args:
        known: Tensors that are there all the time and are not counted, nor are views of them.

    Attributes:
        times: How often each tensor that is made from now on is counted: one page can stand for many.
        now, peak: Bytes.
    """

    def __init__(self, known: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.times = 1
        self.now = self.peak = 0
        # Storages are known by their Python objects, which live as long as they do.
        self._known = [tensor.untyped_storage() for tensor in known]
        self._alive = {id(storage): 0 for storage in self._known}

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                self._see(tensor.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key in self._alive:
            return
        self._alive[key] = storage.nbytes() * self.times
        self.now += self._alive[key]
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key).atexit = False

    def _forget(self, key: int) -> None:
        self.now -= self._alive.pop(key)


@contextmanager
def prepared(backbone: Backbone, *, checkpointing: bool, precision: torch.dtype) -> Iterator[None]:
    """Put the model into training mode, with or without gradient checkpointing, and back again.

    Raises:
        TrainingError: The model lies elsewhere than on the meta device, or none of it is trained.
    """
    model = backbone.model
    elsewhere = {str(parameter.device) for parameter in model.parameters() if not parameter.is_meta}
    if elsewhere:
        raise TrainingError(f"plan: the model lies on {', '.join(sorted(elsewhere))}; build it on the meta device")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TrainingError("plan: no parameter of the model is trained; attach an adaptation to it first")
    recompute = functools.partial(
        checkpoint, use_reentrant=False, context_fn=lambda: (nullcontext(), GpuOperations(precision))
    )
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    before = [(layer, dict(vars(layer))) for layer in layers]
    training = model.training
    model.train()
    try:
        for layer in layers:
            layer.gradient_checkpointing, layer._gradient_checkpointing_func = checkpointing, recompute
        yield
    finally:
        for layer, attributes in before:
            for name in ("gradient_checkpointing", "_gradient_checkpointing_func"):
                if name in attributes:
                    setattr(layer, name, attributes[name])
                else:
                    delattr(layer, name)
        model.train(training)


def page_pixels(backbone: Backbone, tokens: PairTokens) -> PageInput:
    """A page that comes to this grid, its pixels on the meta device."""
    # The smallest image of that shape: pages may be large and need not be drawn.
    page = backbone.inputs.read_page(Image.new("RGB", tokens.grid.resized_size))
    return PageInput(page.pixels.to("meta"), page.grid)


def page_features(backbone: Backbone, page: PageInput) -> torch.Tensor:
    """The vision tower over one page: [visual tokens, D]."""
    return backbone.embed_images(page.pixels, [page.grid])


def text_states(backbone: Backbone, rows: int, length: int) -> torch.Tensor:
    """The query pass: [rows, D]."""
    return _last(_hidden_states(backbone, rows, length, None, None), length)


def page_states(backbone: Backbone, rows: int, tokens: PairTokens, features: torch.Tensor) -> torch.Tensor:
    """The page pass of the plain form: [rows, D]."""
    return _last(_hidden_states(backbone, rows, tokens.page, features, None), tokens.page)


def concept_states(backbone: Backbone, rows: int, tokens: PairTokens, features: torch.Tensor) -> torch.Tensor:
    """The concept pass of the plain form: [rows, D]."""
    length = tokens.prefix + tokens.concept_suffix
    return _hidden_states(backbone, rows, length, features, None)[:, tokens.prefix :].float().mean(dim=1)


def joint_states(backbone: Backbone, rows: int, tokens: PairTokens, features: torch.Tensor) -> torch.Tensor:
    """Page and concept over one prefix: the sum of both, [rows, D]."""
    if not tokens.concept_suffix:
        return page_states(backbone, rows, tokens, features)
    segments = torch.empty(rows, tokens.joint, dtype=torch.long, device="meta")
    # Meta tensors hold no values; the mask's cost does not depend on them.
    assigned = ((PREFIX, tokens.prefix), (PAGE_SUFFIX, tokens.page_suffix), (CONCEPT_SUFFIX, tokens.concept_suffix))
    for segment, part in zip((s for s, _ in assigned), segments.split([n for _, n in assigned], dim=1), strict=True):
        part.fill_(segment)
    hidden = _hidden_states(backbone, rows, tokens.joint, features, tree_mask(segments))
    return _last(hidden, tokens.page) + hidden[:, tokens.page :].float().mean(dim=1)


def _hidden_states(
    backbone: Backbone, rows: int, length: int, features: torch.Tensor | None, mask: torch.Tensor | None
) -> torch.Tensor:
    """[rows, length, D]; ``features`` of one page stand for those of each row."""
    ids = torch.empty(rows, length, dtype=torch.long, device="meta")
    embeddings = backbone.embed_tokens(ids)
    if features is not None:
        every = features.expand(rows, *features.shape).flatten(0, 1).to(embeddings.dtype)
        embeddings = embeddings.masked_scatter(backbone.image_mask(ids)[..., None], every)
    positions = torch.empty(backbone.position_axes, rows, length, dtype=torch.long, device="meta")
    return backbone.hidden_states(embeddings, positions, mask)


def _last(hidden: torch.Tensor, length: int) -> torch.Tensor:
    return last_state(hidden, torch.full((len(hidden),), length, device="meta"))


def resident_tensors(model: nn.Module) -> list[torch.Tensor]:
    """Parameters, their gradients and buffers."""
    parameters = list(model.parameters())
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return [*parameters, *gradients, *model.buffers()]
