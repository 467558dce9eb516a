"""Retries: when activity attempts and failed workflow tasks are retried, and the four activity timeouts."""

from __future__ import annotations

from zlib import crc32

from msgspec import Struct

from penstock.core import json_text
from penstock.core.limits.rates import NANO, NANO_PER_MS
from penstock.core.model import Activity, ActivityStatus
from penstock.core.timestamps import MINUTE_MS, earliest

GOOD_UNTIL = "good_until_ms"
"""The field of an activity whose attempts must all start before a time."""
OUT_OF_REACH_MS = 60 * MINUTE_MS
"""An activity that is late when it is scheduled is delayed by this: its timeout ends it before it is dispatched."""
JITTER_MAX_NS = NANO
WORKFLOW_TASK_BACKOFF_MS = (1_000, 60_000)
BLOCKED_BACKOFF_MS = (10_000, 60_000)


class RetryAt(Struct, frozen=True):
    at_ms: int
    backoff_ms: int

    @property
    def backoff_s(self) -> int:
        return -(-self.backoff_ms // 1000)


class NoRetry(Struct, frozen=True):
    """No attempt is left, or the failure is not retryable."""


def timeout_types(clock: str) -> tuple[str, ...]:
    """The error type of a timeout in `non_retryable_error_types`.

    The spelling is Temporal's: `TemporalTimeout:StartToClose`. An expired lease has none.
    """
    parts = "".join(word.capitalize() for word in clock.split("_"))
    return () if clock == "lease" else (f"TemporalTimeout:{parts}",)


def after_failure(
    activity: Activity,
    error_types: tuple[str, ...],
    non_retryable: bool,
    now_ms: int,
    asked_ms: int | None = None,
) -> RetryAt | NoRetry:
    """Whether and when a failed attempt is retried.

    `asked_ms` is a backoff that the attempt itself requested; None: as in the policy.
    """
    policy = activity.retry
    spent = activity.attempt >= policy.max_attempts
    hopeless = non_retryable or any(each in policy.non_retryable_error_types for each in error_types)
    if spent or hopeless:
        return NoRetry()
    pause_ms = policy.pause_ms(activity.attempt) if asked_ms is None else asked_ms
    at_ms = now_ms + pause_ms
    close_by_ms = _after(activity.scheduled_at_ms, activity.timeouts.schedule_to_close_ms)
    last_ms = earliest(close_by_ms, _good_until_ms(activity))
    if last_ms is not None and at_ms >= last_ms:
        return NoRetry()
    return RetryAt(at_ms, pause_ms)


class RetrySlot(Struct, frozen=True):
    """A time interval reserved for one retry by the retry budget of its queue."""

    from_ns: int
    for_ns: int

    def moment_ms(self, task_id: str, attempt: int) -> int:
        """A time inside the slot, deterministic for a task and attempt.

        The jitter keeps queues that share a downstream service from retrying in step after an outage.
        """
        spread_ns = min(self.for_ns, JITTER_MAX_NS)
        jitter_ns = crc32(f"{task_id}/{attempt}".encode()) * spread_ns >> 32
        return -(-(self.from_ns + jitter_ns) // NANO_PER_MS)


def workflow_task_backoff_ms(failures: int) -> int:
    """The backoff of a workflow task after n failures in a row: doubles from one second to a minute."""
    return _doubling(failures, *WORKFLOW_TASK_BACKOFF_MS)


def blocked_backoff_ms(failures: int) -> int:
    """The backoff of a workflow task whose code and history diverge: longer, because it needs a deployment."""
    return _doubling(failures, *BLOCKED_BACKOFF_MS)


def _doubling(failures: int, first: int, most: int) -> int:
    return min(most, first << min(failures - 1, 10))


def waiting_deadline_at_ms(activity: Activity, available_at_ms: int) -> int | None:
    """The deadline by which a waiting activity must start."""
    limits = activity.timeouts
    return earliest(
        _after(available_at_ms, limits.schedule_to_start_ms),
        _good_until_ms(activity),
        _after(activity.scheduled_at_ms, limits.schedule_to_close_ms),
    )


def running_deadline_at_ms(activity: Activity) -> int | None:
    """The deadline by which a running activity must end or send a heartbeat."""
    assert activity.started_at_ms is not None
    limits = activity.timeouts
    heartbeat_at_ms = max(activity.started_at_ms, activity.heartbeat_at_ms or 0)
    return earliest(
        _after(activity.started_at_ms, limits.start_to_close_ms),
        _after(heartbeat_at_ms, limits.heartbeat_ms),
        _after(activity.scheduled_at_ms, limits.schedule_to_close_ms),
    )


def expired_clock(activity: Activity, available_at_ms: int, now_ms: int) -> str | None:
    """The timeout that has expired, in the contract's order; None if none has."""
    limits = activity.timeouts
    deadlines = [("schedule_to_close", _after(activity.scheduled_at_ms, limits.schedule_to_close_ms))]
    if activity.status is ActivityStatus.PENDING:
        start_by = earliest(_after(available_at_ms, limits.schedule_to_start_ms), _good_until_ms(activity))
        deadlines.append(("schedule_to_start", start_by))
    else:
        started_at_ms = activity.started_at_ms or now_ms
        heartbeat_at_ms = max(started_at_ms, activity.heartbeat_at_ms or 0)
        deadlines.append(("heartbeat", _after(heartbeat_at_ms, limits.heartbeat_ms)))
        deadlines.append(("start_to_close", _after(started_at_ms, limits.start_to_close_ms)))
    return next((name for name, at_ms in deadlines if at_ms is not None and at_ms <= now_ms), None)


def _after(at_ms: int, timeout_ms: int | None) -> int | None:
    return None if timeout_ms is None else at_ms + timeout_ms


def first_available_ms(activity: Activity, now_ms: int) -> int:
    """When a new activity may be dispatched; one that is already late is delayed until its timeout ends it."""
    good_until_ms = _good_until_ms(activity)
    is_late = good_until_ms is not None and good_until_ms <= now_ms
    return activity.scheduled_at_ms + OUT_OF_REACH_MS if is_late else activity.scheduled_at_ms


def _good_until_ms(activity: Activity) -> int | None:
    """The time after which no attempt may start, if there is one."""
    found = json_text.read(activity.extra).get(GOOD_UNTIL) if GOOD_UNTIL in activity.extra else None
    return found if isinstance(found, int) else None
