"""Task queues whose limits are switched, and the engine that hands out their tasks and hears how they end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence
from enum import StrEnum

from benchmarks.fair_line import LEVEL
from benchmarks.stands import StoreName
from benchmarks.waiting_lines import FIT, KEY, NAMESPACE, STARTS_TOGETHER, WORKER, house_on
from benchmarks.workload_loops import ACTIVITY_TYPE
from penstock.core.history.commands import ScheduleActivity
from penstock.core.limits.admission import (
    Declaration,
    DeclaredScope,
    LimitField,
    Section,
    cluster_scope,
    group_scope,
)
from penstock.core.limits.windows import Window
from penstock.core.model import Blob, PriorityOverride, QueueId, Task, TaskKind, TaskPriority
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import Granted, Poll, Retry
from penstock.engine.activities import activity_reports
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.operations import namespaces
from penstock.engine.workers import worker_registry
from penstock.engine.workflows import starts
from penstock.ports.store import Tx
from tests.support.claims import leased_of

GROUP = "downstream"
SLOTS = 1_000_000
"""What is compared are the limits of the server."""
MANY_LEASES, MANY_DISPATCHES, MUCH = 1_000_000, 100_000_000, 1_000_000_000
"""Limits that are looked at and never reached."""
ESTIMATE, ACTUAL = 100, 90
"""What each task is thought to cost its group, and what it did cost."""

_numbers = itertools.count(1)


class Limits(StrEnum):
    """What limits the queues while they are measured."""

    NONE = "none"
    EVERY = "all, calendar minutes"
    SLIDING = "all, sliding windows"
    GROUP = "the group's dispatches"

    @property
    def counts_cost(self) -> bool:
        return self in (Limits.EVERY, Limits.SLIDING)


def declaration(limits: Limits) -> Declaration:
    """The limits as a configuration would declare them."""
    if limits is Limits.NONE:
        return Declaration()
    if limits is Limits.GROUP:
        of_group: Section = {LimitField.GROUP: GROUP, LimitField.GROUP_DISPATCHES: MANY_DISPATCHES}
        return Declaration(defaults={TaskKind.ACTIVITY: of_group})
    return Declaration(
        defaults={
            TaskKind.ACTIVITY: {
                LimitField.QUEUE_LEASES: MANY_LEASES,
                LimitField.NAMESPACE_LEASES: MANY_LEASES,
                LimitField.QUEUE_DISPATCHES: MANY_DISPATCHES,
                LimitField.NAMESPACE_DISPATCHES: MANY_DISPATCHES,
                LimitField.GROUP: GROUP,
                LimitField.GROUP_DISPATCHES: MANY_DISPATCHES,
            }
        },
        scopes={
            cluster_scope(): DeclaredScope(leases=MANY_LEASES),
            group_scope(NAMESPACE, GROUP): DeclaredScope(cost=MUCH),
        },
        window=Window.SLIDING if limits is Limits.SLIDING else Window.MINUTE,
    )


class LimitedLines:
    """Some queues of one namespace, and one worker on each. Leases are held until they are ended."""

    def __init__(self, ctx: EngineContext, queues: Sequence[tuple[str, QueueId]]) -> None:
        self.ctx = ctx
        self.queues = queues
        self._turns = itertools.cycle(queues)
        self._limits = Limits.NONE

    async def limit(self, limits: Limits) -> None:
        """Have these limits, and no others, from the next claim on."""
        await admission.declare(self.ctx, declaration(limits), WORKER)
        self._limits = limits

    def expect(self, limits: Limits) -> None:
        """Another server has declared these limits."""
        self._limits = limits

    async def claim(self, batch: int, dispatches: int, at_once: int = 1) -> list[Task]:
        """Take so many tasks from the queues in turn: so many claims at once, at most `batch` in a claim."""
        taken: list[Task] = []
        while len(taken) < dispatches:
            most = min(batch, dispatches - len(taken))
            asked = [next(self._turns) for _ in range(min(at_once, -(-(dispatches - len(taken)) // most)))]
            for tasks in await asyncio.gather(*(self.claim_from(queue, most) for queue in asked)):
                taken += tasks
        return taken

    async def claim_from(self, queue: tuple[str, QueueId], most: int) -> list[Task]:
        name, queue_id = queue
        poll = Poll(NAMESPACE, worker_of(name), name, TaskKind.ACTIVITY, tasks_max=most)
        [verdict] = await claim_tasks(self.ctx, queue_id, [poll], FIT)
        assert isinstance(verdict, Granted | Retry), f"nothing to claim on {name}: {verdict}"
        return [leased.task for leased in leased_of(verdict)] if isinstance(verdict, Granted) else []

    async def serve(self, queue: tuple[str, QueueId], batch: int, dispatches: int) -> list[Task]:
        """Claim from one queue and complete at once, claim after claim, so many tasks."""
        done: list[Task] = []
        while len(done) < dispatches:
            taken = await self.claim_from(queue, min(batch, dispatches - len(done)))
            await self.end(taken, batch)
            done += taken
        return done

    async def end(self, taken: Sequence[Task], together: int) -> None:
        """Complete leases, so many at once."""
        for start in range(0, len(taken), together):
            await asyncio.gather(*(self._complete(task) for task in taken[start : start + together]))

    async def _complete(self, task: Task) -> None:
        assert task.lease_token is not None
        cost = ACTUAL if self._limits.counts_cost else None
        report = Report(worker_of(task.task_queue), task.lease_token)
        done = activity_reports.completion_transaction(
            self.ctx, NAMESPACE, task.task_id, report, Blob(""), cost
        )
        activity_reports.check_recorded(await self.ctx.store.transact(done.operation, key=done.key))

    async def refill(self, taken: Sequence[Task]) -> None:
        """Start as many tasks as were taken, in the same queues."""
        await self._start_all([task.task_queue for task in taken])

    async def fill(self, each: int) -> None:
        await self._start_all([name for name, _ in self.queues for _ in range(each)])

    async def _start_all(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), STARTS_TOGETHER):
            together = names[start : start + STARTS_TOGETHER]
            await asyncio.gather(*(start_one(self.ctx, name) for name in together))


async def start_one(ctx: EngineContext, queue: str, key: str = KEY) -> str:
    """Have one more task wait, last in its queue; returns the id of its activity."""
    name = f"limited-{queue}-{next(_numbers)}"
    request = starts.Start(
        NAMESPACE,
        starts.STANDALONE_TYPE,
        queue,
        Blob(""),
        workflow_id=name,
        priority=TaskPriority(LEVEL, key, 1000),
    )
    command = ScheduleActivity(ACTIVITY_TYPE, None, Blob(""), priority=PriorityOverride(cost=ESTIMATE))
    start = starts.activity_start(ctx, request, command)
    await ctx.store.transact(start.operation, key=start.key)
    return name


@contextlib.asynccontextmanager
async def limited_lines(
    store: StoreName, url: str, queues: int, prefix: str = "bench"
) -> AsyncIterator[LimitedLines]:
    """So many empty queues in the database at `url`, with no limits of their own."""
    async with house_on(store, url) as ctx:
        await namespaces.ensure(ctx, NAMESPACE)
        names = [f"{prefix}-{number}" for number in range(queues)]
        for name in names:
            await worker_registry.register(
                ctx,
                worker_registry.Registration(
                    NAMESPACE,
                    worker_of(name),
                    name,
                    "external",
                    activity_types=(ACTIVITY_TYPE,),
                    activity_slots=SLOTS,
                ),
            )
        yield LimitedLines(ctx, [(name, await _queue_id(ctx, name)) for name in names])


async def _queue_id(ctx: EngineContext, name: str) -> QueueId:
    async def operation(tx: Tx) -> QueueId:
        return (await tx.queues.ensure(NAMESPACE, name, TaskKind.ACTIVITY)).queue_id

    return await ctx.store.transact(operation, key="bench")


def worker_of(queue: str) -> str:
    return f"{WORKER}-{queue}"
