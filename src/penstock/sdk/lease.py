"""How long a task is leased to this worker, by the worker's own clock.

The server sends with each lease how long after the *arrival* of the request it ends (`lease_ends_after_ms`). The
worker counts that from the moment at which it *sent* the request. The request cannot have arrived before it was sent,
so the worker's end is never later than the server's, whatever happened on the way: a response that was delayed by a
proxy, a server that was frozen after the grant, clocks that differ. Only durations are compared, never times of two
machines.

Invariant `no-begin-after-the-lease`: user code of a task begins only while its lease is valid, less a margin. The
check is the last step before the code, in the thread or process that runs it: otherwise a worker that was suspended
between an earlier check and the code would begin late.

For a server that does not send the duration (an earlier version, or another implementation), the lease never ends for
the worker, and the server alone judges reports.

Rejected: comparing `lease_expires_at` with the wall clock of the worker (a clock ten seconds off drops everything, or
nothing); counting from the arrival of the response (its delay is what must be detected).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

FIELD: Final = "lease_ends_after_ms"
MARGIN_PART: Final = 0.05
"""The fraction of a lease that is left unused, for clock drift and for the steps before the code."""
MARGIN_LEAST_S: Final = 0.02
MARGIN_MOST_S: Final = 1.0
_KEY: Final = "_lease"


def _boot_time() -> Callable[[], float]:
    """Return a monotonic clock that continues during suspend, if there is one. All processes share it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic
    return lambda: time.clock_gettime(clock)


lease_clock: Final = _boot_time()


class LeaseExpired(Exception):
    """The lease of a task ended before its code could begin, or while the code ran. Nothing is reported."""

    began = False
    """Whether code of the task had begun."""


class Lease:
    """One lease of this worker. It is extended in the event loop and may be read from any thread."""

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        self._ends_at: float | None = None

    def extend(self, sent_at: float, response: Mapping[str, Any]) -> None:
        """Extend the lease by a response whose request was sent at `sent_at`. It never shrinks."""
        span_ms = response.get(FIELD)
        if not isinstance(span_ms, int):
            return
        ends_at = sent_at + span_ms / 1000
        left_s = ends_at - lease_clock()
        ends_at -= min(MARGIN_MOST_S, max(MARGIN_LEAST_S, left_s * MARGIN_PART))
        self._ends_at = ends_at if self._ends_at is None else max(self._ends_at, ends_at)

    @property
    def ends_at(self) -> float | None:
        """The latest start, by `lease_clock`; None if the server has not sent a duration."""
        return self._ends_at

    @property
    def left_s(self) -> float | None:
        """The remaining time less the margin; None if the server has not sent a duration."""
        return None if self._ends_at is None else max(0.0, self._ends_at - lease_clock())

    @property
    def is_over(self) -> bool:
        return self._ends_at is not None and self._ends_at <= lease_clock()

    def check(self) -> None:
        """Raise `LeaseExpired` if the code of the task must not begin any more."""
        if self.is_over:
            raise LeaseExpired


class SendTime:
    """When a request was last sent: the last attempt is the one that was answered."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = lease_clock()

    def __call__(self) -> None:
        self.at = lease_clock()


def leased(task: dict[str, Any], sent_at: float) -> dict[str, Any]:
    """Attach a lease to a polled task, counted from the moment at which the poll was sent."""
    lease = task[_KEY] = Lease()
    lease.extend(sent_at, task)
    return task


def lease_of(task: Mapping[str, Any]) -> Lease:
    """Return the lease of a polled task."""
    found = task.get(_KEY)
    return found if isinstance(found, Lease) else Lease()
