"""The first call of a run goes ahead of the others: a wrong key or model then costs one call, not one for each slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

# A server nearby refuses a key or a model in much less. The others are not held back for a whole reply, which may take
# many seconds: of 16 calls at once, of 200 ms each and ten seconds in all, that alone would be a fiftieth.
_SECONDS, _STEPS = 0.05, 10


class FirstCall:
    """Holds back all calls but the first, until that has its answer or a short time is over."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self._taken = False

    @asynccontextmanager
    async def passed(self) -> AsyncIterator[None]:
        """A context for the time from before a call to its end, whatever that is."""
        if self._taken:
            await self._over.wait()
            yield
            return
        self._taken = True
        clock = asyncio.ensure_future(self._end_soon())
        try:
            yield
        finally:
            clock.cancel()
            self._over.set()

    async def _end_soon(self) -> None:
        # In steps, since it is the time for which the loop runs that counts: the SDK loads most of itself with the
        # first call, and the loop stands still meanwhile.
        for _ in range(_STEPS):
            await asyncio.sleep(_SECONDS / _STEPS)
        self._over.set()
