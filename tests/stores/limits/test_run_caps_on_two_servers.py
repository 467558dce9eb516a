"""Caps on runs on two servers with one PostgreSQL: starts, ends and turns race, and no commit exceeds a cap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import asyncpg
import msgspec
import pytest

from penstock.core.limits.policies import LimitSetting
from penstock.core.limits.run_caps import RunScope, RunScopeKind
from penstock.core.model import Blob
from penstock.core.verify.check import check
from penstock.core.verify.findings import Law
from penstock.engine.context import EngineContext
from penstock.engine.limits import run_caps
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import SettingChange
from penstock.engine.maintenance.run_cap_sweepers import waiting_runs
from penstock.engine.workflows import run_close, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import Start
from penstock.ports.store import Tx
from penstock.settings import load
from penstock.stores.postgres.schema import migrate
from penstock.stores.postgres.store import PostgresStore
from penstock.system_clock import SystemEntropy
from penstock.wakeups.local import LocalWakeups
from penstock.wire.operations.journal import read_journal
from tests.stores.conftest import HOLD_MS
from tests.support.patience import PATIENCE_S

TYPE = RunScope("default", RunScopeKind.TYPE, "Order")
QUEUE = RunScope("default", RunScopeKind.QUEUE, "orders")
EACH_KEY = RunScope("default", RunScopeKind.EACH_KEY)
RUNS = 30


@pytest.fixture
async def servers(postgres_url: str) -> AsyncIterator[list[EngineContext]]:
    await migrate(postgres_url)
    stores = [
        await PostgresStore.open(postgres_url, LocalWakeups(), node=name, journals=True, hold_ms=HOLD_MS)
        for name in ("one", "two")
    ]
    settings = load({"DW_AUTH_DRIVER": "none"})
    yield [EngineContext(store, LocalWakeups(), SystemEntropy(), settings) for store in stores]
    for store in stores:
        await store.close()


async def cap(ctx: EngineContext, scope: RunScope, most: int) -> None:
    await run_caps.configure(
        ctx, scope, ScopeUpdate({LimitSetting.OPEN_RUNS: SettingChange(most)}), "operator"
    )


async def start(ctx: EngineContext, number: int) -> None:
    request = Start(
        namespace="default",
        workflow_type="Order",
        task_queue="orders",
        input=Blob(""),
        workflow_id=f"w{number}",
        concurrency_key=f"tenant-{number % 4}",
    )
    await starts.start_workflow(ctx, request)


async def running(ctx: EngineContext, left: Sequence[int]) -> list[int]:
    """Those of some runs that have a place."""

    async def operation(tx: Tx) -> list[int]:
        found = [await tx.runs.named("default", f"w{number}", None) for number in left]
        runs = [each[1] for each in found if each is not None]
        numbers = zip(left, runs, strict=True)
        return [number for number, run in numbers if run is not None and not run.waits.to_start]

    return await ctx.store.read(operation)


async def test_racing_starts_ends_and_turns_of_two_servers_keep_every_cap(servers: list[EngineContext]):
    one, two = servers
    await cap(one, TYPE, 3)
    await cap(two, EACH_KEY, 1)
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(start(servers[number % 2], number) for number in range(RUNS)))
        left = list(range(RUNS))
        while left:
            ends = await running(one, left)
            await asyncio.gather(
                *(
                    run_close.end_run(servers[number % 2], "default", f"w{number}", EndMode.TERMINATE, None)
                    for number in ends
                ),
                *(waiting_runs(each).sweep() for each in servers),
            )
            await asyncio.gather(*(waiting_runs(each).sweep() for each in servers))
            left = [number for number in left if number not in ends]
    view = await run_caps.read(two, TYPE)
    assert (view.open, view.waiting) == (0, 0)
    lines = await one.store.read(lambda tx: tx.journal.page(0, 1_000))
    raw = [msgspec.json.encode(msgspec.json.decode(line) | {"seq": seq}) for seq, line in lines]
    book, _ = check(read_journal(raw, "journal"))
    assert book.findings == []
    assert book.checked[Law.RUN_CAP] == 2 * RUNS, "each run was admitted once, under two caps"


async def test_a_run_that_is_admitted_while_another_cap_is_set_is_counted_under_it(
    servers: list[EngineContext], postgres_url: str
):
    """The turn has read the caps, and waits for the row of the run; the cap on the queue is set meanwhile."""
    one, two = servers
    await cap(one, TYPE, 0)
    await start(one, 1)
    await cap(one, TYPE, 1)
    connection = await asyncpg.connect(postgres_url)
    try:
        async with asyncio.timeout(PATIENCE_S), connection.transaction():
            await connection.execute("SELECT * FROM runs WHERE workflow_id = 'w1' FOR UPDATE")
            turn = asyncio.ensure_future(waiting_runs(one).sweep())
            await until_waiting(postgres_url, 1)
            setting = asyncio.ensure_future(cap(two, QUEUE, 5))
            while not setting.done() and await waiting_sessions(postgres_url) < 2:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(turn, setting)
    finally:
        await connection.close()
    assert await running(one, [1]) == [1]
    assert (await run_caps.read(one, QUEUE)).open == 1


WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def waiting_sessions(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(WAITING))
    finally:
        await connection.close()


async def until_waiting(url: str, sessions: int) -> None:
    while await waiting_sessions(url) < sessions:
        await asyncio.sleep(0.01)
