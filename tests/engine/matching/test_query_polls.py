"""Query polls that disconnect: the query is requeued for the next poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import StartTimer
from penstock.core.model import Blob, QueryState
from penstock.engine.context import EngineContext
from penstock.engine.matching.query_tasks import LeasedQuery, hand_back
from penstock.engine.messaging import queries
from penstock.engine.messaging.queries import QueryResult, QuerySubmission
from penstock.ports.store import TransactionClass
from tests.engine.support.gated_store import GatedStore
from tests.engine.support.scene import WORKFLOW, Scene, a_poll

LONG_MS = 60_000


@dataclass(frozen=True)
class QueryPollHarness:
    """An engine over a store that can delay its answers, with a pending query."""

    ctx: EngineContext
    store: GatedStore
    asked: asyncio.Task[QueryResult]

    def poll(self, wait_ms: int = 0) -> asyncio.Task[LeasedQuery | None]:
        return asyncio.create_task(queries.poll(self.ctx, a_poll(WORKFLOW), wait_ms, asyncio.Event()))

    async def hung_up_poll(self) -> None:
        """A poll whose caller disconnected while its lease was being committed."""
        for line in TransactionClass:
            self.store.shut(line)
        poll = self.poll()
        while not self.store.held:
            await asyncio.sleep(0)
        poll.cancel()
        for line in TransactionClass:
            self.store.open(line)
        await asyncio.wait([poll])
        assert poll.cancelled()


@pytest.fixture
async def harness(scene: Scene) -> AsyncIterator[QueryPollHarness]:
    await scene.register()
    await scene.start()
    await scene.decide(StartTimer(600))
    store = GatedStore(scene.ctx.store)
    ctx = replace(scene.ctx, store=store)
    asked = asyncio.create_task(
        queries.ask(ctx, QuerySubmission("default", "order-1", "state", Blob("")), asyncio.Event())
    )
    while not scene.tables.queries:
        await asyncio.sleep(0)
    yield QueryPollHarness(ctx, store, asked)
    asked.cancel()
    await asyncio.wait([asked])


async def test_a_query_whose_poll_disconnected_goes_to_the_next_poll(harness: QueryPollHarness):
    await harness.hung_up_poll()
    leased = await harness.poll()
    assert leased is not None
    answer = {"result": 7}
    await queries.report(
        harness.ctx,
        "default",
        leased.query.query_id,
        "w1",
        leased.query.attempt,
        QueryState.ANSWERED,
        answer,
    )
    assert (await harness.asked).outcome == answer


async def test_a_query_that_is_given_back_wakes_a_poll_that_waits(harness: QueryPollHarness):
    first = await harness.poll()
    assert first is not None
    waiting = harness.poll(LONG_MS)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done()
    await hand_back(harness.ctx, first)
    again = await waiting
    assert again is not None
    assert again.query.query_id == first.query.query_id


async def test_a_query_that_somebody_else_holds_by_now_is_not_given_back(
    harness: QueryPollHarness, scene: Scene
):
    first = await harness.poll()
    assert first is not None
    await hand_back(harness.ctx, first)
    second = await harness.poll()
    assert second is not None
    await hand_back(harness.ctx, first)
    assert scene.tables.queries[second.query.query_id] == second.query
