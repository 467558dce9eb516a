"""What operators do to one open activity: pause, resume and reset it, change its options, and run it now.

The activity is named by its id in the history, or, if it is a standalone one, by its caller's id. Every change is made
under the lock of its run and then of its task, as reports are, so that none is lost to a report.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.history.payloads import FAIRNESS_WEIGHT, extra
from penstock.core.model import Activity, Run, Task, TaskKind, TaskPriority, TaskState, task_id
from penstock.core.pauses import held_back
from penstock.core.scheduling.leases import freed
from penstock.core.scheduling.retries import running_deadline_at_ms, waiting_deadline_at_ms
from penstock.core.waits import Pause
from penstock.engine.context import EngineContext
from penstock.engine.runs import operator_commands
from penstock.engine.runs.held_tasks import apply_pauses, move_deadline, pause_by
from penstock.engine.runs.history_writer import DUE_TOPIC, enqueue, requeue_due
from penstock.engine.runs.run_lookup import locate_activity
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.store import Tx

T = TypeVar("T")


class ActivityOutcome(StrEnum):
    """What an operator's command did to an activity."""

    PAUSED = "paused"
    ALREADY_PAUSED = "already_paused"
    RESUMED = "resumed"
    NOT_PAUSED = "not_paused"
    RESET = "reset"
    UPDATED = "updated"
    DUE_NOW = "due_now"
    ALREADY_DUE = "already_due"


class ControlledActivity(Struct, frozen=True):
    """An open activity, locked with its run and task."""

    run: Run
    activity: Activity
    task: Task

    @property
    def pause(self) -> Pause | None:
        """Its own pause, which is not that of its run."""
        return self.run.waits.paused_steps.get(self.activity.step)


class ControlResult(Struct, frozen=True):
    """An activity as a command has left it."""

    run: Run
    activity: Activity
    outcome: ActivityOutcome


async def pause(ctx: EngineContext, namespace: str, activity_id: str, reason: str | None) -> ControlResult:
    """Dispatch no attempt of an activity until it is resumed. A running attempt learns it with its next heartbeat."""

    async def act(tx: Tx, found: ControlledActivity) -> ControlResult:
        if found.pause is not None:
            return ControlResult(found.run, found.activity, ActivityOutcome.ALREADY_PAUSED)
        paused = {**found.run.waits.paused_steps, found.activity.step: pause_by(ctx, tx, reason)}
        return await _with_pauses(ctx, tx, found, paused, operator_commands.PAUSE_ACTIVITY, reason)

    return await on_activity(ctx, namespace, activity_id, act)


async def resume(ctx: EngineContext, namespace: str, activity_id: str, reason: str | None) -> ControlResult:
    """Dispatch a paused activity again, unless its run is paused too."""

    async def act(tx: Tx, found: ControlledActivity) -> ControlResult:
        if found.pause is None:
            return ControlResult(found.run, found.activity, ActivityOutcome.NOT_PAUSED)
        step = found.activity.step
        paused = {each: pause for each, pause in found.run.waits.paused_steps.items() if each != step}
        return await _with_pauses(ctx, tx, found, paused, operator_commands.RESUME_ACTIVITY, reason)

    return await on_activity(ctx, namespace, activity_id, act)


async def reset(ctx: EngineContext, namespace: str, activity_id: str, reason: str | None) -> ControlResult:
    """Count the attempts of a waiting activity from the first one again; its last heartbeat is kept."""

    async def act(tx: Tx, found: ControlledActivity) -> ControlResult:
        check_not_running(found)
        activity = replace(found.activity, attempt=0, worker_deaths=0)
        tx.activities.save(activity)
        requeue_due(tx, replace(found.task, attempt=0), found.task.state)
        return _done(
            ctx, tx, found, activity, ActivityOutcome.RESET, operator_commands.RESET_ACTIVITY, reason
        )

    return await on_activity(ctx, namespace, activity_id, act)


async def run_now(ctx: EngineContext, namespace: str, activity_id: str, reason: str | None) -> ControlResult:
    """End the backoff or start delay of a waiting activity. A paused one is due as soon as it is resumed."""

    async def act(tx: Tx, found: ControlledActivity) -> ControlResult:
        check_not_running(found)
        if found.task.state is TaskState.READY:
            return ControlResult(found.run, found.activity, ActivityOutcome.ALREADY_DUE)
        ready = replace(found.task, state=TaskState.READY, available_at_ms=tx.now_ms, retry_due_at_ms=None)
        due = held_back(found.run, ready)
        requeue_due(tx, due, found.task.state)
        await move_deadline(tx, due)
        return _done(
            ctx, tx, found, found.activity, ActivityOutcome.DUE_NOW, operator_commands.RUN_ACTIVITY, reason
        )

    return await on_activity(ctx, namespace, activity_id, act)


