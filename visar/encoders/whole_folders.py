"""Folders of results that are there complete or not at all, also after a kill and with several writers."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_HOST = re.sub(r"[^\w-]", "_", socket.gethostname())
_UNFINISHED = re.compile(r"unfinished-(?P<host>[\w-]+)\.(?P<process>\d+)\..+")
_ABANDONED_AFTER_SECONDS = 24 * 3600


def write_whole(target: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder ``target`` by letting ``fill`` write its files into an empty one beside it, then moving that.

    Several processes may do so at once, each with its own copy until it is moved: the first to finish gives the
    folder, the others discard theirs. Copies that a kill left behind are removed by the next call.

    Raises:
        OSError: No space, no permission, or another refusal of the file system.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target.parent)
    unfinished = Path(tempfile.mkdtemp(dir=target.parent, prefix=f"unfinished-{_HOST}.{os.getpid()}."))
    try:
        fill(unfinished)
        _move(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _move(unfinished: Path, target: Path) -> None:
    for path in unfinished.rglob("*"):
        if path.is_file():
            # Windows syncs only what is open for writing.
            with path.open("r+b") as stream:
                os.fsync(stream.fileno())
    try:
        # Atomic, and refused where another process has put its folder already.
        os.replace(unfinished, target)
    except OSError:
        # That folder is made of the same weights.
        if not target.is_dir():
            raise


def _remove_abandoned(folder: Path) -> None:
    """Remove the folders of dead writers. What cannot be removed stays: it costs space and nothing else."""
    for path in folder.glob("unfinished-*"):
        if _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(unfinished: Path) -> bool:
    """Whether its writer is known to be dead, or began a day ago: no writer takes that long."""
    try:
        if time.time() - unfinished.stat().st_mtime > _ABANDONED_AFTER_SECONDS:
            return True
    except FileNotFoundError:
        return False
    name = _UNFINISHED.fullmatch(unfinished.name)
    # Other machines cannot be asked, and on Windows asking in this way would end the process.
    if name is None or name["host"] != _HOST or os.name != "posix":
        return False
    try:
        os.kill(int(name["process"]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False
