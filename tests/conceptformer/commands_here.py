"""Runs a command of the package in this process, which saves the time to load torch."""

from __future__ import annotations

import importlib
import io
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests.visar.commands import Outcome
from visar.command_line import run_command


def run_here(command: str, *arguments: str, folder: Path, module: str | None = None) -> Outcome:
    """``python -m conceptformer.<command>`` as if it had been started in ``folder``.

    Args:
        module: Where its ``main`` is, if not in the module of that name.
    """
    found = importlib.import_module(f"conceptformer.{module or command}")
    status, out, err = 0, io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.chdir(folder)
        patch.setattr(sys, "argv", [f"conceptformer.{command}", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "")
        with redirect_stdout(out), redirect_stderr(err):
            try:
                run_command(found.main, config=command, literal=found.LITERAL_KEYS, package="conceptformer")
            except SystemExit as end:
                status = int(end.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue())
