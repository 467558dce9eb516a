"""A poll is answered in time even if the database hangs, and undelivered grants are refunded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest
from msgspec.structs import replace

from penstock.core.limits.policies import LimitSetting
from penstock.core.model import QueryKind, TaskState
from penstock.core.scheduling.cohorts import is_known_dead
from penstock.core.scheduling.dispatch import HoldReason, PollStatus
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.matching import combined_poll, dispatcher, undelivered
from penstock.engine.matching.dispatcher import Dispatcher, PollAnswer
from penstock.engine.messaging import queries
from penstock.engine.runtime import deadlines
from penstock.errors import Reason, Unavailable
from penstock.ports.store import Operation, Store, TransactionClass
from tests.engine.support.gated_store import GatedStore
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, a_poll

T = TypeVar("T")
UNAVAILABLE = PollAnswer((), PollStatus.UNAVAILABLE, HoldReason.UNAVAILABLE)
SHORT_MS = 20
LONG_MS = 60_000


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim in progress when a poll ends is hardly waited for."""
    for module in (deadlines, dispatcher):
        monkeypatch.setattr(module, "LOOK_GRACE_S", 0.02)


@pytest.fixture
def much_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim in progress when a poll ends is waited for, however slow the machine is."""
    for module in (deadlines, dispatcher):
        monkeypatch.setattr(module, "LOOK_GRACE_S", 600)


class FailingStore(GatedStore):
    """A store that fails a set number of hand-backs, and loses the reply to a set number of commits of claims."""

    def __init__(self, behind: Store) -> None:
        super().__init__(behind)
        self.failures = 0
        self.lost_replies = 0

    async def transact(
        self, operation: Operation[T], *, key: str, tx_class: TransactionClass = TransactionClass.WORK
    ) -> T:
        if tx_class is TransactionClass.PERMIT and self.failures:
            self.failures -= 1
            raise Unavailable(Reason.STORE_UNAVAILABLE, "The database is down.")
        result = await super().transact(operation, key=key, tx_class=tx_class)
        if tx_class is TransactionClass.CLAIM and self.lost_replies:
            self.lost_replies -= 1
            raise Unavailable(Reason.OUTCOME_UNKNOWN, "The connection broke during commit.")
        return result


@pytest.fixture
def store(scene: Scene) -> FailingStore:
    return FailingStore(scene.ctx.store)


@pytest.fixture
async def polls(scene: Scene, store: FailingStore) -> AsyncIterator[Dispatcher]:
    """A dispatcher over a store whose gates a test may close, with a registered worker and queue."""
    await scene.register()
    opened = Dispatcher(replace(scene.ctx, store=store))
    for kind in (ACTIVITY, WORKFLOW):
        while (await opened.poll(a_poll(kind), 0)).status is not PollStatus.EMPTY:
            await quiet(opened)  # without grace, a slow machine ends a poll before its claim
    yield opened
    for each in TransactionClass:
        store.open(each)
    await opened.close()


async def until(happened: Callable[[], bool]) -> None:
    """Run the event loop until a condition holds; the test's timeout ends a wait in vain."""
    while not happened():
        await asyncio.sleep(0)


async def dispatched(scene: Scene) -> int:
    """The dispatches of the queue counted this minute."""
    queue = await scene.queue(ACTIVITY)
    minute = scene.clock.now_ms() // 60_000
    return await scene.read(lambda tx: tx.queues.dispatched(queue.queue_id, minute))


