"""A task that was granted and never delivered: all counters are restored, exactly once, on every store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.limits import rates, windows
from penstock.core.limits.admission import group_scope, namespace_scope
from penstock.core.limits.policies import KeyState, LimitSetting
from penstock.core.model import Blob, PriorityOverride, Queue, TaskKind, TaskPriority, TaskState
from penstock.core.scheduling.dispatch import HoldReason
from penstock.core.scheduling.polls import ClaimResult, Leased, Poll
from penstock.core.timestamps import MINUTE_MS
from penstock.engine.context import EngineContext
from penstock.engine.limits import admission, policies
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.matching.claim import claim as claim_tasks
from penstock.engine.matching.undelivered import hand_back
from penstock.engine.workers import worker_registry
from penstock.engine.workers.worker_registry import Registration
from penstock.engine.workflows.starts import STANDALONE_TYPE, Start
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.wakeups.local import LocalWakeups
from tests.engine.support import direct
from tests.engine.support.scene import charge
from tests.stores.conftest import open_store
from tests.stores.store_operations import a_queue, look
from tests.support.claims import hold_of, leased_of
from tests.support.clock import ManualClock
from tests.support.entropy import CountingEntropy

BANK = group_scope("default", "bank")
SHOP = namespace_scope("default")
SECOND = 1_000_000
"""One a second, in millionths."""
LIMITS: dict[LimitSetting, SettingChange] = {
    LimitSetting.GROUP: SettingChange("bank"),
    LimitSetting.DISPATCHES: SettingChange(3),
    LimitSetting.QUEUE_RATE: SettingChange(SECOND // 100),
    LimitSetting.QUEUE_BURST: SettingChange(400_000),
    LimitSetting.KEY_RATE: SettingChange(SECOND // 100),
    LimitSetting.KEY_BURST: SettingChange(400_000),
}
"""Rates of one in a hundred seconds with a burst of four: slow enough for a test on a busy machine."""


class Shop:
    """An engine over the store under test, with activities that cost 300 of a budget of 900."""

    def __init__(self, ctx: EngineContext, queue: Queue) -> None:
        self.ctx = ctx
        self.queue = queue

    async def claim(self, count: int = 1, **changes: Any) -> ClaimResult:
        poll = Poll("default", "w1", "orders", TaskKind.ACTIVITY, tasks_max=count, **changes)
        [verdict] = await claim_tasks(self.ctx, self.queue.queue_id, [poll], None)
        return verdict

    async def take(self, count: int = 1, **changes: Any) -> list[Leased]:
        leased = leased_of(await self.claim(count, **changes))
        assert len(leased) == count
        return [*leased]

    async def hand_back(self, *leased: Leased) -> None:
        for each in reversed(leased):
            await hand_back(self.ctx, each)

    async def counters(self) -> dict[str, Any]:
        """All counters that a grant charges."""

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

        return await self.ctx.store.transact(operation, key="counters")

    async def states(self) -> list[tuple[TaskState, int]]:
        leases = await look(self.ctx.store, lambda tx: tx.tasks.leases_on(self.queue.queue_id, 100))
        return [(task.state, task.attempt) for task in leases]


@pytest.fixture
async def journaling(address: str | Path, clock: ManualClock, wakeups: LocalWakeups) -> AsyncIterator[Store]:
    opened = await open_store(address, clock, wakeups, journals=True)
    yield opened
    await opened.close()


@pytest.fixture
async def shop(journaling: Store, wakeups: LocalWakeups) -> Shop:
    ctx = EngineContext(journaling, wakeups, CountingEntropy(), load({"DW_AUTH_DRIVER": "none"}))
    queue = await a_queue(journaling)
    await policies.configure(
        ctx, "default", "orders", TaskKind.ACTIVITY, PolicyUpdate(settings=LIMITS), "ops"
    )
    for scope in (BANK, SHOP):
        ask = ScopeUpdate(
            {
                LimitSetting.COST: SettingChange(900),
                LimitSetting.DISPATCHES: SettingChange(4),
                LimitSetting.LEASE_CAP: SettingChange(10),
            }
        )
        await admission.configure(ctx, scope, ask, "ops")
    await worker_registry.register(ctx, Registration("default", "w1", "orders", "python", activity_slots=100))
    for number in range(6):
        start = Start(
            "default",
            STANDALONE_TYPE,
            "orders",
            Blob(""),
            workflow_id=f"charge-{number}",
            priority=TaskPriority(3, "a"),
        )
        await direct.start_activity(ctx, start, replace(charge(), priority=PriorityOverride(cost=300)))
    return Shop(ctx, queue)


async def test_what_is_handed_back_undelivered_is_refunded_in_every_counter(shop: Shop):
    [first] = await shop.take()
    before = await shop.counters()
    undelivered = await shop.take(2)
    assert hold_of(await shop.claim()) is not None, "the limits are used up"
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
    [second] = leased_of(await shop.claim(poll_request_id="p1"))
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
    hold = hold_of(verdict)
    assert hold is not None
    assert hold.reason is HoldReason.QUEUE_DISPATCHES


async def test_the_journal_tells_that_an_undelivered_lease_was_refunded(shop: Shop):
    [delivered, undelivered] = await shop.take(2)
    await shop.hand_back(undelivered)
    lines = [json.loads(text) for _, text in await look(shop.ctx.store, lambda tx: tx.journal.page(0, 100))]
    [ended] = [line for line in lines if line["event"] == "ended"]
    assert (ended["lease"], ended["how"], ended["refunded"]) == (
        undelivered.task.lease_token,
        "undelivered",
        True,
    )
    assert await shop.states() == [(TaskState.LEASED, 1)]
    assert replace(delivered.task, state=TaskState.LEASED) == delivered.task
