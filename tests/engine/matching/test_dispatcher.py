"""The dispatcher: polls are woken, answered, refused and drained, and no task is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import StartTimer
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import Blob, TaskPriority, TaskState
from penstock.core.scheduling.dispatch import HoldReason, PollStatus
from penstock.engine.context import EngineContext
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.matching import dispatcher as module
from penstock.engine.matching.dispatcher import Dispatcher, PollAnswer
from penstock.engine.messaging import queries
from penstock.engine.messaging.queries import QuerySubmission
from penstock.engine.workers import cohorts
from penstock.errors import Exhausted, PenstockError, Reason
from penstock.ports.store import Operation, Store, TransactionClass
from penstock.wakeups.local import LocalWakeups
from tests.engine.support.gated_store import GatedStore
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, a_poll, a_scene, charge

T = TypeVar("T")
LONG_MS = 60_000


class DispatcherHarness:
    """A dispatcher with the polls that a test has opened."""

    def __init__(self, ctx: EngineContext) -> None:
        self.dispatcher = Dispatcher(ctx)
        self._polls: list[asyncio.Task[PollAnswer]] = []

    async def poll(self, wait_ms: int = LONG_MS, worker_id: str = "w1", **changes: Any) -> PollAnswer:
        kind = changes.pop("kind", WORKFLOW)
        return await self.dispatcher.poll(a_poll(kind, worker_id, **changes), wait_ms)

    async def waiting(self, worker_id: str = "w1", **changes: Any) -> asyncio.Task[PollAnswer]:
        """A long poll that has claimed once, got nothing, and waits."""
        task = asyncio.create_task(self.poll(LONG_MS, worker_id, **changes))
        self._polls.append(task)
        before = self._waiters()
        await until(lambda: self._waiters() > before or task.done())
        await self.quiet()
        return task

    def _waiters(self) -> int:
        return sum(len(each.waiters) for each in self.dispatcher._queues.values())

    async def quiet(self) -> None:
        """Wait until no claim and no hand-back is in progress."""
        while self.dispatcher._tasks:
            await asyncio.wait(set(self.dispatcher._tasks))

    async def close(self) -> None:
        for poll in self._polls:
            poll.cancel()
        if self._polls:
            await asyncio.wait(self._polls)
        await self.dispatcher.close()


class CountingStore(GatedStore):
    """A store with open gates that counts the calls."""

    def __init__(self, behind: Store) -> None:
        super().__init__(behind)
        self.reads = self.claims = 0

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        self.claims += tx_class is TransactionClass.CLAIM
        return await super().transact(operation, key=key, tx_class=tx_class)

    async def read(self, operation: Operation[T], *, long: bool = False) -> T:
        self.reads += 1
        return await super().read(operation, long=long)


async def until(happened: Callable[[], bool]) -> None:
    """Run the event loop until a condition holds; the test's timeout ends a wait in vain."""
    while not happened():
        await asyncio.sleep(0)


@pytest.fixture
async def harness(scene: Scene) -> AsyncIterator[DispatcherHarness]:
    opened = DispatcherHarness(scene.ctx)
    await scene.register()
    yield opened
    await opened.close()
    assert opened.dispatcher.open_polls == 0
    assert all(queue.is_idle for queue in opened.dispatcher._queues.values())
    assert scene.wakeups._listeners == {}


def names(answer: PollAnswer) -> list[str]:
    return [leased.run.workflow_id for leased in answer.leased]


# ── Waiting ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_poll_that_waits_is_woken_by_a_task(scene: Scene, harness: DispatcherHarness):
    poll = await harness.waiting()
    assert not poll.done()
    await scene.start()
    answer = await poll
    assert (names(answer), answer.status) == (["order-1"], PollStatus.LEASED)


async def test_a_poll_finds_what_was_there_before_it(scene: Scene, harness: DispatcherHarness):
    await scene.start()
    assert names(await harness.poll()) == ["order-1"]


async def test_a_poll_without_patience_is_answered_at_once(scene: Scene, harness: DispatcherHarness):
    assert await harness.poll(wait_ms=0) == PollAnswer((), PollStatus.EMPTY, HoldReason.EMPTY)
    await scene.start()
    assert names(await harness.poll(wait_ms=0)) == ["order-1"]


