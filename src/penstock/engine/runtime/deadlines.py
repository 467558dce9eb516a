"""When a request that may wait has to be answered, whatever the database does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from penstock.errors import Reason, Unavailable

LOOK_GRACE_S = 2.5
"""How long a poll whose time is over waits for a claim that is under way. Clients allow five seconds."""
SLACK_S = 0.5
"""How much later the whole request is cut off, so that a more exact answer from inside comes first."""


class Deadline:
    """The time that a caller gives, counted from the moment at which this is made."""

    def __init__(self, wait_ms: int) -> None:
        self._ends_at = asyncio.get_running_loop().time() + wait_ms / 1000

    @property
    def left_ms(self) -> int:
        """How long the caller still waits."""
        return max(0, int((self._ends_at - asyncio.get_running_loop().time()) * 1000))

    @contextlib.asynccontextmanager
    async def kept(self, slack_s: float = SLACK_S) -> AsyncIterator[None]:
        """Cancel what is done inside when the time, the grace and the slack are over.

        Raises:
            Unavailable: it was cancelled; the caller should poll again.
        """
        limit = asyncio.timeout_at(self._ends_at + LOOK_GRACE_S + slack_s)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise Unavailable(
                Reason.STORE_UNAVAILABLE,
                "The database did not answer in the time that this request may wait. Send it again.",
                outcome="none",
                retryable=True,
                retry_after_seconds=1,
            ) from None
