"""Activities that are completed from outside their worker: letting go of an attempt, and reporting it by its id.

The worker gives up its lease, but the lease goes on (`core.scheduling.leases.detached`): the token stays, so that the
attempt is still the same, and so do all counts of caps and budgets. The timeouts of the activity end it as ever.
Reports use the transactions of worker reports, in the name of the lease's owner. A report may come before the worker
has let go: it counts, and the worker finds its lease ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from penstock.core.model import ActivityId, Blob, Task, TaskId, TaskState, run_of
from penstock.core.operations import journal_lines
from penstock.core.scheduling.leases import ASYNC_OWNER, Report, detached
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_control import no_activity
from penstock.engine.activities.activity_reports import ActivityReceipt, AttemptFailure, Heartbeat
from penstock.engine.context import EngineContext
from penstock.engine.runs.run_lookup import locate_activity
from penstock.errors import LeaseLost, Reason
from penstock.ports.store import Tx
from penstock.ports.wakeups import queue_topic

T = TypeVar("T")
_TRIES = 3


class ActivityAddress(Struct, frozen=True):
    """An activity, and which of its attempts is meant.

    Args:
        namespace: its namespace.
        activity_id: the id of a standalone activity, or the id of an activity in a history.
        workflow_id: its workflow, to be checked.
        run_id: its run, to be checked.
        attempt_id: the attempt; None: the one that runs.
    """

    namespace: str
    activity_id: str
    workflow_id: str | None = None
    run_id: str | None = None
    attempt_id: str | None = None


async def detach(ctx: EngineContext, namespace: str, task_id: TaskId, report: Report) -> Task:
    """Free the slot of a worker whose activity is completed by others. Sent again, it changes nothing."""

    async def operation(tx: Tx) -> Task:
        task = await tx.tasks.get(task_id)
        if task is not None and (task.lease_owner, task.lease_token) == (ASYNC_OWNER, report.token):
            return task
        held = await activity_reports.held_by(ctx, tx, namespace, task_id, report)
        activity_reports.check_started(held.task)
        free = detached(held.task)
        tx.tasks.save(free, TaskState.LEASED)
        if ctx.store.journals:
            tx.journal.append(journal_lines.renewed(free, tx.now_ms))
        tx.wake(queue_topic(free.queue_id))
        return free

    return await ctx.store.transact(operation, key=run_of(task_id))


async def complete(
    ctx: EngineContext, address: ActivityAddress, result: Blob, digest: str
) -> ActivityReceipt:
    """Record the result of an activity."""

    async def report(task_id: TaskId, by: Report) -> ActivityReceipt:
        made = activity_reports.completion_transaction(ctx, address.namespace, task_id, by, result)
        return activity_reports.check_recorded(await ctx.store.transact(made.operation, key=made.key))

    return await _reported(ctx, address, digest, report)


async def fail(
    ctx: EngineContext, address: ActivityAddress, failure: AttemptFailure, digest: str
) -> ActivityReceipt:
    """Record a failed attempt, or that it stopped as it was asked to (`cancelled` of the failure)."""
    return await _reported(
        ctx,
        address,
        digest,
        lambda task_id, by: activity_reports.fail(ctx, address.namespace, task_id, by, failure),
    )


async def heartbeat(
    ctx: EngineContext, address: ActivityAddress, details: str | None, digest: str
) -> Heartbeat:
    """Restart the heartbeat timeout of an activity, and learn whether it should stop."""
    return await _reported(
        ctx,
        address,
        digest,
        lambda task_id, by: activity_reports.heartbeat(ctx, address.namespace, task_id, by, details),
    )


async def _reported(
    ctx: EngineContext,
    address: ActivityAddress,
    digest: str,
    report: Callable[[TaskId, Report], Awaitable[T]],
) -> T:
    """The outcome of a report in the name of the lease's owner, who may change while it is on its way."""
    for tries_left in reversed(range(_TRIES)):
        task = await ctx.store.read(lambda tx: _find(tx, address))
        try:
            return await report(task.task_id, _report(task, address.attempt_id, digest))
        except LeaseLost as refusal:
            if refusal.reason is not Reason.LEASE_OWNER_MISMATCH or not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


async def _find(tx: Tx, address: ActivityAddress) -> Task:
    found = await locate_activity(tx, address.namespace, address.activity_id)
    if found is None:
        raise no_activity(address.activity_id)
    run, activity = found
    wanted = (address.workflow_id or run.workflow_id, address.run_id or run.run_id)
    if wanted != (run.workflow_id, run.run_id):
        raise no_activity(address.activity_id)
    task = await tx.tasks.get(activity.task_id)
    assert task is not None, f"activity {ActivityId(activity.activity_id)} has a task"
    return task


def _report(task: Task, attempt_id: str | None, digest: str) -> Report:
    """A report by the owner of the lease, or by the one whose report of the same attempt was accepted before."""
    token = attempt_id or task.lease_token
    if token is None:
        raise LeaseLost(
            Reason.TASK_NOT_LEASED,
            "No attempt of the activity runs, so there is nothing to report. It waits, or has ended.",
            task_status=task.state.value,
        )
    owner, _, reported = (task.done_token or "").rpartition("/")
    if task.lease_token is None and reported == token:
        return Report(owner, token, digest)
    return Report(task.lease_owner or ASYNC_OWNER, token, digest)
