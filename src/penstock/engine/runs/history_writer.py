"""Appending events to histories, and scheduling a run's next workflow task.

Theory of operation
-------------------
A run is a state machine whose input is its history. A worker replays the history and answers with commands; the
commands become events. Two sources therefore want to append: the worker that holds the workflow task, and the outside
world (signals, updates, timers, activity results, answers of other runs).

The worker's commands were computed from the history as it was when the task was leased. They are valid only if they
are appended to exactly that history; replay would otherwise see an event in between that the code did not see, and
diverge. So while a workflow task is leased, external events are *buffered* in arrival order
(`record_external_event`), and appended when the task ends, after the worker's own events (`flush_buffered_events`).
This is Temporal's buffered-event rule, and it gives the invariant `replay-is-deterministic`: every prefix of a history
that a worker was handed stays a prefix of that history.

Every append happens under the row lock of its run, with dense sequence numbers: `history-only-grows`.

At most one workflow task per run is live. An operation that finds something for the code to process, and no live task,
schedules one (`schedule_next_task`); with a live task nothing is needed, because the flush at its end decides again.
`Run.owed` remembers that a plain task is due while an update's task goes first.

Updates of stepwise code (one open step at a time) are handed out one per task, so that two updates never share one
decision. Plain tasks and update tasks alternate: after an update the code checks whether that was what it waited for.
Concurrent code (many open steps) receives updates as ordinary events.

Signals race with the end of a run. A worker that would close the run while a signal is in the buffer has not handled
it: the completion is rejected and the task is scheduled again with the signal in the history, like Temporal's
`UNHANDLED_COMMAND`. A sender that never pauses could keep the run open for ever, so after
`UNHANDLED_SIGNAL_RETRIES_MAX` rejections the server refuses new signals while a task is leased
(`may_close_with_unhandled_signal`) and lets the run close.

A condition's timeout is ordered last among buffered events, and signals are deferred (`defers_signals`) until the code
has processed it: a signal must not satisfy a condition that has already timed out.

Rejected alternatives
---------------------
- Optimistic appends with a sequence check, retried by the worker: an event storm would starve the decision for ever.
- Appending external events directly and letting the SDK skip them: makes determinism a property of every SDK.
- One workflow task per event: quadratic replay work for bursts, and no batching of commands.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from penstock.core import json_text, pauses
from penstock.core.history import recorder
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
from penstock.core.scheduling.retries import waiting_deadline_at_ms
from penstock.ports.store import Tx
from penstock.ports.wakeups import end_topic, queue_topic, run_topic

UNHANDLED_SIGNAL_RETRIES_MAX = 10
"""How often a completion is rejected for an unhandled signal before signals are refused instead."""
_CLOSING = frozenset(CLOSING)
DUE_TOPIC = "due"
"""Notified when a timer or a delayed task was recorded, so that the sweeper scheduler reads its next due times."""


def append(tx: Tx, run: Run, events: Sequence[NewEvent], by: str | None = None) -> Run:
    """Append events under the run's lock. `by` is the workflow task that caused them."""
    return _append(tx, recorder.record(run, events, tx.now_ms, by))


def append_last(tx: Tx, run: Run, events: Sequence[NewEvent]) -> Run:
    """Append events that change nothing that the code waits for: those that end it, and those of ended calls."""
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
    """Append events from outside the workflow code, or buffer them while a workflow task is leased.

    What comes after a deferred signal is buffered behind it, so that messages keep the order of their arrival.
    Schedules a workflow task if the code has to look at them. `update_id` is the update accepted by these events.
    """
    live = await tx.tasks.lock_workflow_task(run.run_id)
    is_deferred = defers_signals(run) and (run.buffered > 0 or _are_signals(events))
    if is_deferred or (live is not None and live.state is TaskState.LEASED):
        return buffer_events(tx, run, events)
    recorded = recorder.record(run, events, tx.now_ms)
    run = _append(tx, recorded)
    if live is None:
        return await schedule_next_task(tx, run, wakes=recorded.wakes, newest_update=update_id)
    if recorded.wakes and live.update_id is not None:
        return await _enqueue_before_update(tx, run, live)
    return run


def defers_signals(run: Run) -> bool:
    """Whether signals are buffered until the code has processed a condition's timeout."""
    return run.waits.signals_deferred


def allow_signals(run: Run) -> Run:
    """Stop deferring signals: the code has completed a workflow task."""
    return replace(run, waits=replace(run.waits, signals_deferred=False))


def count_unhandled_signal(run: Run) -> Run:
    """Count one more completion rejected because a buffered signal was not handled."""
    kept = run.waits
    return replace(run, waits=replace(kept, unhandled_signals=kept.unhandled_signals + 1))


