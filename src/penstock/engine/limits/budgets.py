"""Budget groups: settling estimated against actual cost, and closing a group that was throttled upstream."""

from __future__ import annotations

from penstock.core.limits.admission import EVERYWHERE, group_scope
from penstock.core.model import Queue, Task, TaskId
from penstock.core.scheduling.gates import cooled
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission
from penstock.ports.store import Tx
from penstock.ports.wakeups import queue_topic


def settle_cost(tx: Tx, task: Task, cost: int | None) -> None:
    """Correct the budgets that a task's grant charged by its actual cost. None: the estimate stands."""
    if cost is None or cost == task.cost:
        return
    at_ms = tx.now_ms if cost > task.cost else task.granted_at_ms or tx.now_ms
    for scope_id in task.scopes.split():
        tx.scopes.settle_cost(int(scope_id), at_ms, cost - task.cost)
    tx.wake(queue_topic(task.queue_id))


async def make_closable(ctx: EngineContext, task_id: TaskId) -> None:
    """Ensure that the task's budget group, if it has one, is a scope that all its queues check."""

    async def missing(tx: Tx) -> str | None:
        task = await tx.tasks.get(task_id)
        queue = None if task is None else await _queue_of(tx, task)
        if queue is None or queue.limits.group is None:
            return None
        name = _closed_scope(queue)
        return None if any(each.name == name for each in queue.limits.scopes) else name

    name = await ctx.store.read(missing)
    if name is not None:
        await admission.create_scope(ctx, name)


async def close(tx: Tx, task: Task, retry_after_ms: int) -> int:
    """Close the task's budget group for `retry_after_ms` on every server; returns until when."""
    until_ms = cooled(None, tx.now_ms, retry_after_ms)
    queue = await _queue_of(tx, task)
    if queue is not None and queue.limits.group is not None:
        (scope_id,) = await tx.scopes.ids([_closed_scope(queue)])
        tx.scopes.cool(scope_id, until_ms)
    return until_ms


def _closed_scope(queue: Queue) -> str:
    """The scope to close: the group shared by all namespaces if there is one of that name, else the namespace's."""
    assert queue.limits.group is not None
    shared = group_scope(EVERYWHERE, queue.limits.group)
    if any(each.name == shared for each in queue.limits.scopes):
        return shared
    return group_scope(queue.namespace, queue.limits.group)


async def _queue_of(tx: Tx, task: Task) -> Queue | None:
    queues = await tx.queues.find(task.namespace, task.task_queue)
    return next((queue for queue in queues if queue.kind is task.kind), None)
