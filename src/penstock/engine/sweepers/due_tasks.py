"""Delayed tasks (retries that rested) whose moment has come."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.model import TaskId, TaskState, run_of
from penstock.engine import retry_budget
from penstock.engine.house import House
from penstock.engine.recording import put_back
from penstock.engine.sweepers.sweeper import Sweeper
from penstock.ports.outlook import Due
from penstock.ports.store import Tx


def due_tasks(house: House) -> Sweeper[TaskId]:
    return Sweeper("due_tasks", house, _find, _mend, awaits=Due.TASK, prompt=True)


async def _find(house: House, limit: int) -> Sequence[TaskId]:
    async def operation(tx: Tx) -> Sequence[TaskId]:
        return await tx.tasks.due(tx.now_ms, limit)

    return await house.store.read(operation)


async def _mend(house: House, task_id: TaskId) -> bool:
    async def operation(tx: Tx) -> bool:
        task = await tx.tasks.lock(task_id)
        if task is None or task.state is not TaskState.DELAYED or task.available_at_ms > tx.now_ms:
            return False
        again = await retry_budget.placed(tx, task)
        await retry_budget.move_deadline(tx, again)
        put_back(tx, again, TaskState.DELAYED)
        return True

    return await house.store.transact(operation, key=run_of(task_id))
