"""Operations that the contract suite runs again and again."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.core.model import Queue, QueueId, Task, TaskKind
from penstock.core.scheduling.dispatch import Fit, Hold, QueueSnapshot, decide, settle
from penstock.ports.store import Line, Store, Tx
from tests.support.builders import leased, standing_of

T = TypeVar("T")
ANYTHING = Fit(types=(), build_id=None)
_tokens = itertools.count(1)


async def record(store: Store, write: Callable[[Tx], object], key: str = "test") -> None:
    """Run an operation that decides nothing and records what `write` says."""

    async def operation(tx: Tx) -> None:
        write(tx)

    await store.transact(operation, key=key)


async def look(store: Store, question: Callable[[Tx], Awaitable[T]]) -> T:
    """Ask one thing of what is committed."""

    async def operation(tx: Tx) -> T:
        return await question(tx)

    return await store.read(operation)


async def a_queue(store: Store, kind: TaskKind = TaskKind.ACTIVITY, name: str = "orders") -> Queue:
    async def operation(tx: Tx) -> Queue:
        return await tx.queues.ensure("default", name, kind)

    return await store.transact(operation, key=f"queue:{name}")


async def enqueue(store: Store, *tasks: Task, weight_milli: int = 1000) -> None:
    """Put tasks in line, one operation for all."""

    def write(tx: Tx) -> None:
        for task in tasks:
            tx.tasks.insert(task, standing_of(task, weight_milli))

    await record(store, write, key=str(tasks[0].run_id))


async def claim(
    store: Store, queue_id: QueueId, room: int, fit: Fit = ANYTHING, key: str = "claim"
) -> list[Task]:
    """Lease what the core decides, in the order it decides."""

    async def operation(tx: Tx) -> list[Task]:
        return await _claim(tx, queue_id, room, fit)

    return await store.transact(operation, key=key, line=Line.CLAIM)


async def _claim(tx: Tx, queue_id: QueueId, room: int, fit: Fit) -> list[Task]:
    queue = await tx.queues.lock(queue_id)
    assert queue is not None
    lanes = await tx.queues.lanes(queue_id, fit, room)
    snapshot = QueueSnapshot(queue, lanes, await tx.queues.clocks(queue_id))
    decision = decide(snapshot, room)
    if isinstance(decision, Hold):
        return []
    wanted = [(level, key, count) for (level, key), count in decision.counts().items()]
    taking = await tx.queues.take(queue_id, wanted, fit)
    waiting = {(level, key): [*tasks] for (level, key, _), tasks in zip(wanted, taking, strict=True)}
    taken = {slot: len(tasks) for slot, tasks in waiting.items()}
    settled = settle(snapshot, taken)
    for lane in settled.lanes:
        tx.queues.settle(queue_id, lane, taken.get((lane.level, lane.key), 0))
    for clock in settled.clocks:
        tx.queues.save_clock(queue_id, clock)
    tx.queues.count_dispatches(queue_id, tx.now_ms // 60_000, len(settled.order))
    granted = [leased(waiting[slot].pop(0), token=f"token-{next(_tokens)}") for slot in settled.order]
    for task in granted:
        tx.tasks.lease(task)
    return granted


def ids(tasks: Sequence[Task]) -> list[str]:
    return [task.task_id for task in tasks]
