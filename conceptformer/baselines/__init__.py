"""Retrievers that read the text of pages: BM25 and text embeddings. Heavy libraries are imported at first use only."""

from conceptformer.baselines.bm25 import Bm25
from conceptformer.baselines.dense_text import DenseText
from conceptformer.baselines.nv_embed import NvEmbed
from conceptformer.baselines.page_text import PageTextReader
from conceptformer.baselines.sentence_embedder import SentenceEmbedder

__all__ = ["Bm25", "DenseText", "NvEmbed", "PageTextReader", "SentenceEmbedder"]
