"""Which files of a folder hold a corpus, its queries and its judgments, as MTEB, BEIR and ViDoRe name them.

A table is one file or several: ``NAME.jsonl``, ``NAME-SPLIT.parquet``, ``NAME-00000-of-00002.parquet``,
``NAME/SPLIT.tsv``, ``NAME/SPLIT-00000-of-00002.parquet`` and the like. Where a data set holds several corpora, one for
each language, the names have a config's name before or behind them: ``en-corpus/``, ``corpus-en/``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conceptformer.data.table_files import TABLE_SUFFIXES
from conceptformer.errors import DataError

TABLES: Mapping[str, Sequence[str]] = {"queries": ("queries", "query"), "qrels": ("qrels",), "corpus": ("corpus",)}
"""What each table may be called."""

NEEDS = "corpus, queries and qrels"
"""The tables, for messages."""

_SEPARATORS = "-_."
_Files = list[tuple[Path, str]]
"""The files of a table, each with its split; "" for none."""


def find_tables(folder: Path, *, config: str | None, split: str) -> dict[str, list[Path]]:
    """The files of each table of :data:`TABLES`.

    Args:
        config: Which of several corpora to take. A table that has none of that name but one without any is shared by
            all. None where there is one only.
        split: Which files to take where a table has several splits.

    Raises:
        DataError: A table is missing, or has several configs or splits and none of that name is chosen, or files of
            several kinds.
    """
    plain = {table: _files_of(folder, names, names) for table, names in TABLES.items()}
    configs = {table: _configs(folder, names) for table, names in TABLES.items()}
    if config is None:
        chosen = _only_config(folder, [configs[table] for table, files in plain.items() if not files])
    else:
        chosen = str(config)
    own: dict[str, _Files] = {}
    if chosen is not None:
        own = {table: _own_files(folder, chosen, names, split) for table, names in TABLES.items()}
        if not any(own.values()):
            held = _listed(set().union(*configs.values())) or "none"
            raise DataError(f"{folder}: has no tables of the config '{chosen}'; found {held}: benchmark.config=NAME")
        named = set().union(*(configs[table] for table in TABLES if own[table]))
        plain = {table: _shared(folder, files, chosen, named, split) for table, files in plain.items()}
    tables = {}
    for table in TABLES:
        files = own.get(table) or plain[table]
        if not files:
            of_config = "" if chosen is None else f" of the config '{chosen}'"
            raise DataError(
                f"{folder}: has no table {table}{of_config}; expected {NEEDS} as Parquet, JSONL or TSV files"
            )
        tables[table] = _of_one_split(folder, table, files, split)
    return tables


def _files_of(folder: Path, labels: Sequence[str], names: Sequence[str]) -> _Files:
    """The files of a table by what it is called here, in the order of the corpus."""
    found: _Files = []
    for label in labels:
        beside = ((path, _rest(_stem(path), [label])) for path in _table_files(folder))
        found += ((path, split) for path, split in beside if split is not None)
        for path in _table_files(folder / label):
            split = _rest(_stem(path), [label, *names])
            found.append((path, _stem(path) if split is None else split))
    return found


def _own_files(folder: Path, config: str, names: Sequence[str], split: str) -> _Files:
    """The files of a table that bear a config's name.

    ``corpus-pt-br`` may be the split br of the config pt, or the config pt-br: it is a split where that was asked for.
    """
    own = {f"{name}{mark}{config}" for name in names for mark in _SEPARATORS}
    return [
        (path, rest)
        for path, rest in _files_of(folder, _names_with(config, names), names)
        if rest in ("", split) or path.parent != folder or _stem(path).removesuffix(f"-{rest}") not in own
    ]


def _shared(folder: Path, files: _Files, config: str, named: set[str], split: str) -> _Files:
    """Of files without a config's name those that are for all configs, and not a split in name and a config in fact.

    Args:
        named: Configs that other tables have.
    """
    return [
        (path, rest)
        for path, rest in files
        if rest == split or path.parent != folder or not (rest in named or rest.startswith(f"{config}-"))
    ]


def _table_files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.glob("*")) if path.suffix in TABLE_SUFFIXES and path.is_file())


def _stem(path: Path) -> str:
    """A file's name without what numbers it: "test" of test-00000-of-00002.parquet."""
    return re.sub(r"(-\d+-of-\d+)?(-[0-9a-f]{16})?$", "", path.stem)


def _rest(stem: str, labels: Sequence[str]) -> str | None:
    """What stands behind a table's name; None where none of the names begins the stem."""
    for label in labels:
        if stem == label:
            return ""
        if stem.startswith(f"{label}-"):
            return stem.removeprefix(f"{label}-")
    return None


def _names_with(config: str, names: Sequence[str]) -> list[str]:
    return [
        label for name in names for mark in _SEPARATORS for label in (f"{config}{mark}{name}", f"{name}{mark}{config}")
    ]


def _configs(folder: Path, names: Sequence[str]) -> set[str]:
    """The names that stand before or behind a table's."""
    places = [path.name for path in sorted(folder.glob("*")) if path.is_dir() and any(_table_files(path))]
    places += map(_stem, _table_files(folder))
    marks = f"[{re.escape(_SEPARATORS)}]"
    patterns = [
        re.compile(pattern)
        for name in names
        for pattern in (rf"(.+?){marks}{name}(?:-.+)?", rf"{name}{marks}(.+)")
    ]  # fmt: skip
    return {match[1] for place in places for pattern in patterns if (match := pattern.fullmatch(place))}


def _only_config(folder: Path, configs: Sequence[set[str]]) -> str | None:
    """The one config of the tables that have none without; None where no table has any."""
    held = [names for names in configs if names]
    if not held:
        return None
    common = set.intersection(*held)
    if len(common) == 1:
        return common.pop()
    names = _listed(common or set().union(*held))
    raise DataError(f"{folder}: has tables of the configs {names}; choose one: benchmark.config=NAME")


def _of_one_split(folder: Path, table: str, found: _Files, chosen: str) -> list[Path]:
    """The files of the split, or all where there is one split only."""
    splits = dict.fromkeys(split for _, split in found)
    if len(splits) > 1 and chosen not in splits:
        held = ", ".join(split or "without a name" for split in splits)
        raise DataError(f"{folder}: {table} has the splits {held}; choose one: benchmark.split=NAME")
    files = [path for path, split in found if len(splits) == 1 or split == chosen]
    kinds = {path.suffix for path in files}
    if len(kinds) > 1:
        raise DataError(f"{folder}: {table} has files of the kinds {', '.join(sorted(kinds))}; expected one kind")
    return files


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))
