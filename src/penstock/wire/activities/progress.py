"""What is told of an open activity to people who watch it: its summary, and how far it is."""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.core.history.payloads import extra
from penstock.core.model import Activity
from penstock.core.timestamps import iso, iso_or_none

Body = dict[str, Any]
HEARTBEAT_CHARS_MAX: Final = 65_536
"""Of the details of a heartbeat that is shown in a list; longer ones are left out, and the answer says so."""


def summary(activity: Activity) -> str | None:
    """What the workflow's code says the activity is for."""
    value = extra(activity.extra).get("summary")
    return value if isinstance(value, str) else None


def last_heartbeat(activity: Activity) -> Body | None:
    """The last heartbeat that told something: `details`, or `message`, `current`, `total` and `unit`."""
    stored = activity.heartbeat_details
    if stored is None:
        return None
    value: Body = json.loads(stored)
    if len(stored) <= HEARTBEAT_CHARS_MAX:
        return value
    short = {name: value for name, value in value.items() if name in ("sequence", "unit")}
    return short | {"left_out": f"{len(stored):,} characters"}


def open_activity(activity: Activity) -> Body:
    """An activity that its run waits for, as a description of the run lists it."""
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
