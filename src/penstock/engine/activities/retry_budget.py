"""The retry budget of a queue: each due retry takes the next free slot of the budget and is delayed until then."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.core.model import Task, TaskKind, TaskState
from penstock.core.scheduling.retries import waiting_deadline_at_ms
from penstock.ports.store import Tx


async def placed(tx: Tx, task: Task) -> Task:
    """A due retry as ready, or delayed until its budget slot. A retry whose slot has come is ready.

    Workflow tasks have no retry budget: a run in progress must be able to continue.
    """
    if task.kind is TaskKind.WORKFLOW or task.retry_due_at_ms is not None:
        return replace(task, state=TaskState.READY, retry_due_at_ms=None)
    place = await tx.retry_budgets.take_place(task.queue_id)
    at_ms = tx.now_ms if place is None else place.moment_ms(task.task_id, task.attempt)
    if at_ms <= tx.now_ms:
        return replace(task, state=TaskState.READY)
    return replace(task, state=TaskState.DELAYED, available_at_ms=at_ms, retry_due_at_ms=task.available_at_ms)


async def move_deadline(tx: Tx, task: Task) -> None:
    """Restart the schedule-to-start clock of a delayed retry at its budget slot."""
    if task.retry_due_at_ms is None or task.activity_id is None:
        return
    activity = await tx.activities.get(task.activity_id)
    assert activity is not None, "an activity task has an activity"
    deadline_at_ms = waiting_deadline_at_ms(activity, task.available_at_ms)
    if deadline_at_ms != activity.deadline_at_ms:
        tx.activities.save(replace(activity, deadline_at_ms=deadline_at_ms))
