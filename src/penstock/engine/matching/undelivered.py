"""Undo a lease that was not delivered: the task waits again, and everything that its grant charged is refunded."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import structlog
from msgspec.structs import replace

from penstock.core.model import ActivityId, ActivityStatus, Queue, Run, Task, TaskState
from penstock.core.pauses import held_back
from penstock.core.scheduling import charges
from penstock.core.scheduling.charges import Charge
from penstock.core.scheduling.fairness import LaneState
from penstock.core.scheduling.gates import ScopeState
from penstock.core.scheduling.leases import UNDELIVERED, freed
from penstock.core.scheduling.polls import Leased
from penstock.core.scheduling.retries import waiting_deadline_at_ms
from penstock.core.timestamps import MINUTE_MS
from penstock.engine.context import EngineContext
from penstock.engine.runs.history_writer import requeue, requeue_workflow_task
from penstock.ports.store import TransactionClass, Tx

HAND_BACK_AGAIN_S = (0.1, 0.2, 0.5, 1.0)
"""Backoff of retries when a task cannot be handed back; the last one repeats."""
log = structlog.get_logger("penstock.dispatcher")


async def hand_all_back(ctx: EngineContext, leased: Sequence[Leased], draining: asyncio.Event) -> None:
    """Hand tasks back, from the last to the first: the refund of a rate relies on it (`rates.returned`)."""
    for each in reversed(leased):
        await _hand_back_with_retries(ctx, each, draining)


async def _hand_back_with_retries(ctx: EngineContext, leased: Leased, draining: asyncio.Event) -> None:
    """Hand one task back, again while the store fails; an expired lease is left to its sweeper."""
    loop = asyncio.get_running_loop()
    lease_ms = (leased.task.lease_expires_at_ms or 0) - (leased.task.leased_at_ms or 0)
    gives_up_at = loop.time() + lease_ms / 1000
    for wait_s in itertools.chain(HAND_BACK_AGAIN_S, itertools.repeat(HAND_BACK_AGAIN_S[-1])):
        try:
            await hand_back(ctx, leased)
            return
        except Exception as error:
            if draining.is_set() or loop.time() + wait_s >= gives_up_at:
                log.warning(
                    "a task that was not delivered cannot be handed back; its lease will expire",
                    task_id=leased.task.task_id,
                    error=repr(error),
                )
                return
        await asyncio.sleep(wait_s)


async def hand_back(ctx: EngineContext, leased: Leased) -> None:
    """Undo a lease that was not delivered: the task waits again, no attempt is charged, and its charge is refunded.

    All of it happens in one transaction, once: a lease that has ended, or was delivered again, is left alone.
    """
    queue_id, task_id = leased.task.queue_id, leased.task.task_id
    token, delivered = leased.task.lease_token, leased.task.leased_at_ms

    async def operation(tx: Tx) -> None:
        queue = await tx.queues.lock(queue_id)
        assert queue is not None, "a task that was leased has a queue"
        scopes = await _charged_scopes(tx, leased)
        run = await tx.runs.lock(leased.task.run_id)
        task = await tx.tasks.lock(task_id)
        if run is None or task is None or (task.lease_token, task.leased_at_ms) != (token, delivered):
            return
        charge = leased.charge or charges.of_row(queue, task, scopes)
        await _refund(tx, queue, task, scopes, charge)
        if task.activity_id is not None:
            await _hand_back_activity(tx, run, task, task.activity_id)
            return
        rested = await requeue_workflow_task(tx, run, _undelivered(task, tx.now_ms))
        if rested != run:
            tx.runs.save(rested)

    await ctx.store.transact(operation, key=f"queue:{queue_id}", tx_class=TransactionClass.PERMIT)


async def _charged_scopes(tx: Tx, leased: Leased) -> Sequence[ScopeState]:
    """The scopes that the grant was counted in, locked."""
    if leased.charge is not None:
        ids = [each.scope_id for each in leased.charge.scopes]
    else:
        ids = [int(scope_id) for scope_id in leased.task.scopes.split()]
    return await tx.scopes.lock(ids) if ids else ()


async def _refund(tx: Tx, queue: Queue, task: Task, scopes: Sequence[ScopeState], charge: Charge) -> None:
    """Record what the queue, its key, its lane, its scopes and its meters count without this grant."""
    queue_id, key = queue.queue_id, None
    if charge.key_rate is not None:
        key = (await tx.policies.key_states(queue_id, [task.key])).get(task.key)
    refund = charges.refund(queue, key, scopes, charge, tx.now_ms)
    if (refund.paid_until_ns, refund.window) != (queue.paid_until_ns, queue.window):
        tx.policies.settle(queue_id, refund.paid_until_ns, queue.aging_turn, refund.window)
    if refund.key_paid_until_ns is not None:
        tx.policies.spend(queue_id, task.key, refund.key_paid_until_ns, 0)
        tx.policies.touch_key(queue_id, task.key, LaneState.DIRTY)
    for state in refund.scopes:
        tx.scopes.settle(state)
    minute = charge.granted_at_ms // MINUTE_MS
    tx.queues.refund(queue_id, task.level, task.key, charge.stride, minute)
    if tx.now_ms // MINUTE_MS - minute <= 1:  # older meters may be deleted already
        tx.queues.count_dispatches(queue_id, minute, -1)


def _undelivered(task: Task, now_ms: int) -> Task:
    freed_task = freed(task, TaskState.READY, available_at_ms=now_ms, how=UNDELIVERED)
    return replace(freed_task, ended_refunded=True)


async def _hand_back_activity(tx: Tx, run: Run, task: Task, activity_id: ActivityId) -> None:
    again = held_back(run, _undelivered(replace(task, attempt=task.attempt - 1), tx.now_ms))
    activity = await tx.activities.get(activity_id)
    assert activity is not None
    waiting = replace(activity, status=ActivityStatus.PENDING, attempt=again.attempt, started_at_ms=None)
    deadline = waiting_deadline_at_ms(waiting, again.available_at_ms)
    tx.activities.save(replace(waiting, deadline_at_ms=deadline))
    requeue(tx, run, again, TaskState.LEASED)
