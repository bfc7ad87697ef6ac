"""One pair: its page is sent, the reply is read and checked, and asked for again where it cannot be used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conceptformer.errors import BoxError
from conceptformer.proposals.answers import Answer
from conceptformer.proposals.box_file import FORMAT, lost_boxes
from conceptformer.proposals.client import CallError, Client
from conceptformer.proposals.frame_watch import FrameWatch
from conceptformer.proposals.page_images import SentImage, SentImages
from conceptformer.proposals.pairs import Pair
from conceptformer.proposals.prompt import PROMPT_VERSION, make_messages
from conceptformer.proposals.reply import UnreadableReplyError, WrongFrameError, parse_reply
from conceptformer.proposals.row_file import RowFile
from conceptformer.regions import frame_named, valid_boxes

RAW_FORMAT = "evidence-boxes-raw/1"


class NoProposalError(Exception):
    """A pair has no proposal; the message says why, in one line."""

    def __init__(self, reason: str, tries: int, *, wrong_frame: bool = False) -> None:
        """
        Args:
            tries: How often a reply was asked for.
            wrong_frame: Whether the boxes of the reply cannot stand in the stated frame.
        """
        super().__init__(reason)
        self.tries, self.wrong_frame = tries, wrong_frame


@dataclass
class BoxCounts:
    """What became of the boxes of a run's replies.

    Attributes:
        used: Boxes in rows of the box file.
        clipped: Of these, boxes that reached beyond their page and were cut off there.
        dropped: Boxes of rows of the box file that are not used, for the reasons in the raw replies.
        first_dropped: The first of these, with its pair and reason.
        pairs_without: Pairs whose reply names no evidence.
        unreadable: Replies that could not be used.
        first_unreadable: The first of these, with its pair and reason.
    """

    used: int = 0
    clipped: int = 0
    dropped: int = 0
    first_dropped: str | None = None
    pairs_without: int = 0
    unreadable: int = 0
    first_unreadable: str | None = None


@dataclass(frozen=True)
class _Usable:
    """The boxes of a reply, in its own frame and within the page."""

    boxes: list[list[float]]
    labels: list[str]
    dropped: tuple[str, ...]
    clipped: tuple[str, ...]


class Proposer:
    """Makes rows of a box file."""

    def __init__(
        self, client: Client, images: SentImages, raw: RowFile, *, model: str, frame: str, asks: int, folder: Path
    ) -> None:
        """
        Args:
            raw: Takes the replies as they come.
            model: Name for the rows.
            frame: Name of what the model states boxes in.
            asks: How often a reply is asked for before a pair has failed.
            folder: Of the box file, which names images relative to it.

        Raises:
            BoxError: There is no frame of that name.
        """
        frame_named(frame)
        self._client, self._images, self._raw = client, images, raw
        self._model, self._frame, self._asks, self._folder = model, frame, asks, folder
        self.watch = FrameWatch(frame)
        self.counts = BoxCounts()

    async def propose(self, pair: Pair) -> Mapping[str, Any]:
        """The row of a pair.

        Raises:
            NoProposalError: No reply could be used.
            DataError: The page's image cannot be decoded.
            StoreError: The reply cannot be written.
            ConceptFormerError, BudgetSpentError: As :meth:`Client.ask`.
        """
        image = await self._images.get(pair.image)
        messages = make_messages(pair.query, image.url, self._frame, image.input_size)
        reason = ""
        for number in range(1, self._asks + 1):
            try:
                answer = await self._client.ask(messages)
            except CallError as error:
                raise NoProposalError(str(error), number) from error
            usable: _Usable | None = None
            fault: UnreadableReplyError | None = None
            try:
                usable = self._usable(answer, image)
            except UnreadableReplyError as error:
                fault, reason = error, str(error)
                self.counts.unreadable += 1
                self.counts.first_unreadable = self.counts.first_unreadable or f"{pair.place}: {reason}"
            self._keep_raw(pair, image, number, answer, usable, reason)
            if usable is not None:
                self._count(pair, usable)
                return self._row(pair, image, usable)
            if isinstance(fault, WrongFrameError):
                raise NoProposalError(reason, number, wrong_frame=True) from fault
        last_of = f" (the last of {self._asks} replies)" if self._asks > 1 else ""
        raise NoProposalError(f"{reason}{last_of}", self._asks)

    def _usable(self, answer: Answer, image: SentImage) -> _Usable:
        if answer.fault is not None or answer.content is None:
            raise UnreadableReplyError(answer.fault or "the reply holds no text")
        proposal = parse_reply(answer.content)
        self.watch.see(proposal.areas, image.input_size)
        # The numbers of the boxes stand for their labels, to tell which of them are kept.
        numbers = [str(number) for number in range(len(proposal.areas))]
        try:
            frame = frame_named(self._frame, image.input_size)
            checked = valid_boxes(proposal.areas, numbers, frame, image.image_size)
        except BoxError as error:
            raise WrongFrameError(str(error)) from error
        if proposal.areas and not checked.boxes:
            raise UnreadableReplyError(f"no box can be used: {checked.dropped[0]}")
        kept = [int(box.label) for box in checked.boxes]
        ends = _ends(self._frame, image.input_size)
        boxes = [[min(max(edge, 0), end) for edge, end in zip(proposal.areas[i], ends, strict=True)] for i in kept]
        return _Usable(boxes, [proposal.labels[i] for i in kept], checked.dropped, checked.clipped)

    def _row(self, pair: Pair, image: SentImage, usable: _Usable) -> Mapping[str, Any]:
        row = {
            "format": FORMAT,
            "query_id": pair.query_id,
            "query": pair.query,
            "page_id": pair.page_id,
            "image": Path(os.path.relpath(pair.image, self._folder)).as_posix(),
            "boxes": usable.boxes,
            "labels": usable.labels,
            "frame": self._frame,
            "image_size": list(image.image_size),
            "input_size": list(image.input_size),
            "model": self._model,
            "prompt_version": PROMPT_VERSION,
        }
        if pair.other_positives:
            row["other_positives"] = list(pair.other_positives)
        return row | lost_boxes(clipped=len(usable.clipped), dropped=len(usable.dropped))

    def _keep_raw(
        self, pair: Pair, image: SentImage, number: int, answer: Answer, usable: _Usable | None, reason: str
    ) -> None:
        told = {key: value for key, value in asdict(answer).items() if value is not None and key != "fault"}
        self._raw.append(
            {
                "format": RAW_FORMAT,
                "query_id": pair.query_id,
                "page_id": pair.page_id,
                "ask": number,
                "model": self._model,
                "prompt_version": PROMPT_VERSION,
                "frame": self._frame,
                "input_size": list(image.input_size),
                **told,
                "unreadable": reason if usable is None else None,
                "dropped": list(usable.dropped) if usable else [],
                "clipped": list(usable.clipped) if usable else [],
            }
        )

    def _count(self, pair: Pair, usable: _Usable) -> None:
        counts = self.counts
        counts.used += len(usable.boxes)
        counts.clipped += len(usable.clipped)
        counts.dropped += len(usable.dropped)
        counts.pairs_without += not usable.boxes
        if usable.dropped and counts.first_dropped is None:
            counts.first_dropped = f"{pair.place}: {usable.dropped[0]}"


def _ends(frame: str, input_size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The largest x1, y1, x2 and y2 within a page."""
    width, height = {"absolute": input_size, "relative": (1, 1), "relative1000": (1000, 1000)}[frame]
    return width, height, width, height
