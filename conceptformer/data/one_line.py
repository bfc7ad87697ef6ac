"""Foreign text in messages and lists, where it must not break the line."""

from __future__ import annotations


def one_line(text: str, *, most: int | None = None) -> str:
    """A text without line ends and repeated spaces, and without halves of characters, which no file can hold.

    Args:
        most: Longest length in characters; what is longer ends with three dots.
    """
    line = " ".join(text.split()).encode(errors="backslashreplace").decode()
    return line if most is None or len(line) <= most else f"{line[: most - 3]}..."
