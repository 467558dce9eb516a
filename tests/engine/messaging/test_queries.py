"""Queries: bounded, guarded by the lock between servers, and deleted when their caller leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import OpenConditionWait, StartTimer
from penstock.core.model import Blob, QueryState
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweepers.expired_queries import expired_queries
from penstock.engine.matching import query_tasks
from penstock.engine.messaging import queries, signals
from penstock.engine.messaging.queries import QueryResult, QuerySubmission
from penstock.engine.runs.address import Address
from penstock.engine.workers import worker_registry
from penstock.errors import Conflict, Exhausted, Reason, Unavailable
from penstock.ports.coordination import InProcess
from penstock.ports.store import TransactionClass
from tests.engine.support.gated_store import GatedStore
from tests.engine.support.scene import WORKFLOW, Scene, a_poll, a_scene


class Locksmith(InProcess):
    """Grants locks unless disabled, and records their keys."""

    kind = "redis"

    def __init__(self) -> None:
        self.is_supported = True
        self.asked: list[str] = []

    @contextlib.asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[None]:
        self.asked.append(name)
        if not self.is_supported:
            raise Unavailable(Reason.COORDINATION_UNAVAILABLE, "no locks now", outcome="none")
        yield


async def waiting_run(**settings: str) -> Scene:
    """A run that waits for a timer, on a queue with a worker."""
    scene = a_scene(**settings)
    await scene.register()
    await scene.start()
    await scene.decide(StartTimer(600))
    return scene


def ask(ctx: EngineContext) -> asyncio.Task[QueryResult]:
    question = QuerySubmission("default", "order-1", "state", Blob(""))
    return asyncio.create_task(queries.ask(ctx, question, asyncio.Event()))


async def submitted(scene: Scene, count: int) -> None:
    while len(scene.tables.queries) != count:
        await asyncio.sleep(0)


async def answer(ctx: EngineContext, worker_id: str = "w1") -> None:
    leased = await queries.poll(ctx, a_poll(WORKFLOW, worker_id), 0, asyncio.Event())
    assert leased is not None
    query = leased.query
    await queries.report(
        ctx, "default", query.query_id, worker_id, query.attempt, QueryState.ANSWERED, {"result": 7}
    )


async def refusal(ctx: EngineContext) -> Exhausted:
    with pytest.raises(Exhausted) as refused:
        await ask(ctx)
    assert refused.value.reason is Reason.QUERY_TASK_QUEUE_FULL
    return refused.value


async def dismissed(*asked: asyncio.Task[QueryResult]) -> None:
    for each in asked:
        each.cancel()
    await asyncio.wait(asked)


async def test_a_full_queue_of_which_nothing_is_known_sends_callers_away_for_the_length_of_a_lease():
    scene = await waiting_run(query_task_max_pending_per_queue="1", query_task_lease_timeout="9")
    asked = ask(scene.ctx)
    await submitted(scene, 1)
    assert (await refusal(scene.ctx)).details["retry_after_seconds"] == 9
    await dismissed(asked)


async def test_a_full_queue_that_was_answered_fast_sends_callers_away_for_a_second():
    scene = await waiting_run(query_task_max_pending_per_queue="1", query_task_lease_timeout="9")
    first = ask(scene.ctx)
    await submitted(scene, 1)
    await answer(scene.ctx)
    await first
    asked = ask(scene.ctx)
    await submitted(scene, 1)
    refused = await refusal(scene.ctx)
    assert refused.details["retry_after_seconds"] == 1
    assert "Try again in 1 s." in refused.message
    await dismissed(asked)


async def test_a_query_is_submitted_under_the_lock_of_its_queue():
    scene = await waiting_run()
    locksmith = Locksmith()
    ctx = replace(scene.ctx, coordination=locksmith)
    asked = ask(ctx)
    await submitted(scene, 1)
    await answer(ctx)
    assert (await asked).outcome == {"result": 7}
    assert locksmith.asked == ["queries:default:orders"]


async def test_without_the_lock_a_query_is_refused_and_leaves_nothing():
    scene = await waiting_run()
    locksmith = Locksmith()
    locksmith.is_supported = False
    with pytest.raises(Unavailable) as refused:
        await ask(replace(scene.ctx, coordination=locksmith))
    assert refused.value.reason is Reason.QUERY_TASK_QUEUE_UNAVAILABLE
    assert refused.value.details["retry_after_seconds"] == 1
    assert refused.value.details["outcome"] == "none"
    assert not scene.tables.queries


async def test_a_pending_query_is_answered_while_no_lock_is_available():
    scene = await waiting_run()
    locksmith = Locksmith()
    ctx = replace(scene.ctx, coordination=locksmith)
    asked = ask(ctx)
    await submitted(scene, 1)
    locksmith.is_supported = False
    await answer(ctx)
    assert (await asked).outcome == {"result": 7}


async def test_a_poll_that_finds_no_query_is_refused_while_none_can_be_submitted():
    scene = await waiting_run()
    locksmith = Locksmith()
    locksmith.is_supported = False
    ctx = replace(scene.ctx, coordination=locksmith)
    with pytest.raises(Unavailable) as refused:
        await queries.poll(ctx, a_poll(WORKFLOW), 60_000, asyncio.Event())
    assert refused.value.reason is Reason.QUERY_TASK_QUEUE_UNAVAILABLE


async def test_a_query_whose_caller_disconnects_is_deleted():
    scene = await waiting_run()
    asked = ask(scene.ctx)
    await submitted(scene, 1)
    await dismissed(asked)
    assert asked.cancelled()
    assert not scene.tables.queries


async def test_a_query_whose_caller_disconnects_while_it_is_submitted_is_deleted_again():
    scene = await waiting_run()
    store = GatedStore(scene.ctx.store)
    store.shut(TransactionClass.CLAIM)
    asked = ask(replace(scene.ctx, store=store))
    while not store.held:
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.sleep(0)
    store.open(TransactionClass.CLAIM)
    await asyncio.wait([asked])
    assert asked.cancelled()
    assert not scene.tables.queries


async def test_a_query_waits_for_the_signal_that_was_acknowledged_before_it():
    """Seen: a query right after a signal was answered from a history without the signal."""
    scene = a_scene()
    await scene.register()
    run = await scene.start()
    await signals.send(scene.ctx, signals.Signal(Address("default", "order-1"), "pay", Blob("")))
    assert scene.run(run.run_id).buffered
    asked = ask(scene.ctx)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not scene.tables.queries, "the history has no signal yet"
    await scene.decide(OpenConditionWait("paid", "f00d"))
    await submitted(scene, 1)
    assert "SignalReceived" in await scene.types(run.run_id)
    await answer(scene.ctx)
    assert (await asked).outcome == {"result": 7}


async def test_a_query_whose_worker_died_goes_to_another():
    scene = await waiting_run()
    await scene.register("w2")
    asked = ask(scene.ctx)
    await submitted(scene, 1)
    lost = await queries.poll(scene.ctx, a_poll(WORKFLOW, "w1"), 0, asyncio.Event())
    assert lost is not None
    [row] = scene.tables.queries.values()
    row_id, far = row.query_id, row.expires_at_ms + 10**9
    scene.tables.execute("UPDATE query_tasks SET expires_at_ms = ? WHERE query_id = ?", far, row_id)
    scene.clock.set(lost.query.lease_expires_at_ms or 0)
    assert await expired_queries(scene.ctx).sweep() == 1
    await answer(scene.ctx, "w2")
    assert (await asked).outcome == {"result": 7}


async def test_a_worker_that_takes_no_workflow_tasks_is_not_waited_for():
    scene = await waiting_run()
    await worker_registry.heartbeat(scene.ctx, "default", "w1", None, None, None, slots=(0, None))
    with pytest.raises(Conflict) as refused:
        await ask(scene.ctx)
    assert refused.value.reason is Reason.QUERY_WORKER_UNAVAILABLE


async def test_a_run_whose_history_is_too_long_is_not_asked(monkeypatch: pytest.MonkeyPatch):
    """Neither is it answered from a part of its history."""
    scene = await waiting_run()
    monkeypatch.setattr(query_tasks, "HISTORY_EVENTS_MAX", 0)
    monkeypatch.setattr(query_tasks, "HISTORY_PORTION", 1)
    asked = ask(scene.ctx)
    await submitted(scene, 1)
    assert await queries.poll(scene.ctx, a_poll(WORKFLOW), 0, asyncio.Event()) is None
    with pytest.raises(Conflict) as refused:
        await asked
    assert refused.value.reason is Reason.QUERY_WORKFLOW_STATE_UNAVAILABLE
