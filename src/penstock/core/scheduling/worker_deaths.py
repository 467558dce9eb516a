"""What happens to an activity whose worker died: redelivery, retry, failure or quarantine.

A worker counts as dead when the lease of a started attempt expired, or when its process was reported dead. A worker
that only lost its network cannot be distinguished from a dead one.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from penstock.core import json_text
from penstock.core.model import Activity, Task
from penstock.core.scheduling.retries import NoRetry, RetryAt, after_failure

WORKER_CRASHED = "WORKER_CRASHED"
"""The error type of an attempt whose worker died; retry policies may name it."""
QUARANTINED = "quarantined"
"""The failure code of an activity that was closed because too many workers died running it."""
NOT_TO_BLAME = frozenset({"worker_shutdown", "not_begun"})
"""Codes of crashes that the activity did not cause: the worker was shut down, or it had not begun."""
ON_LOST_LEASE = "on_lost_lease"
"""The field of an activity that says how to treat a lost lease."""


class OnLostLease(StrEnum):
    """How the expired lease of a started attempt is treated."""

    REDELIVER = "redeliver"
    """Without a retry policy the task is redelivered; with one, the attempt timed out."""
    FAIL = "fail"
    """The attempt fails as `WORKER_CRASHED` and the retry policy decides; without one the failure is final."""


class Redeliver(Struct, frozen=True):
    """The task is requeued at once, without an event."""


class Quarantine(Struct, frozen=True):
    """Too many workers died running it: it is closed without further retries."""

    deaths: int

    def failure_message(self, last: str) -> str:
        """The failure message: why it was closed, how the last worker died, and what to do."""
        times = "1 worker" if self.deaths == 1 else f"{self.deaths} workers"
        return (
            f"Quarantined: {times} died running it. The last: {last} "
            "Fix the activity or its input, then start it again."
        )


def is_death(error_type: str | None, code: object) -> bool:
    """Whether a reported failure is the death of the process that ran the activity."""
    return error_type == WORKER_CRASHED and not (isinstance(code, str) and code in NOT_TO_BLAME)


def quarantine(deaths: int, quarantine_after: int) -> Quarantine | None:
    """The quarantine after this many deaths, if the limit is reached; a limit of 0 is never reached."""
    return Quarantine(deaths) if 0 < quarantine_after <= deaths else None


def after_lost_lease(
    activity: Activity, now_ms: int, quarantine_after: int
) -> RetryAt | NoRetry | Redeliver | Quarantine:
    """What follows the expired lease of a started attempt; the death is not counted yet."""
    held = quarantine(activity.worker_deaths + 1, quarantine_after)
    if held is not None:
        return held
    if on_lost_lease(activity) is OnLostLease.REDELIVER and not activity.retry.given:
        return Redeliver()
    return after_failure(activity, (WORKER_CRASHED,), False, now_ms)


def missed_heartbeat(task: Task, now_ms: int, uptime_ms: int | None) -> bool:
    """Whether the servers may have missed heartbeats of the worker: then the lost lease is not counted as a death.

    `uptime_ms` is when a recently started server came up; None: no recent start.
    """
    return uptime_ms is not None and (task.leased_at_ms or 0) <= now_ms - uptime_ms


def has_restart_grace(activity: Activity, task: Task, now_ms: int, uptime_ms: int | None) -> bool:
    """Whether a worker may still report after its lease expired: heartbeats were missed, and a death is final."""
    if task.claimed or not missed_heartbeat(task, now_ms, uptime_ms):
        return False
    return on_lost_lease(activity) is OnLostLease.FAIL


def on_lost_lease(activity: Activity) -> OnLostLease:
    value = json_text.read(activity.extra).get(ON_LOST_LEASE) if ON_LOST_LEASE in activity.extra else None
    return OnLostLease.FAIL if value == OnLostLease.FAIL else OnLostLease.REDELIVER
