"""What a published corpus says of itself, held against what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conceptformer.errors import DataError

# Manifests do not say whether they count the Parquet files or the images in them, which differ by a few percent.
_BYTES_TOLERANCE = 0.1


@dataclass(frozen=True)
class CorpusManifest:
    """A ``manifest.json`` in the layout of ConceptFormer-Eval.

    Attributes:
        query_rows, qrels_rows, corpus_rows: Rows of the tables.
        corpus_positive_docs: Pages that answer a query.
        corpus_shards: File names, in the order of the corpus.
        corpus_bytes: Size of the corpus; None where it is not said.
    """

    path: Path
    query_rows: int
    qrels_rows: int
    corpus_rows: int
    corpus_positive_docs: int
    corpus_shards: tuple[str, ...]
    corpus_bytes: int | None

    def check_counts(self, found: Mapping[str, int]) -> None:
        """Compare numbers of rows.

        Args:
            found: By the name of the manifest's entry.

        Raises:
            DataError: One is not what the manifest says.
        """
        wrong = [f"{name} {count:,}, not {getattr(self, name):,}" for name, count in found.items()
                 if count != getattr(self, name)]  # fmt: skip
        if wrong:
            raise DataError(
                f"{self.path}: the files hold other numbers than it says: {'; '.join(wrong)}; fetch them again: some "
                "are incomplete or of another version"
            )

    def check_size(self, shards: Sequence[Path]) -> None:
        """Compare the size of the corpus files with the manifest's, as far as it is known what that counts.

        Raises:
            DataError: They are far from what the manifest says.
        """
        if self.corpus_bytes is None:
            return
        found = sum(shard.stat().st_size for shard in shards)
        if abs(found - self.corpus_bytes) > _BYTES_TOLERANCE * self.corpus_bytes:
            raise DataError(
                f"{self.path}: the corpus should have about {self.corpus_bytes:,} bytes, its files have {found:,}; "
                "fetch them again: some are incomplete or of another version"
            )


def read_manifest(path: Path) -> CorpusManifest | None:
    """The manifest, or None where there is none.

    Raises:
        DataError: It cannot be read, or an entry is missing or makes no sense.
    """
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); expected a manifest in JSON, or none") from error
    if not isinstance(values, dict):
        raise DataError(f"{path}: holds {type(values).__name__}; expected an object")
    shards = values.get("corpus_shards")
    # Names alone: a path would lead out of the folder.
    if not (isinstance(shards, list) and all(isinstance(name, str) and Path(name).name == name for name in shards)):
        raise DataError(f"{path}: corpus_shards is {shards!r:.60}; expected a list of file names")
    names = ("query_rows", "qrels_rows", "corpus_rows", "corpus_positive_docs")
    counts = [_whole(path, name, values.get(name)) for name in names]
    size = values.get("corpus_bytes")
    return CorpusManifest(path, *counts, tuple(shards), None if size is None else _whole(path, "corpus_bytes", size))


def _whole(path: Path, name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise DataError(f"{path}: {name} is {value!r:.60}; expected a whole number")
    return value
