"""The training objective (Eq. 4, 5 and 14 to 16, and a row of Table 2), as pure functions of normalised embeddings.

Symbols: B rows are queries or concepts, N candidates are pages, D is the width of an embedding. Embeddings are
L2-normalised by the caller, so that a product is the cosine of Eq. 2; nothing is normalised here again. All is computed
in float32, under autocast too (float64 stays float64): a cosine rounded to bfloat16 is off by up to 0.002, which a
temperature of 0.01 turns into a fifth of a probability.

Where pages are gathered over processes, B rows are this process's own and N candidates are everyone's. The mean of a
process is then not yet the mean over the joint batch, see :mod:`conceptformer.step.gather`.

Wrong shapes, masks and indices raise :class:`~conceptformer.errors.ConceptFormerError`. ``excluded`` and ``positive``
are checked by value, which waits for an accelerator; without them nothing waits.
"""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, TypeAlias

import torch

from conceptformer.errors import ConceptFormerError
from conceptformer.pooling import at_least_float32

Reduction: TypeAlias = Literal["mean", "none"]
"""``mean`` is the mean over the rows that take part, ``none`` gives [B] with zeros for the others."""


def ranking_distribution(
    anchor: torch.Tensor, page: torch.Tensor, *, temperature: float, excluded: torch.Tensor | None = None
) -> torch.Tensor:
    """P(d | anchor), the softmax of cosine / temperature over candidate pages (Eq. 4; 14 of queries, 15 of concepts).

    Args:
        anchor: [B, D], normalised.
        page: [N, D], normalised.
        excluded: [B, N] bool, candidates that do not exist for a row; every row keeps at least one.

    Returns:
        [B, N]; rows sum to one, 0 where excluded.
    """
    return _log_distribution(anchor, page, temperature, excluded).exp()


