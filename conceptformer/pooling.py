"""From the states of a sequence to one embedding: the last token's state or a mean over tokens, then length 1.

All results are float32 (float64 stays float64), whatever the dtype of the states.
"""

from __future__ import annotations

import torch

from conceptformer.errors import ConceptFormerError


def last_state(states: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The state of the last token of each sequence: the EOS of a query or a page, or the end token of a concept.

    Args:
        states: [B, L, D], padded on the right.
        lengths: [B] int64, 1 to L.

    Returns:
        [B, D].

    Raises:
        ConceptFormerError: A length is none of 1 to L. (An empty sequence would be read at index -1, which is padding.)
    """
    batch, length, _ = states.shape
    if lengths.dtype != torch.int64 or lengths.shape != (batch,):
        raise ConceptFormerError(
            f"last_state: lengths are {lengths.dtype} of shape {tuple(lengths.shape)}; expected [{batch}] int64"
        )
    # Meta tensors, with which a step is counted but not run, have no values to look at.
    if not lengths.is_meta and bool(((lengths < 1) | (lengths > length)).any()):
        raise ConceptFormerError(f"last_state: lengths {lengths.tolist()}; expected each from 1 to {length}")
    return at_least_float32(states[torch.arange(batch, device=states.device), lengths - 1])


def mean_of(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of chosen states (Eq. 13), e.g. of the concept slots.

    Args:
        states: [B, L, D]; places that are not chosen may hold anything, NaN included.
        mask: [B, L] bool, the chosen places.

    Returns:
        [B, D], zeros where nothing is chosen (a sample without evidence boxes).
    """
    if mask.dtype != torch.bool or mask.shape != states.shape[:2]:
        raise ConceptFormerError(
            f"mean_of: mask is {mask.dtype} of shape {tuple(mask.shape)}; expected {list(states.shape[:2])} bool"
        )
    # Added up in float32 without a float32 copy of all states.
    dtype = torch.promote_types(states.dtype, torch.float32)
    total = states.masked_fill(~mask[:, :, None], 0).sum(dim=1, dtype=dtype)
    return total / mask.sum(dim=1, keepdim=True).clamp_min(1)


def l2_normalise(x: torch.Tensor) -> torch.Tensor:
    """Vectors [..., D] divided by their lengths; a zero vector stays zero and gets a finite gradient.

    Each is first divided by its largest magnitude, a constant that its direction does not depend on: squares of very
    small or large numbers cannot vanish or overflow then, and the length of all but zero vectors is at least 1, so that
    the lower bound on the divisor acts on zero vectors alone.
    """
    x = at_least_float32(x)
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    x = x / largest.masked_fill(largest == 0, 1)
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(1)


def at_least_float32(x: torch.Tensor) -> torch.Tensor:
    """The numbers in float32; those of more bits as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
