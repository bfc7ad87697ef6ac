"""Questions, the documents they are asked about, and the pages that hold the answers."""

from visar.benchmarks.demo import Demo
from visar.benchmarks.folder import Folder
from visar.benchmarks.hub import HubCopy
from visar.benchmarks.longdocurl import LongDocUrl
from visar.benchmarks.mmlongbench import MMLongBench
from visar.benchmarks.protocol import Benchmark

__all__ = ["Benchmark", "Demo", "Folder", "HubCopy", "LongDocUrl", "MMLongBench"]
