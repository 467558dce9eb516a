"""Makes due delayed tasks ready, within the retry budget."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import TaskId, TaskState, run_of
from penstock.engine.activities import retry_budget
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import Sweeper
from penstock.engine.runs.history_writer import requeue_due
from penstock.ports.store import Tx
from penstock.ports.tables.next_due import Due


def due_tasks(ctx: EngineContext) -> Sweeper[TaskId]:
    return Sweeper("due_tasks", ctx, _find, _make_ready, awaits=Due.TASK, prompt=True)


async def _find(ctx: EngineContext, limit: int) -> Sequence[TaskId]:
    return await ctx.store.read(lambda tx: tx.tasks.due(tx.now_ms, limit))


async def _make_ready(ctx: EngineContext, task_id: TaskId) -> bool:
    async def operation(tx: Tx) -> bool:
        task = await tx.tasks.lock(task_id)
        if task is None or task.state is not TaskState.DELAYED or task.available_at_ms > tx.now_ms:
            return False
        again = await retry_budget.placed(tx, task)
        await retry_budget.move_deadline(tx, again)
        requeue_due(tx, again, TaskState.DELAYED)
        return True

    return await ctx.store.transact(operation, key=run_of(task_id))