async def test_a_wait_that_is_over_is_answered_empty(harness: DispatcherHarness):
    assert await harness.poll(wait_ms=1) == PollAnswer((), PollStatus.EMPTY, HoldReason.EMPTY)


async def test_two_polls_and_one_task_leave_one_waiting(scene: Scene, harness: DispatcherHarness):
    first, second = await harness.waiting(), await harness.waiting()
    await scene.start("order-1")
    assert names(await first) == ["order-1"]
    await harness.quiet()
    assert not second.done()
    await scene.start("order-2")
    assert names(await second) == ["order-2"]


async def test_polls_are_served_in_order_of_arrival(scene: Scene, harness: DispatcherHarness):
    polls = [await harness.waiting() for _ in range(3)]
    for number in range(3):
        await scene.start(f"order-{number}")
    assert [names(await poll) for poll in polls] == [["order-0"], ["order-1"], ["order-2"]]


async def test_workers_of_different_kinds_wait_side_by_side(scene: Scene, harness: DispatcherHarness):
    await scene.register("mailer", workflow_types=("Mail",))
    everything, mail = await harness.waiting(), await harness.waiting("mailer")
    await scene.start("order-1")
    assert names(await everything) == ["order-1"]
    await scene.start("mail-1", workflow_type="Mail")
    assert names(await mail) == ["mail-1"]


async def test_a_retry_whose_backoff_ended_wakes_a_poll(scene: Scene, harness: DispatcherHarness):
    await scene.start()
    await scene.fail(await scene.take(WORKFLOW))
    poll = await harness.waiting()
    await scene.advance(1_000)
    assert names(await poll) == ["order-1"]


async def test_a_lost_wakeup_is_made_good_by_looking_again(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    """`wakeups-are-hints`: here no notification reaches the dispatcher at all."""
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.001)
    harness = DispatcherHarness(replace(scene.ctx, wakeups=LocalWakeups()))
    await scene.register()
    harness.dispatcher.start()
    poll = await harness.waiting()
    await scene.start()
    assert names(await poll) == ["order-1"]
    await harness.close()


async def test_a_queue_without_open_polls_is_no_longer_subscribed_to(
    scene: Scene, harness: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.001)
    assert (await harness.poll(wait_ms=0)).status is PollStatus.EMPTY
    harness.dispatcher.start()
    await until(lambda: not scene.wakeups._listeners)
    poll = await harness.waiting()
    await scene.start()
    assert names(await poll) == ["order-1"]


async def test_a_query_without_a_notification_is_found_by_the_periodic_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.001)
    deaf = replace(scene.ctx, wakeups=LocalWakeups())
    harness = DispatcherHarness(deaf)
    harness.dispatcher.start()
    await scene.register()
    await scene.start()
    await scene.decide(StartTimer(600))
    poll = asyncio.create_task(queries.poll(deaf, a_poll(WORKFLOW), LONG_MS, asyncio.Event()))
    await until(lambda: bool(deaf.query_polls.lines))
    question = QuerySubmission("default", "order-1", "state", Blob(""))
    asked = asyncio.create_task(queries.ask(scene.ctx, question, asyncio.Event()))
    leased = await poll
    assert leased is not None
    assert leased.query.name == "state"
    assert deaf.query_polls.lines == []
    asked.cancel()
    await asyncio.wait([asked])
    await harness.close()


async def test_where_nothing_is_ready_looking_again_claims_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.001)
    store = CountingStore(scene.ctx.store)
    harness = DispatcherHarness(replace(scene.ctx, store=store))
    await scene.register()
    harness.dispatcher.start()
    poll = await harness.waiting()
    await until(lambda: store.reads > 3)
    claimed = store.claims
    before = store.reads
    await until(lambda: store.reads > before + 10)
    assert store.claims == claimed
    await scene.start()
    assert names(await poll) == ["order-1"]
    await harness.close()


async def test_a_waiting_poll_is_answered_when_its_build_is_drained(scene: Scene, harness: DispatcherHarness):
    await scene.register("old", build_id="one")
    poll = await harness.waiting("old")
    await cohorts.drain(scene.ctx, "default", "orders", "one")
    with pytest.raises(PenstockError) as refused:
        await poll
    assert refused.value.reason is Reason.WORKER_DRAINING


