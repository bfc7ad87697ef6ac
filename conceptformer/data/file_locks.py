"""Files that one process at a time holds. A lock ends with its process, so none is left behind by a kill."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from visar.tensor_files import StoreError, warn


@contextmanager
def lock_file(path: Path, *, wait: bool, what: str) -> Iterator[bool]:
    """Hold a file that is there for its lock alone: it is made, locked, and removed in the end.

    Args:
        wait: Wait for another process that holds it; else the block is told False.
        what: The folder's part, such as "output folder", for messages.

    Raises:
        StoreError: The file cannot be made.
    """
    file = _opened(path, wait=wait, what=what)
    if file is None:
        yield False
        return
    try:
        yield True
    finally:
        # While it is locked: whoever comes between makes a file of their own.
        with contextlib.suppress(OSError):
            path.unlink()
        file.close()


def is_held(path: Path) -> bool:
    """Whether another process has locked the file; one that cannot be looked at counts as locked."""
    try:
        with path.open("rb") as file:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    except (ImportError, OSError):
        return False
    return False


def lock(file: int, path: Path, *, wait: bool) -> bool | None:
    """Lock an open file.

    Args:
        file: Its descriptor.
        path: For messages.
        wait: Wait for another process that holds it.

    Returns:
        True if it is locked now, False if another process holds it, None where no lock is to be had: a warning says so.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except (ImportError, OSError) as error:
        warn(f"{path}: cannot be locked ({error}); see to it that no other process writes there")
        return None
    return True


def lies_at(path: Path, file: int) -> bool:
    """Whether an open file is the one of that name, and not one that was removed or replaced since."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _opened(path: Path, *, wait: bool, what: str) -> BinaryIO | None:
    """The file, locked if it can be; None where another process holds it."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # To be written, although it stays empty: network file systems lock no other files.
            file = path.open("ab")
        except OSError as error:
            raise StoreError(f"{path}: cannot be made ({error.strerror}); choose another {what}") from error
        try:
            if lock(file.fileno(), path, wait=wait) is False:
                file.close()
                return None
            if lies_at(path, file.fileno()):
                return file
        except BaseException:
            file.close()
            raise
        # Between opening and locking it, the process that had it removed it.
        file.close()
