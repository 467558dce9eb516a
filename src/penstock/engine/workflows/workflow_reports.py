"""Worker reports on workflow tasks (complete, fail, heartbeat, hand back), and expired leases.

A completion is all or nothing: under the locks of the run and the task, the core turns the commands into events
(`decide.advance`), and the events, new tasks, timers, children, outbox messages and the end of the lease are committed
together. Events that arrived while the task was leased are flushed after the worker's own (`history_writer`).

A completion that would close the run while a signal is still buffered is rejected (`TaskOutcome.TURNED_BACK`): the
signal is appended and the task is ready again, so that the code handles it first.

A failed task is retried with backoff and the run stays open. If the code no longer matches the history
(non-determinism), the run is marked as blocked with an account of the divergence; a worker that registers with other
code retries it at once (`workers.blocked_runs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.attribution import caused_by
from penstock.core.history import divergence
from penstock.core.history.command_effects import CommandEffects
from penstock.core.history.commands import Command, ContinueAsNew, OnUpdate, OpenSignalWait, StartChild
from penstock.core.history.decide import advance
from penstock.core.history.divergence import Divergence
from penstock.core.history.events import EventType
from penstock.core.history.recorder import release_held
from penstock.core.last_error import join_error
from penstock.core.messaging.messages import Cursor
from penstock.core.model import (
    NewEvent,
    RecordedEvent,
    Run,
    RunId,
    Task,
    TaskId,
    TaskKind,
    TaskState,
    Update,
    run_of,
)
from penstock.core.operations import journal_lines
from penstock.core.scheduling.leases import (
    HANDED_BACK,
    Report,
    answered,
    check_workflow_report,
    freed,
    is_overdue,
    renew,
    repeated,
    run_timed_out,
    stop_details,
)
from penstock.core.scheduling.retries import (
    blocked_backoff_ms,
    first_available_ms,
    workflow_task_backoff_ms,
)
from penstock.engine.activities.death_detection import record_death
from penstock.engine.context import EngineContext
from penstock.engine.messaging import messages, outbox, signal_backlog, streams
from penstock.engine.runs.history_writer import (
    DUE_TOPIC,
    allow_signals,
    append,
    count_unhandled_signal,
    enqueue_activity_task,
    flush_buffered_events,
    newest_task,
    requeue,
    requeue_workflow_task,
    reset_unhandled_signals,
    schedule_next_task,
    with_cached_worker,
    without_cached_worker,
)
from penstock.engine.visibility.attribute_upserts import check_upserts
from penstock.engine.workflows import start_caps
from penstock.engine.workflows.children import ask_to_stop, give_up, start_children, steps_in
from penstock.engine.workflows.run_close import close_cancelled, close_open_work, settle
from penstock.engine.workflows.start_caps import StartCaps
from penstock.engine.workflows.timers import cancel as cancel_timer
from penstock.errors import LeaseLost, PenstockError, Reason
from penstock.ports.store import Transaction, Tx

HISTORY_PORTION = 1_000
WAITING_FOR_HISTORY = "WorkflowTaskWaitingForHistory"
"""The failure type with which an SDK reports that replay produced no new command: an acknowledgement, not a failure."""


class TaskOutcome(StrEnum):
    """What a workflow task report was recorded as."""

    COMPLETED = "completed"
    FAILED = "failed"
    WAITING_FOR_HISTORY = "waiting_for_history"
    TURNED_BACK = "turned_back"
    """Rejected: the completion would have closed the run with an unhandled signal."""
    RUN_CANCELLED = "run_cancelled"
    """Cancellation was requested before stepwise code ran first: the run was closed, nothing was recorded."""


class WorkflowTaskReceipt(Struct, frozen=True):
    """The result of a report; the same report sent again gets the same receipt."""

    task: Task
    run: Run
    outcome: str
    created: tuple[TaskId, ...] = ()
    repeated: bool = False


def completion_transaction(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    commands: Sequence[Command],
    cursors: Sequence[Cursor] = (),
    *,
    concurrent: bool = False,
    cached: bool = False,
    sticky_ms: int = 0,
    reads: Sequence[str] = (),
) -> Transaction[WorkflowTaskReceipt]:
    """Apply the commands of a workflow task: all of their effects, or none. Pass the receipt to `check_recorded`.

    `cursors` are the code's read positions in its message streams. `concurrent` declares code that keeps many steps
    open at once; `reads` are the message streams that it reads now. With `cached` the worker keeps the run's state, and
    the next task is sticky to it for `sticky_ms`.
    """
    ids = tuple(
        RunId(ctx.entropy.new_id()) for each in commands if isinstance(each, StartChild | ContinueAsNew)
    )

    async def operation(tx: Tx) -> WorkflowTaskReceipt:
        task, run, before = await open_report(ctx, tx, namespace, task_id, report)
        if before is not None:
            return before
        if is_overdue(run, tx.now_ms):
            raise run_timed_out(run)
        if not concurrent and run.waits.cancelling:
            return WorkflowTaskReceipt(task, await close_cancelled(ctx, tx, run), TaskOutcome.RUN_CANCELLED)
        await check_upserts(tx, namespace, commands)
        own = task.update_id is not None and not concurrent
        update = await tx.updates.get(task.update_id or "") if own else None
        accepted = await _answered_updates(tx, commands) if concurrent else {}
        names = [each.name for each in commands if isinstance(each, OpenSignalWait)]
        unapplied = await signal_backlog.unapplied(tx, run, names) if names else {}
        step = advance(
            run,
            commands,
            ctx.bounds,
            tx.now_ms,
            ids=ids,
            update=update,
            concurrent=concurrent,
            accepted=accepted,
            unapplied_signals=unapplied,
        )
        if await _has_unhandled_signal(tx, run, step):
            return await _reject_unhandled_signal(tx, task, run)
        await streams.apply(tx, run, step.streams)
        events = _with_reporter(ctx, step)
        run = append(tx, reset_unhandled_signals(step.run), events, task.task_id)
        run = with_cached_worker(run, report.owner, sticky_ms) if cached and concurrent else run
        run = _with_streams(run, reads) if concurrent else run
        for each in step.updates:
            tx.updates.save(each)
        for asked in step.requests:
            outbox.send_external_request(tx, run, asked)
        if step.attributes_changed:
            tx.runs.save_attributes(run)
        if run.is_open:
            run, created, caps = await _go_on(ctx, tx, run, step, cursors, after_update=update is not None)
        else:
            timers = run.open_timers + len(step.ended_timers)
            await close_open_work(tx, replace(run, open_timers=timers), but=task.task_id)
            _, caps, _ = await start_children(ctx, tx, run, step.children)
            gone = steps_in(step.cancelled)
            answered_now = {each.update_id for each in step.updates}
            run = await settle(ctx, tx, run, events[-1], step.successor, cursors, gone, answered_now)
            created = []
        done = answered(task, report, TaskState.DONE, TaskOutcome.COMPLETED, task.available_at_ms)
        tx.tasks.save(done, TaskState.LEASED)
        tx.runs.save(run)
        start_caps.record(caps)
        return WorkflowTaskReceipt(done, run, TaskOutcome.COMPLETED, tuple(created))

    return Transaction(operation, run_of(task_id))


def _with_streams(run: Run, reads: Sequence[str]) -> Run:
    streams = tuple(sorted(set(reads)))
    return run if run.waits.streams == streams else replace(run, waits=replace(run.waits, streams=streams))


def _with_reporter(ctx: EngineContext, step: CommandEffects) -> Sequence[NewEvent]:
    """The events of a report. The one that closes the run names the worker's principal."""
    if step.run.is_open or ctx.caller is None:
        return step.events
    *before, last = step.events
    return (*before, NewEvent(last.type, {**last.payload, **caused_by(ctx.caller)}))