async def test_two_servers_share_one_task_between_them(scene: Scene, harness: DispatcherHarness):
    other = DispatcherHarness(scene.ctx)
    polls = [await harness.waiting(), await other.waiting()]
    await scene.start()
    await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)
    await harness.quiet()
    await other.quiet()
    assert sum(poll.done() for poll in polls) == 1
    await other.close()


# ── A worker that polls one kind after the other ────────────────────────────────────────────────────────


@pytest.fixture
def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the early answer come without its half-second delay."""
    monkeypatch.setattr(module, "YIELD_AFTER_S", 0.0)


@pytest.mark.usefixtures("no_floor")
async def test_a_poll_ends_early_when_its_worker_has_work_of_the_other_kind(
    scene: Scene, harness: DispatcherHarness
):
    await scene.register("single", workflow_types=("Order",), activity_types=("Charge",))
    harness.dispatcher.start()
    poll = await harness.waiting("single")
    await scene.start()
    await poll
    await scene.complete((await poll).leased[0], charge())
    assert await harness.poll(LONG_MS, "single") == PollAnswer((), PollStatus.EMPTY, HoldReason.EMPTY)


@pytest.mark.usefixtures("no_floor")
@pytest.mark.parametrize("named", [(), ("Ship",)])
async def test_a_poll_keeps_its_wait_when_its_worker_names_no_such_work(
    scene: Scene, harness: DispatcherHarness, named: tuple[str, ...]
):
    await scene.start()
    await scene.decide(charge())
    await scene.register("single", workflow_types=("Order",), activity_types=named)
    harness.dispatcher.start()
    poll = await harness.waiting("single")
    for _ in range(20):
        await asyncio.sleep(0)
    assert not poll.done()


@pytest.mark.usefixtures("no_floor")
async def test_a_poll_keeps_its_wait_while_the_other_kind_is_polled_too(
    scene: Scene, harness: DispatcherHarness
):
    await scene.register("both", workflow_types=("Order",), activity_types=("Charge",))
    harness.dispatcher.start()
    workflow, activity = await harness.waiting("both"), await harness.waiting("both", kind=ACTIVITY)
    await scene.start()
    await scene.complete((await workflow).leased[0], charge(), charge())
    await activity
    another = await harness.waiting("both", kind=ACTIVITY)
    assert another.done(), "there were two"


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_that_is_not_registered_is_refused(harness: DispatcherHarness):
    with pytest.raises(PenstockError) as refused:
        await harness.poll(worker_id="nobody")
    assert refused.value.reason is Reason.WORKER_NOT_REGISTERED


async def test_one_refused_poll_leaves_its_neighbours_waiting(scene: Scene, harness: DispatcherHarness):
    good = await harness.waiting()
    with pytest.raises(PenstockError):
        await harness.poll(worker_id="nobody")
    assert not good.done()
    await scene.start()
    assert names(await good) == ["order-1"]


async def test_polls_beyond_the_limit_are_refused_until_one_has_ended():
    scene = a_scene(max_long_polls="2")
    await scene.register()
    harness = DispatcherHarness(scene.ctx)
    polls = [await harness.waiting(), await harness.waiting()]
    with pytest.raises(Exhausted) as refused:
        await harness.poll()
    assert refused.value.reason is Reason.LONG_POLL_CAPACITY_EXHAUSTED
    assert refused.value.details["task_kind"] == "workflow_task"
    assert refused.value.details["retry_after_seconds"] == 1
    await scene.start()
    await polls[0]
    assert (await harness.poll(wait_ms=0)).status is PollStatus.EMPTY
    await harness.close()


async def test_polls_that_arrive_together_on_an_unknown_queue_are_counted_too():
    scene = a_scene(max_long_polls="1")
    await scene.register()
    store = GatedStore(scene.ctx.store)
    harness = DispatcherHarness(replace(scene.ctx, store=store))
    store.shut(TransactionClass.WORK)
    polls = [asyncio.create_task(harness.poll(wait_ms=0)) for _ in range(3)]
    await until(lambda: (store.held > 0 and any(poll.done() for poll in polls)) or store.held == 3)
    store.open(TransactionClass.WORK)
    await asyncio.wait(polls)
    refused = [poll for poll in polls if isinstance(poll.exception(), Exhausted)]
    assert len(refused) == 2
    await harness.close()


async def test_a_store_failure_reaches_every_waiting_poll(scene: Scene, harness: DispatcherHarness):
    polls = [await harness.waiting(), await harness.waiting()]
    queue = await scene.queue(WORKFLOW)
    await scene.ctx.store.close()
    scene.wakeups.notify([f"queue:{queue.queue_id}"])
    for poll in polls:
        with pytest.raises(PenstockError):
            await poll


# ── Callers that go away ────────────────────────────────────────────────────────────────────────────────


async def test_a_poll_that_was_cancelled_gets_no_task(scene: Scene, harness: DispatcherHarness):
    poll = await harness.waiting()
    poll.cancel()
    await asyncio.wait([poll])
    run = await scene.start()
    await harness.quiet()
    assert [task.state for task in scene.live(run.run_id)] == [TaskState.READY]


async def test_a_task_granted_in_the_instant_of_a_disconnect_waits_again(
    scene: Scene, harness: DispatcherHarness
):
    poll = await harness.waiting()
    run = await scene.start()
    await until(lambda: scene.live(run.run_id)[0].state is TaskState.LEASED)
    assert not poll.done()
    poll.cancel()
    await asyncio.wait([poll])
    assert poll.cancelled()
    await harness.quiet()
    [task] = scene.live(run.run_id)
    assert (task.state, task.lease_token) == (TaskState.READY, None)
    assert names(await harness.poll()) == ["order-1"]


async def test_a_task_granted_to_somebody_who_has_gone_goes_to_the_next_who_waits(scene: Scene):
    store = GatedStore(scene.ctx.store)
    harness = DispatcherHarness(replace(scene.ctx, store=store))
    await scene.register()
    await scene.register("w2")
    first = await harness.waiting("w1")
    store.shut(TransactionClass.CLAIM)
    run = await scene.start()
    await until(lambda: store.held == 1)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.create_task(harness.poll(LONG_MS, "w2"))
    await until(lambda: harness.dispatcher.open_polls == 1)
    store.open(TransactionClass.CLAIM)
    [leased] = (await second).leased
    assert (leased.run.run_id, leased.task.lease_owner) == (run.run_id, "w2")
    await harness.close()


async def test_of_several_tasks_all_wait_again(scene: Scene, harness: DispatcherHarness):
    poll = await harness.waiting(tasks_max=3)
    queue = await scene.queue(WORKFLOW)
    silenced = scene.wakeups._listeners.pop(f"queue:{queue.queue_id}")
    for number in range(3):
        await scene.start(f"order-{number}")
    scene.wakeups._listeners[f"queue:{queue.queue_id}"] = silenced
    scene.wakeups.notify([f"queue:{queue.queue_id}"])
    await until(lambda: scene.tables.count("tasks", "state = 'leased'") > 0)
    poll.cancel()
    await asyncio.wait([poll])
    await harness.quiet()
    assert {(task.state, task.lease_token) for task in scene.tables.tasks.values()} == {
        (TaskState.READY, None)
    }


# ── Drain and close ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_drain_ends_all_polls(scene: Scene, harness: DispatcherHarness):
    polls = [await harness.waiting() for _ in range(3)]
    harness.dispatcher.drain()
    assert [await poll for poll in polls] == [PollAnswer((), PollStatus.EMPTY, HoldReason.EMPTY)] * 3


async def test_after_a_drain_a_poll_gets_one_look_and_no_wait(scene: Scene, harness: DispatcherHarness):
    harness.dispatcher.drain()
    assert (await harness.poll()).status is PollStatus.EMPTY
    await scene.start()
    assert names(await harness.poll()) == ["order-1"]


async def test_closing_waits_until_what_was_granted_too_late_waits_again(scene: Scene):
    store = GatedStore(scene.ctx.store)
    harness = DispatcherHarness(replace(scene.ctx, store=store))
    await scene.register()
    poll = await harness.waiting()
    store.shut(TransactionClass.CLAIM)
    run = await scene.start()
    await until(lambda: store.held == 1)
    closing = asyncio.create_task(harness.dispatcher.close())
    assert await poll == PollAnswer((), PollStatus.UNAVAILABLE, HoldReason.UNAVAILABLE)
    store.shut(TransactionClass.PERMIT)
    store.open(TransactionClass.CLAIM)
    await until(lambda: closing.done() or len(harness.dispatcher._tasks) == 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not closing.done()
    store.open(TransactionClass.PERMIT)
    await closing
    [task] = scene.live(run.run_id)
    assert (task.state, task.lease_token) == (TaskState.READY, None)


# ── What a look finds ───────────────────────────────────────────────────────────────────────────────────


async def test_a_worker_registered_anew_is_known_by_what_it_says_now_even_without_patience(
    scene: Scene, harness: DispatcherHarness
):
    await scene.register("w1", workflow_types=("Mail",))
    await harness.poll(wait_ms=0)
    await scene.register("w1", workflow_types=("Order",))
    await scene.start()
    assert names(await harness.poll(wait_ms=0)) == ["order-1"]


async def test_a_poll_is_not_left_waiting_because_a_key_held_less_for_it_than_it_seemed(
    scene: Scene, harness: DispatcherHarness
):
    """Key a holds five tasks of which one fits; what it does not give is found at key b."""
    await scene.register("w1", workflow_types=("Order",))
    for number in range(5):
        kind = "Order" if number == 0 else "Mail"
        await scene.start(f"a{number}", workflow_type=kind, priority=TaskPriority(3, "a"))
    for number in range(4):
        await scene.start(f"b{number}", priority=TaskPriority(3, "b"))
    answers = await asyncio.gather(*(harness.poll(wait_ms=0) for _ in range(5)))
    assert sorted(name for answer in answers for name in names(answer)) == ["a0", "b0", "b1", "b2", "b3"]


async def test_more_polls_than_one_claim_serves_are_all_served(
    scene: Scene, harness: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "POLLS_PER_CLAIM", 3)
    for number in range(8):
        await scene.start(f"order-{number}")
    answers = await asyncio.gather(*(harness.poll(wait_ms=0) for _ in range(10)))
    assert sum(len(answer.leased) for answer in answers) == 8


async def test_the_timer_of_a_limit_is_set_again_after_the_queue_was_idle(
    scene: Scene, harness: DispatcherHarness
):
    """A worker that hangs up while a rate holds its poll, and polls again, is served when the rate allows it."""
    rate = PolicyUpdate(settings={LimitSetting.QUEUE_RATE: SettingChange(1_000_000)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, rate, "ops")
    for name in ("a", "b"):
        await scene.start_activity(name)
    assert (await harness.poll(0, kind=ACTIVITY)).leased
    first = await harness.waiting(kind=ACTIVITY)
    first.cancel()
    await asyncio.wait([first])
    await harness.quiet()
    harness.dispatcher._release_idle()
    await harness.waiting(kind=ACTIVITY)
    [queue] = [each for each in harness.dispatcher._queues.values() if each.waiters]
    assert queue.timer is not None
    assert not queue.timer.cancelled()


# ── What had held a task back is recorded with its lease ────────────────────────────────────────────────


async def test_a_task_that_a_cap_held_back_says_so_once_it_is_leased(
    scene: Scene, harness: DispatcherHarness
) -> None:
    cap = PolicyUpdate({LimitSetting.LEASE_CAP: SettingChange(1)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, cap, "ops")
    await scene.start_activity("first")
    [first] = (await harness.poll(kind=ACTIVITY)).leased
    await scene.start_activity("second")
    parked = await harness.waiting(kind=ACTIVITY)
    scene.clock.advance(500)
    await scene.finish(first)
    [second] = (await parked).leased
    assert second.task.held_by == HoldReason.QUEUE_LEASE_CAP
    assert scene.task(second.task.task_id).held_by == HoldReason.QUEUE_LEASE_CAP


async def test_a_task_that_came_before_any_poll_waited_for_slots(
    scene: Scene, harness: DispatcherHarness
) -> None:
    await scene.start()
    scene.clock.advance(500)
    [leased] = (await harness.poll()).leased
    assert leased.task.held_by == HoldReason.SLOTS


async def test_a_task_that_a_parked_poll_takes_was_held_back_by_nothing(
    scene: Scene, harness: DispatcherHarness
) -> None:
    parked = await harness.waiting()
    await scene.start()
    [leased] = (await parked).leased
    assert leased.task.held_by == ""
