"""A task that was granted and never delivered: every counter is as if it had never gone, on every store, once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core import rates, windows
from penstock.core.admission import group_scope, namespace_scope
from penstock.core.model import Blob, Queue, Standing, TaskKind, TaskState, Wish
from penstock.core.policies import KeyState, Knob
from penstock.core.scheduling.dispatch import HoldReason
from penstock.core.timers import MINUTE_MS
from penstock.engine import admission, policies, polls, starts, workers
from penstock.engine.admission import ScopeAsk
from penstock.engine.house import House
from penstock.engine.policies import Ask, PolicyAsk
from penstock.engine.polls import Leased, Poll, Verdict
from penstock.engine.starts import STANDALONE_TYPE, Start
from penstock.engine.workers import Registration
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from tests.engine.scene import charge
from tests.stores.conftest import open_store
from tests.stores.working import a_queue, look
from tests.support.clock import ManualClock
from tests.support.entropy import CountingEntropy

BANK = group_scope("default", "bank")
SHOP = namespace_scope("default")
SECOND = 1_000_000
"""One a second, in millionths."""
LIMITS: dict[Knob, Ask] = {
    Knob.GROUP: Ask("bank"),
    Knob.DISPATCHES: Ask(3),
    Knob.QUEUE_RATE: Ask(SECOND // 100),
    Knob.QUEUE_BURST: Ask(400_000),
    Knob.KEY_RATE: Ask(SECOND // 100),
    Knob.KEY_BURST: Ask(400_000),
}
"""Rates of one in a hundred seconds with a burst of four: slow enough for a test on a busy machine."""


class Shop:
    """A house over a store under test, with activities that cost 300 of a budget of 900."""

    def __init__(self, house: House, queue: Queue) -> None:
        self.house = house
        self.queue = queue

    async def claim(self, count: int = 1, **changes: Any) -> Verdict:
        poll = Poll("default", "w1", "orders", TaskKind.ACTIVITY, tasks_max=count, **changes)
        [verdict] = await polls.claim(self.house, self.queue.queue_id, [poll], None)
        return verdict

    async def take(self, count: int = 1, **changes: Any) -> list[Leased]:
        leased = (await self.claim(count, **changes)).leased
        assert len(leased) == count
        return [*leased]

    async def hand_back(self, *leased: Leased) -> None:
        for each in reversed(leased):
            await polls.hand_back(self.house, each)

    async def counters(self) -> dict[str, Any]:
        """What every counter that a grant charges says now."""

        async def operation(tx: Tx) -> dict[str, Any]:
            queue = await tx.queues.lock(self.queue.queue_id)
            assert queue is not None
            scopes = await tx.scopes.lock(await tx.scopes.ids([BANK, SHOP]))
            lane = await tx.queues.lane(queue.queue_id, 3, "a", tx.now_ms)
            keys = await tx.policies.key_states(queue.queue_id, ["a"])
            key = keys.get("a") or KeyState("a")
            rate, minute, now_ms = queue.rules.queue_rate, tx.now_ms // MINUTE_MS, tx.now_ms
            key_rate = queue.rules.rate_of(key, 1_000)
            assert rate is not None
            assert key_rate is not None
            assert lane is not None
            return {
                "window of the queue": windows.used(queue.limits.window, queue.window, now_ms),
                "rate of the queue": rates.available(rate, queue.paid_until_ns, now_ms),
                "rate of the key": rates.available(key_rate, key.paid_until_ns, now_ms),
                "tag": lane.lane.tag,
                "lane's meter": lane.dispatched + lane.dispatched_before,
                "queue's meter": [
                    await tx.queues.dispatched(queue.queue_id, each) for each in (minute - 1, minute)
                ],
                "scopes": {
                    state.name: (
                        sum(count for _, count in state.window),
                        sum(cost for _, cost in state.costs),
                        state.running,
                    )
                    for state in scopes
                },
                "running": key.running,
            }

        return await self.house.store.transact(operation, key="counters")

    async def states(self) -> list[tuple[TaskState, int]]:
        leases = await look(self.house.store, lambda tx: tx.tasks.leases_on(self.queue.queue_id, 100))
        return [(task.state, task.attempt) for task in leases]


@pytest.fixture
async def journaling(
    address: str | Path | None, clock: ManualClock, wakeups: LocalWakeups
) -> AsyncIterator[Store]:
    opened = await open_store(address, clock, wakeups, journals=True)
    yield opened
    await opened.close()


@pytest.fixture
async def shop(journaling: Store, wakeups: LocalWakeups) -> Shop:
    house = House(journaling, wakeups, CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))
    queue = await a_queue(journaling)
    await policies.configure(house, "default", "orders", TaskKind.ACTIVITY, PolicyAsk(settings=LIMITS), "ops")
    for scope in (BANK, SHOP):
        ask = ScopeAsk({Knob.COST: Ask(900), Knob.DISPATCHES: Ask(4), Knob.RUNNING: Ask(10)})
        await admission.configure(house, scope, ask, "ops")
    await workers.register(house, Registration("default", "w1", "orders", "python", activity_slots=100))
    for number in range(6):
        start = Start(
            "default",
            STANDALONE_TYPE,
            "orders",
            Blob(""),
            workflow_id=f"charge-{number}",
            standing=Standing(3, "a"),
        )
        await starts.start_activity(house, start, replace(charge(), wish=Wish(cost=300)))
    return Shop(house, queue)


async def test_what_is_handed_back_undelivered_is_refunded_in_every_counter(shop: Shop):
    [first] = await shop.take()
    before = await shop.counters()
    undelivered = await shop.take(2)
    assert (await shop.claim()).hold is not None, "the limits are used up"
    await shop.hand_back(*undelivered)
    assert await shop.counters() == before
    assert before["scopes"] == {BANK: (1, 300, 1), SHOP: (1, 300, 1)}
    again = await shop.take(2)
    assert {each.task.task_id for each in again} == {each.task.task_id for each in undelivered}
    assert {each.task.attempt for each in again} == {1}
    assert first.task.task_id not in {each.task.task_id for each in again}


async def test_a_lease_that_is_handed_back_twice_is_refunded_once(shop: Shop):
    [delivered, undelivered] = await shop.take(2)
    await shop.hand_back(undelivered)
    after = await shop.counters()
    await shop.hand_back(undelivered)
    assert await shop.counters() == after
    [again] = await shop.take()
    assert again.task.task_id == undelivered.task.task_id
    spent = await shop.counters()
    await shop.hand_back(undelivered)
    assert await shop.counters() == spent, "the lease that is handed back is not the one that lives"
    assert delivered.task.lease_token is not None


async def test_a_lease_that_was_delivered_again_and_is_undelivered_again_is_refunded_once(shop: Shop):
    await shop.take()
    before = await shop.counters()
    [first] = await shop.take(poll_request_id="p1")
    [second] = (await shop.claim(poll_request_id="p1")).leased
    assert second.task.lease_token == first.task.lease_token
    spent = await shop.counters()
    await shop.hand_back(first)
    assert await shop.counters() == spent, "the second delivery counts"
    await shop.hand_back(second)
    after = await shop.counters()
    for known in ("window of the queue", "scopes", "queue's meter", "lane's meter", "tag", "running"):
        assert after[known] == before[known], known


async def test_a_task_fetched_ahead_gets_back_what_its_claim_paid(shop: Shop):
    await shop.take()
    before = await shop.counters()
    [ahead] = await shop.take(claim_lease_ms=5_000)
    assert await shop.counters() != before
    await shop.hand_back(ahead)
    assert await shop.counters() == before


async def test_a_budget_that_undelivered_tasks_had_used_up_lets_the_next_poll_go(shop: Shop):
    for _ in range(10):
        await shop.hand_back(*await shop.take(3))
    assert len(await shop.take(3)) == 3
    verdict = await shop.claim()
    assert verdict.hold is not None
    assert verdict.hold.reason is HoldReason.QUEUE_DISPATCHES


async def test_the_journal_tells_that_an_undelivered_lease_was_refunded(shop: Shop):
    [delivered, undelivered] = await shop.take(2)
    await shop.hand_back(undelivered)
    lines = [json.loads(text) for _, text in await look(shop.house.store, lambda tx: tx.journal.page(0, 100))]
    [ended] = [line for line in lines if line["event"] == "ended"]
    assert (ended["lease"], ended["how"], ended["refunded"]) == (
        undelivered.task.lease_token,
        "undelivered",
        True,
    )
    assert await shop.states() == [(TaskState.LEASED, 1)]
    assert replace(delivered.task, state=TaskState.LEASED) == delivered.task
