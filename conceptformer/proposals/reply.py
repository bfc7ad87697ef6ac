"""A proposer's reply, read strictly: one JSON object with boxes, alone or in a text around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from conceptformer.data.one_line import one_line

# A reply of prose has a few braces before its object; each of them costs a look at what follows.
_MOST_STARTS = 200
_SHOWN = 80
_REASONING, _REASONING_END = "<think>", "</think>"
_KEY = re.compile(r'"boxes"\s*:')  # not within a text of JSON, where the quotes have backslashes


class UnreadableReplyError(Exception):
    """The reply holds no usable boxes; the message says why, in one line."""


class WrongFrameError(UnreadableReplyError):
    """The boxes of the reply cannot stand in the frame that was asked for: another reply will hardly do so either."""


@dataclass(frozen=True)
class Proposal:
    """What a reply says.

    Attributes:
        areas: As they stand in the reply, unchecked.
        labels: One text for each of them.
    """

    areas: tuple[object, ...]
    labels: tuple[str, ...]


def parse_reply(text: str) -> Proposal:
    """The boxes of a reply.

    The object may stand alone, in a fence, or between other words; reasoning up to a ``</think>`` is passed over. It
    must be the only object with the key "boxes", a list of objects with "area" and the text "describe".

    Raises:
        UnreadableReplyError: There is no such object, or there are several that differ.
    """
    text = text.rpartition(_REASONING_END)[2].strip()
    if not text:
        raise UnreadableReplyError("the reply is empty")
    if _REASONING in text:  # what stands in it is a draft
        raise UnreadableReplyError(f"the reply ends within its reasoning: {_cut(repr(text))}")
    found = list(_objects(text))
    proposals = [value for value in found if "boxes" in value]
    if not proposals:
        if _KEY.search(text) and not any(_KEY.search(json.dumps(value)) for value in found):
            raise UnreadableReplyError(f"the JSON with the key 'boxes' is broken or cut off: {_cut(repr(text))}")
        if found:
            keys = ", ".join(map(repr, found[-1])) or "none"
            raise UnreadableReplyError(f"the JSON object has no key 'boxes'; its keys: {_cut(keys)}")
        raise UnreadableReplyError(f"no JSON object in the reply: {_cut(repr(text))}")
    if any(value != proposals[0] for value in proposals):
        raise UnreadableReplyError(f"{len(proposals)} JSON objects with the key 'boxes'; expected one")
    if len(_KEY.findall(text)) > len(proposals):
        # What was found may be a part of an object that is broken further out, such as a draft in its reasoning.
        raise UnreadableReplyError("the reply holds broken JSON besides one object with the key 'boxes'")
    return _proposal(proposals[0]["boxes"])


def _proposal(boxes: object) -> Proposal:
    if not isinstance(boxes, list):
        raise UnreadableReplyError(f"'boxes' is {_cut(repr(boxes))}; expected a list")
    areas, labels = [], []
    for number, box in enumerate(boxes, start=1):
        if not isinstance(box, dict):
            raise UnreadableReplyError(f"box {number} is {_cut(repr(box))}; expected an object")
        missing = [key for key in ("area", "describe") if key not in box]
        if missing:
            keys = ", ".join(map(repr, box)) or "none"
            raise UnreadableReplyError(f"box {number} has no key {missing[0]!r}; its keys: {_cut(keys)}")
        if not isinstance(box["describe"], str):
            raise UnreadableReplyError(f"box {number}: 'describe' is {_cut(repr(box['describe']))}; expected a text")
        areas.append(box["area"])
        # JSON's escapes can name half a character, which no file of text can hold.
        labels.append(box["describe"].encode(errors="replace").decode())
    return Proposal(tuple(areas), tuple(labels))


def _objects(text: str) -> Iterator[dict[str, object]]:
    """The outermost JSON objects in a text."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_repeats)
    start = 0
    for _ in range(_MOST_STARTS):
        brace = text.find("{", start)
        if brace < 0:
            return
        try:
            value, start = decoder.raw_decode(text, brace)
        except (ValueError, RecursionError):
            start = brace + 1
        else:
            yield value


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise UnreadableReplyError("a key of the JSON object stands there twice")
    return values


def _cut(text: str) -> str:
    return one_line(text, most=_SHOWN)
