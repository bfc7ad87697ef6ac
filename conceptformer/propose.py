"""``python -m conceptformer.propose``: a vision-language model marks the evidence for queries on their pages."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console

from conceptformer.errors import ConceptFormerError
from conceptformer.proposals.box_file import COMPANIONS, companion
from conceptformer.proposals.budget import Price, Usage
from conceptformer.proposals.pairs import read_pairs
from conceptformer.proposals.run import ProposalRun, ProposalSettings
from visar.command_line import result_console, run_command, user_path, whole_number
from visar.progress import progress_bar

LITERAL_KEYS = ("pairs", "out", "api.base_url", "api.model")
"""Arguments that are free text: no sign in them means anything to Hydra."""

_SOME_FAILED = 1
_SHOWN_FAILURES = 3
_SECONDS_BETWEEN_COSTS = 30.0


def main(config: DictConfig) -> None:
    """Build the objects that the config describes, run, and say what was made and what it cost."""
    console = result_console(highlight=False)
    pairs, out = _file(config, "pairs", "PAIRS.jsonl"), _file(config, "out", "BOXES.jsonl")
    _check_files(pairs, out)
    settings = _settings(config)
    price = instantiate(config.price)
    run = ProposalRun(read_pairs(pairs), out, settings)
    costs = _Costs(run.usage, price, console)
    try:
        with ExitStack() as first_bar, progress_bar(console, "asking") as asking:
            images = first_bar.enter_context(progress_bar(console, "looking at images"))

            def on_pairs(done: int, total: int) -> None:
                first_bar.close()  # older versions of rich draw one bar at a time
                asking(done, total)
                costs.show_now_and_then()

            run.run(images, on_pairs)
    except BaseException:
        if run.usage.calls:
            _print_result(run, costs, out, console)
        raise
    _print_result(run, costs, out, console)
    if run.stopped is not None:
        raise ConceptFormerError(
            f"{run.stopped}; pairs left: {run.left:,}; the same command continues with another such budget"
        )
    if run.failures:
        raise SystemExit(_SOME_FAILED)


def _settings(config: DictConfig) -> ProposalSettings:
    if config.frame is None:
        raise ConceptFormerError(
            "frame: expected what the model states boxes in; write frame=absolute (pixels of the image that is sent), "
            "frame=relative (0 to 1) or frame=relative1000 (0 to 1000), or choose a known model, as api=qwen3_vl"
        )
    return ProposalSettings(
        endpoint=instantiate(config.api, _convert_="all"),  # plain values, since they are sent as JSON
        image=instantiate(config.image),
        retries=instantiate(config.retry),
        budget=instantiate(config.budget),
        frame=config.frame,
        concurrency=whole_number(config, "concurrency"),
        asks=whole_number(config, "asks"),
        stop_after_failures=whole_number(config, "stop_after_failures"),
    )


def _file(config: DictConfig, name: str, example: str) -> Path:
    if not config[name]:
        raise ConceptFormerError(f"{name}: expected a file; write {name}={example}")
    return user_path(config, name)


def _check_files(pairs: Path, out: Path) -> None:
    if out.suffix != ".jsonl":
        raise ConceptFormerError(f"out: {out}: expected a file name that ends in .jsonl")
    if pairs.exists() and out.exists() and out.samefile(pairs):
        raise ConceptFormerError(f"out: {out} is the file of pairs; expected another file")
    for name in COMPANIONS:
        file = companion(out, name)
        if pairs.exists() and file.exists() and file.samefile(pairs):
            raise ConceptFormerError(
                f"pairs: {pairs} was written beside {out.name}; expected the file of pairs that it was made from: with "
                "that, the same command asks again for what failed"
            )


class _Costs:
    """Says what the calls of the run have used so far."""

    def __init__(self, usage: Usage, price: Price, console: Console) -> None:
        self._usage, self._price, self._console = usage, price, console
        self._shown_at = time.monotonic()

    def show_now_and_then(self) -> None:
        if time.monotonic() - self._shown_at >= _SECONDS_BETWEEN_COSTS:
            self.show()

    def show(self) -> None:
        self._shown_at = time.monotonic()
        usage = self._usage
        repeated = f" ({usage.repeated:,} of them repeated)" if usage.repeated else ""
        line = f"calls: {usage.calls:,}{repeated}; tokens: {usage.input_tokens:,} in, {usage.output_tokens:,} out"
        if usage.unreported:
            line += f", unknown for {usage.unreported:,} replies"
        cost = self._price.cost(usage)
        if cost is not None:
            line += f"; cost so far: {cost:,.4f}"
        self._console.print(line, markup=False, soft_wrap=True)


def _print_result(run: ProposalRun, costs: _Costs, out: Path, console: Console) -> None:
    def say(line: str, style: str | None = None) -> None:
        console.print(line, style=style, markup=False, soft_wrap=True)

    counts = run.counts
    if not run.usage.calls and not run.failures:
        say(f"nothing to ask for: all pairs have their row in {out}")
        return
    if run.made:
        without = counts.pairs_without
        say(f"rows made in this run: {run.made:,}, of these without boxes: {without:,}; boxes: {counts.used:,}")
    if counts.clipped or counts.dropped:
        say(f"boxes cut off at the edge of the page: {counts.clipped:,}; boxes dropped: {counts.dropped:,}", "yellow")
    if counts.first_dropped is not None:
        say(f"the first that was dropped: {counts.first_dropped}")
    if counts.unreadable:
        first = "" if run.failures else f", the first: {counts.first_unreadable}"
        say(f"replies that could not be used: {counts.unreadable:,}{first}", "yellow")
    if run.usage.calls:
        costs.show()
    if run.failures:
        first = "; the first" * (len(run.failures) > _SHOWN_FAILURES)
        say(f"failed pairs: {len(run.failures):,}, listed in {companion(out, 'failed')}{first}:", "yellow")
        for failure in run.failures[:_SHOWN_FAILURES]:
            say(f"{failure.place}: {failure.reason}")
    if run.kept + run.made:
        say(f"pairs with a row in {out}: {run.kept + run.made:,} of {run.pairs:,}")


if __name__ == "__main__":
    run_command(main, config="propose", literal=LITERAL_KEYS, package="conceptformer")
