"""The three tokens of a concept sequence: added to a tokenizer, and their rows of the embedding table started.

The embedding table of a backbone stays frozen under LoRA; the rows of these tokens alone are trained (and saved with
the adapter). Where they start matters, so they start where every other token is on average.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

CONCEPT_START = "<|lcon_start|>"
CONCEPT = "<|lcon|>"
CONCEPT_END = "<|lcon_end|>"

# The slot's token first: tokenizers that have it and neither of the others then give the same ids as those without any.
CONCEPT_TOKENS = (CONCEPT, CONCEPT_START, CONCEPT_END)


def add_concept_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Add those of the concept tokens that the tokenizer lacks, as special tokens.

    Returns:
        The ids that were added, in the order of ``CONCEPT_TOKENS``; empty where the tokenizer has all three. A row of
        the embedding table belongs to each: see :func:`initialise_rows`.
    """
    known = tokenizer.get_vocab()
    added = [name for name in CONCEPT_TOKENS if name not in known]
    tokenizer.add_tokens([AddedToken(name, special=True, normalized=False) for name in added], special_tokens=True)
    return tuple(tokenizer.convert_tokens_to_ids(added))


def concept_token_ids(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int, int]:
    """Ids of ``CONCEPT_START``, ``CONCEPT`` and ``CONCEPT_END``, which the tokenizer must have."""
    start, concept, end = tokenizer.convert_tokens_to_ids([CONCEPT_START, CONCEPT, CONCEPT_END])
    return start, concept, end


@torch.no_grad()
def initialise_rows(weight: torch.Tensor, ids: Sequence[int]) -> None:
    """Set the rows of new tokens, in place, to the mean of the rows of all tokens that came before them.

    The rows from ``min(ids)`` on are left out of the mean: hub tables have rows beyond their tokenizer, which no
    training has touched. The mean is taken in float32 and is not disturbed by noise, so that equal weights give equal
    rows.

    Args:
        weight: [V, D], the embedding table.
        ids: The new tokens. All lower ids are tokens that were there before.

    Raises:
        ValueError: No ids, one that the table has no row for, or no token before them.
    """
    if not ids or min(ids) < 1 or max(ids) >= len(weight):
        raise ValueError(
            f"ids: expected new tokens within 1 to {len(weight) - 1}, got {list(ids)}; grow the table first"
        )
    weight[list(ids)] = weight[: min(ids)].mean(dim=0, dtype=torch.float32).to(weight.dtype)
