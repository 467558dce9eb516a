"""When something is tried again: activity attempts, their four clocks, and failed workflow tasks."""

from __future__ import annotations

from zlib import crc32

from msgspec import Struct

from penstock.core import json_text
from penstock.core.limits.rates import NANO, NANO_PER_MS
from penstock.core.model import Activity, ActivityStatus
from penstock.core.timestamps import MINUTE_MS, earliest

GOOD_UNTIL = "good_until_ms"
"""What an activity carries that must begin by a moment, its retries, too."""
OUT_OF_REACH_MS = 60 * MINUTE_MS
"""So much later an activity is lined up that is late when it comes: its clock ends it before a worker can take it."""
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
    """No attempt is left, or the failure is not one that another attempt would cure."""


def timeout_types(clock: str) -> tuple[str, ...]:
    """The name by which a retry policy can say that an attempt which ran out of this time is not tried again.

    It is the one that people write for Temporal: `TemporalTimeout:StartToClose`. A lease is no clock of theirs.
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
    """Whether an activity whose attempt failed runs once more, and when.

    `asked_ms` is the pause that the attempt itself asks for; None: as the policy says.
    """
    policy = activity.retry
    spent = activity.attempt >= policy.max_attempts
    hopeless = non_retryable or any(each in policy.non_retryable_error_types for each in error_types)
    if spent or hopeless:
        return NoRetry()
    pause_ms = policy.pause_ms(activity.attempt) if asked_ms is None else asked_ms
    at_ms = now_ms + pause_ms
    last_ms = earliest(_close_by_at_ms(activity), _good_until_ms(activity))
    if last_ms is not None and at_ms >= last_ms:
        return NoRetry()
    return RetryAt(at_ms, pause_ms)


class RetrySlot(Struct, frozen=True):
    """A part of a line's time that one retry has for itself, given by the line's retry budget."""

    from_ns: int
    for_ns: int

    def moment_ms(self, task_id: str, attempt: int) -> int:
        """When the retry goes, somewhere in its place: the same whenever it is asked, another for each attempt.

        Lines that lean on one downstream would else be in step with each other after an outage of it.
        """
        spread_ns = min(self.for_ns, JITTER_MAX_NS)
        jitter_ns = crc32(f"{task_id}/{attempt}".encode()) * spread_ns >> 32
        return -(-(self.from_ns + jitter_ns) // NANO_PER_MS)


def workflow_task_backoff_ms(failures: int) -> int:
    """How long a workflow task rests after its n-th failure in a row: doubling from one second to a minute."""
    return _doubling(failures, *WORKFLOW_TASK_BACKOFF_MS)


def blocked_backoff_ms(failures: int) -> int:
    """The same for a task whose code does not fit its history: that is not mended in a second."""
    return _doubling(failures, *BLOCKED_BACKOFF_MS)


def _doubling(failures: int, first: int, most: int) -> int:
    return min(most, first << min(failures - 1, 10))


def waiting_deadline_at_ms(activity: Activity, available_at_ms: int) -> int | None:
    """By when an activity that waits must have started or else has timed out."""
    start_by = activity.timeouts.schedule_to_start_ms
    return earliest(
        None if start_by is None else available_at_ms + start_by,
        _good_until_ms(activity),
        _close_by_at_ms(activity),
    )


def running_deadline_at_ms(activity: Activity) -> int | None:
    """By when an activity that runs must have ended, or sent a heartbeat."""
    assert activity.started_at_ms is not None
    limits = activity.timeouts
    heard_at_ms = max(activity.started_at_ms, activity.heartbeat_at_ms or 0)
    return earliest(
        None if limits.start_to_close_ms is None else activity.started_at_ms + limits.start_to_close_ms,
        None if limits.heartbeat_ms is None else heard_at_ms + limits.heartbeat_ms,
        _close_by_at_ms(activity),
    )


def expired_clock(activity: Activity, available_at_ms: int, now_ms: int) -> str | None:
    """Which of the four clocks has run out, in the contract's order; None when none has."""
    limits = activity.timeouts
    close_by = _close_by_at_ms(activity)
    if close_by is not None and close_by <= now_ms:
        return "schedule_to_close"
    if activity.status is ActivityStatus.PENDING:
        limit = limits.schedule_to_start_ms
        start_by = earliest(None if limit is None else available_at_ms + limit, _good_until_ms(activity))
        return "schedule_to_start" if start_by is not None and start_by <= now_ms else None
    started = activity.started_at_ms or now_ms
    heard = max(started, activity.heartbeat_at_ms or 0)
    if limits.heartbeat_ms is not None and heard + limits.heartbeat_ms <= now_ms:
        return "heartbeat"
    if limits.start_to_close_ms is not None and started + limits.start_to_close_ms <= now_ms:
        return "start_to_close"
    return None


def first_available_ms(activity: Activity, now_ms: int) -> int:
    """When a new activity may be dispatched. One that is late already is put out of reach: its clock ends it."""
    good_until_ms = _good_until_ms(activity)
    is_late = good_until_ms is not None and good_until_ms <= now_ms
    return activity.scheduled_at_ms + OUT_OF_REACH_MS if is_late else activity.scheduled_at_ms


def _good_until_ms(activity: Activity) -> int | None:
    """The moment after which no attempt at it begins, if it has one."""
    found = json_text.read(activity.extra).get(GOOD_UNTIL) if GOOD_UNTIL in activity.extra else None
    return found if isinstance(found, int) else None


def _close_by_at_ms(activity: Activity) -> int | None:
    limit = activity.timeouts.schedule_to_close_ms
    return None if limit is None else activity.scheduled_at_ms + limit