def check_recorded(receipt: WorkflowTaskReceipt) -> WorkflowTaskReceipt:
    """Return the receipt. Raises `LeaseLost` if the commands were not recorded (`TURNED_BACK`, `RUN_CANCELLED`)."""
    if receipt.outcome == TaskOutcome.TURNED_BACK:
        raise LeaseLost(
            Reason.TASK_NOT_LEASED,
            "A signal arrived while the workflow was about to end. Nothing was recorded; the task is dispatched again "
            "so that the code can handle the signal.",
            task_status=receipt.task.state.value,
        )
    if receipt.outcome == TaskOutcome.RUN_CANCELLED:
        raise LeaseLost(
            Reason.RUN_CLOSED,
            "The run was cancelled before its code ran. Nothing of this task was recorded.",
            **stop_details(receipt.task, receipt.run),
        )
    return receipt


async def _answered_updates(tx: Tx, commands: Sequence[Command]) -> dict[str, Update]:
    """The updates that the commands accept, complete or reject."""
    named = dict.fromkeys(each.update_id for each in commands if isinstance(each, OnUpdate))
    found = [await tx.updates.get(update_id) for update_id in named]
    return {each.update_id: each for each in found if each is not None}


async def _has_unhandled_signal(tx: Tx, run: Run, step: CommandEffects) -> bool:
    """Whether the commands would close the run with an unhandled signal in the buffer.

    A successor takes buffered signals over, but not a cancel request: that is for the closing run's code.
    """
    if step.run.is_open or not run.buffered:
        return False
    unhandled = EventType.SIGNAL_RECEIVED if step.successor is None else EventType.CANCEL_REQUESTED
    buffered = await tx.histories.buffered(run.run_id)
    return any(event.type == unhandled for event in buffered)


