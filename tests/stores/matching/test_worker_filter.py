"""Tasks that a worker cannot take neither hide nor slow down those that it can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.model import Blob, TaskKind, TaskPriority
from penstock.core.scheduling.polls import ClaimResult, Poll
from penstock.engine.context import EngineContext
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows import starts
from penstock.engine.workflows.starts import Start
from penstock.ports.store import Store
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from tests.stores.statement_log import StatementLogStore
from tests.stores.store_operations import a_queue, enqueue
from tests.support.builders import a_task
from tests.support.claims import leased_of
from tests.support.entropy import CountingEntropy

UNFIT_LANES = 300
TYPES = 500
LANES = 12


@pytest.fixture
def ctx(store: Store) -> EngineContext:
    return EngineContext(store, LocalWakeups(), CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))


async def register(ctx: EngineContext, *types: str, worker_id: str = "w1") -> None:
    registration = Registration("default", worker_id, "orders", "python", workflow_types=types)
    await worker_registry.register(ctx, registration)


async def start(ctx: EngineContext, workflow_type: str, workflow_id: str, key: str) -> None:
    request = Start(
        "default",
        workflow_type,
        "orders",
        Blob(""),
        workflow_id=workflow_id,
        priority=TaskPriority(3, key, 1000),
    )
    await starts.start_workflow(ctx, request)


async def granted(ctx: EngineContext, **changes: Any) -> list[str]:
    """The workflows of the tasks that a non-waiting poll returns."""
    dispatcher = Dispatcher(ctx)
    poll = Poll("default", "w1", "orders", TaskKind.WORKFLOW, **changes)
    try:
        answer = await dispatcher.poll(poll, 0)
    finally:
        await dispatcher.close()
    return [leased.run.workflow_id for leased in answer.leased]


# ── Lanes that hold nothing for this worker ─────────────────────────────────────────────────────────────


async def crowd_of_unfit_lanes(store: Store) -> None:
    """More fairness keys than one claim tags, each with a task for other workers."""
    queue = await a_queue(store, TaskKind.WORKFLOW)
    await enqueue(
        store, *(a_task(queue, f"mail{n}-1", type="Mail", key=f"k{n:04d}") for n in range(UNFIT_LANES))
    )


async def test_a_task_that_fits_is_granted_behind_hundreds_of_keys_that_do_not(
    store: Store, ctx: EngineContext
):
    await crowd_of_unfit_lanes(store)
    await start(ctx, "Order", "order-1", key="zz")
    await register(ctx, "Order")
    assert await granted(ctx) == ["order-1"]


async def test_a_task_that_fits_is_granted_when_unfit_keys_come_after_a_first_look(
    store: Store, ctx: EngineContext
):
    await register(ctx, "Order")
    assert await granted(ctx) == []
    await crowd_of_unfit_lanes(store)
    await start(ctx, "Order", "order-1", key="zz")
    await start(ctx, "Order", "order-2", key="zz")
    assert await granted(ctx) == ["order-1"]
    assert await granted(ctx) == ["order-2"]
    assert await granted(ctx) == []


# ── Workers that know many types ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def overheard(store: Store, ctx: EngineContext) -> tuple[StatementLogStore, EngineContext]:
    asking = StatementLogStore(store)
    return asking, EngineContext(asking, ctx.wakeups, ctx.entropy, ctx.settings)


async def asked_by_a_claim(
    overheard: tuple[StatementLogStore, EngineContext], room: int
) -> tuple[Sequence[str], ClaimResult]:
    """The statements that one claim executes, and its result."""
    asking, ctx = overheard
    queue = await a_queue(asking, TaskKind.WORKFLOW)
    asking.asked.clear()
    poll = Poll("default", "w1", "orders", TaskKind.WORKFLOW, tasks_max=room)
    [verdict] = await claim_tasks(ctx, queue.queue_id, [poll], None)
    return list(asking.asked), verdict


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_claim_of_a_worker_that_knows_many_types_asks_as_much_as_one_that_knows_one(
    overheard: tuple[StatementLogStore, EngineContext],
):
    ctx = overheard[1]
    counts = []
    await start(ctx, "T0", "first", key="k0")
    await register(ctx, "T0")
    await asked_by_a_claim(overheard, 1)  # the first claim on a queue learns which limits it goes by
    for types in (1, TYPES):
        for n in range(LANES):
            await start(ctx, "T0", f"order-{types}-{n}", key=f"k{n}")
        await register(ctx, *(f"T{n}" for n in range(types)))
        asked, verdict = await asked_by_a_claim(overheard, LANES)
        assert len(leased_of(verdict)) == LANES
        counts.append(len(asked))
    assert counts[1] == counts[0]


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_an_idle_claim_of_a_worker_that_knows_many_types_asks_a_handful_of_statements(
    overheard: tuple[StatementLogStore, EngineContext],
):
    ctx = overheard[1]
    await register(ctx, *(f"T{n}" for n in range(TYPES)))
    asked, verdict = await asked_by_a_claim(overheard, 100)
    assert leased_of(verdict) == ()
    assert len(asked) <= 10


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_claim_asks_no_more_when_tasks_of_many_types_wait_in_every_lane(
    overheard: tuple[StatementLogStore, EngineContext],
):
    """The number of statements grows with the tasks dispatched, not with lanes times types."""
    ctx = overheard[1]
    for n in range(LANES):
        for type_ in range(LANES):
            await start(ctx, f"T{type_}", f"order-{n}-{type_}", key=f"k{n}")
    await register(ctx, *(f"T{n}" for n in range(LANES)))
    asked, verdict = await asked_by_a_claim(overheard, LANES)
    assert len(leased_of(verdict)) == LANES
    assert len([name for name in asked if name in ("first_routes", "take_tasks_of_route")]) <= 2 * LANES


async def test_tasks_of_many_types_in_one_lane_are_granted_in_the_order_in_which_they_came(
    ctx: EngineContext,
):
    names = [f"order-{n}" for n in range(3 * LANES)]
    for n, name in enumerate(names):
        await start(ctx, f"T{n * 7 % LANES}", name, key="k")
    await register(ctx, *(f"T{n}" for n in range(LANES)))
    found = [await granted(ctx, tasks_max=5) for _ in range(8)]
    assert [name for each in found for name in each] == names