async def quiet(polls: Dispatcher) -> None:
    while polls._tasks:
        await asyncio.wait(set(polls._tasks))


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("wait_ms", [0, SHORT_MS])
async def test_a_poll_whose_look_did_not_come_back_returns_unavailable_and_its_permit_is_refunded(
    scene: Scene, store: FailingStore, polls: Dispatcher, wait_ms: int
):
    limit = PolicyUpdate(settings={LimitSetting.DISPATCHES: SettingChange(1)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, limit, "ops")
    run = await scene.start_activity()
    for _ in range(4):
        store.shut(TransactionClass.CLAIM)
        assert await polls.poll(a_poll(ACTIVITY), wait_ms) == UNAVAILABLE
        while await dispatched(scene) != 1:  # the claim goes on, and counts what it grants
            await asyncio.sleep(0)
        store.open(TransactionClass.CLAIM)
        await quiet(polls)
        assert await dispatched(scene) == 0
        assert [task.state for task in scene.live(run.run_id)] == [TaskState.READY]
    assert len((await polls.poll(a_poll(ACTIVITY), wait_ms)).leased) == 1


async def test_a_claim_whose_commit_got_no_reply_leaves_no_lease_that_nobody_has(
    scene: Scene, store: FailingStore, polls: Dispatcher
):
    """The worker of such a claim never heard of its task, which then waited for the lease to expire, charged."""
    limit = PolicyUpdate(settings={LimitSetting.DISPATCHES: SettingChange(1)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, limit, "ops")
    run = await scene.start_activity()
    store.lost_replies = 1
    store.failures = 1  # the database stays away for a moment
    with pytest.raises(Unavailable) as refusal:
        await polls.poll(a_poll(ACTIVITY), 0)
    assert refusal.value.reason is Reason.OUTCOME_UNKNOWN
    await quiet(polls)
    assert await dispatched(scene) == 0
    assert [(task.state, task.attempt) for task in scene.live(run.run_id)] == [(TaskState.READY, 0)]
    [leased] = (await polls.poll(a_poll(ACTIVITY), 0)).leased
    assert leased.task.attempt == 1


@pytest.mark.usefixtures("much_grace")
async def test_a_claim_that_comes_back_shortly_after_the_poll_has_ended_is_delivered(
    scene: Scene, store: FailingStore, polls: Dispatcher
):
    await scene.start_activity()
    store.shut(TransactionClass.CLAIM)
    poll = asyncio.create_task(polls.poll(a_poll(ACTIVITY), SHORT_MS))
    await until(lambda: any(not each.patient for queue in polls._queues.values() for each in queue.waiters))
    assert not poll.done()
    store.open(TransactionClass.CLAIM)
    assert len((await poll).leased) == 1


@pytest.mark.usefixtures("much_grace")
async def test_a_poll_that_has_ended_gets_the_result_of_a_claim_in_progress(
    store: FailingStore, polls: Dispatcher
):
    store.shut(TransactionClass.CLAIM)
    poll = asyncio.create_task(polls.poll(a_poll(ACTIVITY), SHORT_MS))
    await until(lambda: any(not each.patient for queue in polls._queues.values() for each in queue.waiters))
    store.open(TransactionClass.CLAIM)
    assert await poll == PollAnswer((), PollStatus.EMPTY, HoldReason.EMPTY)


async def test_a_poll_that_looked_in_vain_before_returns_unavailable_when_its_last_look_does_not_come_back(
    scene: Scene, store: FailingStore, polls: Dispatcher
):
    poll = asyncio.create_task(polls.poll(a_poll(ACTIVITY), LONG_MS))
    await until(lambda: any(each.hold for queue in polls._queues.values() for each in queue.waiters))
    store.shut(TransactionClass.CLAIM)
    run = await scene.start_activity()
    await until(lambda: store.held == 1)
    polls.drain()
    assert await poll == UNAVAILABLE
    store.open(TransactionClass.CLAIM)
    await quiet(polls)
    assert [task.state for task in scene.live(run.run_id)] == [TaskState.READY]


@pytest.mark.usefixtures("no_grace")
async def test_a_poll_on_a_queue_new_to_this_server_ends_in_its_time_though_the_database_does_not_answer(
    scene: Scene, store: FailingStore, polls: Dispatcher
):
    await scene.register("w2", task_queue="unheard-of")
    store.shut(TransactionClass.WORK)
    with pytest.raises(Unavailable) as refusal:
        await polls.poll(a_poll(ACTIVITY, "w2", task_queue="unheard-of"), SHORT_MS)
    assert refusal.value.reason is Reason.STORE_UNAVAILABLE


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("multiplexed", [False, True])
async def test_a_worker_whose_poll_was_ended_by_the_server_is_not_taken_for_dead(
    scene: Scene,
    store: FailingStore,
    polls: Dispatcher,
    monkeypatch: pytest.MonkeyPatch,
    multiplexed: bool,
):
    """It was refused because the database hangs; it has not disconnected, and keeps its sticky tasks."""
    monkeypatch.setattr(dispatcher, "DISCONNECTED_S", 0.0)
    await scene.register("w2", task_queue="unheard-of")
    scene.clock.advance(2_000)
    store.shut(TransactionClass.WORK)
    poll = a_poll(WORKFLOW, "w2", task_queue="unheard-of")
    ctx = replace(scene.ctx, store=store)
    with pytest.raises(Unavailable):
        if multiplexed:
            await combined_poll.poll(ctx, polls, poll, SHORT_MS)
        else:
            await polls.poll(poll, SHORT_MS)
    store.open(TransactionClass.WORK)
    await asyncio.sleep(0.01)
    await quiet(polls)
    worker = await scene.read(lambda tx: tx.workers.get("default", "w2"))
    assert worker is not None
    assert not is_known_dead(worker)


@pytest.mark.usefixtures("no_grace")
async def test_a_poll_that_is_repeated_while_the_first_one_hangs_ends_in_its_time(
    store: FailingStore, polls: Dispatcher
):
    store.shut(TransactionClass.CLAIM)
    first = asyncio.create_task(polls.poll(a_poll(ACTIVITY, poll_request_id="p1"), LONG_MS))
    await until(lambda: polls.open_polls == 1)
    with pytest.raises(Unavailable):
        await polls.poll(a_poll(ACTIVITY, poll_request_id="p1"), SHORT_MS)
    first.cancel()
    await asyncio.wait([first])


@pytest.mark.usefixtures("no_grace")
async def test_a_poll_for_two_kinds_of_work_ends_in_its_time_though_the_database_does_not_answer(
    scene: Scene, store: FailingStore, polls: Dispatcher
):
    store.shut(TransactionClass.CLAIM)
    ctx = replace(scene.ctx, store=store)
    assert await combined_poll.poll(ctx, polls, a_poll(WORKFLOW), SHORT_MS) == UNAVAILABLE


@pytest.mark.usefixtures("no_grace")
async def test_a_poll_for_queries_ends_in_its_time_though_the_database_does_not_answer(
    scene: Scene, store: FailingStore, polls: Dispatcher
):
    store.shut(TransactionClass.CLAIM)
    ctx = replace(scene.ctx, store=store)
    with pytest.raises(Unavailable):
        await queries.poll(ctx, a_poll(WORKFLOW), SHORT_MS, polls.draining)
    assert QueryKind.QUERY not in {kind for kind, _, _ in ctx.query_polls.lines}


@pytest.mark.usefixtures("no_grace")
async def test_what_cannot_be_handed_back_at_once_is_handed_back_when_the_database_is_there_again(
    scene: Scene, store: FailingStore, polls: Dispatcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(undelivered, "HAND_BACK_AGAIN_S", (0.0,))
    run = await scene.start_activity()
    store.shut(TransactionClass.CLAIM)
    assert await polls.poll(a_poll(ACTIVITY), SHORT_MS) == UNAVAILABLE
    store.failures = 5
    store.open(TransactionClass.CLAIM)
    await quiet(polls)
    assert store.failures == 0
    assert await dispatched(scene) == 0
    assert [task.state for task in scene.live(run.run_id)] == [TaskState.READY]


async def test_a_drain_does_not_call_a_queue_empty_that_was_not_looked_at(
    scene: Scene, store: FailingStore, polls: Dispatcher
):
    await scene.start_activity()
    store.shut(TransactionClass.CLAIM)
    poll = asyncio.create_task(polls.poll(a_poll(ACTIVITY), LONG_MS))
    await until(lambda: store.held == 1)
    polls.drain()
    assert await poll == UNAVAILABLE
