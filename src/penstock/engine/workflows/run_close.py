"""Closing runs: cancel, terminate, timeouts; and ending everything that was open in a closed run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core import json_text
from penstock.core.attribution import caused_by
from penstock.core.history import lineage
from penstock.core.history.command_effects import closed
from penstock.core.history.events import EventType
from penstock.core.history.lineage import Successor
from penstock.core.history.payloads import activity_payload, timer_payload
from penstock.core.messaging.messages import Cursor
from penstock.core.model import (
    NO_LINEAGE,
    ActivityStatus,
    Blob,
    NewEvent,
    Run,
    RunId,
    RunStatus,
    TaskId,
    TaskState,
    TimerState,
    UpdateStatus,
)
from penstock.core.scheduling.leases import freed
from penstock.core.timestamps import iso, iso_or_none
from penstock.core.waits import NO_WAITS, CancellationRequest
from penstock.engine.context import EngineContext
from penstock.engine.messaging import outbox
from penstock.engine.runs import run_places
from penstock.engine.runs.address import Address, check_open, on_run
from penstock.engine.runs.fire_closed import report_closed
from penstock.engine.runs.history_writer import (
    append_last,
    flush_buffered_events,
    record_external_event,
    requeue,
    to_json,
)
from penstock.engine.runs.idempotency import IdempotentRequest, retain, retained
from penstock.engine.workflows import unique_starts
from penstock.engine.workflows.successors import begin, carry_over
from penstock.ports.store import Tx


class EndMode(StrEnum):
    """How a caller ends a run."""

    CANCEL = "cancel"
    TERMINATE = "terminate"


class EndEvents(Struct, frozen=True):
    """The events and the status that an end mode records."""

    request: EventType
    event: EventType
    status: RunStatus


_END_EVENTS = {
    EndMode.CANCEL: EndEvents(EventType.CANCEL_REQUESTED, EventType.WORKFLOW_CANCELLED, RunStatus.CANCELLED),
    EndMode.TERMINATE: EndEvents(
        EventType.TERMINATE_REQUESTED, EventType.WORKFLOW_TERMINATED, RunStatus.TERMINATED
    ),
}


class EndResult(Struct, frozen=True):
    """The result of a request to end a run: it was closed, or its code was asked to cancel."""

    run: Run
    outcome: str


CANCEL_REQUESTED_OUTCOME = "cancel_requested"


async def end_run(
    ctx: EngineContext,
    namespace: str,
    workflow_id: str,
    end: EndMode,
    reason: str | None,
    run_id: RunId | None = None,
    request_id: str | None = None,
    chain: RunId | None = None,
) -> EndResult:
    """Cancel or terminate a run.

    Concurrent code, and code whose start asked for it, receives a cancel request and closes the run itself. Otherwise
    the run is closed at once without running code; running activities learn at their next report. A request repeated
    under its id gets the receipt of the first.
    """
    request = IdempotentRequest(end.value, "", Blob(""), request_id)
    address = Address(namespace, workflow_id, run_id, chain)

    async def act(tx: Tx, run: Run) -> EndResult:
        before = await retained(tx, namespace, workflow_id, request, run if address.is_bound else None)
        if before is not None:
            accepted_by = await tx.runs.get(RunId(before.get("run_id", run.run_id)))
            return EndResult(accepted_by or run, str(before["outcome"]))
        check_open(run)
        run = await end_open(ctx, tx, run, end, reason)
        outcome = CANCEL_REQUESTED_OUTCOME if run.is_open else run.status.value
        receipt = {"command_id": command_id(run, end), "outcome": outcome, "run_id": run.run_id}
        retain(tx, run, request, receipt)
        return EndResult(run, outcome)

    return await on_run(ctx, address, act)


async def end_open(ctx: EngineContext, tx: Tx, run: Run, end: EndMode, reason: str | None) -> Run:
    """Close a locked, open run, or deliver the cancel request to its code. One that waits to start has nothing to clean
    up: it is closed.
    """
    if end is EndMode.CANCEL and run.waits.receives_cancel and not run.waits.to_start:
        run = await request_cancel(ctx, tx, run, reason)
        tx.runs.save(run)
        return run
    return await close_now(ctx, tx, run, end, reason)


async def request_cancel(ctx: EngineContext, tx: Tx, run: Run, reason: str | None) -> Run:
    """Deliver a cancel request to the run's code, once; the caller saves the run.

    A delayed first workflow task becomes ready.
    """
    waiting = run.waits
    if waiting.cancelling:
        return run
    run = replace(run, waits=replace(waiting, cancelling=True))
    reason_text = reason or f"{EndMode.CANCEL.value} requested"
    run = await record_external_event(tx, run, [_requested(ctx, run, EndMode.CANCEL, reason_text)])
    if not waiting.concurrent:
        await make_ready(tx, run)
    return run


async def make_ready(tx: Tx, run: Run) -> None:
    """End the delay of a run's plain workflow task, if it has one. Under a cap on runs it waits on."""
    if run.waits.to_start:
        return
    live = await tx.tasks.lock_workflow_task(run.run_id)
    if live is not None and live.state is TaskState.DELAYED and live.update_id is None:
        requeue(tx, run, replace(live, state=TaskState.READY, available_at_ms=tx.now_ms), TaskState.DELAYED)