def info_nce(
    query: torch.Tensor,
    page: torch.Tensor,
    *,
    temperature: float,
    positive: torch.Tensor | None = None,
    excluded: torch.Tensor | None = None,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """L_cons = -log P(d+ | q) (Eq. 5).

    Args:
        query: [B, D], normalised.
        page: [N, D], normalised.
        positive: [B] int64, which candidate answers each query; 0 to B - 1 if not given.
        excluded: [B, N] bool, candidates that do not exist for a row, never its positive. A row with nothing left but
            its positive has loss 0 and no gradient.

    Returns:
        A scalar, or [B] without reduction.
    """
    log_distribution = _log_distribution(query, page, temperature, excluded)
    rows, candidates = log_distribution.shape
    if positive is None:
        if rows > candidates:
            raise ConceptFormerError(f"info_nce: {rows} queries but {candidates} pages; expected a page for each query")
        positive = torch.arange(rows, device=log_distribution.device)
    else:
        _check_positive(positive, rows, candidates)
    chosen = positive[:, None]
    if excluded is not None:
        _refuse(excluded.gather(1, chosen), "info_nce: a query's own positive is excluded; expected it to stay")
    return _reduced(-log_distribution.gather(1, chosen)[:, 0], None, reduction)


def concept_kl(
    query: torch.Tensor,
    concept: torch.Tensor,
    page: torch.Tensor,
    *,
    temperature: float,
    has_concept: torch.Tensor | None = None,
    excluded: torch.Tensor | None = None,
    reverse: bool = False,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """L_align = KL(P(. | q) || P(. | c)) (Eq. 16).

    P(. | q) is the teacher and detached as a whole: neither the query nor the pages get a gradient through it. Pages do
    get one through the student P(. | c).

    Args:
        query: [B, D], normalised.
        concept: [B, D], normalised. Rows without a concept may hold anything, NaN included.
        page: [N, D], normalised.
        has_concept: [B] bool, rows that take part; all if not given.
        excluded: [B, N] bool, candidates that do not exist for a row in either distribution; every row keeps one.
        reverse: KL(P(. | c) || P(. | q)) instead.

    Returns:
        A scalar, the mean over the rows that take part; or [B] without reduction. Where no row takes part it is 0 and
        still depends on ``concept`` and ``page``, with zero gradients: processes that wait for each other in the
        backward pass need the same graph.
    """
    has_concept = _participation(has_concept, len(query), query.device, "has_concept")
    if concept.shape != query.shape:
        raise ConceptFormerError(
            f"concept_kl: concepts of shape {tuple(concept.shape)} for queries of shape {tuple(query.shape)}; "
            "expected equal shapes"
        )
    # Replaced, not multiplied by zero: 0 * NaN would be NaN in the loss and in the gradient of the pages.
    concept = concept.masked_fill(~has_concept[:, None], 0)
    teacher = _log_distribution(query.detach(), page.detach(), temperature, excluded)
    student = _log_distribution(concept, page, temperature, excluded)
    return _reduced(_divergence(teacher, student, excluded, reverse), has_concept, reduction)


def query_concept_matching(
    query: torch.Tensor,
    candidate_concept: torch.Tensor,
    page: torch.Tensor,
    *,
    temperature: float,
    candidate_has_concept: torch.Tensor | None = None,
    has_concept: torch.Tensor | None = None,
    excluded: torch.Tensor | None = None,
    reverse: bool = False,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """KL(P(. | q) || Q(. | q)), where Q is the softmax of <q, c_j> over the candidates' concepts (Table 2, the row
    Query-Concept Matching).

    Both distributions are over those candidates that have a concept. P is the teacher, detached as a whole, so that
    pages get no gradient here; queries and concepts do, through Q.

    Args:
        query: [B, D], normalised.
        candidate_concept: [N, D], normalised; c_j belongs to page j and its own query. Rows without a concept may hold
            anything, NaN included.
        page: [N, D], normalised.
        candidate_has_concept: [N] bool; all if not given.
        has_concept: [B] bool, rows that take part; all if not given. Each keeps at least one candidate.
        excluded: [B, N] bool, further candidates that do not exist for a row.
        reverse: KL(Q || P) instead.

    Returns:
        As :func:`concept_kl`; where no row takes part it still depends on ``query`` and ``candidate_concept``.
    """
    has_concept = _participation(has_concept, len(query), query.device, "has_concept")
    candidate_has_concept = _participation(candidate_has_concept, len(page), page.device, "candidate_has_concept")
    if candidate_concept.shape != page.shape:
        raise ConceptFormerError(
            f"query_concept_matching: concepts of shape {tuple(candidate_concept.shape)} for pages of shape "
            f"{tuple(page.shape)}; expected equal shapes"
        )
    absent = ~candidate_has_concept.expand(len(query), -1)
    if excluded is not None:
        _check_excluded(excluded, *absent.shape)
        absent = absent | excluded
    # Rows that take no part may have no candidate at all; over all of them their distributions stay finite.
    absent = absent & has_concept[:, None]
    candidate_concept = candidate_concept.masked_fill(~candidate_has_concept[:, None], 0)
    teacher = _log_distribution(query.detach(), page.detach(), temperature, absent)
    student = _log_distribution(query, candidate_concept, temperature, absent)
    return _reduced(_divergence(teacher, student, absent, reverse), has_concept, reduction)


def page_key(page_id: str) -> int:
    """A number for a page id, the same in every process: the first 63 bits of its SHA-256, so that it fits int64."""
    return int.from_bytes(hashlib.sha256(page_id.encode()).digest()[:8], "big") >> 1


def false_negatives(
    page_key: torch.Tensor, positive: torch.Tensor, other_positives: torch.Tensor | None = None
) -> torch.Tensor:
    """Candidates that answer a query although they are not its positive: the same page once more, or another that is
    known to answer. The paper takes them for negatives; as ``excluded`` they are left out of the distributions.

    Args:
        page_key: [N] int64, the candidates' :func:`page_key`.
        positive: [B] int64, which candidate is each row's positive.
        other_positives: [B, K] int64, keys of further pages that answer, padded with -1.

    Returns:
        [B, N] bool, never True at a row's positive.
    """
    if page_key.dtype != torch.int64 or page_key.ndim != 1:
        raise ConceptFormerError(
            f"false_negatives: page keys are {page_key.dtype} of shape {tuple(page_key.shape)}; expected [N] int64"
        )
    _refuse(page_key < 0, "false_negatives: a page key is negative, which stands for padding; expected keys >= 0")
    _check_positive(positive, len(positive), len(page_key))
    found = page_key[None, :] == page_key[positive][:, None]
    if other_positives is not None:
        if other_positives.ndim != 2 or len(other_positives) != len(positive) or other_positives.dtype != torch.int64:
            raise ConceptFormerError(
                f"false_negatives: other positives are {other_positives.dtype} of shape "
                f"{tuple(other_positives.shape)}; expected [{len(positive)}, K] int64"
            )
        found = found | (other_positives[:, :, None] == page_key).any(dim=1)
    return found.scatter(1, positive[:, None], False)


def _log_distribution(
    anchor: torch.Tensor, candidate: torch.Tensor, temperature: float, excluded: torch.Tensor | None
) -> torch.Tensor:
    """Logarithm of Eq. 4, [B, N]; -inf where excluded."""
    if not temperature > 0:
        raise ConceptFormerError(f"losses: temperature is {temperature}; expected a number above zero")
    if anchor.ndim != 2 or candidate.ndim != 2 or anchor.shape[1] != candidate.shape[1] or len(candidate) == 0:
        raise ConceptFormerError(
            f"losses: embeddings of shapes {tuple(anchor.shape)} and {tuple(candidate.shape)}; "
            "expected [B, D] and [N, D] of equal D, N at least 1"
        )
    with _without_autocast(anchor.device.type):
        logits = at_least_float32(anchor) @ at_least_float32(candidate).T / temperature
        if excluded is not None:
            _check_excluded(excluded, *logits.shape)
            # The softmax of a row of -inf is NaN, and so would be every gradient.
            _refuse(excluded.all(dim=1), "losses: every candidate of a row is excluded; expected at least one to stay")
            logits = logits.masked_fill(excluded, float("-inf"))
        return logits.log_softmax(dim=1)


def _divergence(
    teacher: torch.Tensor, student: torch.Tensor, excluded: torch.Tensor | None, reverse: bool
) -> torch.Tensor:
    """KL(teacher || student), or the reverse, of each row of two logarithms of distributions: [B, N] -> [B]."""
    true, approximate = (student, teacher) if reverse else (teacher, student)
    weight = true.exp()
    if excluded is not None:
        # 0 * (-inf - -inf) is NaN; the limit of p log(p / q) at p = 0 is 0.
        true, approximate = true.masked_fill(excluded, 0), approximate.masked_fill(excluded, 0)
    return (weight * (true - approximate)).sum(dim=1)


def _reduced(losses: torch.Tensor, takes_part: torch.Tensor | None, reduction: Reduction) -> torch.Tensor:
    """[B] losses, as they are or their mean; rows that take no part are 0 and do not count."""
    if reduction not in ("mean", "none"):
        raise ConceptFormerError(f'losses: reduction is {reduction!r}; expected "mean" or "none"')
    if reduction == "none":
        return losses if takes_part is None else losses.masked_fill(~takes_part, 0)
    if len(losses) == 0:
        raise ConceptFormerError("losses: the mean over a batch without rows; expected at least one row")
    if takes_part is None:
        return losses.mean()
    return losses.masked_fill(~takes_part, 0).sum() / takes_part.sum().clamp_min(1)


def _participation(mask: torch.Tensor | None, rows: int, device: torch.device, name: str) -> torch.Tensor:
    """A mask [rows] of those that take part, all of them without a mask."""
    if mask is None:
        return torch.ones(rows, dtype=torch.bool, device=device)
    if mask.dtype != torch.bool or mask.shape != (rows,):
        raise ConceptFormerError(
            f"losses: {name} is {mask.dtype} of shape {tuple(mask.shape)}; expected [{rows}] bool, one per row"
        )
    return mask


def _check_excluded(excluded: torch.Tensor, rows: int, candidates: int) -> None:
    if excluded.dtype != torch.bool or excluded.shape != (rows, candidates):
        raise ConceptFormerError(
            f"losses: excluded is {excluded.dtype} of shape {tuple(excluded.shape)}; "
            f"expected [{rows}, {candidates}] bool, a row per query and a column per candidate"
        )


def _check_positive(positive: torch.Tensor, rows: int, candidates: int) -> None:
    if positive.dtype != torch.int64 or positive.shape != (rows,):
        raise ConceptFormerError(
            f"losses: positive is {positive.dtype} of shape {tuple(positive.shape)}; expected [{rows}] int64"
        )
    _refuse(
        (positive < 0) | (positive >= candidates),
        f"losses: a positive lies outside the {candidates} candidates; expected 0 to {candidates - 1}",
    )


def _refuse(wrong: torch.Tensor, message: str) -> None:
    """Raise if any element is True. Meta tensors, with which a step is counted but not run, have none to look at."""
    if not wrong.is_meta and bool(wrong.any()):
        raise ConceptFormerError(message)


def _without_autocast(device: str) -> AbstractContextManager[None]:
    """Autocast would round the operands of the product to bfloat16."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()
