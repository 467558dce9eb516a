"""Closing a run: what was open around it ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.core.history.decide import activity_payload, closed, timer_payload
from penstock.core.history.events import EventType
from penstock.core.model import (
    ActivityStatus,
    Event,
    Run,
    RunId,
    RunStatus,
    TaskId,
    TaskState,
    TimerState,
)
from penstock.core.scheduling.leases import freed
from penstock.core.timers import iso_or_none
from penstock.engine.house import House
from penstock.engine.recording import append, release_buffer
from penstock.errors import Conflict, NotFound, Reason
from penstock.ports.store import Tx


class End(StrEnum):
    """How somebody outside the workflow code ends a run."""

    CANCEL = "cancel"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Ending:
    request: EventType
    event: EventType
    status: RunStatus


_ENDINGS = {
    End.CANCEL: Ending(EventType.CANCEL_REQUESTED, EventType.WORKFLOW_CANCELLED, RunStatus.CANCELLED),
    End.TERMINATE: Ending(EventType.TERMINATE_REQUESTED, EventType.WORKFLOW_TERMINATED, RunStatus.TERMINATED),
}


async def end_run(
    house: House, namespace: str, workflow_id: str, end: End, reason: str | None, run_id: RunId | None = None
) -> Run:
    """Close the current run at once; no workflow code runs. Running activities learn at their next report."""
    ending = _ENDINGS[end]

    async def find(tx: Tx) -> RunId:
        instance = await tx.runs.instance(namespace, workflow_id)
        if instance is None:
            raise NotFound(
                Reason.INSTANCE_NOT_FOUND, f"There is no workflow {workflow_id!r}.", workflow_id=workflow_id
            )
        if run_id is not None and run_id != instance.run_id:
            named = await tx.runs.get(run_id)
            if named is None or (named.namespace, named.workflow_id) != (namespace, workflow_id):
                raise NotFound(
                    Reason.RUN_NOT_FOUND,
                    f"Workflow {workflow_id!r} has no run {run_id!r}.",
                    workflow_id=workflow_id,
                    run_id=run_id,
                )
            raise Conflict(
                Reason.HISTORICAL_RUN_COMMAND_REJECTED,
                f"{run_id} is not the current run of {workflow_id!r}.",
                workflow_id=workflow_id,
                run_id=instance.run_id,
            )
        return instance.run_id

    current = await house.store.read(find)

    async def operation(tx: Tx) -> Run:
        run = await tx.runs.lock(current)
        assert run is not None
        if not run.is_open:
            raise Conflict(
                Reason.RUN_NOT_ACTIVE,
                f"The run is {run.status.value} already.",
                workflow_id=workflow_id,
                run_id=run.run_id,
                status=run.status.value,
                outcome="rejected_not_active",
            )
        run, _ = await release_buffer(tx, run)
        told = reason or f"{end.value} requested"
        around = await close_around(tx, run)
        events = [
            Event(ending.request, {"reason": told}),
            *around,
            Event(ending.event, {"reason": told, "message": told, "closed_reason": ending.status.value}),
        ]
        run = append(tx, run, events)
        run = nothing_open(closed(run, ending.status, ending.status.value, tx.now_ms))
        tx.runs.save(run)
        return run

    return await house.store.transact(operation, key=current)


async def expire_run(house: House, run_id: RunId) -> bool:
    """Close a run whose execution or run timeout has passed."""

    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_id)
        if run is None or not run.is_open or run.deadline_at_ms is None or run.deadline_at_ms > tx.now_ms:
            return False
        by_execution = run.execution_deadline_at_ms is not None and run.execution_deadline_at_ms <= tx.now_ms
        kind = "execution_timeout" if by_execution else "run_timeout"
        run, _ = await release_buffer(tx, run)
        await close_around(tx, run)
        payload = {
            "timeout_kind": kind,
            "message": f"The run exceeded its {kind.replace('_', ' ')}.",
            "failure_category": "timeout",
            "execution_deadline_at": iso_or_none(run.execution_deadline_at_ms),
            "run_deadline_at": iso_or_none(run.run_deadline_at_ms),
        }
        run = append(tx, run, [Event(EventType.WORKFLOW_TIMED_OUT, payload)])
        run = nothing_open(closed(run, RunStatus.FAILED, "timed_out", tx.now_ms))
        tx.runs.save(run)
        return True

    return await house.store.transact(operation, key=run_id)


async def close_around(tx: Tx, run: Run, *, but: TaskId | None = None) -> Sequence[Event]:
    """End every live task, open activity and open timer of a run; returns what its history may say of that."""
    events: list[Event] = []
    for task in await tx.tasks.lock_live_of(run.run_id):
        if task.task_id != but:
            tx.tasks.save(freed(task, TaskState.CANCELLED, available_at_ms=task.available_at_ms), task.state)
    if run.open_activities:
        for activity in await tx.activities.open_of(run.run_id):
            ended = replace(
                activity, status=ActivityStatus.CANCELLED, closed_at_ms=tx.now_ms, deadline_at_ms=None
            )
            tx.activities.save(ended)
            events.append(
                Event(
                    EventType.ACTIVITY_CANCELLED,
                    activity_payload(ended)
                    | {"message": "The run was closed.", "failure_category": "cancelled"},
                )
            )
    if run.open_timers:
        for timer in await tx.timers.open_of(run.run_id):
            tx.timers.save(replace(timer, state=TimerState.CANCELLED))
            events.append(Event(EventType.TIMER_CANCELLED, timer_payload(timer)))
    if run.buffered:
        tx.histories.clear_buffer(run.run_id)
    return events


def nothing_open(run: Run) -> Run:
    return replace(run, open_activities=0, open_timers=0, buffered=0)