async def _reject_unhandled_signal(tx: Tx, task: Task, run: Run) -> WorkflowTaskReceipt:
    """Append the unhandled signal and make the task ready again."""
    run, _ = await flush_buffered_events(
        tx, allow_signals(without_cached_worker(count_unhandled_signal(run)))
    )
    again = freed(task, TaskState.READY, available_at_ms=tx.now_ms, how=HANDED_BACK)
    requeue(tx, run, again, TaskState.LEASED)
    tx.runs.save(run)
    return WorkflowTaskReceipt(again, run, TaskOutcome.TURNED_BACK)


async def _go_on(
    ctx: EngineContext,
    tx: Tx,
    run: Run,
    step: CommandEffects,
    cursors: Sequence[Cursor],
    *,
    after_update: bool,
) -> tuple[Run, list[TaskId], StartCaps | None]:
    """Record what an open run has started and cancelled, and schedule its next task.

    Returns the new task ids, and the caps on runs that its children have taken places of.
    """
    created = await _start_steps(tx, run, step)
    run, caps, refused = await start_children(ctx, tx, run, step.children)
    run = await give_up(tx, run, step.cancelled)
    run, stopped = await ask_to_stop(tx, run, step.asked_to_end, step.never_begun)
    cancelled_steps = steps_in(step.cancelled) if run.waits.concurrent else ()
    run, wakes = await flush_buffered_events(tx, run, cancelled_steps)
    run, delivered = await messages.after_task(tx, run, cursors)
    last_task = run.last_task
    run = await schedule_next_task(
        tx, run, wakes=wakes or delivered or refused or stopped or step.wakes, after_update=after_update
    )
    if run.last_task != last_task:
        created.append(newest_task(run))
    return run, created, caps


async def _start_steps(tx: Tx, run: Run, step: CommandEffects) -> list[TaskId]:
    """Enqueue new activities, record new timers and cancel ended ones; returns the activity task ids."""
    for activity, priority in zip(step.activities, step.priorities, strict=True):
        await enqueue_activity_task(tx, run, activity, priority, first_available_ms(activity, tx.now_ms))
    for timer in step.timers:
        tx.timers.insert(timer)
    if step.timers:
        tx.wake(DUE_TOPIC)
    for timer_id in step.ended_timers:
        await cancel_timer(tx, timer_id)
    return [activity.task_id for activity in step.activities]


