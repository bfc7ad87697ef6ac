"""Requests that failed, and what is known of them."""

from __future__ import annotations

import re
import sys

NOT_IMPLEMENTED = 501
_TRY_AGAIN = {408, 409, 425, 429}  # and the server's own errors
_NO_MODEL = "model_not_found"
_NOT_THERE = re.compile(r"does ?n[o']t exist|not found|no such model|unknown model", re.IGNORECASE)


class FailedRequestError(Exception):
    """One request that failed, and what is known of it."""

    def __init__(
        self,
        told: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        unreachable: bool = False,
    ) -> None:
        """
        Args:
            status: Of the answer; None where none came.
            code: The server's own name of the error.
            retry_after: Seconds that the server asks to wait.
            unreachable: Whether there was not even a connection.
        """
        super().__init__(told)
        self.status, self.code, self.retry_after, self.unreachable = status, code, retry_after, unreachable

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        if self.status is None:
            return True
        return (self.status >= 500 and self.status != NOT_IMPLEMENTED) or self.status in _TRY_AGAIN


def names_model(failure: FailedRequestError, model: str) -> bool:
    """Whether a server says that it has no such model, and not that it cannot do something."""
    return failure.code == _NO_MODEL or (model in str(failure) and _NOT_THERE.search(str(failure)) is not None)


def of_transport(error: str) -> tuple[type[Exception], ...]:
    """An error by its name that the SDK passes on from the library below, of which it has two."""
    return tuple(getattr(sys.modules[name], error) for name in ("httpx", "httpx2") if name in sys.modules)


def no_connection(error: BaseException | None) -> bool:
    """Whether one of the causes says that there was no connection, by the name it has in both libraries."""
    while error is not None:
        if type(error).__name__ in {"ConnectError", "ConnectTimeout"}:
            return True
        error = error.__cause__
    return False
