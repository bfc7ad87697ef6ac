"""The embedded benchmark, made by the project itself."""

from visar.benchmarks.demo.benchmark import Demo

__all__ = ["Demo"]
