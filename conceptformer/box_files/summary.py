"""The figures of a box file in words, in Markdown, and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from conceptformer.box_files.rows import BoxFile, Fault
from conceptformer.box_files.statistics import BoxStatistics, Spread
from conceptformer.report.lengths import LengthSummary
from visar.report.wording import counted
from visar.tensor_files import write_atomically

PUBLISHED = "the paper's training set (Figure 3a): median 50, 90th percentile 224, 15.1% with 129–256, 7.9% with more"
"""What to compare the lengths of the paper's own data with."""

_LISTED = 100


def facts(statistics: BoxStatistics) -> list[tuple[str, str]]:
    """Name and value of each figure, in the order to be shown; without those that say nothing about this file."""
    s = statistics
    lines = [
        ("rows", f"{s.rows:,}"),
        ("of these invalid", f"{s.invalid:,}"),
        ("pairs without boxes", f"{s.without_boxes:,}"),
        ("boxes", f"{s.boxes:,}"),
        ("boxes that cannot be used", f"{s.dropped:,}"),
        ("boxes cut off at the edge of their page", f"{s.clipped:,}"),
        ("frames of the boxes", _counted(s.frames)),
        ("pairs by number of boxes", _by_boxes(s.pairs_by_boxes)),
        ("boxes of a pair", _told(s.boxes_per_pair, _plain)),
        ("area of a box, of its page", _told(s.box_area, _percent)),
        ("area covered by a pair's boxes", _told(s.covered_area, _percent)),
        ("pairs whose boxes overlap", f"{s.overlapping_pairs:,}"),
        ("area covered twice, pairs of several boxes", _told(s.overlap, _percent)),
        ("boxes repeated within a pair", f"{s.repeated_boxes:,}"),
    ]
    if s.clipped_before or s.dropped_before:
        lines[6:6] = [
            ("boxes cut off at the edge when they were proposed", f"{s.clipped_before:,}"),
            ("boxes dropped when they were proposed", f"{s.dropped_before:,}"),
        ]
    if s.none_usable:
        lines.insert(3, ("pairs none of whose boxes can be used", f"{s.none_usable:,}"))
    if s.makers:
        lines.append(("made by", _counted(s.makers)))
    if s.unfit_pages:
        lines.append(("pairs whose page Qwen2.5-VL cannot take", f"{len(s.unfit_pages):,}"))
    return [(name, value) for name, value in lines if value]


def told_lengths(lengths: LengthSummary) -> str:
    """The distribution of concept lengths in a sentence."""
    return (
        f"{counted(lengths.pairs, 'pair')} with concept tokens: median {lengths.median:.4g}, mean {lengths.mean:.1f}, "
        f"90th percentile {lengths.p90:.4g}, longest {lengths.longest:,}"
    )


def length_rows(lengths: LengthSummary) -> list[tuple[str, str, str]]:
    """Group, pairs and share for a table, of the groups that have pairs."""
    return [(group.name, f"{group.count:,}", f"{group.share:.1%}") for group in lengths.groups if group.count]


def write_summary(path: Path, file: BoxFile, statistics: BoxStatistics) -> Path:
    """Write the figures and everything that is wrong as JSON, and as Markdown beside it.

    Returns:
        The Markdown file.

    Raises:
        StoreError: A file cannot be written.
    """
    document = {
        "file": file.path.name,
        **asdict(statistics),
        "faults": {name: [asdict(fault) for fault in found] for name, found in _faults(file).items()},
    }
    write_atomically(path, f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode())
    markdown = path.with_suffix(".md")
    write_atomically(markdown, _markdown(file, statistics).encode(errors="backslashreplace"))
    return markdown


def _faults(file: BoxFile) -> dict[str, Sequence[Fault]]:
    return {"invalid rows": file.invalid, "boxes that cannot be used": file.dropped, "boxes cut off": file.clipped}


def _markdown(file: BoxFile, statistics: BoxStatistics) -> str:
    lines = [f"# Evidence boxes: {_escaped(file.path.name)}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_escaped(value)} |" for name, value in facts(statistics)]
    if statistics.hints:
        lines += ["", "## Signs of a wrong frame", "", *(f"- {_escaped(hint)}" for hint in statistics.hints)]
    lengths = statistics.lengths
    if lengths is not None:
        lines += ["", "## Concept tokens on the grid of Qwen2.5-VL", "", f"{told_lengths(lengths)}.", ""]
        lines += ["| tokens | pairs | share |", "|---|---:|---:|"]
        lines += [f"| {' | '.join(row)} |" for row in length_rows(lengths)]
        lines += ["", f"To compare, {PUBLISHED}."]
    named = {**_faults(file), "pages that Qwen2.5-VL cannot take": statistics.unfit_pages}
    for name, found in named.items():
        if found:
            lines += ["", f"## {name[0].upper()}{name[1:]}: {len(found):,}", ""]
            lines += [f"- {_escaped(str(fault))}" for fault in found[:_LISTED]]
            if len(found) > _LISTED:
                lines += [f"- and {len(found) - _LISTED:,} more, listed in the JSON file"]
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    """Foreign text that means nothing to Markdown, in one line."""
    return re.sub(r"([\\`*_{}\[\]<>|#~&])", r"\\\1", " ".join(text.split()))


def _told(spread: Spread | None, form: str) -> str:
    if spread is None:
        return ""
    return (
        ", ".join(
            f"{name} {form.format(value)}"
            for name, value in (
                ("median", spread.median),
                ("mean", spread.mean),
                ("90th percentile", spread.p90),
                ("from", spread.least),
            )
        )
        + f" to {form.format(spread.most)}"
    )


def _counted(counts: dict[str, int]) -> str:
    return "; ".join(f"{name} ({counted(count, 'pair')})" for name, count in counts.items())


def _by_boxes(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} with {name}" for name, count in counts.items() if count)


_plain, _percent = "{:.4g}", "{:.2%}"
