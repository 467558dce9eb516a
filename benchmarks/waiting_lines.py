"""A task queue in which many tasks wait, and the engine that claims them: the store without a server in front."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.crowds import READ_BY_CLAIMS, grow_postgres, grow_sqlite
from benchmarks.fair_line import LEVEL
from benchmarks.stands import Ground, StoreName, new_store
from benchmarks.workload_loops import ACTIVITY_TYPE
from penstock.core.history.commands import ScheduleActivity
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import ActivityTimeouts, Blob, QueueId, RetrySchedule, Task, TaskKind, TaskPriority
from penstock.core.scheduling.dispatch import WorkerFilter
from penstock.core.scheduling.fairness import LaneState
from penstock.core.scheduling.polls import Granted, Poll, Retry
from penstock.engine.context import EngineContext
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.operations import namespaces
from penstock.engine.workers import worker_registry
from penstock.engine.workflows import starts
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.sqlite.store import SqliteStore
from penstock.system_clock import SystemClock, SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.support.claims import leased_of

NAMESPACE, QUEUE, WORKER, KEY = "default", "bench", "bench-worker", "key"
STARTS_TOGETHER = 100
CLAIMS_BETWEEN_LOOKS = 8
SETTINGS = {"DW_AUTH_DRIVER": "none", "DW_ACTIVITY_TASK_TIMEOUT": "86400"}
SLOTS = 200
FIT = WorkerFilter((ACTIVITY_TYPE,), None)

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Case:
    """How many tasks wait, and how many keys they have, each as many as any other."""

    keys: int
    backlog: int
    switched: bool = False
    """Whether fairness is switched on and off on it; elsewhere nobody has ever set anything."""

    @property
    def name(self) -> str:
        return f"{self.backlog:,} tasks of {self.keys:,} keys"


@dataclass(frozen=True, slots=True)
class Placing:
    """What it took until every key had its place in the order."""

    claims: int
    seconds: float


class WaitingLine:
    """The queue of one case, and one worker that claims from it."""

    def __init__(self, case: Case, ctx: EngineContext, queue_id: QueueId) -> None:
        self.case = case
        self.ctx = ctx
        self._queue_id = queue_id
        self._given = 0

    async def claim(self, batch: int, dispatches: int) -> list[Task]:
        """Take so many tasks, at most `batch` in a claim."""
        taken: list[Task] = []
        while len(taken) < dispatches:
            taken += await self._claim_once(min(batch, dispatches - len(taken)))
        return taken

    async def _claim_once(self, most: int) -> list[Task]:
        """What is taken is not ended; when the worker is full, another process of it goes on."""
        self._given += most
        if self._given > SLOTS:
            await register(self.ctx)
            self._given = most
        poll = Poll(NAMESPACE, WORKER, QUEUE, TaskKind.ACTIVITY, tasks_max=most)
        [verdict] = await claim_tasks(self.ctx, self._queue_id, [poll], FIT)
        assert isinstance(verdict, Granted | Retry), f"nothing to claim in {self.case.name}: {verdict}"
        return [leased.task for leased in leased_of(verdict)] if isinstance(verdict, Granted) else []

    async def refill(self, taken: Sequence[Task]) -> None:
        """Start as many tasks as were taken, of the same keys."""
        for start in range(0, len(taken), STARTS_TOGETHER):
            together = taken[start : start + STARTS_TOGETHER]
            await asyncio.gather(*(_start(self.ctx, task.key) for task in together))

    async def place_all(self) -> Placing:
        """Claim until no key is new: claims give new keys their place, some hundred at a time.

        What they take on the way is not started again: its keys would be new.
        """
        claims, seconds = 0, 0.0
        while await self._any_new():
            began = time.perf_counter()
            for _ in range(CLAIMS_BETWEEN_LOOKS):
                await self._claim_once(1)
            seconds += time.perf_counter() - began
            claims += CLAIMS_BETWEEN_LOOKS
        return Placing(claims, seconds)

    async def _any_new(self) -> bool:
        async def operation(tx: Tx) -> bool:
            return bool(await tx.queues.lanes_to_tag(self._queue_id, FIT, LaneState.NEW))

        return await self.ctx.store.read(operation)

    async def set_fairness(self, *, on: bool) -> None:
        """Let keys have shares, or serve tasks in order of arrival."""
        ask = PolicyUpdate({LimitSetting.FAIRNESS: SettingChange("on" if on else "off")})
        await policies.configure(self.ctx, NAMESPACE, QUEUE, TaskKind.ACTIVITY, ask, WORKER)


async def _start(ctx: EngineContext, key: str) -> None:
    name = f"{KEY}-{next(_numbers)}"
    request = starts.Start(
        NAMESPACE,
        starts.STANDALONE_TYPE,
        QUEUE,
        Blob(""),
        workflow_id=name,
        priority=TaskPriority(LEVEL, key, 1000),
    )
    command = ScheduleActivity(ACTIVITY_TYPE, None, Blob(""), RetrySchedule(), ActivityTimeouts())
    start = starts.activity_start(ctx, request, command)
    await ctx.store.transact(start.operation, key=start.key)


async def register(ctx: EngineContext) -> None:
    registration = worker_registry.Registration(
        NAMESPACE, WORKER, QUEUE, "external", activity_types=(ACTIVITY_TYPE,), activity_slots=SLOTS
    )
    await worker_registry.register(ctx, registration)


@contextlib.asynccontextmanager
async def waiting_line(store: StoreName, ground: Ground, case: Case) -> AsyncIterator[WaitingLine]:
    """A database of its own with the case's backlog: one task that was started, and copies of it."""
    url = await asyncio.to_thread(new_store, store, ground)
    async with house_on(store, url) as ctx:
        await namespaces.ensure(ctx, NAMESPACE)
        await _start(ctx, KEY)
    await asyncio.to_thread(_grow, store, url, case)
    async with house_on(store, url) as ctx:
        queue = await _queue(ctx)
        await register(ctx)
        yield WaitingLine(case, ctx, queue)


def _grow(store: StoreName, url: str, case: Case) -> None:
    if store is StoreName.SQLITE:
        grow_sqlite(_path(url), case.backlog - 1, case.keys, READ_BY_CLAIMS)
    else:
        grow_postgres(url, case.backlog - 1, case.keys, READ_BY_CLAIMS)


async def _queue(ctx: EngineContext) -> QueueId:
    async def operation(tx: Tx) -> QueueId:
        return (await tx.queues.ensure(NAMESPACE, QUEUE, TaskKind.ACTIVITY)).queue_id

    return await ctx.store.transact(operation, key="bench")


@contextlib.asynccontextmanager
async def house_on(store: StoreName, url: str) -> AsyncIterator[EngineContext]:
    """The engine over the store at `url`, open inside the block."""
    wakeups = LocalWakeups()
    opened: Store
    if store is StoreName.SQLITE:
        opened = await SqliteStore.open(_path(url), SystemClock(), wakeups)
    else:
        opened = await PostgresStore.open(url, wakeups)
    try:
        yield EngineContext(opened, wakeups, SystemEntropy(), load(SETTINGS))
    finally:
        await opened.close()


def _path(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
