"""A run of proposals over many pairs. It can be stopped at any moment, and the next run goes on from there."""

from __future__ import annotations

import asyncio
import contextlib
import math
import warnings
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conceptformer.data.json_rows import JsonRow, shown
from conceptformer.errors import ConceptFormerError, DataError
from conceptformer.proposals.box_file import PairKey, companion, read_done
from conceptformer.proposals.budget import Budget, BudgetSpentError, Usage
from conceptformer.proposals.client import Client, ProposalWarning
from conceptformer.proposals.endpoint import Endpoint
from conceptformer.proposals.failures import Failure, FailureFile
from conceptformer.proposals.page_images import SentForm, SentImages
from conceptformer.proposals.pairs import Pair, PairList, without_bad_images
from conceptformer.proposals.prompt import PROMPT_VERSION
from conceptformer.proposals.proposer import BoxCounts, NoProposalError, Proposer
from conceptformer.proposals.retries import RetryPolicy
from conceptformer.proposals.row_file import RowFile
from conceptformer.records import OnProgress
from conceptformer.regions import frame_named
from visar.tensor_files import StoreError, remove_leftovers

# So many more pages than calls are under way are decoded ahead, so that no call waits for one.
_AHEAD = 8
# Whether the frame is in doubt is asked after so many rows, each time their number has doubled, and in the end.
_FIRST_LOOK = 15
# So many pairs whose boxes cannot stand in the stated frame, and none whose boxes can, end the run.
_WRONG_FRAMES = 3


@dataclass(frozen=True)
class ProposalSettings:
    """How proposals are made.

    Attributes:
        frame: Name of what the model states boxes in: "absolute" (pixels of the image that is sent), "relative" or
            "relative1000".
        concurrency: Calls under way at once.
        asks: How often a reply is asked for before a pair has failed. How often a call that brings no reply is tried
            again is a matter of ``retries``.
        stop_after_failures: The run ends when so many pairs have failed without one between them that did not.
    """

    endpoint: Endpoint
    image: SentForm
    retries: RetryPolicy
    budget: Budget
    frame: str
    concurrency: int
    asks: int
    stop_after_failures: int

    def __post_init__(self) -> None:
        frame_named(self.frame)


