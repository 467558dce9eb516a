"""Permits: a prefetched task passes the limits when it starts to run.

A worker that prefetches holds short leases that no limit counts, because limits are about running tasks. Before it runs
such a task it requests a permit here, which is checked by the same gates and under the same locks as a grant. A worker
that has lost the lease gets none.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.model import Activity, Queue, Run, Task, TaskId, run_of
from penstock.core.operations import journal_lines
from penstock.core.scheduling import dispatch
from penstock.core.scheduling.charges import NO_SCOPES, uncharged
from penstock.core.scheduling.dispatch import Hold, HoldReason
from penstock.core.scheduling.gates import ScopeState, charged, counted_by
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.slots import free_slots
from penstock.engine.activities.activity_reports import held_by
from penstock.engine.context import EngineContext
from penstock.engine.matching.record import begun, record_scopes
from penstock.engine.matching.snapshot import lease_count, lock_scopes, worker_loads
from penstock.ports.store import TransactionClass, Tx


class Permit(Struct, frozen=True):
    """A started task, or the hold that keeps it from starting."""

    task: Task
    run: Run
    activity: Activity
    hold: Hold | None = None
    now_ms: int = 0


async def start(
    ctx: EngineContext, namespace: str, task_id: TaskId, report: Report, lease_ms: int | None = None
) -> Permit:
    """Start a prefetched task. Idempotent: a task that already runs gets its permit again."""

    task = await ctx.store.read(lambda tx: tx.tasks.get(task_id))
    queue_id = None if task is None else task.queue_id

    async def operation(tx: Tx) -> Permit:
        queue = None if queue_id is None else await tx.queues.lock(queue_id)
        scopes = NO_SCOPES if queue is None else await lock_scopes(tx, queue)
        running = 0 if queue is None else await lease_count(tx, queue)
        held = await held_by(ctx, tx, namespace, task_id, report)
        permit = Permit(held.task, held.run, held.activity, now_ms=tx.now_ms)
        assert queue is not None, "a task that is held has a queue"
        if not held.task.claimed:
            record_scopes(tx, uncharged(queue, scopes, tx.now_ms))
            return permit
        hold = await _at_its_slots(tx, held.task) or _hold(
            ctx, queue, running, scopes.states, held.task, tx.now_ms
        )
        if hold is None:
            return _begin(ctx, tx, queue, scopes.states, permit, lease_ms)
        record_scopes(tx, uncharged(queue, scopes, tx.now_ms))
        return replace(permit, hold=hold)

    return await ctx.store.transact(
        operation, key=f"queue:{queue_id or run_of(task_id)}", tx_class=TransactionClass.PERMIT
    )


async def _at_its_slots(tx: Tx, task: Task) -> Hold | None:
    """The hold of a worker whose slots are all in use."""
    worker = await tx.workers.get(task.namespace, task.lease_owner or "")
    if worker is None:
        return None
    loads = await worker_loads(tx, [worker], task.kind)
    return None if free_slots(worker, task.kind, loads[worker.worker_id]) else Hold(HoldReason.SLOTS)


def _hold(
    ctx: EngineContext, queue: Queue, running: int, states: Mapping[str, ScopeState], task: Task, now_ms: int
) -> Hold | None:
    if queue.is_limited and not ctx.coordination.is_supported:
        return Hold(HoldReason.UNAVAILABLE)
    paid = replace(queue, paid_until_ns=0)  # the claim paid for the queue's rate already
    allowed = dispatch.allowance(paid, running, now_ms, states, task.cost)
    return allowed if isinstance(allowed, Hold) else None


def _begin(
    ctx: EngineContext,
    tx: Tx,
    queue: Queue,
    states: Mapping[str, ScopeState],
    permit: Permit,
    asked_ms: int | None,
) -> Permit:
    task = permit.task
    scopes = [charged(rules, states[rules.name], 1, task.cost, tx.now_ms) for rules in queue.limits.scopes]
    record_scopes(tx, scopes)
    _, window = dispatch.charged_queue(queue, 1, tx.now_ms)
    if window != queue.window:
        tx.policies.settle(queue.queue_id, queue.paid_until_ns, queue.aging_turn, window)
    longest_ms = ctx.settings.leases.activity_lease_ms
    lease_ms = min(asked_ms or longest_ms, longest_ms)
    started = replace(
        task,
        claimed=0,
        counted=task.counted or (2 if queue.rules.lease_cap is not None else 0),
        scopes=counted_by(scopes),
        lease_expires_at_ms=max(task.lease_expires_at_ms or 0, tx.now_ms + lease_ms),
        leased_at_ms=tx.now_ms,
        granted_at_ms=tx.now_ms,
    )
    activity = begun(permit.activity, started, tx.now_ms)
    tx.tasks.save(started, task.state)
    tx.activities.save(activity)
    if ctx.store.journals:
        tx.journal.append(journal_lines.started(queue, started, scopes, tx.now_ms))
    return replace(permit, task=started, activity=activity)