async def update_options(
    ctx: EngineContext,
    namespace: str,
    activity_id: str,
    changed: Callable[[Activity], Activity],
    reason: str | None,
) -> ControlResult:
    """Change the timeouts, the retry policy or the task queue of an open activity.

    Timeouts count from where they counted from; of a running attempt too. A running attempt cannot change its queue.

    Args:
        ctx: The server.
        namespace: The namespace.
        activity_id: The activity.
        changed: Returns the activity with its new options. Raises if they do not fit together.
        reason: Kept in the audit trail.
    """

    async def act(tx: Tx, found: ControlledActivity) -> ControlResult:
        activity = changed(found.activity)
        run, task = found.run, found.task
        if activity.task_queue != found.activity.task_queue:
            check_not_running(found)
            run = replace(run, last_task=run.last_task + 1)
            activity = replace(activity, task_id=task_id(run.run_id, run.last_task))
            task = await _moved(tx, run, activity, task)
            tx.runs.save(run)
        running = task.state is TaskState.LEASED and not task.claimed
        deadline_at_ms = (
            running_deadline_at_ms(activity)
            if running
            else waiting_deadline_at_ms(activity, task.available_at_ms)
        )
        activity = replace(activity, deadline_at_ms=deadline_at_ms)
        tx.activities.change(activity)
        tx.wake(DUE_TOPIC)
        found = replace(found, run=run)
        return _done(
            ctx, tx, found, activity, ActivityOutcome.UPDATED, operator_commands.UPDATE_ACTIVITY, reason
        )

    return await on_activity(ctx, namespace, activity_id, act)


async def _moved(tx: Tx, run: Run, activity: Activity, task: Task) -> Task:
    """A task in place of another one that waits in another queue."""
    tx.tasks.save(freed(task, TaskState.CANCELLED, available_at_ms=task.available_at_ms), task.state)
    queue = await tx.queues.ensure(run.namespace, activity.task_queue, TaskKind.ACTIVITY)
    weight = extra(activity.extra).get(FAIRNESS_WEIGHT)
    weight_milli = run.weight_milli if weight is None else round(weight * 1000)
    moved = replace(
        task,
        task_id=activity.task_id,
        queue_id=queue.queue_id,
        task_queue=activity.task_queue,
        enqueued_at_ms=tx.now_ms,
        seq=0,
    )
    enqueue(tx, run, moved, TaskPriority(task.level, task.key, weight_milli, task.cost))
    return moved


def check_not_running(found: ControlledActivity) -> None:
    """Raise `Conflict` if a worker has an attempt of the activity."""
    if found.task.state is TaskState.LEASED:
        raise Conflict(
            Reason.ACTIVITY_RUNNING,
            f"{found.task.lease_owner} runs attempt {found.task.attempt} of the activity. Wait until it has ended, "
            "or pause the activity: what follows then waits.",
            activity_id=found.activity.activity_id,
            lease_owner=found.task.lease_owner,
        )


def _done(
    ctx: EngineContext,
    tx: Tx,
    found: ControlledActivity,
    activity: Activity,
    outcome: ActivityOutcome,
    command: str,
    reason: str | None,
) -> ControlResult:
    """Record a command that took effect."""
    operator_commands.retain(ctx, tx, found.run, command, outcome, reason, activity.activity_id)
    return ControlResult(found.run, activity, outcome)


async def _with_pauses(
    ctx: EngineContext,
    tx: Tx,
    found: ControlledActivity,
    paused: dict[int, Pause],
    command: str,
    reason: str | None,
) -> ControlResult:
    run = replace(found.run, waits=replace(found.run.waits, paused_steps=paused))
    await apply_pauses(tx, run)
    tx.runs.save(run)
    outcome = (
        ActivityOutcome.PAUSED if command == operator_commands.PAUSE_ACTIVITY else ActivityOutcome.RESUMED
    )
    return _done(ctx, tx, replace(found, run=run), found.activity, outcome, command, reason)


async def on_activity(
    ctx: EngineContext,
    namespace: str,
    activity_id: str,
    act: Callable[[Tx, ControlledActivity], Awaitable[T]],
) -> T:
    """Run `act` in a transaction that holds the locks of an open activity's run and task.

    Raises `NotFound` if the namespace has no such activity, and `Conflict` if it has ended.
    """
    found = await ctx.store.read(lambda tx: locate_activity(tx, namespace, activity_id))
    if found is None:
        raise no_activity(activity_id)
    named = found[1]

    async def operation(tx: Tx) -> T:
        run = await tx.runs.lock(named.run_id)
        task = None if run is None else await tx.tasks.lock(named.task_id)
        activity = await tx.activities.get(named.activity_id)
        if run is None or activity is None:
            raise no_activity(activity_id)
        if task is None or not run.is_open or not activity.status.is_open:
            raise Conflict(
                Reason.ACTIVITY_NOT_ACTIVE,
                f"The activity {activity_id!r} is {activity.status.value} already.",
                activity_id=activity_id,
                status=activity.status.value,
            )
        return await act(tx, ControlledActivity(run, activity, task))

    return await ctx.store.transact(operation, key=named.run_id)


def no_activity(activity_id: str) -> NotFound:
    return NotFound(
        Reason.ACTIVITY_NOT_FOUND, f"There is no activity {activity_id!r}.", activity_id=activity_id
    )
