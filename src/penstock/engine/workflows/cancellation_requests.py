"""Cancellation with time to clean up: requests, deliveries at calls of stepwise code, and which workers get such runs.

A concurrent run receives such a request like any cancel request; only its deadline is new. A stepwise run needs workers
that registered the capability `cooperative_cancellation`: others abandon a task whose history has these events. So
a request is refused while no active worker of the run's queue, type and build has it, and a task of such a run that
another worker leased goes back to the queue for a moment (`withhold`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.attribution import caused_by
from penstock.core.history import cancellation
from penstock.core.history.cancellation import ABANDON, POLICY, WAIT, EarlierResults, OpenWork
from penstock.core.history.command_effects import CommandContext, satisfy
from penstock.core.history.events import EventType
from penstock.core.history.payloads import activity_payload, extra, timer_payload
from penstock.core.model import (
    Activity,
    ChildRun,
    NewEvent,
    Run,
    Task,
    TaskId,
    TaskState,
    Timer,
    TimerState,
    WorkerRecord,
    run_of,
)
from penstock.core.scheduling.leases import HANDED_BACK, Report, answered, freed, is_overdue, run_timed_out
from penstock.core.scheduling.polls import Leased
from penstock.core.timestamps import earliest
from penstock.core.waits import CancellationDelivery, CancellationRequest
from penstock.engine.context import EngineContext
from penstock.engine.matching.query_tasks import active_workers, fits_build, replays
from penstock.engine.messaging import outbox
from penstock.engine.runs.address import Address, check_open, check_workflow, on_run
from penstock.engine.runs.history_writer import (
    DUE_TOPIC,
    append_last,
    defers_signals,
    flush_buffered_events,
    record_external_event,
    requeue,
    schedule_next_task,
)
from penstock.engine.workflows.children import ask_to_stop, cancel_activity
from penstock.engine.workflows.run_close import EndMode, end_open, make_ready, request_cancel
from penstock.engine.workflows.timers import cancel as cancel_timer
from penstock.engine.workflows.workflow_reports import HISTORY_PORTION, open_report
from penstock.errors import Conflict, Reason
from penstock.ports.store import Tx

RowT = TypeVar("RowT", Activity, Timer, ChildRun)
WITHHELD_MS = 1_000
"""How long a task waits that a worker without the capability had leased."""
WAITING_FOR_CHILD = "cancellation_waiting_for_child"
WAITING_FOR_ACTIVITY = "cancellation_waiting_for_activity"


class RequestReceipt(Struct, frozen=True):
    """An accepted request; `duplicate` if it repeats one that stands."""

    run: Run
    asked: CancellationRequest
    duplicate: bool = False


async def request(
    ctx: EngineContext, address: Address, reason: str | None, cleanup_s: int | None
) -> RequestReceipt:
    """Request that a run's code cancels and cleans up, until a deadline at which the server closes the run.

    Raises `Conflict` (`cooperative_cancellation_not_supported`) if no active worker could deliver it.
    """

    async def act(tx: Tx, run: Run) -> RequestReceipt:
        check_workflow(run)
        check_open(run)
        if run.waits.cancellation is not None:
            return RequestReceipt(run, run.waits.cancellation, duplicate=True)
        if not run.waits.receives_cancel:
            refusal = _no_capable_worker(run, await active_workers(ctx, tx, run))
            if refusal is not None:
                raise refusal
        asked = cancellation.request(run, reason, cleanup_s, ctx.caller, tx.now_ms)
        return RequestReceipt(await _record(ctx, tx, run, asked), asked)

    return await on_run(ctx, address, act)


async def cancel_child(ctx: EngineContext, tx: Tx, run: Run, reason: str, deadline_ms: int) -> None:
    """Request that a child cancels until the deadline of its parent; cancel it at once if its code cannot."""
    if run.waits.cancellation is not None:
        return
    deliverable = run.waits.receives_cancel or not _no_capable_worker(run, await active_workers(ctx, tx, run))
    if not deliverable or deadline_ms <= tx.now_ms or run.waits.to_start:
        await end_open(ctx, tx, run, EndMode.CANCEL, reason)
        return
    asked = cancellation.request(run, reason, None, ctx.caller, tx.now_ms)
    await _record(ctx, tx, run, replace(asked, deadline_at_ms=deadline_ms))


async def _record(ctx: EngineContext, tx: Tx, run: Run, asked: CancellationRequest) -> Run:
    """Record a request, let the code run, and end the run at the deadline. A delayed workflow task becomes ready."""
    run = replace(
        run,
        waits=replace(run.waits, cancellation=asked),
        deadline_at_ms=earliest(run.deadline_at_ms, asked.deadline_at_ms),
    )
    if run.waits.receives_cancel:
        run = await request_cancel(ctx, tx, run, asked.reason)
    else:
        event = cancellation.requested(run, asked)
        event = NewEvent(event.type, {**event.payload, **caused_by(ctx.caller)})
        run = await record_external_event(tx, run, [event])
        await make_ready(tx, run)
    tx.runs.save(run)
    tx.wake(DUE_TOPIC)
    return run


def _no_capable_worker(run: Run, workers: Sequence[WorkerRecord]) -> Conflict | None:
    """Why no active worker can deliver a cancellation to a stepwise run; None if one can."""
    fitting = [each for each in workers if replays(each, run) and fits_build(each, run)]
    if any(map(is_capable, fitting)):
        return None
    found = "no active worker" if not fitting else "none of the active workers"
    return Conflict(
        Reason.COOPERATIVE_CANCELLATION_NOT_SUPPORTED,
        f"On {run.task_queue!r} {found} that runs {run.workflow_type!r} registered {cancellation.CAPABILITY!r}. "
        "Start one, or cancel the run at once.",
        workflow_id=run.workflow_id,
        run_id=run.run_id,
        task_queue=run.task_queue,
        required_capability=cancellation.CAPABILITY,
        active_workers=len(fitting),
        command_status="rejected",
        outcome="rejected_compatibility_blocked",
    )


def is_capable(worker: WorkerRecord) -> bool:
    """Whether a worker registered that it can deliver cancellations."""
    reported = worker.advertised.get("capabilities")
    return isinstance(reported, list | tuple) and cancellation.CAPABILITY in reported


async def withhold(ctx: EngineContext, leased: tuple[Leased, ...]) -> tuple[Leased, ...]:
    """Requeue the tasks of runs with a request whose worker cannot deliver it; returns the others."""
    kept: list[Leased] = []
    for each in leased:
        if await _may_have(ctx, each):
            kept.append(each)
        else:
            await _requeue_withheld(ctx, each.task)
    return tuple(kept)


async def _may_have(ctx: EngineContext, leased: Leased) -> bool:
    waiting = leased.run.waits
    if waiting.cancellation is None or waiting.cancelling:
        return True
    owner = leased.task.lease_owner or ""
    worker = await ctx.store.read(lambda tx: tx.workers.get(leased.task.namespace, owner))
    return worker is not None and is_capable(worker)


async def _requeue_withheld(ctx: EngineContext, task: Task) -> None:
    async def operation(tx: Tx) -> None:
        run = await tx.runs.lock(run_of(task.task_id))
        live = await tx.tasks.lock(task.task_id)
        if (
            run is None
            or live is None
            or live.state is not TaskState.LEASED
            or live.lease_token != task.lease_token
        ):
            return
        later = freed(
            live,
            TaskState.DELAYED,
            available_at_ms=tx.now_ms + WITHHELD_MS,
            error=f"{live.lease_owner} cannot deliver the requested cancellation",
            how=HANDED_BACK,
        )
        requeue(tx, run, later, TaskState.LEASED)

    await ctx.store.transact(operation, key=run_of(task.task_id))


class DeliveryReceipt(Struct, frozen=True):
    """The result of a delivery. Waiting for an activity or a child has released the claim."""

    task: Task
    run: Run
    asked: CancellationRequest | None
    duplicate: bool = False
    waiting: str | None = None


async def deliver(
    ctx: EngineContext,
    namespace: str,
    task_id: TaskId,
    report: Report,
    request_id: str,
    delivery: CancellationDelivery,
) -> DeliveryReceipt:
    """Raise the requested cancellation at a call of a leased workflow task, and cancel what the call has open.

    The lease goes on. Where a member of the call is to end first (`wait_cancellation_completed`), it is asked to, the
    task is done, and the next one delivers. A repetition has no effect.
    """

    async def operation(tx: Tx) -> DeliveryReceipt:
        task, run, before = await open_report(ctx, tx, namespace, task_id, report)
        if before is not None:
            return DeliveryReceipt(task, run, None, waiting=before.outcome)
        if is_overdue(run, tx.now_ms):
            raise run_timed_out(run)
        asked = run.waits.cancellation
        if asked is not None and asked.delivery is not None and asked.id == request_id:
            if asked.delivery != delivery:
                raise cancellation.mismatch(delivery, "It was delivered at another call before.")
            return DeliveryReceipt(task, run, asked, duplicate=True)
        run, was_buffered = await _recorded(tx, task, run, request_id)
        work = await _open_work(tx, run, delivery.steps)
        cancellation.check_call(run, delivery, work.steps)
        await _check_unresolved(tx, run, delivery, work.steps, was_buffered=was_buffered)
        run, waiting = await _ask_to_end(tx, run, work)
        if waiting is not None:
            return await _release(tx, task, run, report, waiting)
        run = await _interrupt(tx, run, delivery, work)
        tx.runs.save(run)
        return DeliveryReceipt(task, run, run.waits.cancellation)

    return await ctx.store.transact(operation, key=run_of(task_id))


async def _recorded(tx: Tx, task: Task, run: Run, request_id: str) -> tuple[Run, bool]:
    """The run with its request in the history, and whether that was buffered behind this task until now.

    The worker reads the history again after a delivery, so that what is flushed here comes before its commands.
    """
    asked = run.waits.undelivered
    if asked is None or asked.id != request_id or task.update_id is not None:
        raise _not_requested(run, request_id)
    if asked.event:
        return run, False
    if defers_signals(run) and any(map(_is_signal, await tx.histories.buffered(run.run_id))):
        raise _not_requested(run, request_id)
    run, _ = await flush_buffered_events(tx, run)
    return run, True


def _is_signal(event: NewEvent) -> bool:
    return event.type == EventType.SIGNAL_RECEIVED


def _not_requested(run: Run, request_id: str) -> Conflict:
    return Conflict(
        Reason.CANCELLATION_NOT_REQUESTED,
        "This task cannot deliver such a request: the run has none with this id, or it is recorded only with the end "
        "of the task.",
        request_id=request_id,
        workflow_id=run.workflow_id,
        run_id=run.run_id,
    )


async def _check_unresolved(
    tx: Tx, run: Run, delivery: CancellationDelivery, work: OpenWork, *, was_buffered: bool
) -> None:
    """Raise `Conflict` if the call had a result before the request. The history is read only where rows do not tell."""
    if cancellation.is_surely_open(run, delivery, work):
        return
    asked = run.waits.undelivered
    assert asked is not None
    if was_buffered:
        raise _not_requested(run, asked.id)
    found = EarlierResults()
    after = 0
    while after < asked.event and (events := await tx.histories.page(run.run_id, after, HISTORY_PORTION)):
        found = cancellation.earlier_results(found, events, asked.event)
        after = events[-1].sequence
    cancellation.check_unresolved(delivery, found)


class _OpenRows(Struct, frozen=True):
    """The open rows of an interrupted call."""

    activities: Sequence[Activity]
    timers: Sequence[Timer]
    children: Sequence[ChildRun]
    steps: OpenWork


async def _open_work(tx: Tx, run: Run, steps: Collection[int]) -> _OpenRows:
    activities = _at(steps, await tx.activities.open_of(run.run_id) if run.open_activities else ())
    timers = _at(steps, await tx.timers.open_of(run.run_id) if run.open_timers else ())
    children = _at(steps, await tx.children.open_of(run.run_id) if run.open_children else ())
    work = OpenWork(_steps_of(activities), _steps_of(timers), _steps_of(children))
    return _OpenRows(activities, timers, children, work)


def _at(steps: Collection[int], rows: Sequence[RowT]) -> list[RowT]:
    return [each for each in rows if each.step in steps]


def _steps_of(rows: Iterable[Activity | Timer | ChildRun]) -> frozenset[int]:
    return frozenset(each.step for each in rows)


def _policy(row: Activity | ChildRun) -> str | None:
    policy = extra(row.extra).get(POLICY)
    return None if policy is None else str(policy)


async def _ask_to_end(tx: Tx, run: Run, work: _OpenRows) -> tuple[Run, str | None]:
    """Ask the members of a call to end that the code waits for; returns what is still open, if anything is."""
    awaited = _steps_of(each for each in work.activities if _policy(each) == WAIT)
    if awaited:
        run, _ = await ask_to_stop(tx, run, awaited, ())
    children = [each for each in work.children if _policy(each) == WAIT]
    if children:
        return _ask_children(tx, run, children), WAITING_FOR_CHILD
    return run, WAITING_FOR_ACTIVITY if awaited.intersection(run.waits.ending) else None


def _ask_children(tx: Tx, run: Run, children: Sequence[ChildRun]) -> Run:
    """Ask children to cancel, each once."""
    asked = run.waits.undelivered
    assert asked is not None
    for child in children:
        if child.step not in asked.asked:
            outbox.request_child(tx, child, f"parent {run.workflow_id} was cancelled", asked.deadline_at_ms)
    steps = tuple(sorted(_steps_of(children).union(asked.asked)))
    return replace(run, waits=replace(run.waits, cancellation=replace(asked, asked=steps)))


async def _release(tx: Tx, task: Task, run: Run, report: Report, waiting: str) -> DeliveryReceipt:
    """End the claim: the end of what the code waits for schedules the next workflow task."""
    done = answered(task, report, TaskState.DONE, waiting, task.available_at_ms)
    tx.tasks.save(done, TaskState.LEASED)
    run, wakes = await flush_buffered_events(tx, run)
    run = await schedule_next_task(tx, run, wakes=wakes)
    tx.runs.save(run)
    return DeliveryReceipt(done, run, None, waiting=waiting)


async def _interrupt(tx: Tx, run: Run, delivery: CancellationDelivery, work: _OpenRows) -> Run:
    """Record the delivery, and cancel what the call has open, except what its policy abandons."""
    asked = run.waits.undelivered
    assert asked is not None
    run, events = await _leave_waits(tx, run, delivery)
    events.append(cancellation.delivered(run, asked, delivery))
    activities = await _cancel_activities(tx, run, work.activities)
    for timer in work.timers:
        tx.timers.save(replace(timer, state=TimerState.CANCELLED))
    children = [each for each in work.children if _policy(each) not in (None, ABANDON)]
    for child in children:
        outbox.cancel_child(tx, run, child, asked.deadline_at_ms)
    events += [
        NewEvent(EventType.ACTIVITY_CANCELLED, activity_payload(each) | _INTERRUPTED) for each in activities
    ]
    events += [NewEvent(EventType.TIMER_CANCELLED, timer_payload(each)) for each in work.timers]
    run = replace(
        cancellation.interrupted(run, asked, delivery),
        open_activities=run.open_activities - len(activities),
        open_timers=run.open_timers - len(work.timers),
        open_children=run.open_children - len(children),
    )
    return append_last(tx, run, events)


async def _cancel_activities(tx: Tx, run: Run, activities: Sequence[Activity]) -> Sequence[Activity]:
    """Cancel the interrupted activities; those that had to end first have ended."""
    given_up = [each for each in activities if _policy(each) not in (ABANDON, WAIT)]
    live = {task.task_id: task for task in await tx.tasks.lock_live_of(run.run_id)} if given_up else {}
    for activity in given_up:
        cancel_activity(tx, activity, live.get(activity.task_id))
    return given_up


async def _leave_waits(tx: Tx, run: Run, delivery: CancellationDelivery) -> tuple[Run, list[NewEvent]]:
    """End the condition or signal wait that the code has left if the call is its next one.

    A completion would record that; until one does, a timeout could still take back what the code has seen.
    """
    if delivery.sequence <= run.last_step:
        return run, []
    left = CommandContext(run, tx.now_ms)
    satisfy(left)
    for timer_id in left.ended_timers:
        await cancel_timer(tx, timer_id)
    waiting = replace(run.waits, condition=None, signal=None)
    return replace(run, waits=waiting, open_timers=left.run.open_timers), left.events


_INTERRUPTED = {"message": "The workflow was cancelled.", "failure_category": "cancelled"}
