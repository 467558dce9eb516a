"""Many polls on one queue: they cost nothing while it is empty, and none is starved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import pytest
from msgspec.structs import replace

from penstock.core.scheduling.dispatch import HoldReason, PollStatus
from penstock.engine.matching.dispatcher import POLLS_PER_CLAIM, Dispatcher, PollAnswer
from penstock.ports.store import Operation, Store, StoreHealth, Transaction, TransactionClass
from penstock.ports.wakeups import queue_topic
from tests.engine.support.scene import WORKFLOW, Scene, a_poll
from tests.support.one_by_one import one_by_one

T = TypeVar("T")
LONG_MS = 60_000
TURNS = 3_000
"""Event loop iterations in which a busy-looping dispatcher would claim thousands of times."""


class CountedStore:
    """Counts the claims, and yields to the event loop for each, as a real store does."""

    def __init__(self, behind: Store) -> None:
        self._behind = behind
        self.journals = behind.journals
        self.claims = 0

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        self.claims += tx_class is TransactionClass.CLAIM
        await asyncio.sleep(0)
        return await self._behind.transact(operation, key=key, tx_class=tx_class)

    async def transact_all(self, asked: Sequence[Transaction[T]]) -> Sequence[T | Exception]:
        return await one_by_one(self, asked)

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        return await self._behind.read(operation, long=long)

    async def check(self) -> None:
        await self._behind.check()

    def health(self) -> StoreHealth:
        return self._behind.health()

    async def close(self) -> None:
        await self._behind.close()


class Crowd:
    """A dispatcher, its waiting polls, and how often it claimed for them."""

    def __init__(self, scene: Scene) -> None:
        self.store = CountedStore(scene.ctx.store)
        self.dispatcher = Dispatcher(replace(scene.ctx, store=self.store))
        self.polls: list[asyncio.Task[PollAnswer]] = []

    def poll(self, wait_ms: int = LONG_MS, poll_request_id: str | None = None) -> asyncio.Task[PollAnswer]:
        asked = a_poll(WORKFLOW, poll_request_id=poll_request_id)
        self.polls.append(asyncio.create_task(self.dispatcher.poll(asked, wait_ms)))
        return self.polls[-1]

    async def gather(self, count: int) -> None:
        """Open a number of polls and let them wait."""
        for _ in range(count):
            self.poll()
        await pass_turns()
        assert self.dispatcher.open_polls == count

    async def close(self) -> None:
        for poll in self.polls:
            poll.cancel()
        await asyncio.gather(*self.polls, return_exceptions=True)
        await self.dispatcher.close()


async def pass_turns(turns: int = TURNS) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.fixture
async def crowd(scene: Scene) -> AsyncIterator[Crowd]:
    await scene.register()
    gathered = Crowd(scene)
    yield gathered
    await gathered.close()
    assert gathered.dispatcher.open_polls == 0
    assert gathered.dispatcher._turns == {}


async def test_more_idle_polls_than_one_claim_serves_do_not_spin(crowd: Crowd):
    await crowd.gather(POLLS_PER_CLAIM + 1)
    before = crowd.store.claims
    await pass_turns()
    assert crowd.store.claims == before


async def test_a_notification_makes_a_crowd_of_idle_polls_claim_once(scene: Scene, crowd: Crowd):
    await crowd.gather(POLLS_PER_CLAIM + 1)
    queue = await scene.queue(WORKFLOW)
    before = crowd.store.claims
    for ring in range(1, 6):
        scene.wakeups.notify([queue_topic(queue.queue_id)])
        await pass_turns(200)
        assert crowd.store.claims - before == ring


async def test_a_poll_without_patience_is_answered_behind_a_crowd_that_waits(crowd: Crowd):
    await crowd.gather(POLLS_PER_CLAIM)
    hasty = crowd.poll(wait_ms=0)
    await pass_turns()
    assert hasty.done()
    assert hasty.result() == PollAnswer((), PollStatus.EMPTY, HoldReason.EMPTY)


async def test_a_task_for_a_crowd_goes_to_the_one_who_waits_longest_and_the_others_wait_on(
    scene: Scene, crowd: Crowd
):
    await crowd.gather(POLLS_PER_CLAIM + 1)
    await scene.start()
    await pass_turns()
    assert [poll.done() for poll in crowd.polls] == [True] + [False] * POLLS_PER_CLAIM


async def test_tasks_for_a_crowd_reach_also_those_behind_the_first_claim(scene: Scene, crowd: Crowd):
    await crowd.gather(POLLS_PER_CLAIM + 2)
    for number in range(POLLS_PER_CLAIM + 2):
        await scene.start(f"order-{number}")
    answers = await asyncio.gather(*crowd.polls)
    assert len({answer.leased[0].task.task_id for answer in answers}) == POLLS_PER_CLAIM + 2


# ── One request id, sent twice at once ──────────────────────────────────────────────────────────────────


async def test_a_poll_sent_twice_at_once_leases_one_task_and_both_receive_it(scene: Scene, crowd: Crowd):
    for number in range(2):
        await scene.start(f"order-{number}")
    first, second = await asyncio.gather(crowd.poll(poll_request_id="p1"), crowd.poll(poll_request_id="p1"))
    assert [each.task.lease_token for each in first.leased] == [
        each.task.lease_token for each in second.leased
    ]
    assert scene.tables.count("tasks", "kind = 'workflow' AND state = 'leased'") == 1


async def test_a_poll_sent_twice_that_waits_leases_one_task_when_two_come(scene: Scene, crowd: Crowd):
    polls = [crowd.poll(poll_request_id="p1") for _ in range(2)]
    await pass_turns(200)
    for number in range(2):
        await scene.start(f"order-{number}")
    first, second = await asyncio.gather(*polls)
    assert [each.task.task_id for each in first.leased] == [each.task.task_id for each in second.leased]
    assert scene.tables.count("tasks", "kind = 'workflow' AND state = 'leased'") == 1


async def test_a_repeated_poll_takes_over_when_the_first_hangs_up(scene: Scene, crowd: Crowd):
    first, second = crowd.poll(poll_request_id="p1"), crowd.poll(poll_request_id="p1")
    await pass_turns(200)
    first.cancel()
    await asyncio.wait([first])
    await scene.start()
    assert len((await second).leased) == 1


async def test_polls_with_request_ids_of_their_own_wait_side_by_side(scene: Scene, crowd: Crowd):
    polls = [crowd.poll(poll_request_id=f"p{number}") for number in range(2)]
    await pass_turns(200)
    for number in range(2):
        await scene.start(f"order-{number}")
    first, second = await asyncio.gather(*polls)
    assert first.leased[0].task.task_id != second.leased[0].task.task_id
