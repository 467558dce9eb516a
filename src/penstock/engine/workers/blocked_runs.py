"""Retrying runs blocked by non-determinism when a worker with other code registers."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from penstock.core.history.divergence import may_fit
from penstock.core.model import RunId, TaskState, WorkerRecord
from penstock.engine.context import EngineContext
from penstock.engine.runs.history_writer import requeue
from penstock.ports.store import Tx

AT_ONCE_MAX = 500
"""Runs beyond this wait for the end of their backoff, at most a minute."""


async def unblock(ctx: EngineContext, worker: WorkerRecord) -> int:
    """Make the blocked runs ready that a newly registered worker may be able to replay; returns how many."""

    async def find(tx: Tx) -> list[RunId]:
        return list(await tx.runs.blocked(worker.namespace, worker.task_queue, AT_ONCE_MAX))

    found = await ctx.store.read(find)
    unblocked = await asyncio.gather(*(_unblock(ctx, worker, run_id) for run_id in found))
    return sum(unblocked)


async def _unblock(ctx: EngineContext, worker: WorkerRecord, run_id: RunId) -> bool:
    async def operation(tx: Tx) -> bool:
        run = await tx.runs.lock(run_id)
        task = await tx.tasks.lock_workflow_task(run_id)
        if run is None or run.blocked is None or task is None or task.state is not TaskState.DELAYED:
            return False
        if not may_fit(run.blocked, run.workflow_type, worker):
            return False
        requeue(tx, run, replace(task, state=TaskState.READY, available_at_ms=tx.now_ms), TaskState.DELAYED)
        return True

    return await ctx.store.transact(operation, key=run_id)
