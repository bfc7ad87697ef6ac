"""The text of page images on disk, one small file each: what was read once is not read again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from visar import tensor_files

_DIGEST_LENGTH = 32


class TextFiles:
    """Texts that were read in one way, by the SHA-256 of the image file's content.

    The same image in another corpus or under another id has its text already.

    Args:
        root: Common folder of all ways; made if missing.
        key: Everything that decides what is read from an image. Another key, another folder.
    """

    def __init__(self, root: Path, key: Mapping[str, str]) -> None:
        self._key = dict(key)
        digest = hashlib.sha256(tensor_files.canonical_json(self._key).encode()).hexdigest()
        self.folder = root / digest[:_DIGEST_LENGTH]

    def load(self, image: str) -> str | None:
        """The text of an image, or None where there is none. A damaged file counts as none, with a warning.

        Raises:
            StoreError: The file system refuses to read the file.
        """
        path = self._file(image)
        try:
            entry = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise tensor_files.StoreError(
                f"{path}: cannot be read ({error.strerror}); check the disk and who may read the folder"
            ) from error
        except ValueError:
            entry = None
        if isinstance(entry, dict) and entry.get("image") == image and isinstance(entry.get("text"), str):
            return entry["text"]
        tensor_files.warn(f"{path}: damaged or not written by this program; the page is read again")
        return None

    def save(self, image: str, text: str) -> None:
        """Keep the text of an image.

        Raises:
            StoreError: The disk is full or the folder cannot be written.
        """
        # Letters that UTF-8 cannot hold come as JSON's escapes.
        tensor_files.write_atomically(self._file(image), json.dumps({"image": image, "text": text}).encode())

    def describe(self) -> None:
        """Write down, for people, what the texts of the folder were read by.

        Raises:
            StoreError: The disk is full or the folder cannot be written.
        """
        path = self.folder / "key.json"
        if not path.exists():
            tensor_files.write_atomically(path, f"{json.dumps(self._key, indent=2)}\n".encode())

    def remove_leftovers(self) -> None:
        """Remove the half-written files of processes that were killed."""
        tensor_files.remove_leftovers(self.folder)

    def _file(self, image: str) -> Path:
        return self.folder / f"{image}.json"