def reset_unhandled_signals(run: Run) -> Run:
    """Reset the rejection count: the code completed a task without closing the run."""
    if not run.waits.unhandled_signals:
        return run
    return replace(run, waits=replace(run.waits, unhandled_signals=0))


async def may_close_with_unhandled_signal(tx: Tx, run: Run) -> bool:
    """Whether the task now leased may close the run despite a buffered signal, so that new signals are refused."""
    if run.waits.unhandled_signals < UNHANDLED_SIGNAL_RETRIES_MAX:
        return False
    live = await tx.tasks.lock_workflow_task(run.run_id)
    return live is not None and live.state is TaskState.LEASED


def is_concurrent(run: Run) -> bool:
    """Whether the code keeps many steps open at once and receives every event as it comes."""
    return run.waits.concurrent


def with_cached_worker(run: Run, worker_id: str, sticky_ms: int = 0) -> Run:
    """Record that a worker caches the run's state up to its last event.

    The run's next task is sticky to that worker for `sticky_ms`.
    """
    cached = (worker_id, run.last_sequence, sticky_ms)
    return replace(run, waits=replace(run.waits, cached=cached))


def without_cached_worker(run: Run) -> Run:
    """Forget which worker caches the run's state."""
    kept = run.waits
    return run if kept.cached is None else replace(run, waits=replace(kept, cached=None))


def cached_up_to(run: Run, worker_id: str | None) -> int:
    """The last event that a worker's cached state includes; 0 if it has none."""
    cached = run.waits.cached
    return cached[1] if cached is not None and cached[0] == worker_id else 0


def is_stranded(run: Run) -> bool:
    """Whether an open run without a workflow task will never get one, because nothing it waits for is open.

    Concurrent code may wait for a signal or update, so only an owed task makes it stranded.
    """
    waiting = run.waits
    if waiting.concurrent:
        return bool(run.owed)
    if run.owed or run.open_updates:
        return True
    held = run.open_activities + run.open_timers + run.open_children
    awaits_message = waiting.condition is not None or waiting.signal is not None
    return not held and not awaits_message and not waiting.selections


def _are_signals(events: Sequence[NewEvent]) -> bool:
    return all(event.type == EventType.SIGNAL_RECEIVED for event in events)


async def _enqueue_before_update(tx: Tx, run: Run, live: Task) -> Run:
    """Schedule a plain task beside a live update task; before it, where a condition's timeout is still unprocessed."""
    if not defers_signals(run):
        return replace(run, owed=1)
    tx.tasks.save(freed(live, TaskState.CANCELLED, available_at_ms=live.available_at_ms), live.state)
    return await enqueue_workflow_task(tx, replace(run, owed=0))


async def requeue_workflow_task(tx: Tx, run: Run, task: Task) -> Run:
    """Requeue a workflow task whose lease ended without a decision, and flush the buffered events.

    While signals are deferred the buffer is kept: the code has not processed the timeout yet.
    """
    if defers_signals(run):
        requeue(tx, run, task, TaskState.LEASED)
        return run
    run, wakes = await flush_buffered_events(tx, run)
    return await _requeue_after_lease(tx, run, task, wakes=wakes)


async def _requeue_after_lease(tx: Tx, run: Run, task: Task, *, wakes: bool) -> Run:
    """Requeue a task that was leased. An update's task is replaced by a plain one where that must go first."""
    if task.update_id is None or not wakes:
        requeue(tx, run, task, TaskState.LEASED)
        return run
    if not defers_signals(run):
        requeue(tx, run, task, TaskState.LEASED)
        return replace(run, owed=1)
    tx.tasks.save(replace(task, state=TaskState.CANCELLED), TaskState.LEASED)
    return await enqueue_workflow_task(tx, replace(run, owed=0), at_ms=task.available_at_ms)


def buffer_events(tx: Tx, run: Run, events: Sequence[NewEvent]) -> Run:
    """Store events behind the leased workflow task; `flush_buffered_events` appends them."""
    for offset, event in enumerate(events, 1):
        tx.histories.buffer(run.run_id, run.buffered + offset, event)
        run = _mark_condition_fired(run, event)
    return replace(run, buffered=run.buffered + len(events))


def _is_timeout(event: NewEvent) -> bool:
    """Whether an event reports the timeout of a condition; a condition inside a selection has two such events."""
    of_wait = event.payload.get("timer_kind") == CONDITION_TIMEOUT
    return of_wait and event.type in (EventType.TIMER_FIRED, EventType.CONDITION_WAIT_TIMED_OUT)


def _is_timer(event: NewEvent) -> bool:
    return event.type == EventType.TIMER_FIRED


