"""Which words or patches of a page the question's tokens found there: the maxima of late interaction, made visible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from visar.errors import EmbeddingError
from visar.late_interaction import as_unit_vectors
from visar.records import Box, PageEmbedding, QueryEmbedding

# A token activated on all pages alike differs from its mean by rounding alone.
_NOISE = 1e-5


@dataclass(frozen=True)
class Match:
    """One place on a page that the question's tokens point to.

    Attributes:
        box: Where it is, as fractions of the page.
        token: The question's tokens whose best match is here, in the question's order, joined by ``", "``; the
            pieces that a tokenizer of BERT's kind cuts a word into (``data``, ``##set``) are joined to the word again.
        similarity: Cosine of the strongest token with this place.
        strength: How much more that token is activated on this page than on the average page, in (0, 1].
    """

    box: Box
    token: str
    similarity: float
    strength: float


def find_matches(
    query: QueryEmbedding, page: PageEmbedding, mean_activation: torch.Tensor, *, most: int = 40
) -> tuple[Match, ...]:
    """The places of one page that the tokens matched best (the argmax of Eq. 2), strongest first.

    A token that is matched on every page alike (an article, padding) says nothing about this page, so its strength is
    its activation here minus its mean activation over all pages, and it is left out where that is not above 0
    (rounding aside). So are tokens without a letter or digit: a comma that lights up explains nothing to a reader.
    Tokens that meet in one box become one match. Places without a box are left out; :func:`count_without_place`
    counts them.

    Args:
        query: Vectors [m, D] and their m tokens.
        page: Vectors [n, D] and boxes [n, 4].
        mean_activation: [m] mean over all pages of each token's activation A (Eq. 2).
        most: Upper limit for the number of matches.

    Raises:
        EmbeddingError: Shapes that do not fit each other, or NaN or Inf in vectors or activations.
    """
    found: dict[Box, list[_Lit]] = {}
    for lit in _lit_tokens(query, page, mean_activation):
        corners = page.boxes[lit.row].tolist()
        if not any(math.isnan(corner) for corner in corners):
            found.setdefault((corners[0], corners[1], corners[2], corners[3]), []).append(lit)
    matches = []
    for box, lits in found.items():
        strongest = max(lits, key=lambda lit: lit.strength)
        matches.append(Match(box, _joined(lits, query.tokens), strongest.similarity, strongest.strength))
    matches.sort(key=lambda match: (-match.strength, match.box[1], match.box[0]))
    return tuple(matches[:most])


def count_without_place(query: QueryEmbedding, page: PageEmbedding, mean_activation: torch.Tensor) -> int:
    """How many tokens found their best match in a vector without a place on the page, such as a prompt token.

    Takes and raises the same as :func:`find_matches`.
    """
    lits = _lit_tokens(query, page, mean_activation)
    return sum(bool(page.boxes[lit.row].isnan().any()) for lit in lits)


@dataclass(frozen=True)
class _Lit:
    """A token activated above its mean: its place in the question and the row of its best vector on the page."""

    token: int
    row: int
    similarity: float
    strength: float


def _joined(lits: Sequence[_Lit], tokens: Sequence[str]) -> str:
    """Names of the tokens in the question's order, each once."""
    words: list[str] = []
    last = None
    for lit in lits:
        name = tokens[lit.token]
        if name.startswith("##") and words and last == lit.token - 1:
            words[-1] += name[2:]
        else:
            words.append(name)
        last = lit.token
    return ", ".join(dict.fromkeys(words))


def _lit_tokens(query: QueryEmbedding, page: PageEmbedding, mean_activation: torch.Tensor) -> list[_Lit]:
    """Tokens of letters or digits with a strength above 0, in the question's order."""
    query_vectors = as_unit_vectors(query.vectors, "question").cpu()
    page_vectors = as_unit_vectors(page.vectors, "page").cpu()
    if query_vectors.shape[1] != page_vectors.shape[1]:
        raise EmbeddingError(
            f"page: expected vectors as wide as the question's {query_vectors.shape[1]}, got {page_vectors.shape[1]}"
        )
    if tuple(page.boxes.shape) != (len(page_vectors), 4):
        raise EmbeddingError(f"boxes: expected shape [{len(page_vectors)}, 4], got {list(page.boxes.shape)}")
    if tuple(mean_activation.shape) != (len(query_vectors),) or len(query.tokens) != len(query_vectors):
        raise EmbeddingError(
            f"mean_activation and tokens: expected one per vector of the question ({len(query_vectors)}), "
            f"got shape {list(mean_activation.shape)} and {len(query.tokens)} tokens"
        )
    mean = mean_activation.detach().to(device="cpu", dtype=torch.float32)
    if not torch.isfinite(mean).all():
        raise EmbeddingError("mean_activation: holds NaN or Inf; compute it over pages with finite embeddings only")
    activation, rows = (query_vectors @ page_vectors.T).max(dim=1)
    strength = (activation - mean).clamp(0, 1)
    return [
        _Lit(i, int(rows[i]), float(activation[i]), float(strength[i]))
        for i, token in enumerate(query.tokens)
        if strength[i] > _NOISE and any(character.isalnum() for character in token)
    ]
