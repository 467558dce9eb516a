"""A poll sent to two servers on one PostgreSQL at once yields one lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from penstock.core.model import Blob, QueueId, TaskKind
from penstock.core.scheduling.polls import Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import starts
from penstock.engine.workflows.starts import Start
from penstock.ports.store import Tx
from penstock.settings import load
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.system_clock import SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.support.claims import leased_of

WAITS_FOR_LOCKS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture
async def houses(postgres_url: str) -> AsyncIterator[list[EngineContext]]:
    await migrate(postgres_url)
    opened = []
    for name in ("one", "two"):
        wakeups = LocalWakeups()
        store = await PostgresStore.open(postgres_url, wakeups, node=name)
        opened.append(EngineContext(store, wakeups, SystemEntropy(), load({"DW_AUTH_DRIVER": "none"})))
    yield opened
    for ctx in opened:
        await ctx.store.close()


async def a_queue_with_two_tasks(ctx: EngineContext) -> QueueId:
    await worker_registry.register(ctx, Registration("default", "w1", "orders", "python"))
    for number in range(2):
        request = Start("default", "Order", "orders", Blob(""), workflow_id=f"order-{number}")
        await starts.start_workflow(ctx, request)

    async def ensure(tx: Tx) -> QueueId:
        return (await tx.queues.ensure("default", "orders", TaskKind.WORKFLOW)).queue_id

    return await ctx.store.transact(ensure, key="queue")


@pytest.mark.parametrize(("ids", "tasks"), [(("p1", "p1"), 1), (("p1", "p2"), 2)])
async def test_a_request_id_sent_to_two_servers_at_once_leases_one_task(
    houses: list[EngineContext], postgres_url: str, ids: tuple[str, str], tasks: int
):
    """Both have begun before either can decide: the queue's row is locked until both wait for it."""
    queue_id = await a_queue_with_two_tasks(houses[0])
    database, watcher = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    async with database.transaction():
        await database.execute("SELECT 1 FROM queues FOR UPDATE")
        claims = [
            asyncio.create_task(
                claim_tasks(
                    ctx, queue_id, [Poll("default", "w1", "orders", TaskKind.WORKFLOW, None, id_)], None
                )
            )
            for ctx, id_ in zip(houses, ids, strict=True)
        ]
        while await watcher.fetchval(WAITS_FOR_LOCKS) < 2:
            await asyncio.sleep(0)
    [[first], [second]] = await asyncio.gather(*claims)
    assert len({leased.task.task_id for leased in (*leased_of(first), *leased_of(second))}) == tasks
    assert await database.fetchval("SELECT count(*) FROM tasks WHERE state = 'leased'") == tasks
    await database.close()
    await watcher.close()