async def fail(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    message: str,
    failure_type: str | None,
    stack: str | None = None,
) -> WorkflowTaskReceipt:
    """Commit `failure_transaction`; for a divergence, first find the event at which code and history diverge."""
    parted = divergence.of(failure_type, message)
    diverging = None
    if parted is not None and await _is_held(ctx, namespace, task_id, report):
        diverging = await _first_diverging(ctx, run_of(task_id), parted)
    failed = failure_transaction(ctx, namespace, task_id, report, message, failure_type, diverging, stack)
    return await ctx.store.transact(failed.operation, key=failed.key)


def failure_transaction(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    message: str,
    failure_type: str | None,
    diverging: RecordedEvent | None = None,
    stack: str | None = None,
) -> Transaction[WorkflowTaskReceipt]:
    """Retry a workflow task with backoff after its code failed; the run stays open.

    `WAITING_FOR_HISTORY` completes the task instead. A divergence (`diverging`: its first event) blocks the run.
    """
    parted = divergence.of(failure_type, message)

    async def operation(tx: Tx) -> WorkflowTaskReceipt:
        task, run, before = await open_report(ctx, tx, namespace, task_id, report)
        if before is not None:
            return before
        if failure_type == WAITING_FOR_HISTORY:
            return await _wait_for_history(tx, task, run, report)
        failures = run.task_failures + 1
        error = join_error(f"{failure_type}: {message}" if failure_type else message, stack)
        at_ms = tx.now_ms + workflow_task_backoff_ms(failures)
        blocked = None
        if parted is not None:
            worker = await tx.workers.get(namespace, report.owner)
            blocked = divergence.replay_block(parted, diverging, run, worker, tx.now_ms)
            at_ms = tx.now_ms + blocked_backoff_ms(failures)
        resting = replace(
            answered(task, report, TaskState.DELAYED, TaskOutcome.FAILED, at_ms),
            last_error=error,
        )
        run = replace(without_cached_worker(run), task_failures=failures, task_error=error, blocked=blocked)
        run = await requeue_workflow_task(tx, run, resting)
        tx.runs.save(run)
        return WorkflowTaskReceipt(resting, run, TaskOutcome.FAILED)

    return Transaction(operation, run_of(task_id))


async def _is_held(ctx: EngineContext, namespace: str, task_id: TaskId, report: Report) -> bool:
    """Whether the reporter holds the lease. Checked before a whole history is read for it."""
    try:
        await hold(ctx, namespace, task_id, report)
    except PenstockError:
        return False
    return True


async def _wait_for_history(tx: Tx, task: Task, run: Run, report: Report) -> WorkflowTaskReceipt:
    """Complete a task that produced no commands."""
    done = answered(task, report, TaskState.DONE, TaskOutcome.WAITING_FOR_HISTORY, task.available_at_ms)
    tx.tasks.save(done, TaskState.LEASED)
    run = replace(allow_signals(reset_unhandled_signals(run)), task_failures=0, task_error=None, blocked=None)
    if task.update_id is None:
        run = replace(run, unseen_signals=0)
    waits, held = release_held(run, run.waits)
    if held:
        run = append(tx, replace(run, waits=waits), held)
    run, wakes = await flush_buffered_events(tx, run)
    wakes |= bool(held)
    run = await schedule_next_task(tx, run, wakes=wakes, after_update=task.update_id is not None)
    tx.runs.save(run)
    return WorkflowTaskReceipt(done, run, TaskOutcome.WAITING_FOR_HISTORY)


async def _first_diverging(ctx: EngineContext, run_id: RunId, parted: Divergence) -> RecordedEvent | None:
    """The first event at which the history and the code diverge."""

    async def operation(tx: Tx) -> RecordedEvent | None:
        after = 0
        while events := await tx.histories.page(run_id, after, HISTORY_PORTION):
            found = divergence.first(events, parted)
            if found is not None:
                return found
            after = events[-1].sequence
        return None

    return await ctx.store.read(operation, long=True)


