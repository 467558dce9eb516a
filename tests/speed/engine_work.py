"""An engine over a real store, and the work whose cost is watched: tasks and workflows from start to end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from penstock.core.history.commands import Command, CompleteWorkflow, ScheduleActivity
from penstock.core.model import Blob, Queue, QueueId, Task, TaskKind
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.operations import namespaces
from penstock.engine.workers import worker_registry
from penstock.engine.workflows import starts
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.sqlite.store import SqliteStore
from penstock.system_clock import SystemClock, SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import direct
from tests.support.claims import leased_of

NAMESPACE, QUEUE, WORKER, TYPE = "default", "speed", "speed-worker", "Nothing"
NOTHING = Blob("")
SLOTS = 1_000_000
STARTED_TOGETHER = 100
SETTINGS = {"DW_AUTH_DRIVER": "none"}


class EngineWork:
    """One queue of activities and workflows, and one worker that takes and ends them."""

    def __init__(self, ctx: EngineContext, queues: dict[TaskKind, QueueId], first: int = 1) -> None:
        self.ctx = ctx
        self._queues = queues
        self._numbers = itertools.count(first)

    async def start_task(self) -> None:
        request = self._start(starts.STANDALONE_TYPE)
        await direct.start_activity(self.ctx, request, ScheduleActivity(TYPE, None, NOTHING))

    async def start_tasks(self, count: int) -> None:
        """Some hundred at once, as clients do."""
        for begun in range(0, count, STARTED_TOGETHER):
            together = min(STARTED_TOGETHER, count - begun)
            await asyncio.gather(*(self.start_task() for _ in range(together)))

    async def start_workflow(self) -> None:
        await starts.start_workflow(self.ctx, self._start(TYPE))

    async def claim(self, most: int, kind: TaskKind = TaskKind.ACTIVITY) -> list[Task]:
        """What one claim gets, which must be something."""
        taken = await self._taken(most, kind)
        assert taken, f"no {kind} task waits"
        return taken

    async def _taken(self, most: int, kind: TaskKind) -> list[Task]:
        poll = Poll(NAMESPACE, WORKER, QUEUE, kind, tasks_max=most)
        [verdict] = await claim_tasks(self.ctx, self._queues[kind], [poll], None)
        return [each.task for each in leased_of(verdict)]

    async def complete(self, task: Task) -> None:
        await direct.complete_activity(self.ctx, NAMESPACE, task.task_id, _report(task), NOTHING)

    async def complete_all(self, tasks: Sequence[Task]) -> None:
        await asyncio.gather(*(self.complete(task) for task in tasks))

    async def decide(self, task: Task, command: Command) -> None:
        await direct.complete_workflow_task(self.ctx, NAMESPACE, task.task_id, _report(task), [command])

    async def empty(self) -> None:
        """End every standalone task that waits."""
        while taken := await self._taken(STARTED_TOGETHER, TaskKind.ACTIVITY):
            await self.complete_all(taken)

    async def tasks(self, count: int, most: int) -> None:
        """So many standalone tasks from start to end."""
        await self.start_tasks(count)
        done = 0
        while done < count:
            taken = await self.claim(most)
            await self.complete_all(taken)
            done += len(taken)

    async def workflow(self) -> None:
        """A workflow of one activity from start to end."""
        await self.start_workflow()
        [first] = await self.claim(1, TaskKind.WORKFLOW)
        await self.decide(first, ScheduleActivity(TYPE, None, NOTHING))
        [task] = await self.claim(1)
        await self.complete(task)
        [last] = await self.claim(1, TaskKind.WORKFLOW)
        await self.decide(last, CompleteWorkflow(NOTHING))

    def _start(self, type_: str) -> starts.Start:
        return starts.Start(NAMESPACE, type_, QUEUE, NOTHING, workflow_id=f"speed-{next(self._numbers)}")


def _report(task: Task) -> Report:
    assert task.lease_token is not None
    return Report(WORKER, str(task.attempt) if task.kind is TaskKind.WORKFLOW else task.lease_token)


@contextlib.asynccontextmanager
async def engine_work(
    address: Path | str, *, journals: bool = False, first: int = 1
) -> AsyncIterator[EngineWork]:
    """The engine over a file of SQLite or a database of PostgreSQL, empty but for its queue and its worker.

    `first` numbers the first task: a database that was used before has tasks of lower numbers.
    """
    wakeups = LocalWakeups()
    store: Store
    if isinstance(address, Path):
        store = await SqliteStore.open(address, SystemClock(), wakeups, journals=journals)
    else:
        await migrate(address)
        store = await PostgresStore.open(address, wakeups, journals=journals)
    try:
        ctx = EngineContext(store, wakeups, SystemEntropy(), load(SETTINGS))
        await namespaces.ensure(ctx, NAMESPACE)
        await _register(ctx)
        queues = {kind: (await _queue(ctx, kind)).queue_id for kind in (TaskKind.ACTIVITY, TaskKind.WORKFLOW)}
        yield EngineWork(ctx, queues, first)
    finally:
        await store.close()


async def _register(ctx: EngineContext) -> None:
    registration = worker_registry.Registration(
        NAMESPACE,
        WORKER,
        QUEUE,
        "external",
        activity_types=(TYPE,),
        workflow_types=(TYPE,),
        activity_slots=SLOTS,
        workflow_slots=SLOTS,
    )
    await worker_registry.register(ctx, registration)


async def _queue(ctx: EngineContext, kind: TaskKind) -> Queue:
    async def operation(tx: Tx) -> Queue:
        return await tx.queues.ensure(NAMESPACE, QUEUE, kind)

    return await ctx.store.transact(operation, key="speed")
