"""What a server sent back for a chat completion, without trust in its shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conceptformer.data.one_line import one_line

_KEPT, _SHOWN = 10_000, 80
_CUT_OFF, _WITHHELD = "length", "content_filter"


@dataclass(frozen=True)
class Answer:
    """An answer, whole or not.

    Attributes:
        content: The reply itself.
        reasoning: What the model thought before, where the server tells.
        finish_reason: Why the reply ended, as the server says.
        tokens: (input, output), where the server tells.
        body: The beginning of the answer where it is no chat completion.
        fault: Why there is no whole reply, in one line; None where there is one.
    """

    content: str | None = None
    reasoning: str | None = None
    finish_reason: str | None = None
    tokens: tuple[int, int] | None = None
    body: str | None = None
    fault: str | None = None


def read_answer(body: bytes, *, most_bytes: int, hide: Callable[[str], str]) -> Answer:
    """Read the body of an answer with status 200.

    Args:
        body: Up to one byte more than ``most_bytes``, in which case it is longer than it may be.
        hide: Takes what must not be written anywhere out of a text.
    """
    text = body.decode(errors="replace")
    if len(body) > most_bytes:
        return _no_completion(text, f"the answer is longer than {most_bytes:,} bytes and was cut off", hide)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return _no_completion(text, f"the answer is no JSON: {_cut(hide(text))}; check api.base_url", hide)
    choice = _first(values.get("choices")) if isinstance(values, dict) else None
    message = choice.get("message") if choice else None
    if choice is None or not isinstance(message, dict):
        return _no_completion(text, f"the answer is no chat completion: {_cut(hide(text))}; check api.base_url", hide)
    told = {
        "content": message.get("content"),
        # Servers have two names for it.
        "reasoning": message.get("reasoning_content") or message.get("reasoning"),
        "finish_reason": choice.get("finish_reason"),
    }
    texts = {name: hide(value) if isinstance(value, str) else None for name, value in told.items()}
    return Answer(**texts, tokens=_tokens(values.get("usage")), fault=_fault(message, texts))


def _fault(message: dict[str, Any], texts: dict[str, str | None]) -> str | None:
    if texts["finish_reason"] == _CUT_OFF:
        return "the reply was cut off at its greatest length; raise api.max_tokens"
    if texts["finish_reason"] == _WITHHELD:
        return "the server's content filter withheld the reply"
    if texts["content"] is None:
        return "the model declined to answer" if message.get("refusal") else "the reply holds no text"
    return None


def _no_completion(text: str, fault: str, hide: Callable[[str], str]) -> Answer:
    return Answer(body=hide(text)[:_KEPT], fault=fault)


def _first(choices: object) -> dict[str, Any] | None:
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None


def _tokens(usage: object) -> tuple[int, int] | None:
    if not isinstance(usage, dict):
        return None
    counts = tuple(usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    if not all(isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in counts):
        return None
    return counts


def _cut(text: str) -> str:
    return repr(one_line(text, most=_SHOWN))
