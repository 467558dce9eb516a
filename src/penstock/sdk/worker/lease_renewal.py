"""Lease renewal while a task runs, and detection of expired leases."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from penstock.sdk.lease import Lease, lease_of
from penstock.sdk.worker import metrics as names
from penstock.sdk.worker.error_policy import is_transient, log
from penstock.sdk.worker.metrics import WorkerMetrics

Json = dict[str, Any]
SHORT_LEASE_MS = 15_000
"""Lease duration for workers whose leases can only lapse if the worker dies."""
SHORTEST_S = 0.2
LONGEST_S = 60.0
SOONEST_S = 0.03
"""Minimum pause before a renewal, if the expiry of the lease is known."""
RESPONSE_TIMEOUT_MIN_S = 1.0
"""Minimum time to wait for the response to a renewal before it is resent on another connection."""
LOG_INTERVAL_S = 60.0
"""Minimum time between two log lines about dropped tasks."""


class LeaseKeeper:
    """Renews a lease while a block runs. Most blocks end before the first renewal is due."""

    def __init__(self, task: Json, renew: Callable[[], Awaitable[Json]]) -> None:
        self._task, self._renew = task, renew
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.call_later(pause_s(self._task), self._begin)

    async def __aexit__(self, *_: object) -> None:
        self._due.cancel()
        if self._keeper is not None:
            await _ended(self._keeper)

    def _begin(self) -> None:
        self._keeper = asyncio.create_task(_keep(self._task, self._renew, is_due=True))


@contextlib.asynccontextmanager
async def renewing(task: Json, renew: Callable[[], Awaitable[Json]]) -> AsyncIterator[asyncio.Task[None]]:
    """Renew a lease while the block runs.

    The yielded task ends when the lease is lost: with the server's refusal, or with `LeaseExpired` if the lease has
    expired by this worker's clock.
    """
    keeper = asyncio.ensure_future(_keep(task, renew))
    try:
        yield keeper
    finally:
        await _ended(keeper)


@contextlib.asynccontextmanager
async def extending_lease(renew: Callable[[], Awaitable[Json]]) -> AsyncIterator[None]:
    """Renew a lease once while the block runs, ignoring errors."""
    keeper = asyncio.ensure_future(_once(renew))
    try:
        yield
    finally:
        await _ended(keeper)


@contextlib.contextmanager
def calling_at_end(lease: Lease, ended: Callable[[], object]) -> Iterator[None]:
    """Call `ended` once, in the event loop, if the lease expires while the block runs. A renewal moves the expiry."""
    loop = asyncio.get_running_loop()
    alarm: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal alarm
        left_s = lease.left_s
        if lease.is_over:
            ended()
        elif left_s is not None:
            alarm = loop.call_later(left_s, look)

    look()
    try:
        yield
    finally:
        if alarm is not None:
            alarm.cancel()


class DroppedTasks:
    """Counts and logs tasks that were dropped because their lease had expired."""

    def __init__(self, who: str, metrics: WorkerMetrics) -> None:
        self._worker, self._metrics = who, metrics
        self._unlogged = 0
        self._logged_at: float | None = None

    def note(self, kind: str, *, began: bool) -> str:
        """Record a dropped task and return its outcome as named in metrics.

        `began` says whether its code had started.
        """
        self._metrics.count(names.LEASES_ENDED, kind=kind, when="running" if began else "before_start")
        self._unlogged += 1
        now = time.monotonic()
        if self._logged_at is None or now - self._logged_at >= LOG_INTERVAL_S:
            what = "was stopped, because its lease had ended and could not be renewed"
            if not began:
                what = "was not started, because its lease had ended before it could begin"
            log.warning(
                "%s: a task (%s) %s. It is dropped without a report; the server hands it out again. Dropped so far"
                " since the last such line: %d. Look for slow or frozen servers, proxies that hold answers back, and a"
                " worker without CPU time",
                self._worker,
                kind,
                what,
                self._unlogged,
            )
            self._logged_at, self._unlogged = now, 0
        return "lease_ended"


async def _once(renew: Callable[[], Awaitable[Json]]) -> None:
    while True:
        try:
            await renew()
        except Exception as error:
            if not is_transient(error):
                raise
            await asyncio.sleep(SHORTEST_S)
        else:
            return


async def _ended(keeper: asyncio.Task[None]) -> None:
    keeper.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await keeper


async def _keep(task: Json, renew: Callable[[], Awaitable[Json]], *, is_due: bool = False) -> None:
    """Renew until cancelled, until the server refuses, or until the lease has expired (`LeaseExpired`)."""
    lease = lease_of(task)
    while True:
        if not is_due:
            await asyncio.sleep(pause_s(task))
        is_due = False
        lease.check()
        try:
            async with asyncio.timeout(lease.left_s):
                response = await renew()
            task["lease_expires_at"] = response.get("lease_expires_at", task.get("lease_expires_at"))
        except Exception as error:
            if not isinstance(error, TimeoutError) and not is_transient(error):
                raise


def answer_s(task: Mapping[str, Any]) -> float | None:
    """Return how long a renewal waits for its response, leaving time to resend it, if possible to another server.

    A frozen server keeps its connections open and does not answer.
    """
    left_s = lease_of(task).left_s
    return None if left_s is None else max(RESPONSE_TIMEOUT_MIN_S, left_s / 2)


def pause_s(task: Json) -> float:
    """Return a third of the remaining lease, so that two renewals may be lost.

    If the server does not report the duration of the lease, its expiry is compared with the local clock, which may
    differ. The pause then has narrower bounds.
    """
    left_s = lease_of(task).left_s
    if left_s is not None:
        return min(LONGEST_S, left_s, max(SOONEST_S, left_s / 3))
    expires_at: str | None = task.get("lease_expires_at")
    if expires_at is None:
        return SHORTEST_S
    left_s = (datetime.fromisoformat(expires_at) - datetime.now(UTC)).total_seconds()
    return min(LONGEST_S, max(SHORTEST_S, left_s / 3))
