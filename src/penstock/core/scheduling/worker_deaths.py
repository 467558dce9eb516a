"""What becomes of an activity whose worker died under it: it is delivered again, tried again, or ends.

A worker has died under an activity when its lease ran out after the start, or when its process was reported dead.
A worker that only lost its network cannot be told from a dead one, and counts as one.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from penstock.core import json_text
from penstock.core.model import Activity, Task
from penstock.core.scheduling.retries import NoRetry, RetryAt, after_failure

WORKER_CRASHED = "WORKER_CRASHED"
"""The type of the failure of an attempt whose worker died; retry policies may name it."""
QUARANTINED = "quarantined"
"""The code of the failure of an activity that was ended because too many workers died under it."""
NOT_TO_BLAME = frozenset({"worker_shutdown", "not_begun"})
"""The codes of crashes that an activity has not brought about: its worker had to end, or it had not begun."""
ON_LOST_LEASE = "on_lost_lease"
"""What an activity carries that says what a lost lease means."""


class OnLostLease(StrEnum):
    """What it means that the lease of a started attempt ran out."""

    REDELIVER = "redeliver"
    """Without a retry policy it is delivered again; with one, a clock ran out."""
    FAIL = "fail"
    """The attempt has failed as `WORKER_CRASHED`, and the policy decides; without one, that is the end."""


class Redeliver(Struct, frozen=True):
    """It waits again at once; nobody is told."""


class Quarantine(Struct, frozen=True):
    """It has killed enough workers: no policy has it tried again."""

    deaths: int

    def told(self, last: str) -> str:
        """Why it has ended, how the last worker died, and what to do."""
        times = "1 worker" if self.deaths == 1 else f"{self.deaths} workers"
        return (
            f"Quarantined: {times} died running it. The last: {last} "
            "Mend the activity or what it is given, then start it again."
        )


def is_death(error_type: str | None, code: object) -> bool:
    """Whether a reported failure is the death of the process that ran the activity."""
    return error_type == WORKER_CRASHED and not (isinstance(code, str) and code in NOT_TO_BLAME)


def quarantine(deaths: int, quarantine_after: int) -> Quarantine | None:
    """Whether so many deaths are enough; 0 is never."""
    return Quarantine(deaths) if 0 < quarantine_after <= deaths else None


def after_lost_lease(
    activity: Activity, now_ms: int, quarantine_after: int
) -> RetryAt | NoRetry | Redeliver | Quarantine:
    """What follows when the lease of an attempt that had started ran out; its death is not yet counted."""
    held = quarantine(activity.worker_deaths + 1, quarantine_after)
    if held is not None:
        return held
    if on_lost_lease(activity) is OnLostLease.REDELIVER and not activity.retry.given:
        return Redeliver()
    return after_failure(activity, (WORKER_CRASHED,), False, now_ms)


def missed_heartbeat(task: Task, now_ms: int, fresh_ms: int | None) -> bool:
    """Whether nobody may have been there to hear the worker: a lost lease is not held against its activity then.

    `fresh_ms` is since when a server is there that has just begun; None: since long.
    """
    return fresh_ms is not None and (task.leased_at_ms or 0) <= now_ms - fresh_ms


def has_restart_grace(activity: Activity, task: Task, now_ms: int, fresh_ms: int | None) -> bool:
    """Whether a worker may still speak though its lease ended: it was unheard, and its death would be final."""
    if task.claimed or not missed_heartbeat(task, now_ms, fresh_ms):
        return False
    return on_lost_lease(activity) is OnLostLease.FAIL


def on_lost_lease(activity: Activity) -> OnLostLease:
    said = json_text.read(activity.extra).get(ON_LOST_LEASE) if ON_LOST_LEASE in activity.extra else None
    return OnLostLease.FAIL if said == OnLostLease.FAIL else OnLostLease.REDELIVER