async def heartbeat(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report
) -> WorkflowTaskReceipt:
    """Renew the lease of a workflow task."""

    async def operation(tx: Tx) -> WorkflowTaskReceipt:
        task, run, _ = await open_report(ctx, tx, namespace, task_id, report, may_repeat=False)
        renewed = renew(task, tx.now_ms, ctx.settings.leases.workflow_lease_ms)
        tx.tasks.save(renewed, TaskState.LEASED)
        if ctx.store.journals:
            tx.journal.append(journal_lines.renewed(renewed, tx.now_ms))
        tx.workers.touch(namespace, report.owner, tx.now_ms)
        return WorkflowTaskReceipt(renewed, run, "renewed")

    return await ctx.store.transact(operation, key=run_of(task_id))


def hand_back_transaction(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report
) -> Transaction[WorkflowTaskReceipt]:
    """Return a task that the worker will not decide: it is ready again at once."""

    async def operation(tx: Tx) -> WorkflowTaskReceipt:
        task, run, before = await open_report(ctx, tx, namespace, task_id, report)
        if before is not None:
            return before
        again = answered(task, report, TaskState.READY, HANDED_BACK, tx.now_ms)
        run = await requeue_workflow_task(tx, without_cached_worker(run), again)
        tx.runs.save(run)
        return WorkflowTaskReceipt(again, run, HANDED_BACK)

    return Transaction(operation, run_of(task_id))


async def hold(ctx: EngineContext, namespace: str, task_id: TaskId, report: Report) -> WorkflowTaskReceipt:
    """Check that the caller holds the lease, before it is given more pages of the history."""

    async def operation(tx: Tx) -> WorkflowTaskReceipt:
        task, run, _ = await open_report(ctx, tx, namespace, task_id, report, may_repeat=False, lock=False)
        return WorkflowTaskReceipt(task, run, "held")

    return await ctx.store.read(operation)


async def reclaim(ctx: EngineContext, task_id: TaskId, *, expired_only: bool = True) -> bool:
    """Take back the lease of a workflow task that expired, or (`expired_only` False) whose worker deregistered."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_of(task_id))
        task = await tx.tasks.lock(task_id)
        if (
            run is None
            or task is None
            or task.state is not TaskState.LEASED
            or task.kind is not TaskKind.WORKFLOW
        ):
            return False
        if not run.is_open:
            tx.tasks.save(freed(task, TaskState.CANCELLED, available_at_ms=tx.now_ms), TaskState.LEASED)
            return True
        assert task.lease_expires_at_ms is not None
        if expired_only and task.lease_expires_at_ms > tx.now_ms:
            return False
        if expired_only:
            await record_death(tx, task.namespace, task.lease_owner, task.lease_expires_at_ms)
        again = freed(
            task,
            TaskState.READY,
            available_at_ms=tx.now_ms,
            error=f"lease of {task.lease_owner} " + ("expired" if expired_only else "returned"),
            how="expired" if expired_only else HANDED_BACK,
        )
        tx.runs.save(await requeue_workflow_task(tx, run, again))
        return True

    return await ctx.store.transact(operation, key=run_of(task_id))


async def open_report(
    ctx: EngineContext,
    tx: Tx,
    namespace: str,
    task_id: TaskId,
    report: Report,
    *,
    may_repeat: bool = True,
    lock: bool = True,
) -> tuple[Task, Run, WorkflowTaskReceipt | None]:
    """The task and its run if the reporter holds the live lease, and the receipt if the report is repeated."""
    run_id: RunId = run_of(task_id)
    run = await (tx.runs.lock(run_id) if lock else tx.runs.get(run_id))
    task = await (tx.tasks.lock(task_id) if lock else tx.tasks.get(task_id))
    if may_repeat and task is not None and run is not None and task.namespace == namespace:
        outcome = repeated(task, report)
        if outcome is not None:
            return task, run, WorkflowTaskReceipt(task, run, outcome, repeated=True)
    now_ms = tx.now_ms - ctx.stall_detector.lease_grace_ms
    task = check_workflow_report(task, run, namespace, report, now_ms)
    assert run is not None
    return task, run, None
