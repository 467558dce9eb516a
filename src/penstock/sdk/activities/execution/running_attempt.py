"""One attempt of an activity while it runs, and how it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any

from penstock.sdk.activities.context import ActivityCancellationDetails, ActivityContext
from penstock.sdk.activities.definition import ActivityDefinition
from penstock.sdk.lease import Lease, LeaseExpired


class StopReason(Enum):
    """Why an attempt is stopped."""

    CANCEL = "cancel"
    """Cancel requested by the workflow. The outcome is still reported."""
    LOST = "lost"
    """The lease is lost. The outcome is dropped."""
    TIMED_OUT = "timed_out"
    SHUTDOWN = "shutdown"
    """The worker shuts down."""


_DETAILS = {
    StopReason.CANCEL: ActivityCancellationDetails(cancel_requested=True),
    StopReason.LOST: ActivityCancellationDetails(not_found=True),
    StopReason.TIMED_OUT: ActivityCancellationDetails(timed_out=True),
    StopReason.SHUTDOWN: ActivityCancellationDetails(worker_shutdown=True),
}


class RunningAttempt:
    """A running attempt. `stop` asks the code to end; `give_up` stops waiting for it."""

    def __init__(
        self,
        definition: ActivityDefinition,
        context: ActivityContext,
        received: datetime,
        send_heartbeat: Callable[[Any], None],
        lease: Lease | None = None,
    ) -> None:
        self.definition, self.context, self.received = definition, context, received
        self.lease = lease or Lease()
        self.not_begun = False
        """Whether the code was not started because the lease had expired."""
        self.send_heartbeat = send_heartbeat
        """Accepts encoded heartbeat details."""
        self.why: StopReason | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolved when the attempt is no longer waited for. The waiter may be cancelled; the code then continues."""
        self.on_over: Callable[[], None] | None = None
        """Called once, when the attempt is no longer waited for."""
        self.on_grace: Callable[[], None] | None = None
        """Called once, when the grace period starts."""
        self._request_stop: Callable[[], object] | None = None
        self._kill: Callable[[], object] | None = None
        self._notify_shutdown: Callable[[], object] | None = None

    @property
    def lost(self) -> bool:
        return self.why is StopReason.LOST

    def begin(self) -> None:
        """Raise `LeaseExpired` if the lease has expired. Call it immediately before the code starts, in its thread."""
        if self.lease.is_over:
            self.not_begun = True
            raise LeaseExpired

    @property
    def deadline_s(self) -> float | None:
        """Return the time after receipt at which the attempt is stopped, in seconds."""
        deadline = self.context.info.deadline
        return None if deadline is None else max(0.0, (deadline - self.received).total_seconds())

    @property
    def timeout_kind(self) -> str:
        """Return which timeout expires first."""
        info = self.context.info
        limit, whole = info.start_to_close_timeout, info.schedule_to_close_timeout
        waited = info.started_time - info.scheduled_time
        if limit is None or (whole is not None and whole - waited < limit):
            return "schedule_to_close"
        return "start_to_close"

    @property
    def timeout_s(self) -> float:
        """Return the timeout that expires first, as configured."""
        info, kind = self.context.info, self.timeout_kind
        configured = (
            info.start_to_close_timeout if kind == "start_to_close" else info.schedule_to_close_timeout
        )
        return (self.deadline_s or 0.0) if configured is None else configured.total_seconds()

    def set_controls(
        self,
        stop: Callable[[], object],
        *,
        end: Callable[[], object] | None = None,
        shutdown: Callable[[], object] | None = None,
    ) -> None:
        """Set how the code is asked to stop, killed, and notified of a shutdown."""
        self._request_stop, self._kill, self._notify_shutdown = stop, end, shutdown
        if shutdown is not None and self.context.worker_shutdown.is_set():
            shutdown()
        if self.why is not None:
            stop()

    def stop(self, why: StopReason) -> None:
        """Stop the code. A lost lease overrides every other reason; otherwise the first reason counts."""
        first = self.why is None
        if first or why is StopReason.LOST:
            self.why = why
        if why is not StopReason.CANCEL or self.definition.kind == "process":
            self._press()
        if first:
            self.context.stopped = _DETAILS[why]
            self.context.cancelled.set()
            if self._request_stop is not None:
                self._request_stop()

    def end(self) -> None:
        over, self.on_over = self.on_over, None
        if over is not None:
            over()
        if not self.ended.done():
            self.ended.set_result(None)

    def give_up(self) -> None:
        """Kill the code, or stop waiting for it."""
        if self._kill is not None:
            self._kill()
        if self._kill is None or self.definition.kind != "process":
            self.end()

    def _press(self) -> None:
        pressed, self.on_grace = self.on_grace, None
        if pressed is not None:
            pressed()

    def shut_down(self) -> None:
        if not self.context.worker_shutdown.is_set():
            self.context.worker_shutdown.set()
            if self._notify_shutdown is not None:
                self._notify_shutdown()
