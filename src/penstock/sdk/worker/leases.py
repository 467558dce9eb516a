"""Keeping a lease while its task takes its time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from penstock.sdk.worker.trouble import is_passing

Json = dict[str, Any]
SHORT_LEASE_MS = 15_000
"""How long a lease lasts where nothing but the death of a worker keeps it from being renewed."""
SHORTEST_S = 0.2
LONGEST_S = 60.0


class Keeping:
    """Renew as long as a block lasts: `async with Keeping(…)`. Most blocks are over before the first renewal is due."""

    def __init__(self, task: Json, renew: Callable[[], Awaitable[Json]]) -> None:
        self._expires_at: str | None = task.get("lease_expires_at")
        self._renew = renew
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.call_later(pause_s(self._expires_at), self._begin)

    async def __aexit__(self, *_: object) -> None:
        self._due.cancel()
        if self._keeper is not None:
            await _ended(self._keeper)

    def _begin(self) -> None:
        self._keeper = asyncio.create_task(_keep(self._expires_at, self._renew, is_due=True))


@contextlib.asynccontextmanager
async def renewing(task: Json, renew: Callable[[], Awaitable[Json]]) -> AsyncIterator[asyncio.Task[None]]:
    """Renew as long as the block lasts. The task that is given ends, with the refusal, when the lease is lost."""
    keeper = asyncio.ensure_future(_keep(task.get("lease_expires_at"), renew))
    try:
        yield keeper
    finally:
        await _ended(keeper)


@contextlib.asynccontextmanager
async def lengthened(renew: Callable[[], Awaitable[Json]]) -> AsyncIterator[None]:
    """Have a lease renewed once while the block lasts, whatever that takes."""
    keeper = asyncio.ensure_future(_once(renew))
    try:
        yield
    finally:
        await _ended(keeper)


async def _once(renew: Callable[[], Awaitable[Json]]) -> None:
    while True:
        try:
            await renew()
        except Exception as error:
            if not is_passing(error):
                raise
            await asyncio.sleep(SHORTEST_S)
        else:
            return


async def _ended(keeper: asyncio.Task[None]) -> None:
    keeper.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await keeper


async def _keep(
    expires_at: str | None, renew: Callable[[], Awaitable[Json]], *, is_due: bool = False
) -> None:
    while True:
        if not is_due:
            await asyncio.sleep(pause_s(expires_at))
        is_due = False
        try:
            expires_at = (await renew()).get("lease_expires_at", expires_at)
        except Exception as error:
            if not is_passing(error):
                raise


def pause_s(expires_at: str | None) -> float:
    """A third of what is left of a lease, so that two renewals may be lost. Clocks may differ: it has bounds."""
    if expires_at is None:
        return SHORTEST_S
    left = (datetime.fromisoformat(expires_at) - datetime.now(UTC)).total_seconds()
    return min(LONGEST_S, max(SHORTEST_S, left / 3))
