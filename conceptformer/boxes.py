"""``python -m conceptformer.boxes check|show|convert FILE``: look into files of evidence boxes, and convert them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from conceptformer.backbones.qwen2_5_vl_inputs import InputSettings, page_grid
from conceptformer.box_files.conversion import convert_box_file, convert_released, is_released, write_conversion
from conceptformer.box_files.page_sources import PageCorpus, PageFolder, PageSource
from conceptformer.box_files.rows import Fault, read_box_file
from conceptformer.box_files.sampling import EXTREMES, asked_rows, chosen_rows, named_queries
from conceptformer.box_files.statistics import BoxStatistics, box_statistics
from conceptformer.box_files.summary import PUBLISHED, facts, length_rows, told_lengths, write_summary
from conceptformer.errors import ConceptFormerError
from conceptformer.regions import frame_named
from visar.command_line import result_console, run_command, true_or_false, user_path, whole_number
from visar.progress import progress_bar

LITERAL_KEYS = ("file", "out", "query_ids", "pages", "corpus")
"""Arguments that are free text: no sign in them means anything to Hydra."""

_FAULTY = 1
_SHOWN_FAULTS = 3


def check(config: DictConfig) -> None:
    """Say what is in a file and what is wrong with it; write both as JSON and Markdown."""
    console, path = result_console(highlight=False), _file(config)
    out = path.with_name(f"{path.stem}.check.json") if config.out is None else _out(config, path, ".json")
    with progress_bar(console, "looking at images") as on_progress:
        file = read_box_file(path, open_images=true_or_false(config, "images"), on_progress=on_progress)
    statistics = box_statistics(file, _grid_of(config))
    markdown = write_summary(out, file, statistics)
    _print_statistics(statistics, console)
    _print_faults("invalid rows", file.invalid, console)
    _print_faults("boxes that cannot be used", file.dropped, console)
    _print_faults("boxes cut off", file.clipped, console)
    _say(console, f"written: {out}, {markdown.name}")
    if file.invalid or file.dropped:
        raise SystemExit(_FAULTY)


def show(config: DictConfig) -> None:
    """Draw boxes on their pages in one HTML file."""
    from conceptformer.report.box_sheet import write_box_sheet

    console, path = result_console(highlight=False), _file(config)
    if config.out is None:
        raise ConceptFormerError("out: expected the page to write; write out=PAGE.html")
    out, count, seed = _out(config, path, ".html"), whole_number(config, "count"), config.seed
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ConceptFormerError(f"seed: expected a whole number, got {seed!r}")
    with progress_bar(console, "looking at images") as on_progress:
        file = read_box_file(path, on_progress=on_progress)
    if config.query_ids is None:
        chosen = chosen_rows(file, count, seed)
        rule = (
            f"Rows are chosen by rule: up to {count} that are invalid and {count} with a box that cannot be used, "
            f"{EXTREMES} each with a box beyond its page, with boxes that were lost when they were proposed, with the "
            f"largest and the smallest area, and with the most boxes of several, and {count} at random (seed {seed}). "
            "A row stands here once; above it are the rules that chose it."
        )
        if len(chosen) == len(file.rows) and not file.unreadable:
            rule = "All rows of the file, those that stand out first. Above each stands why it was chosen."
    else:
        wanted = named_queries(file, str(config.query_ids))
        chosen, rule = asked_rows(file, wanted), "The rows of the queries that were asked for."
    grid_of = _grid_of(config)
    with progress_bar(console, "drawing pages") as on_progress:
        statistics = box_statistics(file, grid_of)
        write_box_sheet(out, file, statistics, chosen, grid_of, rule=rule, on_progress=on_progress)
    _say(console, f"rows shown: {len(chosen):,} of {statistics.rows:,}")
    _say(console, f"written: {out}")


def convert(config: DictConfig) -> None:
    """Write a box file from another kind of file, or in another frame."""
    console, path = result_console(highlight=False), _file(config)
    if config.out is None:
        raise ConceptFormerError("out: expected the file to write; write out=BOXES.jsonl")
    out = _out(config, path, ".jsonl")
    for frame in (config.frame, config.from_frame):  # before images are opened, which may take long
        frame_named(frame)
    source = _page_source(config, out)
    with progress_bar(console, "looking at images") as on_progress:
        if is_released(path):
            if source is None:
                raise ConceptFormerError(
                    "pages: the file names pages by their ids; write pages=FOLDER (image files of these names) or "
                    "corpus=FOLDER (Parquet files)"
                )
            converted = convert_released(path, source, out, config.frame, config.from_frame, on_progress)
        else:
            if source is not None or config.from_frame != "absolute":
                raise ConceptFormerError(
                    "pages, corpus, from_frame: they are for the columns of the authors' release; rows of this file "
                    "name their images and their frame themselves"
                )
            converted = convert_box_file(read_box_file(path, on_progress=on_progress), out, config.frame)
    skipped = write_conversion(out, converted)
    _say(console, f"rows written: {len(converted.rows):,}; frame: {config.frame}")
    _print_faults("boxes cut off", converted.clipped, console)
    _print_faults("left out", converted.skipped, console)
    _say(console, f"written: {out}" + ("" if skipped is None else f", {skipped.name}"))
    if converted.skipped:
        raise SystemExit(_FAULTY)


ACTIONS: dict[str, Callable[[DictConfig], None]] = {"check": check, "show": show, "convert": convert}


def main(arguments: Sequence[str]) -> None:
    """Run one of :data:`ACTIONS`: its name first, the file second, settings after these."""
    action, rest = (arguments[0], list(arguments[1:])) if arguments else (None, [])
    if action not in ACTIONS:
        asks_for_help = action is not None and action.startswith("-")
        sys.argv[1:] = arguments if asks_for_help else []
        run_command(functools.partial(_no_action, action), config="boxes", package="conceptformer")
        return
    if rest and not rest[0].startswith(("-", "file=")):
        rest[0] = f"file={rest[0]}"
    sys.argv[1:] = rest
    run_command(ACTIONS[action], config=f"boxes_{action}", literal=LITERAL_KEYS, package="conceptformer")


def _no_action(action: str | None, config: DictConfig) -> None:
    found = "" if action is None else f", got {action!r}"
    raise ConceptFormerError(f"boxes: expected {', '.join(ACTIONS)}{found}; write check FILE, or --help")


def _file(config: DictConfig) -> Path:
    if not config.file:
        raise ConceptFormerError("file: expected a file with boxes; write its name after the action")
    return user_path(config, "file")


def _out(config: DictConfig, file: Path, suffix: str) -> Path:
    out = user_path(config, "out")
    if out.suffix.lower() != suffix:
        raise ConceptFormerError(f"out: {out}: expected a file name that ends in {suffix}")
    if out.exists() and file.exists() and out.samefile(file):
        raise ConceptFormerError(f"out: {out} is the file of boxes itself; expected another file")
    return out


def _grid_of(config: DictConfig) -> Callable:
    settings = InputSettings(
        min_pixels=whole_number(config, "min_pixels"), max_pixels=whole_number(config, "max_pixels")
    )
    return functools.partial(page_grid, settings=settings)


def _page_source(config: DictConfig, out: Path) -> PageSource | None:
    if config.pages is not None and config.corpus is not None:
        raise ConceptFormerError("pages and corpus: expected one of them")
    if config.pages is not None:
        return PageFolder(user_path(config, "pages"))
    return None if config.corpus is None else PageCorpus(user_path(config, "corpus"), out.parent / "images")


def _print_statistics(statistics: BoxStatistics, console: Console) -> None:
    for name, value in facts(statistics):
        _say(console, f"{name}: {value}")
    if statistics.lengths is not None:
        _say(console, told_lengths(statistics.lengths))
        table = Table("concept tokens", "pairs", "share")  # of the groups of Figure 3a, those that have pairs
        for row in length_rows(statistics.lengths):
            table.add_row(*row)
        console.print(table)
        _say(console, f"to compare, {PUBLISHED}")
    for hint in statistics.hints:
        _say(console, f"sign of a wrong frame: {hint}", "yellow")


def _print_faults(what: str, faults: Sequence[Fault], console: Console) -> None:
    if faults:
        _say(console, f"{what}: {len(faults):,}{', the first' * (len(faults) > _SHOWN_FAULTS)}:", "yellow")
        for fault in faults[:_SHOWN_FAULTS]:
            _say(console, str(fault))


def _say(console: Console, line: str, style: str | None = None) -> None:
    console.print(line, style=style, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main(sys.argv[1:])
