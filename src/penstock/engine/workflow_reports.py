"""What workers report on workflow tasks: complete, fail, heartbeat, and lost leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from penstock.core import journal
from penstock.core.history.commands import Command
from penstock.core.history.decide import advance
from penstock.core.model import Run, RunId, Task, TaskId, TaskKind, TaskState, run_of
from penstock.core.model import task_id as numbered
from penstock.core.scheduling.leases import (
    Report,
    answered,
    check_workflow_report,
    freed,
    renew,
    repeated,
)
from penstock.core.scheduling.retries import workflow_task_backoff_ms
from penstock.engine.closing import close_around, nothing_open
from penstock.engine.house import House
from penstock.engine.recording import (
    DUE_BELL,
    append,
    line_up,
    line_up_activity,
    put_back,
    release_buffer,
)
from penstock.errors import LeaseLost, Reason
from penstock.ports.store import Tx

WAITING_FOR_HISTORY = "WorkflowTaskWaitingForHistory"
"""The failure type by which an SDK says that replay gave no new command: an acknowledgement, not a failure."""
ERROR_CHARS_MAX = 4_000


class TaskOutcome(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    WAITING_FOR_HISTORY = "waiting_for_history"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a report brought about; the same report sent again gets the same receipt."""

    task: Task
    run: Run
    outcome: str
    created: tuple[TaskId, ...] = ()
    repeated: bool = False


async def complete(
    house: House, namespace: str, task_id: TaskId, report: Report, commands: Sequence[Command]
) -> Receipt:
    """Apply the commands of a workflow task: all of their events and tasks, or none."""

    async def operation(tx: Tx) -> Receipt:
        task, run, before = await _open(house, tx, namespace, task_id, report)
        if before is not None:
            return before
        if run.deadline_at_ms is not None and run.deadline_at_ms <= tx.now_ms:
            raise LeaseLost(
                Reason.RUN_TIMED_OUT, "The run's deadline has passed.", run_status=run.status.value
            )
        step = advance(run, commands, house.bounds, tx.now_ms)
        run = append(tx, step.run, step.events, task.task_id)
        created = [activity.task_id for activity in step.activities]
        if run.is_open:
            for activity, standing in zip(step.activities, step.standings, strict=True):
                await line_up_activity(tx, run, activity, standing)
            for timer in step.timers:
                tx.timers.insert(timer)
            if step.timers:
                tx.wake(DUE_BELL)
            run, woken = await release_buffer(tx, run)
            if woken:
                run = await line_up(tx, run)
                created.append(numbered(run.run_id, run.last_task))
        else:
            await close_around(tx, run, but=task.task_id)
            run = nothing_open(run)
            created = []
        done = answered(task, report, TaskState.DONE, TaskOutcome.COMPLETED, task.available_at_ms)
        tx.tasks.save(done, TaskState.LEASED)
        tx.runs.save(run)
        return Receipt(done, run, TaskOutcome.COMPLETED, tuple(created))

    return await house.store.transact(operation, key=run_of(task_id))


async def fail(
    house: House, namespace: str, task_id: TaskId, report: Report, message: str, failure_type: str | None
) -> Receipt:
    """A workflow task that could not be decided rests and is tried again; the run stays open.

    A failure that only says "nothing new" ends the task quietly.
    """

    async def operation(tx: Tx) -> Receipt:
        task, run, before = await _open(house, tx, namespace, task_id, report)
        if before is not None:
            return before
        if failure_type == WAITING_FOR_HISTORY:
            done = answered(
                task, report, TaskState.DONE, TaskOutcome.WAITING_FOR_HISTORY, task.available_at_ms
            )
            tx.tasks.save(done, TaskState.LEASED)
            run, woken = await release_buffer(tx, replace(run, task_failures=0, task_error=None))
            if woken:
                run = await line_up(tx, run)
            tx.runs.save(run)
            return Receipt(done, run, TaskOutcome.WAITING_FOR_HISTORY)
        failures = run.task_failures + 1
        told = f"{failure_type}: {message}" if failure_type else message
        at_ms = tx.now_ms + workflow_task_backoff_ms(failures)
        resting = replace(
            answered(task, report, TaskState.DELAYED, TaskOutcome.FAILED, at_ms),
            last_error=told[:ERROR_CHARS_MAX],
        )
        run, _ = await release_buffer(
            tx, replace(run, task_failures=failures, task_error=told[:ERROR_CHARS_MAX])
        )
        put_back(tx, resting, TaskState.LEASED)
        tx.runs.save(run)
        return Receipt(resting, run, TaskOutcome.FAILED)

    return await house.store.transact(operation, key=run_of(task_id))


async def heartbeat(house: House, namespace: str, task_id: TaskId, report: Report) -> Receipt:
    async def operation(tx: Tx) -> Receipt:
        task, run, _ = await _open(house, tx, namespace, task_id, report, may_repeat=False)
        renewed = renew(task, tx.now_ms, house.settings.leases.workflow_lease_ms)
        tx.tasks.save(renewed, TaskState.LEASED)
        if house.journals:
            tx.journal.append(journal.renewed(renewed, tx.now_ms))
        tx.workers.touch(namespace, report.owner, tx.now_ms)
        return Receipt(renewed, run, "renewed")

    return await house.store.transact(operation, key=run_of(task_id))


async def hold(house: House, namespace: str, task_id: TaskId, report: Report) -> Receipt:
    """Check that the caller holds the lease (it wants more pages of the history)."""

    async def operation(tx: Tx) -> Receipt:
        task, run, _ = await _open(house, tx, namespace, task_id, report, may_repeat=False, lock=False)
        return Receipt(task, run, "held")

    return await house.store.read(operation)


async def reclaim(house: House, task_id: TaskId, *, expired_only: bool = True) -> bool:
    """Take back the lease of a workflow task that nobody renewed, or whose worker has left."""

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
        run, _ = await release_buffer(tx, run)
        again = freed(
            task,
            TaskState.READY,
            available_at_ms=tx.now_ms,
            error=f"lease of {task.lease_owner} " + ("expired" if expired_only else "returned"),
            how="expired" if expired_only else "handed_back",
        )
        put_back(tx, again, TaskState.LEASED)
        tx.runs.save(run)
        return True

    return await house.store.transact(operation, key=run_of(task_id))


async def _open(
    house: House,
    tx: Tx,
    namespace: str,
    task_id: TaskId,
    report: Report,
    *,
    may_repeat: bool = True,
    lock: bool = True,
) -> tuple[Task, Run, Receipt | None]:
    """The task and its run if the reporter holds the live lease, or the receipt of the same report before."""
    run_id: RunId = run_of(task_id)
    run = await (tx.runs.lock(run_id) if lock else tx.runs.get(run_id))
    task = await (tx.tasks.lock(task_id) if lock else tx.tasks.get(task_id))
    if may_repeat and task is not None and run is not None and task.namespace == namespace:
        outcome = repeated(task, report)
        if outcome is not None:
            return task, run, Receipt(task, run, outcome, repeated=True)
    now_ms = tx.now_ms - house.standstill.excused_ms
    task = check_workflow_report(task, run, namespace, report, now_ms)
    assert run is not None
    return task, run, None
