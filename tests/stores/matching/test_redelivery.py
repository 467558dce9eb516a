"""A poll repeated on PostgreSQL while something happens to its task: what was decided first stands.

The second delivery is held between its look and its record by a lock on the row of its worker, which it wants to
touch at the end. Whatever happens to the task in that gap is either seen by it or happens after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from penstock.core.history.commands import CompleteWorkflow
from penstock.core.model import Blob, QueueId, TaskKind
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import ClaimResult, Leased, Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.matching.undelivered import hand_back
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import run_close, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import Start
from penstock.errors import PenstockError
from penstock.ports.store import Tx
from penstock.settings import load
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import direct
from tests.support.claims import leased_of
from tests.support.entropy import CountingEntropy

POLL = Poll("default", "w1", "orders", TaskKind.WORKFLOW, poll_request_id="p1")
WAITS_FOR_LOCKS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@dataclass(frozen=True)
class Stage:
    ctx: EngineContext
    queue_id: QueueId
    database: asyncpg.Connection[asyncpg.Record]
    watcher: asyncpg.Connection[asyncpg.Record]
    """Outside of any transaction, because `pg_stat_activity` does not change within one."""

    async def claim(self) -> ClaimResult:
        [verdict] = await claim_tasks(self.ctx, self.queue_id, [POLL], None)
        return verdict

    async def lease(self) -> Leased:
        """The task of a new run, delivered for the first time to a worker whose last heartbeat is old."""
        await worker_registry.register(self.ctx, Registration("default", "w1", "orders", "python"))
        await starts.start_workflow(
            self.ctx, Start("default", "Order", "orders", Blob(""), workflow_id="order-1")
        )
        [leased] = leased_of(await self.claim())
        await self.database.execute("UPDATE workers SET heartbeat_at_ms = 0")
        return leased

    async def complete(self, leased: Leased, result: str = "AQ==") -> Any:
        report = Report("w1", str(leased.task.attempt), f"digest of {result}")
        commands = [CompleteWorkflow(Blob(result))]
        return await direct.complete_workflow_task(self.ctx, "default", leased.task.task_id, report, commands)

    async def cancel(self, _: Leased) -> Any:
        return await run_close.end_run(self.ctx, "default", "order-1", EndMode.CANCEL, None)

    async def hand_back(self, leased: Leased) -> Any:
        await hand_back(self.ctx, leased)

    async def while_delivered_again(self, action: Awaitable[Any]) -> ClaimResult:
        """Run `event` during the second delivery of the poll; returns its result."""
        async with self._worker_is_locked():
            again = asyncio.create_task(self.claim())
            await self._until_waiting(1, again)
            acting = asyncio.ensure_future(action)
            await self._until_waiting(2, acting)
        verdict = await again
        await asyncio.wait([acting])
        return verdict

    @asynccontextmanager
    async def _worker_is_locked(self) -> AsyncIterator[None]:
        async with self.database.transaction():
            await self.database.execute("SELECT 1 FROM workers FOR UPDATE")
            yield

    async def _until_waiting(self, count: int, task: asyncio.Future[Any]) -> None:
        """Wait until this many sessions wait for a lock, or the task is done."""
        while not task.done() and await self.watcher.fetchval(WAITS_FOR_LOCKS) < count:
            await asyncio.sleep(0)

    async def task_state(self) -> str:
        return str(await self.database.fetchval("SELECT state FROM tasks"))

    async def ends(self) -> list[str]:
        """The events by which runs ended."""
        rows = await self.database.fetch(
            "SELECT type FROM events WHERE type ~ '^Workflow(Completed|Failed|Cancelled|Terminated)$'"
        )
        return [row[0] for row in rows]

    async def lines_up(self) -> bool:
        """Whether the count of the lane equals the number of ready tasks."""
        ready = await self.database.fetchval("SELECT count(*) FROM tasks WHERE state = 'ready'")
        return bool(ready == await self.database.fetchval("SELECT sum(count) FROM lanes"))


@pytest.fixture
async def stage(postgres_url: str) -> AsyncIterator[Stage]:
    await migrate(postgres_url)
    wakeups = LocalWakeups()
    store = await PostgresStore.open(postgres_url, wakeups)
    database, watcher = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)

    async def ensure(tx: Tx) -> QueueId:
        return (await tx.queues.ensure("default", "orders", TaskKind.WORKFLOW)).queue_id

    ctx = EngineContext(store, wakeups, CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))
    yield Stage(ctx, await store.transact(ensure, key="queue"), database, watcher)
    await database.close()
    await watcher.close()
    await store.close()


async def test_a_task_completed_while_its_poll_is_repeated_stays_done_and_its_run_ends_once(stage: Stage):
    leased = await stage.lease()
    await stage.while_delivered_again(stage.complete(leased))
    assert await stage.task_state() == "done"
    with pytest.raises(PenstockError):
        await stage.complete(leased, "Ag==")
    assert (await stage.complete(leased)).repeated
    assert await stage.ends() == ["WorkflowCompleted"]


async def test_a_task_cancelled_while_its_poll_is_repeated_stays_cancelled(stage: Stage):
    leased = await stage.lease()
    await stage.while_delivered_again(stage.cancel(leased))
    assert await stage.task_state() == "cancelled"
    with pytest.raises(PenstockError):
        await stage.complete(leased)
    assert await stage.ends() == ["WorkflowCancelled"]


async def test_a_task_handed_back_while_its_poll_is_repeated_is_in_one_place_only(stage: Stage):
    leased = await stage.lease()
    verdict = await stage.while_delivered_again(stage.hand_back(leased))
    state = await stage.task_state()
    assert (bool(leased_of(verdict)), state) in ((True, "leased"), (False, "ready"))
    assert await stage.lines_up()


async def test_a_poll_repeated_in_peace_gets_its_task_again_and_can_complete_it(stage: Stage):
    leased = await stage.lease()
    [again] = leased_of(await stage.claim())
    assert again.task.lease_token == leased.task.lease_token
    await stage.complete(again)
    assert await stage.ends() == ["WorkflowCompleted"]