class ProposalRun:
    """Asks for the pairs that a box file does not hold yet.

    Attributes:
        usage, counts: What was used and made by this run so far.
        pairs: Number of rows of the pair list, those that cannot be asked for among them.
        kept: Pairs that have a row from an earlier run.
        made: Rows that this run has added.
        left: Pairs that were not asked for yet.
        stopped: Which budget ended the run; None where none did.
        failures: What cannot be asked for, and what has failed.
    """

    def __init__(self, pair_list: PairList, out: Path, settings: ProposalSettings) -> None:
        """
        Args:
            out: The box file, which is made or added to. Its companions lie beside it.
        """
        self._pair_list, self._out, self._settings = pair_list, out, settings
        self.usage, self.counts = Usage(), BoxCounts()
        self.pairs = len(pair_list.pairs) + len(pair_list.refused)
        self.kept = self.made = self.left = 0
        self.stopped: str | None = None
        self.failures: Sequence[Failure] = ()
        self._in_a_row = self._wrong_frames = 0
        self._frame_fits = False
        self._next_look: float = _FIRST_LOOK

    def run(self, on_images: OnProgress | None = None, on_pairs: OnProgress | None = None) -> None:
        """Ask for all that is missing. Images that cannot be used are listed before anything is sent, and what every
        call needs, such as the key, is looked for before them.

        Args:
            on_images: Told of each image whose header was read.
            on_pairs: Told of each pair that was asked for, with those of earlier runs.

        Raises:
            DataError: The box file belongs to other pairs, or is none.
            StoreError: A file cannot be written, or another process is writing it.
            ConceptFormerError: No further call can succeed, e.g. because the key is wrong; or too many pairs failed, or
                a few because the model does not answer in the stated frame.
            MissingExtraError: The package openai is not installed.
        """
        with RowFile(self._out) as boxes:
            remove_leftovers(self._out.parent)
            done = read_done(self._out)
            self._check(done)
            failures = FailureFile(companion(self._out, "failed"))
            todo = [pair for pair in self._pair_list.pairs if pair.key not in done]
            self.kept = len(self._pair_list.pairs) - len(todo)
            client = self._client() if todo else None
            todo, without_image = without_bad_images(todo, on_images)
            # Pairs that fail each time must not keep the others from their turn.
            todo.sort(key=lambda pair: pair.key in failures.failed)
            failures.begin([*self._pair_list.refused, *without_image], {pair.key for pair in todo})
            self.failures, self.left = failures.all, len(todo)
            if client is None or not todo:
                return
            try:
                with RowFile(companion(self._out, "raw")) as raw:
                    asyncio.run(self._ask_for_all(todo, client, boxes, raw, failures, on_pairs))
            except BaseException:
                with contextlib.suppress(StoreError):  # what stopped the run is more to the point
                    failures.finish()
                raise
            finally:
                self.failures = failures.all
            failures.finish()

    def _check(self, done: Mapping[PairKey, JsonRow]) -> None:
        """Whether the rows of earlier runs belong to these pairs and settings."""
        for pair in self._pair_list.pairs:
            row = done.get(pair.key)
            if row is not None and row.values["query"] != pair.query:
                raise DataError(
                    f"{row.place}: asked with another text of query {pair.query_id!r} than in {pair.place}; choose "
                    "another out=, or correct the pairs"
                )
        self._warn_of_strangers(done)
        settings = self._settings
        wanted = {"model": settings.endpoint.model, "prompt_version": PROMPT_VERSION, "frame": settings.frame}
        others = [
            row
            for row in done.values()
            # Without boxes nothing is measured in a frame.
            if any(
                row.values[key] != value and (key != "frame" or row.values["boxes"]) for key, value in wanted.items()
            )
        ]
        self._frame_fits = any(
            row.values["boxes"] and all(row.values[key] == value for key, value in wanted.items())
            for row in done.values()
        )
        if others:
            found = ", ".join(f"{key} {others[0].values[key]!r}" for key in wanted)
            message = (
                f"{self._out}: rows that were made otherwise ({found}) are kept: {len(others):,}; remove them from the "
                "file to have them made anew"
            )
            warnings.warn(message, ProposalWarning, stacklevel=2)

    def _warn_of_strangers(self, done: Mapping[PairKey, JsonRow]) -> None:
        known = {pair.key for pair in self._pair_list.pairs}
        # Their rows need not have been right when they were written.
        known |= {(failure.query_id, failure.page_id) for failure in self._pair_list.refused}
        strangers = [key for key in done if key not in known]
        if strangers:
            first = strangers[0]
            message = (
                f"{self._out}: rows that belong to none of the pairs are kept: {len(strangers):,}, the first "
                f"{done[first].place} (query {shown(first[0])}, page {shown(first[1])}); training takes them too: "
                "remove them from the file if they are of pairs that were changed"
            )
            warnings.warn(message, ProposalWarning, stacklevel=2)

    def _client(self) -> Client:
        settings = self._settings
        return Client(
            settings.endpoint, settings.retries, settings.budget, self.usage, concurrency=settings.concurrency
        )

    async def _ask_for_all(
        self,
        todo: Sequence[Pair],
        client: Client,
        boxes: RowFile,
        raw: RowFile,
        failures: FailureFile,
        on_pairs: OnProgress | None,
    ) -> None:
        settings = self._settings
        proposer = Proposer(
            client,
            SentImages(settings.image),
            raw,
            model=settings.endpoint.model,
            frame=settings.frame,
            asks=settings.asks,
            folder=self._out.parent,
        )
        self.counts = proposer.counts
        before, total = len(self._pair_list.pairs) - len(todo), len(self._pair_list.pairs)
        queue = iter(todo)

        async def work() -> None:
            for pair in queue:  # the same for all workers
                if self.stopped is not None or not await self._ask_for(pair, proposer, boxes, failures):
                    return
                self.left -= 1
                if on_pairs is not None:
                    on_pairs(before + len(todo) - self.left, total)
                for file in (boxes, raw):
                    if file.sync_is_due:
                        await asyncio.to_thread(file.sync)

        try:
            async with client:
                await _together(work() for _ in range(min(len(todo), settings.concurrency + _AHEAD)))
        finally:
            self._warn_of_frame(proposer)

    async def _ask_for(self, pair: Pair, proposer: Proposer, boxes: RowFile, failures: FailureFile) -> bool:
        """Make the row of a pair, or its failure; False where the budget allows neither."""
        try:
            row = await proposer.propose(pair)
        except BudgetSpentError as spent:
            self.stopped = str(spent)
            return False
        except DataError as error:  # of its image, which is no fault of the server
            failures.add(pair.key, pair.failure(error))
            return True
        except NoProposalError as error:
            failures.add(pair.key, pair.failure(error, error.tries))
            self._in_a_row += 1
            self._wrong_frames += error.wrong_frame
            self._end_if_all_fail(error)
            return True
        boxes.append(row)
        failures.remove(pair.key)
        self.made += 1
        self._in_a_row = 0
        self._frame_fits = self._frame_fits or bool(row["boxes"])  # an empty list stands in any frame
        if self.made >= self._next_look:
            self._next_look *= 2
            self._warn_of_frame(proposer)
        return True

    def _end_if_all_fail(self, last: NoProposalError) -> None:
        if self._wrong_frames >= _WRONG_FRAMES and not self._frame_fits:
            raise ConceptFormerError(
                f"frame={self._settings.frame} fits none of the first {self._wrong_frames} pairs with boxes, the last: "
                f"{last}, then run the same command again"
            ) from last
        if self._in_a_row >= self._settings.stop_after_failures:
            raise ConceptFormerError(
                f"{self._in_a_row} pairs in a row have failed, the last: {last}; correct that, then run the same "
                "command again"
            ) from last

    def _warn_of_frame(self, proposer: Proposer) -> None:
        doubt = proposer.watch.doubt()
        if doubt is not None and self._next_look < math.inf:
            self._next_look = math.inf
            warnings.warn(doubt, ProposalWarning, stacklevel=2)


async def _together(work: Iterator[Coroutine[Any, Any, None]]) -> None:
    """Wait for all; the first error ends the others too and is raised."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
