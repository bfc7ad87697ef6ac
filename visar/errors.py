"""Errors meant for people: each message says what was wrong, what was expected and what to do."""

from __future__ import annotations


class VisarError(Exception):
    """Base of every error that a command shows as one line instead of a traceback."""


class DocumentError(VisarError):
    """A document, or one page of it, cannot be read."""


class DatasetError(VisarError):
    """A benchmark's files are missing, incomplete or contradict each other."""


class EmbeddingError(VisarError):
    """Embeddings have a wrong shape, hold NaN or Inf, or cannot be computed from what was given."""


class NonFiniteError(EmbeddingError):
    """Embeddings hold NaN or Inf."""


class MissingExtraError(VisarError):
    """An optional dependency is needed and not installed; the message names the line that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package '{package}': pip install 'evidence-retrieval[{extra}]'")
