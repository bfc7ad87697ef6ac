"""Text files that hold something in each line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from conceptformer.errors import DataError


def placed_lines(path: Path, expected: str) -> Iterator[tuple[str, bytes]]:
    """The lines of a file that are not blank, each with its place: the file's name and the line's number.

    As bytes: what is no UTF-8 is the fault of one line, and ``str.splitlines`` would also end a line at U+2028 and its
    like, which texts may hold.

    Args:
        expected: What should be in it, for messages.

    Raises:
        DataError: The file is missing or cannot be read.
    """
    try:
        content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; expected {expected}") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected {expected}") from error
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield f"{path.name}:{number}", line
