"""How events reach a history, and how a run gets its next workflow task.

While a workflow task of the run is leased, events from outside wait in a buffer: the worker's commands were
computed from the history as it stood, so they must be appended to exactly that history.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.history import recorder, waits
from penstock.core.history.events import CLOSING, EventType
from penstock.core.history.payloads import CONDITION_TIMEOUT
from penstock.core.model import (
    Activity,
    NewEvent,
    Run,
    Task,
    TaskId,
    TaskKind,
    TaskPriority,
    TaskState,
    task_id,
)
from penstock.core.scheduling.cohorts import build_of
from penstock.core.scheduling.leases import freed
from penstock.ports.store import Tx
from penstock.ports.wakeups import end_topic, queue_topic, run_topic

UNHANDLED_SIGNAL_RETRIES_MAX = 10
"""So often a run that would end hears signals first; who sends them without a pause must not keep it open."""
_CLOSING = frozenset(CLOSING)
DUE_TOPIC = "due"
"""Rung when a timer or a delayed task was recorded, so that the sweeper that waits for them looks again."""


def append(tx: Tx, run: Run, events: Sequence[NewEvent], by: str | None = None) -> Run:
    """Record what a workflow task, or a caller, brought about."""
    return _append(tx, recorder.record(run, events, tx.now_ms, by))


def append_last(tx: Tx, run: Run, events: Sequence[NewEvent]) -> Run:
    """Record how a run ends."""
    return _append(tx, recorder.record_last(run, events, tx.now_ms))


def _append(tx: Tx, recorded: recorder.RecordedEvents) -> Run:
    run = recorded.run
    tx.histories.append(recorded.lines)
    tx.wake(run_topic(run.run_id))
    for event in recorded.lines:
        if event.type in _CLOSING:
            tx.wake(end_topic(run.namespace, run.workflow_id))
    return run


async def record_external_event(
    tx: Tx, run: Run, events: Sequence[NewEvent], *, update_id: str | None = None
) -> Run:
    """Let something that happened outside the workflow code enter the run, and wake the code if it concerns it.

    `update_id` names an update that is recorded with these events.
    """
    live = await tx.tasks.lock_workflow_task(run.run_id)
    if (live is not None and live.state is TaskState.LEASED) or (
        defers_signals(run) and _are_signals(events)
    ):
        return buffer_events(tx, run, events)
    recorded = recorder.record(run, events, tx.now_ms)
    run = _append(tx, recorded)
    if live is None:
        return await schedule_next_task(tx, run, wakes=recorded.wakes, newest_update=update_id)
    if recorded.wakes and live.update_id is not None:
        return await _enqueue_before_update(tx, run, live)
    return run


def defers_signals(run: Run) -> bool:
    """Whether signals wait until the code has looked."""
    return waits.defers_signals(run.waits)


def allow_signals(run: Run) -> Run:
    """The run, whose code has looked: signals reach it again."""
    return replace(run, waits=waits.text(replace(waits.parse(run.waits), signals_deferred=False)))


def count_unhandled_signal(run: Run) -> Run:
    """The run, whose code would have ended it once more over a signal that it had not heard."""
    kept = waits.parse(run.waits)
    return replace(run, waits=waits.text(replace(kept, unhandled_signals=kept.unhandled_signals + 1)))


def reset_unhandled_signals(run: Run) -> Run:
    """The run, whose code did not want to end it."""
    if not waits.unhandled_signals(run.waits):
        return run
    return replace(run, waits=waits.text(replace(waits.parse(run.waits), unhandled_signals=0)))


async def may_close_with_unhandled_signal(tx: Tx, run: Run) -> bool:
    """Whether its code looks for the last time, so that a signal which came now would be heard by nobody."""
    if waits.unhandled_signals(run.waits) < UNHANDLED_SIGNAL_RETRIES_MAX:
        return False
    live = await tx.tasks.lock_workflow_task(run.run_id)
    return live is not None and live.state is TaskState.LEASED


def is_concurrent(run: Run) -> bool:
    """Whether its code has many steps open at once, and hears everything as it comes."""
    return waits.is_concurrent(run.waits)


def with_cached_worker(run: Run, worker_id: str, sticky_ms: int = 0) -> Run:
    """The run, whose code a worker keeps in memory: it knows what its task has recorded, and all before that.

    For `reserved_ms` the run's next task waits for that worker.
    """
    cached = (worker_id, run.last_sequence, sticky_ms)
    return replace(run, waits=waits.text(replace(waits.parse(run.waits), cached=cached)))


def without_cached_worker(run: Run) -> Run:
    """The run, whose code nobody is known to keep in memory."""
    kept = waits.parse(run.waits)
    return run if kept.cached is None else replace(run, waits=waits.text(replace(kept, cached=None)))


def cached_up_to(run: Run, worker_id: str | None) -> int:
    """Up to which event a worker keeps the run's code in memory; 0 when it does not."""
    cached = waits.parse(run.waits).cached
    return cached[1] if cached is not None and cached[0] == worker_id else 0


