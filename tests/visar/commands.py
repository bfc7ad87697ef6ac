"""Runs the commands: in a process of their own, as people do, or in this one where many runs are compared."""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from visar.command_line import run_command

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a failed run says."""
        assert self.status != 0
        assert "Traceback" not in self.err
        lines = self.err.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        assert len(errors) == 1 and lines[-1] == errors[0], self.err
        return errors[0].removeprefix("error: ")


def environment() -> dict[str, str]:
    """No network, one thread, and only this checkout's package."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "100"}


def start(command: str, *arguments: str, folder: Path) -> subprocess.Popen[str]:
    """``python -m visar.<command>`` in ``folder``."""
    return subprocess.Popen(
        [sys.executable, "-m", f"visar.{command}", *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(command: str, *arguments: str, folder: Path) -> Outcome:
    """Start the command and wait for its end."""
    process = start(command, *arguments, folder=folder)
    out, err = process.communicate(timeout=240)
    return Outcome(process.returncode, out, err)


def run_here(command: str, *arguments: str, folder: Path) -> Outcome:
    """The same in this process, which saves the time to load torch."""
    module = importlib.import_module(f"visar.{command}")
    status, out, err = 0, io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.chdir(folder)
        patch.setattr(sys, "argv", [f"visar.{command}", *arguments])
        patch.setenv("HYDRA_FULL_ERROR", "")
        with redirect_stdout(out), redirect_stderr(err):
            try:
                run_command(module.main, config=command, literal=module.LITERAL_KEYS)
            except SystemExit as end:
                status = int(end.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue())
