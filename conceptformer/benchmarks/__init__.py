"""What retrievers are measured on."""

from conceptformer.benchmarks.documents import DocumentFolder
from conceptformer.benchmarks.drawn import Drawn
from conceptformer.benchmarks.folder import RetrievalFolder
from conceptformer.benchmarks.group import BenchmarkGroup, corpora_of_one_release
from conceptformer.benchmarks.hub_corpus import ParquetCorpus
from conceptformer.benchmarks.long_documents import LongDocuments
from conceptformer.benchmarks.mteb import MtebCorpus
from conceptformer.benchmarks.protocol import Benchmark

__all__ = [
    "Benchmark",
    "BenchmarkGroup",
    "DocumentFolder",
    "Drawn",
    "LongDocuments",
    "MtebCorpus",
    "ParquetCorpus",
    "RetrievalFolder",
    "corpora_of_one_release",
]
