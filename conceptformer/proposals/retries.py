"""When a failed call is made again, and how long to wait before."""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timezone

from conceptformer.errors import ConceptFormerError

# Where all calls of a run were told the same time to wait, they do not come back in the same instant.
_SPREAD = 0.25


@dataclass(frozen=True)
class RetryPolicy:
    """How often a call is tried, and the waits between: doubled each time, with jitter.

    Attributes:
        attempts: Requests for one reply, the first included.
        first_wait_seconds, longest_wait_seconds: Upper ends of the first and of the longest wait; each wait is drawn
            between half of its upper end and all of it.
        longest_pause_seconds: A server that asks for a longer pause, by Retry-After, ends the run.
    """

    attempts: int
    first_wait_seconds: float
    longest_wait_seconds: float
    longest_pause_seconds: float

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConceptFormerError(f"retry.attempts is {self.attempts!r}; expected a whole number of at least 1")
        for name in ("first_wait_seconds", "longest_wait_seconds", "longest_pause_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise ConceptFormerError(f"retry.{name} is {value!r}; expected seconds, 0 or more")

    def wait_seconds(self, attempt: int, retry_after: float | None) -> float:
        """How long to wait after a failed attempt.

        Args:
            attempt: Its number, from 1.
            retry_after: What the server asked for, which is waited for in full. It may be a fixed small number, with
                which alone a rate limit would use up all attempts: the wait grows none the less.
        """
        # Beyond some doublings the longest wait is reached, and floats would be left.
        upper = min(self.longest_wait_seconds, self.first_wait_seconds * 2.0 ** min(attempt - 1, 60))
        wait = random.uniform(upper / 2, upper)
        return wait if retry_after is None else max(wait, retry_after + random.uniform(0, _SPREAD))


def retry_after_seconds(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """How long the server asks to wait: ``Retry-After`` in seconds or as a date, or ``Retry-After-Ms``.

    Args:
        headers: Keys in any case, if the mapping does not mind the case itself.
        now: Seconds since 1970; None for the clock.

    Returns:
        Seconds, 0 or more; None where nothing is asked, or nothing that makes sense.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
        if date.tzinfo is None:  # "-0000"; HTTP dates are in universal time
            date = date.replace(tzinfo=timezone.utc)
        return max(0.0, date.timestamp() - (time.time() if now is None else now))
    except (TypeError, ValueError, OverflowError):
        return None
