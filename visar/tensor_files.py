"""Tensors in one file: safetensors with a checksum, written so that a file is there complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import socket
import time
import warnings
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from visar.errors import VisarError

_ABANDONED_AFTER_SECONDS = 24 * 3600
_HOST = socket.gethostname().replace(".", "_")[:64]
# Names end at 255 bytes and a character may take four: a long one must leave room for host and process.
_NAME_SHOWN = 24
_TEMPORARY_NAME = re.compile(r"\..+\.(?P<host>[^.]+)\.(?P<process>\d+)\.[0-9a-f]{8}\.tmp")


class StoreError(VisarError):
    """A folder of results cannot be written or read, or holds less than was asked for."""


class StoreWarning(UserWarning):
    """Something stored is damaged or doubtful and was handled; the message says what and how."""


def write_atomically(path: Path, data: bytes) -> None:
    """Put ``data`` under ``path``, complete or not at all, and on the disk when the call returns.

    Raises:
        StoreError: No space, no permission, or another refusal of the file system. What stood there before stays.
    """
    temporary = path.with_name(f".{path.name[:_NAME_SHOWN]}.{_HOST}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise StoreError(f"{path}: cannot write ({error.strerror}); give a shorter name") from error
        raise StoreError(
            f"{path.parent}: cannot write {len(data):,} bytes ({error.strerror}); "
            "make room there or choose another folder, then run again: what is complete is kept"
        ) from error


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of :func:`write_atomically` whose process is dead, as a kill leaves them behind.

    Raises:
        StoreError: The folder is there and cannot be looked into.
    """
    try:
        # Not Path.glob: versions of Python differ in which refusals of the file system it passes over.
        remove(folder / name for name in os.listdir(folder) if _writer_is_dead(folder / name))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be looked into ({error.strerror}); check who may read it, or choose another folder"
        ) from error


def remove(files: Iterable[Path]) -> None:
    """Remove files that nobody needs. Those that cannot be removed stay: they cost space and nothing else."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()


def to_bytes(header: Mapping[str, object], tensors: Mapping[str, torch.Tensor]) -> bytes:
    """The content of a file; equal input gives equal bytes.

    Args:
        header: What JSON can hold.
        tensors: Contiguous CPU tensors by name.
    """
    checksum = _checksum(header, tensors)
    # One metadata entry, since safetensors writes several in random order.
    return save(dict(tensors), metadata={"visar": canonical_json({"header": header, "crc32": checksum})})


def load(path: Path) -> tuple[dict[str, object], dict[str, torch.Tensor]] | None:
    """Header and tensors of a file; the tensors are mapped into memory, not copied: do not write to them.

    Returns:
        None where there is no file, and, with a :class:`StoreWarning`, where it is damaged.

    Raises:
        StoreError: The file system refuses to read the file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("visar", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header, expected = metadata["header"], metadata["crc32"]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error}); check the disk and who may read the folder") from error
    except RuntimeError as error:
        # safetensors opens the file twice, for its header and for torch; another process may remove it in between,
        # when it has joined the pages of a document into one file.
        if not path.exists():
            return None
        raise StoreError(f"{path}: cannot be read ({error}); check the disk and who may read the folder") from error
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        warn(f"{path}: damaged or not written by this program ({error}); not used, made anew")
        return None
    if expected != _checksum(header, tensors):
        warn(f"{path}: damaged (its checksum is wrong); not used, made anew")
        return None
    return header, tensors


def warn(message: str) -> None:
    """Emit a :class:`StoreWarning`."""
    warnings.warn(message, StoreWarning, stacklevel=3)


def canonical_json(facts: Mapping[str, object]) -> str:
    """Sorted names and no spaces, so that equal facts are equal texts."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _checksum(header: Mapping[str, object], tensors: Mapping[str, torch.Tensor]) -> int:
    """CRC-32 over header, names, types, shapes and bytes: a changed header is found like changed data."""
    checksum = zlib.crc32(canonical_json(header).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        checksum = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), checksum)
        checksum = zlib.crc32(tensor.contiguous().view(torch.uint8).numpy(), checksum)
    return checksum


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut. Only POSIX systems can open a folder for that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _writer_is_dead(temporary: Path) -> bool:
    """Whether nobody writes this file any more. A writer that cannot be asked counts as dead after a day."""
    name = _TEMPORARY_NAME.fullmatch(temporary.name)
    if name is None:
        return False
    if name["host"] == _HOST and os.name == "posix":
        try:
            os.kill(int(name["process"]), 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            return False
        return False
    try:
        return time.time() - temporary.stat().st_mtime > _ABANDONED_AFTER_SECONDS
    except FileNotFoundError:
        return False
