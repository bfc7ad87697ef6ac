"""Encoders: questions and pages to multi-vector embeddings. Heavy libraries are imported at first use only."""

from visar.encoders.multi_vector import MultiVector
from visar.encoders.protocol import Encoder, PageContent
from visar.encoders.text import TokenStates

__all__ = ["Encoder", "MultiVector", "PageContent", "TokenStates"]
