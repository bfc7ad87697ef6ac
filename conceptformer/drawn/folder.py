"""A folder that holds a drawing whole, in part, or not at all, and knows which."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from conceptformer.data.file_locks import lock_file
from conceptformer.errors import DataError
from visar.tensor_files import StoreError, remove, remove_leftovers, write_atomically


class DrawingFolder:
    """A drawing on disk.

    ``manifest.json`` is written last: where it is, the drawing is whole. ``unfinished.json`` says, while the drawing is
    made, whose files lie there; without it pictures of other settings could be taken for this drawing's after a kill.

    Args:
        root: The folder; made by :meth:`begin`.
        facts: Everything that decides the content of the files, as JSON holds it.
        image_folders: Relative to the root; hold the PNG files, and the folders above them the JSONL files.
    """

    def __init__(self, root: Path, facts: Mapping[str, object], image_folders: Sequence[str]) -> None:
        self._root = root
        self._facts = dict(facts)
        self._image_folders = image_folders
        self._manifest = root / "manifest.json"
        self._unfinished = root / "unfinished.json"

    def is_complete(self) -> bool:
        """Whether the folder holds this drawing, every file in its full length."""
        manifest = _read(self._manifest)
        return manifest.get("drawing") == self._facts and manifest.get("files") == self._lengths()

    def begin(self) -> None:
        """Make the folder ready: pictures that this drawing has made before stay, those of another one go.

        Raises:
            DataError: The folder holds files that no drawing has made.
            StoreError: It cannot be read or written.
        """
        for folder in (self._root, *(self._root / name for name in self._image_folders)):
            remove_leftovers(folder)
        begun = _read(self._unfinished)
        self._refuse_strangers(known="drawing" in begun or "drawing" in _read(self._manifest))
        if begun.get("drawing") == self._facts and not self._manifest.exists():
            return
        # First that nobody owns what lies here: a kill before the last step must not let old pictures count as new.
        _write(self._unfinished, {"drawing": None})
        old = [file for folder in self._image_folders for file in (self._root / folder).glob("*.png")]
        for file in (self._manifest, *old):
            _remove(file)
        _write(self._unfinished, {"drawing": self._facts})

    def holds(self, name: str) -> bool:
        """Whether the file has been written."""
        return (self._root / name).exists()

    def write(self, name: str, data: bytes) -> None:
        """Put a file in its place, complete or not at all."""
        write_atomically(self._root / name, data)

    def finish(self) -> None:
        """State that the drawing is whole."""
        _write(self._manifest, {"drawing": self._facts, "files": self._lengths()})
        remove([self._unfinished])

    def _refuse_strangers(self, *, known: bool) -> None:
        if known or not self._root.exists():
            return
        if not self._root.is_dir():
            raise DataError(f"{self._root}: expected a folder for drawn pages, found a file; choose another folder")
        strangers = [name for name in sorted(os.listdir(self._root)) if not name.startswith(".")]
        if strangers:
            raise DataError(
                f"{self._root}: expected an empty folder or drawn pages, found {strangers[0]}; choose another folder"
            )

    def _lengths(self) -> dict[str, list[int]]:
        """[number, bytes] of the drawing's files, by kind and sub-folder."""
        kinds = [f"{folder}/*.png" for folder in self._image_folders]
        kinds += [f"{os.path.dirname(folder)}/*.jsonl" for folder in self._image_folders]
        sizes = {kind: [file.stat().st_size for file in self._root.glob(kind)] for kind in kinds}
        return {kind: [len(lengths), sum(lengths)] for kind, lengths in sizes.items()}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time write the folder: those that torchrun starts all come at once."""
    with lock_file(folder.with_name(f"{folder.name}.lock"), wait=True, what="cache folder"):
        yield


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"{file}: cannot be removed ({error.strerror}); check who may write the folder, or choose another folder"
        ) from error


def _read(path: Path) -> dict[str, object]:
    """A JSON object; empty where there is no such file or something else in it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _write(path: Path, content: Mapping[str, object]) -> None:
    write_atomically(path, f"{json.dumps(content, indent=2)}\n".encode())