async def close_cancelled(ctx: EngineContext, tx: Tx, run: Run) -> Run:
    """Close a run with a pending cancel request whose code turned out to be stepwise and cannot handle it."""
    reason_text = await _cancel_reason(tx, run)
    run, _ = await flush_buffered_events(tx, run)
    return await _close(ctx, tx, run, EndMode.CANCEL, reason_text, [])


async def _cancel_reason(tx: Tx, run: Run) -> str:
    """The reason in the run's cancel request, from its history or its buffered events."""
    for event in await tx.histories.buffered(run.run_id) if run.buffered else ():
        if event.type == EventType.CANCEL_REQUESTED:
            return str(event.payload["reason"])
    asked = await tx.histories.last_of_type(run.run_id, [EventType.CANCEL_REQUESTED])
    assert asked is not None, "a cancelling run has a cancel request in its history"
    return str(json_text.read(asked.payload)["reason"])


async def close_now(ctx: EngineContext, tx: Tx, run: Run, end: EndMode, reason: str | None) -> Run:
    """Close a locked, open run without running its code."""
    reason_text = reason or f"{end.value} requested"
    run, _ = await flush_buffered_events(tx, run)
    return await _close(ctx, tx, run, end, reason_text, [_requested(ctx, run, end, reason_text)])


def _requested(ctx: EngineContext, run: Run, end: EndMode, reason_text: str) -> NewEvent:
    payload = {
        "reason": reason_text,
        "command_type": end.value,
        "workflow_command_id": command_id(run, end),
    }
    return NewEvent(_END_EVENTS[end].request, payload | caused_by(ctx.caller))


def command_id(run: Run, end: EndMode) -> str:
    """The id of the command that ends a run; there is one of a kind."""
    return f"{run.run_id}-{end.value}"


async def _close(
    ctx: EngineContext,
    tx: Tx,
    run: Run,
    end: EndMode,
    reason_text: str,
    first: Sequence[NewEvent],
    overdue: CancellationRequest | None = None,
) -> Run:
    """Close a run without running its code. `overdue` is the request whose deadline closes it."""
    ending = _END_EVENTS[end]
    around = await close_open_work(tx, run)
    payload = {
        "reason": reason_text,
        "message": reason_text,
        "closed_reason": ending.status.value,
        "workflow_command_id": command_id(run, end),
    }
    if overdue is not None:
        payload |= {
            "message": "The code did not end in the time that it had to clean up.",
            "workflow_command_id": overdue.id,
            "cleanup_deadline_at": iso(overdue.deadline_at_ms),
        }
    last = NewEvent(ending.event, payload | caused_by(ctx.caller))
    run = append_last(tx, run, [*first, *around, last])
    run = closed(run, ending.status, ending.status.value, tx.now_ms)
    run = await settle(ctx, tx, run, last)
    tx.runs.save(run)
    return run


