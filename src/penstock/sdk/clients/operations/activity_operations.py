"""What an activity handle does to an open activity as an operator."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from penstock.sdk.connection.transport import route_of
from penstock.sdk.retry import RetryPolicy

_MILLISECOND = timedelta(milliseconds=1)


class ActivityOperations:
    """Operations of an activity handle. Its id may be that of a standalone activity, or of one in a history."""

    if TYPE_CHECKING:
        id: str
        _context: Any

    async def pause(self, reason: str | None = None) -> None:
        """Dispatch no attempt until it is resumed. A running attempt learns it with its next heartbeat.

        Args:
            reason: kept in the audit trail.
        """
        await self._operate("pause", reason)

    async def resume(self, reason: str | None = None) -> None:
        """Dispatch the paused activity again.

        Args:
            reason: kept in the audit trail.
        """
        await self._operate("resume", reason)

    async def reset(self, reason: str | None = None) -> None:
        """Count the attempts of the waiting activity from the first one again.

        Args:
            reason: kept in the audit trail.
        """
        await self._operate("reset", reason)

    async def run_now(self, reason: str | None = None) -> None:
        """End the backoff or start delay of the waiting activity.

        Args:
            reason: kept in the audit trail.
        """
        await self._operate("run-now", reason)

    async def update_options(
        self,
        *,
        task_queue: str | None = None,
        retry_policy: RetryPolicy | None = None,
        start_to_close_timeout: timedelta | None = None,
        schedule_to_start_timeout: timedelta | None = None,
        schedule_to_close_timeout: timedelta | None = None,
        heartbeat_timeout: timedelta | None = None,
        reason: str | None = None,
    ) -> None:
        """Change options of the open activity; those that are None stay.

        Args:
            task_queue: the queue whose workers run it.
            retry_policy: replaces the whole policy.
            start_to_close_timeout: timeout of one attempt.
            schedule_to_start_timeout: timeout of the wait in the queue.
            schedule_to_close_timeout: timeout of all attempts together.
            heartbeat_timeout: heartbeat timeout of a running attempt.
            reason: kept in the audit trail.
        """
        times = {
            "start_to_close_timeout_ms": start_to_close_timeout,
            "schedule_to_start_timeout_ms": schedule_to_start_timeout,
            "schedule_to_close_timeout_ms": schedule_to_close_timeout,
            "heartbeat_timeout_ms": heartbeat_timeout,
        }
        fields = {name: -(-time // _MILLISECOND) for name, time in times.items() if time is not None}
        policy = None if retry_policy is None else retry_policy.on_the_wire()
        await self._operate("options", reason, task_queue=task_queue, retry_policy=policy, **fields)

    async def _operate(self, operation: str, reason: str | None, **fields: Any) -> None:
        body = {name: value for name, value in ({"reason": reason} | fields).items() if value is not None}
        path = route_of("activities", self.id, operation)
        await self._context.transport.control("POST", path, body, idempotent=True)
