"""Heartbeats of one attempt: throttled, and the last details are never lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from penstock.sdk.activities.execution.clock import ActivityClock
from penstock.sdk.failures import ServerRefused

log = logging.getLogger(__name__)

TIMEOUT_FRACTION = 0.8
"""Maximum time between two heartbeats as a fraction of the heartbeat timeout."""

RESEND_FRACTION = 0.1
"""A heartbeat that failed is resent after this fraction of the interval."""

Send = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def throttle_interval(timeout: timedelta | None, default: timedelta, maximum: timedelta) -> timedelta:
    """Return the minimum time between two heartbeats sent to the server."""
    return min(default if timeout is None else timeout * TIMEOUT_FRACTION, maximum)


class Heartbeats:
    """Sends the first heartbeat immediately, then one per interval with the latest details.

    `on_response` receives every response. A refusal because the attempt is over counts as a response; an
    unreachable server does not, and the heartbeat is resent soon.
    """

    def __init__(
        self,
        send: Send,
        on_response: Callable[[dict[str, Any]], None],
        interval: timedelta,
        clock: ActivityClock,
        before: Any = None,
    ) -> None:
        self._send, self._on_response = send, on_response
        self._interval_s, self._clock = interval.total_seconds(), clock
        self._loop = asyncio.get_running_loop()
        self._details = before
        """Sent with every heartbeat, because the server stores the details of the last one."""
        self._unsent = asyncio.Event()
        self._wakeup = False
        self._count = 0
        self._over = False
        self._sending = asyncio.Lock()
        self._sender: asyncio.Task[None] | None = None
        self._repeat_task: asyncio.Task[None] | None = None

    def beat(self, details: Any) -> None:
        """Record encoded details to send. May be called from any thread."""
        self._details = details
        if not self._wakeup:
            self._wakeup = True
            self._loop.call_soon_threadsafe(self._wake)

    def repeat_every(self, interval: timedelta) -> None:
        """Send heartbeats automatically from now on, with the latest details."""
        self._repeat_task = self._loop.create_task(self._repeat(interval.total_seconds()))

    async def flush(self) -> None:
        """Send pending details now, after the heartbeat that is in flight."""
        async with self._sending:
            pass
        if self._wakeup or self._unsent.is_set():
            await self._send_one()

    async def close(self) -> None:
        self._over = True
        ending = [each for each in (self._sender, self._repeat_task) if each is not None]
        for each in ending:
            each.cancel()
        for each in ending:
            with contextlib.suppress(asyncio.CancelledError):
                await each

    def _wake(self) -> None:
        self._wakeup = False
        self._unsent.set()
        if self._sender is None and not self._over:
            self._sender = self._loop.create_task(self._keep_sending())

    async def _keep_sending(self) -> None:
        while True:
            await self._unsent.wait()
            was_sent = await self._send_one()
            await self._clock.sleep(self._interval_s if was_sent else self._interval_s * RESEND_FRACTION)

    async def _repeat(self, seconds: float) -> None:
        while True:
            await self._clock.sleep(seconds)
            self._wake()

    async def _send_one(self) -> bool:
        """Send the current details. Returns False if that failed and must be repeated."""
        async with self._sending:
            self._wakeup = False
            self._unsent.clear()
            if self._over:
                return True
            self._count += 1
            body: dict[str, Any] = {"sequence": self._count}
            if self._details is not None:
                body["details"] = self._details
            response: dict[str, Any] | None = None
            try:
                response = await self._send(body)
            except ServerRefused as refusal:
                response = self._refused(refusal)
            except Exception as error:
                log.warning("A heartbeat did not reach the server and is resent: %s", error)
        if response is None:
            self._unsent.set()
            return False
        self._on_response(response)
        return True

    def _refused(self, refusal: ServerRefused) -> dict[str, Any] | None:
        if refusal.status in (404, 409, 410):
            return {"cancel_requested": False, "can_continue": False, "reason": refusal.reason}
        log.warning("A heartbeat was refused and is resent: %s", refusal)
        return None
