"""What a worker cannot take neither hides nor slows what it can, on every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.core.model import Blob, Standing, TaskKind
from penstock.engine import polls, starts, workers
from penstock.engine.dispatcher import Dispatcher
from penstock.engine.house import House
from penstock.engine.polls import Poll, Verdict
from penstock.engine.starts import Start
from penstock.engine.workers import Registration
from penstock.ports.store import Store
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from tests.stores.asking_store import AskingStore
from tests.stores.working import a_queue, enqueue
from tests.support.builders import a_task
from tests.support.entropy import CountingEntropy

UNFIT_LANES = 300
TYPES = 500
LANES = 12


@pytest.fixture
def house(store: Store) -> House:
    return House(store, LocalWakeups(), CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))


async def register(house: House, *types: str, worker_id: str = "w1") -> None:
    registration = Registration("default", worker_id, "orders", "python", workflow_types=types)
    await workers.register(house, registration)


async def start(house: House, workflow_type: str, workflow_id: str, key: str) -> None:
    request = Start(
        "default",
        workflow_type,
        "orders",
        Blob(""),
        workflow_id=workflow_id,
        standing=Standing(3, key, 1000),
    )
    await starts.start_workflow(house, request)


async def granted(house: House, **changes: Any) -> list[str]:
    """The workflows that a poll without patience gets."""
    dispatcher = Dispatcher(house)
    poll = Poll("default", "w1", "orders", TaskKind.WORKFLOW, **changes)
    try:
        answer = await dispatcher.poll(poll, 0)
    finally:
        await dispatcher.close()
    return [leased.run.workflow_id for leased in answer.leased]


# ── Lanes that hold nothing for this worker ─────────────────────────────────────────────────────────────


async def crowd_of_unfit_lanes(store: Store) -> None:
    """More fairness keys than one look places, each with a task that only other workers take."""
    queue = await a_queue(store, TaskKind.WORKFLOW)
    await enqueue(
        store, *(a_task(queue, f"mail{n}-1", type="Mail", key=f"k{n:04d}") for n in range(UNFIT_LANES))
    )


async def test_a_task_that_fits_is_granted_behind_hundreds_of_keys_that_do_not(store: Store, house: House):
    await crowd_of_unfit_lanes(store)
    await start(house, "Order", "order-1", key="zz")
    await register(house, "Order")
    assert await granted(house) == ["order-1"]


async def test_a_task_that_fits_is_granted_when_unfit_keys_come_after_a_first_look(
    store: Store, house: House
):
    await register(house, "Order")
    assert await granted(house) == []
    await crowd_of_unfit_lanes(store)
    await start(house, "Order", "order-1", key="zz")
    await start(house, "Order", "order-2", key="zz")
    assert await granted(house) == ["order-1"]
    assert await granted(house) == ["order-2"]
    assert await granted(house) == []


# ── Workers that know many types ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def overheard(store: Store, house: House) -> tuple[AskingStore, House]:
    asking = AskingStore(store)
    return asking, House(asking, house.wakeups, house.entropy, house.settings)


async def asked_by_a_claim(overheard: tuple[AskingStore, House], room: int) -> tuple[Sequence[str], Verdict]:
    """The statements that one claim asks, and what it says."""
    asking, house = overheard
    queue = await a_queue(asking, TaskKind.WORKFLOW)
    asking.asked.clear()
    poll = Poll("default", "w1", "orders", TaskKind.WORKFLOW, tasks_max=room)
    [verdict] = await polls.claim(house, queue.queue_id, [poll], None)
    return list(asking.asked), verdict


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_claim_of_a_worker_that_knows_many_types_asks_as_much_as_one_that_knows_one(
    overheard: tuple[AskingStore, House],
):
    house = overheard[1]
    counts = []
    await start(house, "T0", "first", key="k0")
    await register(house, "T0")
    await asked_by_a_claim(overheard, 1)  # the first claim on a queue learns which limits it goes by
    for types in (1, TYPES):
        for n in range(LANES):
            await start(house, "T0", f"order-{types}-{n}", key=f"k{n}")
        await register(house, *(f"T{n}" for n in range(types)))
        asked, verdict = await asked_by_a_claim(overheard, LANES)
        assert len(verdict.leased) == LANES
        counts.append(len(asked))
    assert counts[1] == counts[0]


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_an_idle_claim_of_a_worker_that_knows_many_types_asks_a_handful_of_statements(
    overheard: tuple[AskingStore, House],
):
    house = overheard[1]
    await register(house, *(f"T{n}" for n in range(TYPES)))
    asked, verdict = await asked_by_a_claim(overheard, 100)
    assert verdict.leased == ()
    assert len(asked) <= 10


@pytest.mark.parametrize("address", ["sqlite", "postgres"], indirect=True)
async def test_a_claim_asks_no_more_when_tasks_of_many_types_wait_in_every_lane(
    overheard: tuple[AskingStore, House],
):
    """What is asked grows with what is given, not with the product of lanes and types."""
    house = overheard[1]
    for n in range(LANES):
        for type_ in range(LANES):
            await start(house, f"T{type_}", f"order-{n}-{type_}", key=f"k{n}")
    await register(house, *(f"T{n}" for n in range(LANES)))
    asked, verdict = await asked_by_a_claim(overheard, LANES)
    assert len(verdict.leased) == LANES
    assert len([name for name in asked if name in ("first_routes", "take_tasks_of_route")]) <= 2 * LANES


async def test_tasks_of_many_types_in_one_lane_are_granted_in_the_order_in_which_they_came(house: House):
    names = [f"order-{n}" for n in range(3 * LANES)]
    for n, name in enumerate(names):
        await start(house, f"T{n * 7 % LANES}", name, key="k")
    await register(house, *(f"T{n}" for n in range(LANES)))
    found = [await granted(house, tasks_max=5) for _ in range(8)]
    assert [name for each in found for name in each] == names