def _mark_condition_fired(run: Run, event: NewEvent) -> Run:
    """Mark the run's condition or signal wait as timed out while the timeout event is still in the buffer."""
    signal = run.waits.signal
    if signal is not None and event.payload.get("signal_wait_id") == signal.id and _is_timer(event):
        return replace(run, waits=replace(run.waits, signal=replace(signal, fired=True)))
    if not _is_timeout(event):
        return run
    waiting = run.waits
    if waiting.condition is None or waiting.condition.id != event.payload.get("condition_wait_id"):
        return run
    fired = replace(waiting, condition=replace(waiting.condition, fired=True))
    return replace(run, waits=fired)


async def flush_buffered_events(tx: Tx, run: Run, cancelled_steps: Collection[int] = ()) -> tuple[Run, bool]:
    """Append the buffered events, a condition's timeout last, and return whether the code must be woken.

    Results of steps that the code cancelled meanwhile are dropped.
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
    return event.payload.get("sequence") in steps


async def schedule_next_task(
    tx: Tx, run: Run, *, wakes: bool, after_update: bool = False, newest_update: str | None = None
) -> Run:
    """Enqueue the run's next workflow task, if there is work for it. The caller has checked that none is live.

    For stepwise code update tasks and plain tasks alternate; concurrent code receives updates as events.
    """
    owed = bool(run.owed) or wakes or after_update
    plain_first = is_concurrent(run) or (owed and (after_update or defers_signals(run)))
    if run.open_updates and not plain_first:
        update_id = await _next_update(tx, run, newest_update)
        if update_id is not None:
            return await enqueue_workflow_task(tx, replace(run, owed=int(owed)), update_id=update_id)
    return await enqueue_workflow_task(tx, replace(run, owed=0)) if owed else run


async def _next_update(tx: Tx, run: Run, newest: str | None) -> str | None:
    """The oldest accepted update; `newest` is one accepted in this transaction, not yet visible to reads."""
    accepted = await tx.updates.next_accepted(run.run_id)
    return newest if accepted is None else accepted.update_id


def newest_task(run: Run) -> TaskId:
    """The id of the workflow task enqueued last."""
    return task_id(run.run_id, run.last_task)


async def enqueue_workflow_task(
    tx: Tx, run: Run, *, update_id: str | None = None, at_ms: int | None = None
) -> Run:
    """Enqueue the run's next workflow task, ready now or delayed until `at_ms`; ready tasks may be sticky."""
    at_ms = tx.now_ms if at_ms is None else at_ms
    is_delayed = at_ms > tx.now_ms
    sticky_worker_id, sticky_until_ms = (None, None) if is_delayed else _sticky_worker(run, tx.now_ms)
    queue = await tx.queues.ensure(run.namespace, run.task_queue, TaskKind.WORKFLOW)
    run = replace(run, last_task=run.last_task + 1)
    enqueue(
        tx,
        run,
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
    """The worker that the run's next task is sticky to, and until when."""
    cached = run.waits.cached
    return (cached[0], now_ms + cached[2]) if cached is not None and cached[2] else (None, None)


async def enqueue_activity_task(
    tx: Tx, run: Run, activity: Activity, priority: TaskPriority, at_ms: int | None = None
) -> None:
    """Record an activity and enqueue its task, ready now or delayed until `at_ms`."""
    at_ms = tx.now_ms if at_ms is None else at_ms
    queue = await tx.queues.ensure(run.namespace, activity.task_queue, TaskKind.ACTIVITY)
    task = pauses.held_back(
        run,
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
    )
    if pauses.is_held(task):
        activity = replace(activity, deadline_at_ms=waiting_deadline_at_ms(activity, task.available_at_ms))
    tx.activities.insert(activity)
    enqueue(tx, run, task, priority)


def enqueue(tx: Tx, run: Run, task: Task, priority: TaskPriority) -> None:
    """Insert a task and notify the pollers of its queue, or the sweeper scheduler if it is delayed.

    A task of a paused run is held back.
    """
    task = pauses.held_back(run, task)
    tx.tasks.insert(task, priority)
    tx.wake(queue_topic(task.queue_id) if task.state is TaskState.READY else DUE_TOPIC)


def requeue(tx: Tx, run: Run, task: Task, was: TaskState) -> None:
    """Save a task that was leased or delayed as ready or delayed again, or as held if its run or activity is paused.

    `was` is the state it leaves. The deadline of an activity depends on when its task is available: hold back the task
    before (`pauses.held_back`).
    """
    requeue_due(tx, pauses.held_back(run, task), was)


def requeue_due(tx: Tx, task: Task, was: TaskState) -> None:
    """Save a task that is not held as ready or delayed again."""
    tx.tasks.save(task, was)
    tx.wake(queue_topic(task.queue_id) if task.state is TaskState.READY else DUE_TOPIC)


def to_json(value: object) -> str:
    return json_text.written(value)