def is_stranded(run: Run) -> bool:
    """Whether an open run without a workflow task will never get one: nothing that it waits for is open.

    The code of a concurrent run may wait for something that only a caller can bring.
    """
    waiting = waits.parse(run.waits)
    if waiting.concurrent:
        return bool(run.owed)
    if run.owed or run.open_updates:
        return True
    held = run.open_activities + run.open_timers + run.open_children
    return not held and waiting.condition is None and not waiting.selections


def _are_signals(events: Sequence[NewEvent]) -> bool:
    return all(event.type == EventType.SIGNAL_RECEIVED for event in events)


async def _enqueue_before_update(tx: Tx, run: Run, live: Task) -> Run:
    """A plain task is owed beside an update's. It goes first where the update might be taken for something else."""
    if not defers_signals(run):
        return replace(run, owed=1)
    tx.tasks.save(freed(live, TaskState.CANCELLED, available_at_ms=live.available_at_ms), live.state)
    return await enqueue_workflow_task(tx, replace(run, owed=0))


async def back_off(tx: Tx, run: Run, task: Task) -> Run:
    """A workflow task whose lease has ended is tried again. What waited for its end is appended.

    What waits until the code has looked waits on: it has not.
    """
    if defers_signals(run):
        requeue(tx, task, TaskState.LEASED)
        return run
    run, wakes = await flush_buffered_events(tx, run)
    return await _requeue_after_lease(tx, run, task, wakes=wakes)


async def _requeue_after_lease(tx: Tx, run: Run, task: Task, *, wakes: bool) -> Run:
    """A workflow task that was leased waits again; an update's makes way for a plain one where that goes first."""
    if task.update_id is None or not wakes:
        requeue(tx, task, TaskState.LEASED)
        return run
    if not defers_signals(run):
        requeue(tx, task, TaskState.LEASED)
        return replace(run, owed=1)
    tx.tasks.save(replace(task, state=TaskState.CANCELLED), TaskState.LEASED)
    return await enqueue_workflow_task(tx, replace(run, owed=0), at_ms=task.available_at_ms)


def buffer_events(tx: Tx, run: Run, events: Sequence[NewEvent]) -> Run:
    for offset, event in enumerate(events, 1):
        tx.histories.buffer(run.run_id, run.buffered + offset, event)
        run = _mark_condition_fired(run, event)
    return replace(run, buffered=run.buffered + len(events))


def _is_timeout(event: NewEvent) -> bool:
    """Whether an event says that the wait for a condition was in vain; a selected one has two that say so."""
    of_wait = event.payload.get("timer_kind") == CONDITION_TIMEOUT
    return of_wait and event.type in (EventType.TIMER_FIRED, EventType.CONDITION_WAIT_TIMED_OUT)


def _mark_condition_fired(run: Run, event: NewEvent) -> Run:
    """The run, which knows that the timer of its condition has fired, though its history does not say so yet."""
    if not _is_timeout(event):
        return run
    waiting = waits.parse(run.waits)
    if waiting.condition is None or waiting.condition.id != event.payload.get("condition_wait_id"):
        return run
    fired = replace(waiting, condition=replace(waiting.condition, fired=True))
    return replace(run, waits=waits.text(fired))


