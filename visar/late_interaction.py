"""Late interaction: MaxSim activations and scores of one question on pages of unequal length (ViSAR, Eq. 1 and 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from visar.errors import EmbeddingError, NonFiniteError

Vectors = torch.Tensor | np.ndarray


def as_unit_vectors(vectors: Vectors, name: str) -> torch.Tensor:
    """Check one embedding and bring it to float32 rows of length 1, since sim is the cosine (below Eq. 1).

    Args:
        vectors: [n, D], float16, bfloat16, float32 or float64, on any device. Rows of zeros (padding) stay zeros.
        name: What the message calls it.

    Raises:
        EmbeddingError: Not a matrix, no rows, or NaN or Inf in it.
    """
    tensor = _from_numpy(vectors, name) if isinstance(vectors, np.ndarray) else vectors
    if not isinstance(tensor, torch.Tensor):
        raise EmbeddingError(f"{name}: expected a torch tensor or numpy array [n, D], got {type(vectors).__name__}")
    if tensor.ndim != 2 or 0 in tensor.shape:
        raise EmbeddingError(f"{name}: expected a matrix [n, D] with at least one row, got shape {list(tensor.shape)}")
    if not tensor.is_floating_point():
        raise EmbeddingError(f"{name}: expected floating-point embeddings, got {tensor.dtype}")
    tensor = tensor.detach().to(torch.float32)
    if not torch.isfinite(tensor).all():
        raise NonFiniteError(f"{name}: holds NaN or Inf; encode it again, in float32 if it ran in half precision")
    # Squares of entries beyond 1e19 or below 1e-23 leave float32's range: bring rows to a largest entry of 1 first.
    largest = tensor.abs().amax(dim=1, keepdim=True)
    return torch.nn.functional.normalize(tensor / largest.where(largest > 0, 1.0), dim=1)


def _from_numpy(vectors: np.ndarray, name: str) -> torch.Tensor:
    if vectors.dtype.kind != "f" or vectors.dtype.itemsize > 8:
        raise EmbeddingError(f"{name}: expected floating-point embeddings of 16, 32 or 64 bits, got {vectors.dtype}")
    return torch.from_numpy(np.ascontiguousarray(vectors, dtype=vectors.dtype.newbyteorder("=")))


@dataclass(frozen=True)
class PackedPages:
    """All pages of a document in one matrix, so that one product serves them all. Build it once per document.

    Attributes:
        vectors: [sum n_p, D] float32 unit rows, page after page.
        starts: N + 1 row numbers; page p is ``vectors[starts[p]:starts[p + 1]]``.
        numbers: The document's page number of each packed page (pages may have been left out).
        document_length: Number of pages of the document, left-out ones included.
    """

    vectors: torch.Tensor
    starts: tuple[int, ...]
    numbers: tuple[int, ...]
    document_length: int

    @classmethod
    def pack(cls, pages: Sequence[Vectors], *, leave_out_broken: bool = False) -> PackedPages:
        """Check, normalise and join the pages.

        Args:
            pages: N matrices [n_p, D] of one width and one device.
            leave_out_broken: Leave out pages that hold NaN or Inf instead of raising.

        Raises:
            EmbeddingError: No page, a malformed page, unequal widths, or a non-finite page.
        """
        if len(pages) == 0:
            raise EmbeddingError("pages: expected at least one page, got none")
        kept: list[torch.Tensor] = []
        numbers: list[int] = []
        for number, page in enumerate(pages):
            try:
                kept.append(as_unit_vectors(page, f"page {number} (0-based)"))
            except NonFiniteError:
                if not leave_out_broken:
                    raise
                continue
            numbers.append(number)
        if not kept:
            raise NonFiniteError("pages: every page holds NaN or Inf, none is left")
        widths = {page.shape[1] for page in kept}
        if len(widths) > 1:
            raise EmbeddingError(f"pages: all pages need one embedding width D, got {sorted(widths)}")
        devices = {str(page.device) for page in kept}
        if len(devices) > 1:
            raise EmbeddingError(f"pages: all pages need one device, got {sorted(devices)}")
        starts = (0, *np.cumsum([len(page) for page in kept]).tolist())
        return cls(torch.cat(kept), starts, tuple(numbers), len(pages))

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def left_out_warnings(self) -> tuple[str, ...]:
        """One sentence that names the pages left out for broken embeddings; empty where there are none."""
        left_out = sorted(set(range(self.document_length)) - set(self.numbers))
        return (f"pages left out for NaN or Inf in their embeddings (counted from 0): {left_out}",) if left_out else ()

    def by_page_number(self, values: torch.Tensor) -> torch.Tensor:
        """[N] values in packed order as [document_length] on the CPU; left-out pages get -inf."""
        placed = torch.full((self.document_length,), float("-inf"), dtype=values.dtype)
        placed[list(self.numbers)] = values.cpu()
        return placed


def query_patch_cosine(query: torch.Tensor, pages: PackedPages) -> torch.Tensor:
    """<v_j, q_i> of every question token with every patch. Returns [m, sum n_p].

    Kept whole, since both Eq. 2 and Eq. 8 read it: m / D of the memory that the embeddings take.
    """
    return query @ pages.vectors.T


def activation(cosine: torch.Tensor, starts: Sequence[int]) -> torch.Tensor:
    """A_{p,i}, the best match of each token on each page (Eq. 2).

    Args:
        cosine: [m, sum n_p].
        starts: N + 1 column numbers; page p holds columns ``starts[p]:starts[p + 1]``.

    Returns:
        [N, m].
    """
    return torch.stack([cosine[:, start:end].amax(dim=1) for start, end in zip(starts, starts[1:])])  # noqa: B905


def late_interaction_scores(query: torch.Tensor, pages: PackedPages) -> torch.Tensor:
    """S(Q, P_p), the sum over question tokens of their best match on the page (Eq. 1).

    Args:
        query: [m, D] unit rows, as :func:`as_unit_vectors` gives them.

    Returns:
        [N], in packed order.
    """
    check_same_space(query, pages)
    return activation(query_patch_cosine(query, pages), pages.starts).sum(dim=1)


def check_same_space(query: torch.Tensor, pages: PackedPages) -> None:
    """Raise an EmbeddingError unless question and pages have one width and one device."""
    if query.shape[1] != pages.vectors.shape[1]:
        raise EmbeddingError(
            f"query: embeddings of width {query.shape[1]} cannot be compared with pages of width "
            f"{pages.vectors.shape[1]}; use one encoder for both"
        )
    if query.device != pages.vectors.device:
        raise EmbeddingError(f"query is on {query.device}, pages on {pages.vectors.device}; move one of them")


def rank_pages(scores: torch.Tensor) -> list[int]:
    """Positions of [N] scores, best first; equal scores keep the order of the pages."""
    return scores.argsort(descending=True, stable=True).tolist()
