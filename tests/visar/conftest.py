"""Shared by the tests: one profile for property tests, and where the real data lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines stall now and then: a slow example is no failure.
settings.register_profile("visar", deadline=None)
settings.load_profile("visar")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real documents beside the checkout."""
    folder = Path(__file__).parents[2].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}")
    return folder
