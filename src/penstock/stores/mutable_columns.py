"""The columns that `save` writes, by table. All other columns are written once, on insert.

The SQL statements go by these lists, and the row cache compares the other columns.
"""

from __future__ import annotations

from typing import Final

RUNS: Final = (
    "status",
    "closed_reason",
    "output",
    "closed_at_ms",
    "last_progress_at_ms",
    "deadline_at_ms",
    "last_sequence",
    "last_step",
    "last_task",
    "open_activities",
    "open_timers",
    "buffered",
    "task_failures",
    "task_error",
    "open_children",
    "open_updates",
    "unseen_signals",
    "last_request",
    "owed",
    "waits",
    "blocked",
    "archived_at_ms",
)
TASKS: Final = (
    "state",
    "available_at_ms",
    "attempt",
    "lease_owner",
    "lease_token",
    "lease_expires_at_ms",
    "leased_at_ms",
    "poll_request_id",
    "done_token",
    "done_digest",
    "done_outcome",
    "last_error",
    "counted",
    "scopes",
    "claimed",
    "granted_at_ms",
    "retry_due_at_ms",
    "sticky_worker_id",
    "sticky_until_ms",
    "held_by",
)
ACTIVITIES: Final = (
    "status",
    "attempt",
    "started_at_ms",
    "heartbeat_at_ms",
    "heartbeat_details",
    "deadline_at_ms",
    "closed_at_ms",
    "worker_deaths",
    "quarantined",
)
