"""Folders by their path or by their name on the hub."""

from __future__ import annotations

from pathlib import Path

from conceptformer.backbones.checkpoint_folder import source
from conceptformer.errors import CheckpointError

# Weights in safetensors and the small files beside them: neither pickled weights nor code are ever fetched.
_FETCHED = ("*.safetensors", "*.json", "*.txt", "*.jinja")


def local_folder(name_or_folder: str | Path, revision: str | None) -> Path:
    """The folder itself, or what the hub has under this name, fetched unless it is in the local cache.

    Args:
        revision: Commit, tag or branch on the hub.

    Raises:
        CheckpointError: Neither a folder nor a hub name, or the hub cannot give it.
    """
    origin = source(name_or_folder, revision)
    if origin.is_folder:
        return Path(origin.name)
    # Imported where it is needed: it takes part of a second.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    try:
        return Path(snapshot_download(origin.name, revision=revision, allow_patterns=list(_FETCHED)))
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{origin.name}: cannot be fetched from the hub ({reason:.200}); check name and connection"
        ) from error
