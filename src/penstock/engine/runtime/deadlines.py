"""The latest moment at which a long-poll request is answered, even if the database does not respond."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from penstock.errors import Reason, Unavailable

LOOK_GRACE_S = 2.5
"""How long a poll past its deadline waits for a claim in progress. Clients allow five seconds."""
SLACK_S = 0.5
"""How much later the whole request is cancelled, so that a more specific answer from inside wins."""


class Deadline:
    """A caller's wait budget, measured from construction."""

    def __init__(self, wait_ms: int) -> None:
        self._ends_at = asyncio.get_running_loop().time() + wait_ms / 1000

    @property
    def left_ms(self) -> int:
        """Milliseconds of the caller's wait that remain."""
        return max(0, int((self._ends_at - asyncio.get_running_loop().time()) * 1000))

    @contextlib.asynccontextmanager
    async def kept(self, slack_s: float = SLACK_S) -> AsyncIterator[None]:
        """Cancel the body when the wait, the claim grace and the slack have passed.

        Raises:
            Unavailable: the body was cancelled; the caller should poll again.
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
                "The database did not answer within the time this request may wait. Retry it.",
                outcome="none",
                retryable=True,
                retry_after_seconds=1,
            ) from None
