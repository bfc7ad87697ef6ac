"""Processes that write into a store, for tests that kill them or let them meet."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

# The processes of these tests start in a fresh interpreter and find the package where this one found it.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "OMP_NUM_THREADS": "1"}
PRELUDE = """
import sys, torch, warnings
from visar.errors import VisarError
from visar.records import PageEmbedding
from visar.store import EmbeddingKey, EmbeddingStore
from tests.visar.stored_pages import KEY, page
store = EmbeddingStore(sys.argv[1])
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code, *map(str, arguments)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(process: subprocess.Popen[str]) -> str:
    out, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    return out


def wait_for(pattern: str, folder: Path, process: subprocess.Popen[str]) -> Path:
    """The first file of that pattern, while its process is still at work."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        found = next(folder.glob(pattern), None)
        if found is not None:
            return found
        time.sleep(0.001)
    raise AssertionError(f"no {pattern} appeared: {process.communicate()[1]}")
