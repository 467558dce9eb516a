"""Limits that change during claims, on two servers with one PostgreSQL: no claim uses outdated limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from penstock.core.limits.admission import cluster_scope, group_scope, namespace_scope
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import Queue, Task, TaskState
from penstock.core.scheduling.fairness import LaneState
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission, policies
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.system_clock import SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.stores.store_operations import a_queue, claim, enqueue, limit, look, places, queue_now, scope_now
from tests.support.builders import NOW_MS, a_task, released
from tests.support.patience import PATIENCE_S

ALL = cluster_scope()
SHOP = namespace_scope("default")
BANK = group_scope("default", "bank")
WAITS_FOR_LOCKS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    """Two servers on one database."""
    await migrate(postgres_url)
    opened = [await PostgresStore.open(postgres_url, LocalWakeups(), node=name) for name in ("one", "two")]
    yield opened
    for store in opened:
        await store.close()


class Database:
    """Rows locked by another session, and the sessions that wait for them."""

    def __init__(self, holder: asyncpg.Connection, watcher: asyncpg.Connection) -> None:
        self._holder = holder
        self._watcher = watcher
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def holding(self, rows: str) -> AsyncIterator[None]:
        async with self._holder.transaction():
            await self._holder.execute(f"SELECT 1 FROM {rows} FOR UPDATE")
            yield

    async def execute(self, change: str) -> None:
        """Execute on the session that holds the locks, if there is one."""
        await self._holder.execute(change)

    async def leases(self) -> int:
        """The number of leased tasks."""
        async with self._turn:
            return int(await self._watcher.fetchval("SELECT count(*) FROM tasks WHERE state = 'leased'"))

    async def until_waiting(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self._watcher.fetchval(WAITS_FOR_LOCKS) < count:
                await asyncio.sleep(0)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    connections = [await asyncpg.connect(postgres_url) for _ in range(2)]
    yield Database(*connections)
    for connection in connections:
        await connection.close()


async def a_busy_queue(store: Store, leases: int, ready: int) -> Queue:
    queue = await a_queue(store)
    await enqueue(store, *(a_task(queue, f"r{n}-1") for n in range(leases + ready)))
    assert len(await claim(store, queue.queue_id, leases)) == leases
    return queue


async def end(store: Store, task: Task) -> None:
    async def operation(tx: Tx) -> None:
        found = await tx.tasks.lock(task.task_id)
        assert found is not None
        tx.tasks.save(released(found, TaskState.DONE), TaskState.LEASED)

    await store.transact(operation, key=task.run_id)


async def counted(store: Store, queue: Queue, name: str) -> int:
    """The number of leases that the scope counts, which must equal the count in its row."""
    state = await scope_now(store, name)
    held = await look(store, lambda tx: tx.scopes.counted(state.scope_id, [queue.queue_id]))
    assert state.running == held
    return held


def a_house(store: Store) -> EngineContext:
    return EngineContext(store, LocalWakeups(), SystemEntropy(), load({"DW_AUTH_DRIVER": "none"}))


async def test_a_claim_that_waited_for_the_queue_goes_by_the_new_limits(
    stores: list[PostgresStore], database: Database
):
    """The change has locked the queue and waits for a lease; a claim with the previous limits waits for the change."""
    one, two = stores
    queue = await a_busy_queue(two, leases=2, ready=6)
    async with database.holding("tasks WHERE state = 'leased'"):
        change = asyncio.create_task(limit(one, SHOP, max_running=3))
        await database.until_waiting(1)
        claimed = asyncio.create_task(claim(two, queue.queue_id, 5))
        await database.until_waiting(2)
    await change
    assert len(await claimed) == 1
    assert await counted(two, queue, SHOP) == 3


async def test_a_change_that_waited_for_a_claim_counts_what_it_granted(
    stores: list[PostgresStore], database: Database
):
    one, two = stores
    queue = await a_busy_queue(two, leases=1, ready=6)
    await limit(one, SHOP, max_running=8)
    async with database.holding("scopes"):
        claimed = asyncio.create_task(claim(two, queue.queue_id, 3))
        await database.until_waiting(1)
        change = asyncio.create_task(limit(one, ALL, None, max_running=2))
        await database.until_waiting(2)
    assert len(await claimed) == 3, "it came first"
    await change
    assert await counted(one, queue, SHOP) == await counted(one, queue, ALL) == 4
    assert await claim(two, queue.queue_id, 3) == []


async def test_a_queue_that_was_made_while_limits_change_goes_by_the_new_ones(
    stores: list[PostgresStore], database: Database
):
    """The change has not seen the new queue, so its creation waits until the change is committed."""
    one, two = stores
    await a_busy_queue(one, leases=1, ready=0)

    async def make_and_claim() -> list[Task]:
        fresh = await a_queue(two, name="fresh")
        await enqueue(two, *(a_task(fresh, f"f{n}-1") for n in range(5)))
        return await claim(two, fresh.queue_id, 5)

    async with database.holding("tasks WHERE state = 'leased'"):
        change = asyncio.create_task(limit(one, SHOP, max_running=2))
        await database.until_waiting(1)
        claimed = asyncio.create_task(make_and_claim())
        await database.until_waiting(2)
    await change
    assert len(await claimed) == 1
    assert (await scope_now(one, SHOP)).running == 2


async def test_the_first_claim_of_a_queue_and_a_change_of_limits_that_want_each_other_both_succeed(
    stores: list[PostgresStore], database: Database
):
    one, two = stores
    queue = await a_queue(one)
    await enqueue(one, *(a_task(queue, f"r{n}-1") for n in range(5)))
    async with database.holding("queues"):
        claimed = asyncio.create_task(claim(two, queue.queue_id, 3))
        await database.until_waiting(1)
        change = asyncio.create_task(limit(one, SHOP, max_running=1))
        await database.until_waiting(2)
    await change
    granted = len(await claimed)
    assert granted in (1, 3), "after the change, or before it"
    assert await counted(two, queue, SHOP) == granted
    assert await claim(two, queue.queue_id, 3) == []


async def test_a_group_that_is_joined_and_limited_at_once_counts_the_leases_of_the_line(
    stores: list[PostgresStore],
):
    queue = await a_busy_queue(stores[0], leases=2, ready=5)
    ctx = a_house(stores[0])
    join = PolicyUpdate(settings={LimitSetting.GROUP: SettingChange("bank")})
    await asyncio.gather(
        admission.configure(
            ctx, BANK, ScopeUpdate(settings={LimitSetting.LEASE_CAP: SettingChange(2)}), "ann"
        ),
        policies.configure(ctx, "default", "orders", queue.kind, join, "bob"),
    )
    assert [each.name for each in (await queue_now(stores[1], queue.queue_id)).limits.scopes] == [BANK]
    assert await counted(stores[1], queue, BANK) == 2
    assert await claim(stores[1], queue.queue_id, 5) == []


async def test_no_more_than_the_cap_run_at_any_moment_whoever_claims_and_ends_on_two_servers(
    stores: list[PostgresStore], database: Database
):
    cap, names = 4, ("orders", "refunds", "mails")
    queues = [await a_queue(stores[0], name=name) for name in names]
    for queue in queues:
        await enqueue(stores[0], *(a_task(queue, f"{queue.name}{n}-1") for n in range(30)))
    await limit(stores[0], SHOP, max_running=cap)
    most = 0

    async def work(store: Store, queue: Queue) -> int:
        nonlocal most
        done = 0
        while (await look(store, lambda tx: tx.queues.stats(queue.queue_id, NOW_MS))).ready:
            granted = await claim(store, queue.queue_id, 3)
            most = max(most, await database.leases())
            await asyncio.gather(*(end(store, task) for task in granted))
            done += len(granted)
        return done

    done = await asyncio.gather(*(work(store, queue) for store in stores for queue in queues))
    assert sum(done) == 90
    assert 1 < most <= cap
    state = await scope_now(stores[0], SHOP)
    assert (state.granted, state.ended) == (90, 90)


async def test_claims_of_many_queues_at_once_share_a_scope_in_turn(stores: list[PostgresStore]):
    """They share a transaction; each sees what the previous ones took."""
    queues = [await a_queue(stores[0], name=f"q{n}") for n in range(20)]
    for queue in queues:
        await enqueue(stores[0], *(a_task(queue, f"{queue.name}t{n}-1") for n in range(3)))
    await limit(stores[0], ALL, max_running=33)
    granted = await asyncio.gather(*(claim(stores[0], queue.queue_id, 3) for queue in queues))
    assert sum(len(each) for each in granted) == 33
    assert (await scope_now(stores[0], ALL)).running == 33
    await asyncio.gather(*(end(stores[0], task) for tasks in granted for task in tasks))
    granted = await asyncio.gather(*(claim(stores[0], queue.queue_id, 3) for queue in queues))
    assert sum(len(each) for each in granted) == 20 * 3 - 33
    state = await scope_now(stores[0], ALL)
    assert (state.granted, state.ended) == (60, 33)


async def test_claims_that_want_scopes_in_another_order_all_get_theirs(stores: list[PostgresStore]):
    queues = []
    for number in range(12):
        queue = await a_queue(stores[0], name=f"q{number}")
        await enqueue(stores[0], *(a_task(queue, f"{queue.name}t{n}-1") for n in range(4)))
        queues.append(queue)
    for group in ("red", "green", "blue"):
        await limit(stores[0], group_scope("default", group), max_running=10)
    ctx = a_house(stores[0])
    for number, queue in enumerate(queues):
        join = PolicyUpdate(
            settings={LimitSetting.GROUP: SettingChange(("red", "green", "blue")[number % 3])}
        )
        await policies.configure(ctx, "default", queue.name, queue.kind, join, "bob")
    claims = [claim(store, queue.queue_id, 1) for _ in range(2) for store in stores for queue in queues]
    granted = await asyncio.gather(*claims)
    assert sum(len(each) for each in granted) == 30
    for group in ("red", "green", "blue"):
        assert (await scope_now(stores[1], group_scope("default", group))).running == 10


async def test_the_end_of_a_lease_finds_a_lane_that_was_held_while_it_waited_for_the_key(
    stores: list[PostgresStore], database: Database
):
    """A claim that blocks a lane at a cap holds the lock on its key, so that no end of a lease is missed."""
    one, _ = stores
    queue = await a_busy_queue(one, leases=1, ready=1)
    [task] = await look(one, lambda tx: tx.tasks.leases_on(queue.queue_id, 2))
    await database.execute("UPDATE tasks SET counted = 1 WHERE state = 'leased'")
    await database.execute("INSERT INTO keys (queue_id, key, running) SELECT queue_id, key, 1 FROM lanes")
    async with database.holding("keys"):
        ending = asyncio.create_task(end(one, task))
        await database.until_waiting(1)
        await database.execute(f"UPDATE lanes SET state = {int(LaneState.BLOCKED)}")
    await ending
    assert list((await places(one, queue.queue_id)).values()) == [LaneState.DIRTY]