async def expire_run(ctx: EngineContext, run_id: RunId) -> bool:
    """Close a run whose execution or run timeout, or whose time to clean up, has passed."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_id)
        if run is None or not run.is_open or run.deadline_at_ms is None or run.deadline_at_ms > tx.now_ms:
            return False
        asked = run.waits.cancellation
        if asked is not None and asked.deadline_at_ms == run.deadline_at_ms:
            await _close_uncleaned(ctx, tx, run, asked)
            return True
        by_execution = run.execution_deadline_at_ms is not None and run.execution_deadline_at_ms <= tx.now_ms
        kind = "execution_timeout" if by_execution else "run_timeout"
        run, _ = await flush_buffered_events(tx, run)
        around = await close_open_work(tx, run)
        message = f"The run exceeded its {kind.replace('_', ' ')}."
        last = NewEvent(
            EventType.WORKFLOW_TIMED_OUT,
            {
                "timeout_kind": kind,
                "message": message,
                "failure_category": "timeout",
                "execution_deadline_at": iso_or_none(run.execution_deadline_at_ms),
                "run_deadline_at": iso_or_none(run.run_deadline_at_ms),
            },
        )
        run = append_last(tx, run, [*around, last])
        run = closed(run, RunStatus.FAILED, "timed_out", tx.now_ms)
        run = await settle(ctx, tx, run, last)
        tx.runs.save(run)
        return True

    return await ctx.store.transact(operation, key=run_id)


async def _close_uncleaned(ctx: EngineContext, tx: Tx, run: Run, asked: CancellationRequest) -> None:
    """Close a run as cancelled whose code did not end in the time that it had to clean up."""
    run, _ = await flush_buffered_events(tx, run)
    await _close(ctx, tx, run, EndMode.CANCEL, asked.reason or "cancellation requested", [], asked)


async def close_open_work(tx: Tx, run: Run, *, but: TaskId | None = None) -> Sequence[NewEvent]:
    """Cancel every live task, open activity and open timer of a run; returns the events for that.

    `but` is the workflow task that closes the run: besides it only open activities have live tasks.
    """
    events: list[NewEvent] = []
    for task in await tx.tasks.lock_live_of(run.run_id) if but is None or run.open_activities else ():
        if task.task_id != but:
            tx.tasks.save(freed(task, TaskState.CANCELLED, available_at_ms=task.available_at_ms), task.state)
    if run.open_activities:
        for activity in await tx.activities.open_of(run.run_id):
            ended = replace(
                activity, status=ActivityStatus.CANCELLED, closed_at_ms=tx.now_ms, deadline_at_ms=None
            )
            tx.activities.save(ended)
            events.append(
                NewEvent(
                    EventType.ACTIVITY_CANCELLED,
                    activity_payload(ended)
                    | {"message": "The run was closed.", "failure_category": "cancelled"},
                )
            )
    if run.open_timers:
        for timer in await tx.timers.open_of(run.run_id):
            tx.timers.save(replace(timer, state=TimerState.CANCELLED))
            events.append(NewEvent(EventType.TIMER_CANCELLED, timer_payload(timer)))
    return events


async def settle(
    ctx: EngineContext,
    tx: Tx,
    run: Run,
    last: NewEvent,
    successor: Successor | None = None,
    cursors: Sequence[Cursor] = (),
    given_up: Collection[int] = (),
    answered: Collection[str] = (),
) -> Run:
    """Notify a closed run's children and parent, fail its open updates, or begin its successor.

    A failed child whose retry policy allows it gets another attempt instead of notifying its parent. `cursors` are the
    stream positions and `answered` the updates of the last workflow task; `given_up` are its cancelled steps.
    """
    await outbox.notify_children(tx, run, given_up)
    if successor is None and run.status is RunStatus.FAILED:
        successor = _next_attempt(ctx, run, last, tx.now_ms)
    if successor is None:
        await _fail_updates(tx, run, answered)
        outbox.notify_parent(tx, run, last)
        report_closed(tx, run)
        run_places.give_back(ctx, tx, run)
    else:
        moved = await carry_over(tx, run, successor.run, cursors, answered)
        successor = replace(successor, run=run_places.hand_on(tx, run, successor.run))
        unique_starts.hand_on(tx, run, successor.run)
        await begin(tx, run, successor, moved)
    if run.buffered:
        tx.histories.clear_buffer(run.run_id)
    return with_nothing_open(run)


def _next_attempt(ctx: EngineContext, run: Run, last: NewEvent, now_ms: int) -> Successor | None:
    if run.lineage == NO_LINEAGE or run.waits.cancelling or run.waits.cancellation is not None:
        return None
    kinds = [last.payload.get(name) for name in ("exception_type", "exception_class")]
    hopeless = bool(last.payload.get("non_retryable"))
    run_id = RunId(ctx.entropy.new_id())
    return lineage.retried(run, run_id, tuple(str(each) for each in kinds if each), hopeless, now_ms)


async def _fail_updates(tx: Tx, run: Run, answered: Collection[str]) -> None:
    if not run.open_updates:
        return
    outcome = to_json({"message": f"The run was {run.closed_reason} before the update was applied."})
    for update in await tx.updates.accepted_of(run.run_id):
        failed = replace(update, status=UpdateStatus.FAILED, outcome=outcome, closed_at_ms=tx.now_ms)
        if update.update_id not in answered:
            tx.updates.save(failed)


def with_nothing_open(run: Run) -> Run:
    """Reset the counters and waits of a closed run."""
    return replace(
        run,
        open_activities=0,
        open_timers=0,
        open_children=0,
        open_updates=0,
        buffered=0,
        unseen_signals=0,
        owed=0,
        waits=NO_WAITS,
        blocked=None,
    )
