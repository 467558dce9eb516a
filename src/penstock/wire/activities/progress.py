"""Progress of open activities: summary and last heartbeat."""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.core.history.payloads import extra
from penstock.core.model import Activity
from penstock.core.timestamps import iso, iso_or_none

Body = dict[str, Any]
HEARTBEAT_CHARS_MAX: Final = 65_536
"""Longest heartbeat details that are shown in a list; longer ones are replaced by a note."""


def summary(activity: Activity) -> str | None:
    """The summary that workflow code gave the activity."""
    value = extra(activity.extra).get("summary")
    return value if isinstance(value, str) else None


def last_heartbeat(activity: Activity) -> Body | None:
    """The last heartbeat with details: `details`, or `message`, `current`, `total` and `unit`."""
    stored = activity.heartbeat_details
    if stored is None:
        return None
    heartbeat: Body = json.loads(stored)
    if len(stored) <= HEARTBEAT_CHARS_MAX:
        return heartbeat
    shortened = {name: heartbeat[name] for name in ("sequence", "unit") if name in heartbeat}
    return shortened | {"left_out": f"{len(stored):,} characters"}


def open_activity(activity: Activity) -> Body:
    """A pending activity in the description of its run."""
    return {
        "activity_execution_id": activity.activity_id,
        "activity_type": activity.activity_type,
        "sequence": activity.step,
        "status": activity.status.value,
        "summary": summary(activity),
        "task_queue": activity.task_queue,
        "attempt_count": activity.attempt,
        "scheduled_at": iso(activity.scheduled_at_ms),
        "started_at": iso_or_none(activity.started_at_ms),
        "last_heartbeat_at": iso_or_none(activity.heartbeat_at_ms),
        "last_heartbeat": last_heartbeat(activity),
    }