async def flush_buffered_events(tx: Tx, run: Run, cancelled_steps: Collection[int] = ()) -> tuple[Run, bool]:
    """Append what waited, the timeout of a condition last: no signal comes between it and the code's next look.

    True when the code must look at it. How steps ended that were given up meanwhile is left out.
    """
    if not run.buffered:
        return run, False
    events = sorted(await tx.histories.buffered(run.run_id), key=_is_timeout)
    if cancelled_steps:
        events = [each for each in events if not _is_of_step(each, cancelled_steps)]
    tx.histories.clear_buffer(run.run_id)
    signals = sum(event.type == EventType.SIGNAL_RECEIVED for event in events)
    run = replace(run, buffered=0, unseen_signals=max(run.unseen_signals, signals))
    if not run.is_open:
        return run, False
    recorded = recorder.record(run, events, tx.now_ms)
    return _append(tx, recorded), recorded.wakes


def _is_of_step(event: NewEvent, steps: Collection[int]) -> bool:
    """Whether an event tells of one of these steps."""
    return event.payload.get("sequence") in steps


async def schedule_next_task(
    tx: Tx, run: Run, *, wakes: bool, after_update: bool = False, newest_update: str | None = None
) -> Run:
    """Put the run's next workflow task in line, if there is something to do and no other task lives.

    Updates and plain tasks take turns: after an update the code looks whether that is what it waited for. The code of
    a concurrent run hears of updates as of everything else.
    """
    owed = bool(run.owed) or wakes or after_update
    if run.open_updates and not is_concurrent(run) and not (owed and (after_update or defers_signals(run))):
        waiting = await tx.updates.next_accepted(run.run_id)
        update_id = newest_update if waiting is None else waiting.update_id
        if update_id is not None:
            return await enqueue_workflow_task(tx, replace(run, owed=int(owed)), update_id=update_id)
    return await enqueue_workflow_task(tx, replace(run, owed=0)) if owed else run


def newest_task(run: Run) -> TaskId:
    return task_id(run.run_id, run.last_task)


async def enqueue_workflow_task(
    tx: Tx, run: Run, *, update_id: str | None = None, at_ms: int | None = None
) -> Run:
    """Put the run's next workflow task in line, now or at a moment."""
    at_ms = tx.now_ms if at_ms is None else at_ms
    is_delayed = at_ms > tx.now_ms
    sticky_worker_id, sticky_until_ms = (None, None) if is_delayed else _sticky_worker(run, tx.now_ms)
    queue = await tx.queues.ensure(run.namespace, run.task_queue, TaskKind.WORKFLOW)
    run = replace(run, last_task=run.last_task + 1)
    enqueue(
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
            state=TaskState.DELAYED if is_delayed else TaskState.READY,
            available_at_ms=at_ms,
            enqueued_at_ms=tx.now_ms,
            update_id=update_id,
            sticky_worker_id=sticky_worker_id,
            sticky_until_ms=sticky_until_ms,
        ),
        run.priority,
    )
    return run


def _sticky_worker(run: Run, now_ms: int) -> tuple[str, int] | tuple[None, None]:
    """The worker that the run's next task waits for, and until when."""
    cached = waits.parse(run.waits).cached
    return (cached[0], now_ms + cached[2]) if cached is not None and cached[2] else (None, None)


async def enqueue_activity_task(
    tx: Tx, run: Run, activity: Activity, priority: TaskPriority, at_ms: int | None = None
) -> None:
    """Put an activity in line, now or at a moment."""
    at_ms = tx.now_ms if at_ms is None else at_ms
    queue = await tx.queues.ensure(run.namespace, activity.task_queue, TaskKind.ACTIVITY)
    tx.activities.insert(activity)
    enqueue(
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
            compatibility=build_of(activity) or run.compatibility,
            level=priority.level,
            key=priority.key,
            state=TaskState.DELAYED if at_ms > tx.now_ms else TaskState.READY,
            available_at_ms=at_ms,
            enqueued_at_ms=tx.now_ms,
            cost=priority.cost,
        ),
        priority,
    )


def enqueue(tx: Tx, task: Task, priority: TaskPriority) -> None:
    tx.tasks.insert(task, priority)
    tx.wake(queue_topic(task.queue_id) if task.state is TaskState.READY else DUE_TOPIC)


def requeue(tx: Tx, task: Task, was: TaskState) -> None:
    """A task that was leased or delayed waits again, now or later."""
    tx.tasks.save(task, was)
    tx.wake(queue_topic(task.queue_id) if task.state is TaskState.READY else DUE_TOPIC)


def to_json(value: object) -> str:
    return json_text.written(value)
