"""Sweepers survive store outages: once the store is back, due work is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import StartTimer
from penstock.engine.maintenance import scheduler as module
from penstock.engine.maintenance.scheduler import SweeperScheduler
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.maintenance.sweepers.due_timers import due_timers
from penstock.errors import Reason, Unavailable
from penstock.ports.store import Operation, Store, StoreHealth, Transaction, TransactionClass
from tests.engine.support.scene import WORKFLOW, Scene
from tests.support.one_by_one import one_by_one

T = TypeVar("T")
ERRORS = [
    Unavailable(Reason.STORE_UNAVAILABLE, "The store is away."),
    ConnectionRefusedError("nobody listens"),
    TimeoutError(),
    RuntimeError("the database does not accept connections"),
]


class FailingStore:
    """A store that raises one error for everything while it is set."""

    def __init__(self, behind: Store) -> None:
        self._behind = behind
        self.journals = behind.journals
        self.error: Exception | None = None
        self.refused = 0

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        self._refuse()
        return await self._behind.transact(operation, key=key, tx_class=tx_class)

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        return await one_by_one(self, asked)

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        self._refuse()
        return await self._behind.read(operation, long=long)

    async def check(self) -> None:
        await self._behind.check()

    def health(self) -> StoreHealth:
        return self._behind.health()

    async def close(self) -> None:
        await self._behind.close()

    def _refuse(self) -> None:
        if self.error is not None:
            self.refused += 1
            raise self.error


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tick without a pause, so that an outage of several ticks is over at once."""
    monkeypatch.setattr(module, "TICK_S", 0.0)


async def until(happened: Callable[[], bool], running: asyncio.Task[None]) -> None:
    while not happened():
        assert not running.done(), "the sweeper has died"
        await asyncio.sleep(0)


@pytest.mark.usefixtures("no_rest")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_timers_fire_after_the_store_is_back_whatever_error_it_raised_meanwhile(
    scene: Scene, error: Exception
):
    run = await scene.start()
    await scene.decide(StartTimer(60))
    store = FailingStore(scene.ctx.store)
    ctx = replace(scene.ctx, store=store)
    sweeping = asyncio.create_task(SweeperScheduler(ctx, [due_timers(ctx)]).run())
    try:
        store.error = error
        await until(lambda: store.refused >= 3, sweeping)
        scene.clock.advance(60_000)
        store.error = None
        await until(lambda: scene.run(run.run_id).open_timers == 0, sweeping)
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])
    assert "TimerFired" in await scene.types(run.run_id)


@pytest.mark.usefixtures("no_rest")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_tasks_whose_backoff_ended_are_ready_after_the_store_is_back(scene: Scene, error: Exception):
    await scene.start()
    await scene.fail(await scene.take(WORKFLOW))
    store = FailingStore(scene.ctx.store)
    ctx = replace(scene.ctx, store=store)
    sweeping = asyncio.create_task(SweeperScheduler(ctx, [due_tasks(ctx)]).run())
    try:
        store.error = error
        await until(lambda: store.refused >= 3, sweeping)
        scene.clock.advance(1_000)
        store.error = None
        await scene.queue(WORKFLOW)
        await until(lambda: scene.tables.count("tasks", "state = 'delayed'") == 0, sweeping)
    finally:
        sweeping.cancel()
        await asyncio.wait([sweeping])
    assert await scene.claim(WORKFLOW) is not None
