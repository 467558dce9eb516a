"""Combined polls: whichever kind of work comes first is returned, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.core import payload_codec
from penstock.core.history.commands import OpenConditionWait
from penstock.core.model import QueryState, Run, TaskState
from penstock.core.scheduling.dispatch import PollStatus
from penstock.engine.matching import combined_poll, update_validation
from penstock.engine.matching import dispatcher as module
from penstock.engine.matching.dispatcher import Dispatcher, PollAnswer
from penstock.engine.matching.query_tasks import LeasedQuery
from penstock.errors import PenstockError, Reason
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, a_poll

LONG_MS = 60_000
ADVERTISED = {"capabilities": ["update_validation_tasks"]}


class CombinedPollHarness:
    """A dispatcher, a run that waits, and the worker that polls for both kinds of work."""

    def __init__(self, scene: Scene, run: Run) -> None:
        self.scene = scene
        self.run = run
        self.dispatcher = Dispatcher(scene.ctx)
        self._going: list[asyncio.Task[Any]] = []

    def poll(self, wait_ms: int = 0, **changes: Any) -> asyncio.Task[PollAnswer | LeasedQuery]:
        request = a_poll(WORKFLOW, **changes)
        polling = combined_poll.poll(self.scene.ctx, self.dispatcher, request, wait_ms)
        return self._go(polling)

    def ask(self) -> asyncio.Task[None]:
        """A caller that waits until an update is validated."""
        arguments = payload_codec.encode([])
        return self._go(
            update_validation.require_approval(self.scene.ctx, self.run, "set", arguments, asyncio.Event())
        )

    async def asked(self) -> asyncio.Task[None]:
        """`asks`, once the update is pending."""
        asked = self.ask()
        while not self.scene.tables.queries:
            await asyncio.sleep(0)
        return asked

    async def quiet(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)
        while self.dispatcher._tasks:
            await asyncio.wait(set(self.dispatcher._tasks))

    async def close(self) -> None:
        for each in self._going:
            each.cancel()
        if self._going:
            await asyncio.wait(self._going)
        await self.dispatcher.close()

    def _go(self, work: Any) -> asyncio.Task[Any]:
        self._going.append(asyncio.create_task(work))
        return self._going[-1]


@pytest.fixture
async def harness(scene: Scene) -> AsyncIterator[CombinedPollHarness]:
    await scene.register(advertised=ADVERTISED)
    run = await scene.start()
    await scene.decide(OpenConditionWait("set"))
    harness = CombinedPollHarness(scene, run)
    yield harness
    await harness.close()


def pending(scene: Scene) -> list[QueryState]:
    return [query.state for query in scene.tables.queries.values()]


async def test_a_poll_that_waits_gets_the_update_that_comes(harness: CombinedPollHarness):
    poll = harness.poll(LONG_MS)
    await harness.quiet()
    assert not poll.done()
    await harness.asked()
    leased = await poll
    assert isinstance(leased, LeasedQuery)
    assert leased.query.lease_owner == "w1"


async def test_a_poll_that_waits_gets_the_task_that_comes(harness: CombinedPollHarness):
    poll = harness.poll(LONG_MS)
    await harness.quiet()
    other = await harness.scene.start("order-2")
    answer = await poll
    assert isinstance(answer, PollAnswer)
    assert [leased.run.run_id for leased in answer.leased] == [other.run_id]
    await harness.asked()
    assert pending(harness.scene) == [QueryState.PENDING], "nobody listens for updates any more"


async def test_a_poll_without_a_wait_gets_what_is_there(harness: CombinedPollHarness):
    nothing = await harness.poll()
    assert isinstance(nothing, PollAnswer)
    assert nothing.status is PollStatus.EMPTY
    await harness.asked()
    await harness.scene.start("order-2")
    first, second = await harness.poll(), await harness.poll()
    assert isinstance(first, LeasedQuery), "somebody waits for it"
    assert isinstance(second, PollAnswer)
    assert len(second.leased) == 1


async def test_a_poll_that_is_repeated_gets_its_task_again_and_no_update_in_its_place(
    harness: CombinedPollHarness,
):
    await harness.scene.start("order-2")
    first = await harness.poll(poll_request_id="p1")
    assert isinstance(first, PollAnswer)
    await harness.asked()
    again = await harness.poll(poll_request_id="p1")
    assert isinstance(again, PollAnswer)
    assert [each.task.task_id for each in again.leased] == [each.task.task_id for each in first.leased]
    assert isinstance(await harness.poll(poll_request_id="p2"), LeasedQuery)


async def test_polls_with_one_request_id_take_turns(harness: CombinedPollHarness):
    first = harness.poll(LONG_MS, poll_request_id="p1")
    await harness.quiet()
    second = harness.poll(LONG_MS, poll_request_id="p1")
    await harness.quiet()
    await harness.scene.start("order-2")
    answers = [await first, await second]
    assert all(isinstance(each, PollAnswer) for each in answers)
    tasks = {
        leased.task.task_id for each in answers if isinstance(each, PollAnswer) for leased in each.leased
    }
    assert len(tasks) == 1


async def test_a_caller_that_hangs_up_leaves_everything_to_others(harness: CombinedPollHarness):
    poll = harness.poll(LONG_MS)
    await harness.quiet()
    poll.cancel()
    await asyncio.wait([poll])
    await harness.asked()
    other = await harness.scene.start("order-2")
    assert pending(harness.scene) == [QueryState.PENDING]
    assert [task.state for task in harness.scene.live(other.run_id)] == [TaskState.READY]
    assert harness.dispatcher.open_polls == 0


async def test_of_a_task_and_an_update_that_come_at_once_one_is_given_and_the_other_waits(
    harness: CombinedPollHarness,
):
    poll = harness.poll(LONG_MS)
    await harness.quiet()
    await asyncio.gather(harness.asked(), harness.scene.start("order-2"))
    first = await poll
    await harness.quiet()
    second = await harness.poll(LONG_MS)
    assert {type(first), type(second)} == {PollAnswer, LeasedQuery}


async def test_a_poll_of_a_worker_that_may_not_is_refused(harness: CombinedPollHarness):
    poll = harness.poll(LONG_MS, worker_id="nobody")
    with pytest.raises(PenstockError) as refused:
        await poll
    assert refused.value.reason is Reason.WORKER_NOT_REGISTERED
    await harness.asked()
    with pytest.raises(PenstockError) as again:
        await harness.poll(LONG_MS, worker_id="nobody")
    assert again.value.reason is Reason.WORKER_NOT_REGISTERED
    assert pending(harness.scene) == [QueryState.PENDING]


async def test_a_server_that_drains_ends_the_poll(harness: CombinedPollHarness):
    poll = harness.poll(LONG_MS)
    await harness.quiet()
    harness.dispatcher.drain()
    answer = await poll
    assert isinstance(answer, PollAnswer)
    assert answer.leased == ()


async def test_a_worker_that_polls_one_kind_at_a_time_is_let_go_for_an_update(
    harness: CombinedPollHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "YIELD_AFTER_S", 0.01)
    named: dict[str, Any] = {"workflow_types": ("Order",), "activity_types": ("Charge",)}
    await harness.scene.register(advertised=ADVERTISED, **named)
    await harness.asked()
    harness.dispatcher.start()
    answer = await harness.dispatcher.poll(a_poll(ACTIVITY), LONG_MS)
    assert (answer.leased, answer.status) == ((), PollStatus.EMPTY)
