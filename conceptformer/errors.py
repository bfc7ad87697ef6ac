"""Errors meant for people: each message says in one line what was wrong, what was expected and what to do."""

from __future__ import annotations

from visar.errors import MissingExtraError, VisarError

__all__ = [
    "BoxError",
    "CheckpointError",
    "ConceptFormerError",
    "DataError",
    "MissingExtraError",
    "TrainingError",
]


class ConceptFormerError(VisarError):
    """Base of this package's errors; the commands show them as one line instead of a traceback."""


class DataError(ConceptFormerError):
    """Training or evaluation data are missing, incomplete or contradict each other."""


class BoxError(DataError):
    """An evidence box, or the frame its numbers stand in, makes no sense."""


class CheckpointError(ConceptFormerError):
    """A backbone or a trained retriever cannot be loaded as a whole, or cannot be saved."""


class TrainingError(ConceptFormerError):
    """Training cannot go on, e.g. because the loss is not finite."""
