"""How events reach a history, and how a run gets its next workflow task.

While a workflow task of the run is leased, events from outside wait in a buffer: the worker's commands were
computed from the history as it stood, so they must be appended to exactly that history.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from penstock.core.history import groups
from penstock.core.history.events import EventType, recorded
from penstock.core.model import (
    Activity,
    Event,
    Run,
    Standing,
    Task,
    TaskKind,
    TaskState,
    task_id,
)
from penstock.ports.store import Tx
from penstock.ports.wakeups import queue_bell, run_bell

DUE_BELL = "due"
"""Rung when a timer or a delayed task was recorded, so that the sweeper that waits for them looks again."""

_SILENT = frozenset({EventType.ACTIVITY_RETRY_SCHEDULED})
"""Events that tell a person something, and workflow code nothing."""


def append(tx: Tx, run: Run, events: Sequence[Event], by: str | None = None) -> Run:
    run, lines = recorded(run, events, tx.now_ms, by)
    tx.histories.append(lines)
    tx.wake(run_bell(run.run_id))
    return run


async def tell(tx: Tx, run: Run, events: Sequence[Event]) -> Run:
    """Let something that happened outside the workflow code enter the run, and wake the code if it concerns it."""
    live = await tx.tasks.lock_workflow_task(run.run_id)
    if live is not None and live.state is TaskState.LEASED:
        for offset, event in enumerate(events, 1):
            tx.histories.buffer(run.run_id, run.buffered + offset, event)
        return replace(run, buffered=run.buffered + len(events))
    run = append(tx, run, events)
    if live is None and await concerns_code(tx, run, events):
        run = await line_up(tx, run)
    return run


async def release_buffer(tx: Tx, run: Run) -> tuple[Run, bool]:
    """Append what waited; True when the code must look at it."""
    if not run.buffered:
        return run, False
    events = await tx.histories.buffered(run.run_id)
    tx.histories.clear_buffer(run.run_id)
    run = replace(run, buffered=0)
    if not run.is_open:
        return run, False
    return append(tx, run, events), await concerns_code(tx, run, events)


async def concerns_code(tx: Tx, run: Run, events: Sequence[Event]) -> bool:
    """Whether the workflow code must look at these events: one stands alone, or completes its group."""
    telling = [event for event in events if event.type not in _SILENT]
    if not any(groups.PATH in event.payload for event in telling):
        return bool(telling)
    open_steps = {activity.step for activity in await tx.activities.open_of(run.run_id)}
    open_steps |= {timer.step for timer in await tx.timers.open_of(run.run_id)}
    return any(groups.is_complete(event.payload, open_steps) for event in telling)


async def line_up(tx: Tx, run: Run) -> Run:
    """Put the run's next workflow task in line."""
    queue = await tx.queues.ensure(run.namespace, run.task_queue, TaskKind.WORKFLOW)
    run = replace(run, last_task=run.last_task + 1)
    put_in_line(
        tx,
        Task(
            task_id=task_id(run.run_id, run.last_task),
            queue_id=queue.queue_id,
            namespace=run.namespace,
            task_queue=run.task_queue,
            kind=TaskKind.WORKFLOW,
            run_id=run.run_id,
            activity_id=None,
            type=run.workflow_type,
            compatibility=run.compatibility,
            level=run.level,
            key=run.key,
            state=TaskState.READY,
            available_at_ms=tx.now_ms,
            enqueued_at_ms=tx.now_ms,
        ),
        run.standing,
    )
    return run


async def line_up_activity(tx: Tx, run: Run, activity: Activity, standing: Standing) -> None:
    queue = await tx.queues.ensure(run.namespace, activity.task_queue, TaskKind.ACTIVITY)
    tx.activities.insert(activity)
    put_in_line(
        tx,
        Task(
            task_id=activity.task_id,
            queue_id=queue.queue_id,
            namespace=run.namespace,
            task_queue=activity.task_queue,
            kind=TaskKind.ACTIVITY,
            run_id=run.run_id,
            activity_id=activity.activity_id,
            type=activity.activity_type,
            compatibility=run.compatibility,
            level=standing.level,
            key=standing.key,
            state=TaskState.READY,
            available_at_ms=tx.now_ms,
            enqueued_at_ms=tx.now_ms,
            cost=standing.cost,
        ),
        standing,
    )


def put_in_line(tx: Tx, task: Task, standing: Standing) -> None:
    tx.tasks.insert(task, standing)
    tx.wake(queue_bell(task.queue_id))


def put_back(tx: Tx, task: Task, was: TaskState) -> None:
    """A task that was leased or delayed waits again, now or later."""
    tx.tasks.save(task, was)
    tx.wake(queue_bell(task.queue_id) if task.state is TaskState.READY else DUE_BELL)


def text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
