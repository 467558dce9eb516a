"""Sticky tasks: a workflow task waits a while for the worker that caches its run; then any worker may take it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.core.history.commands import ScheduleActivity
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import Run, Task, TaskPriority
from penstock.core.scheduling.dispatch import PollStatus
from penstock.core.scheduling.polls import Held, Retry, RetryReason
from penstock.core.why.values import ConstraintKind, RemedyKind
from penstock.engine.activities import death_detection
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.matching import dispatcher
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal
from penstock.engine.runs.address import Address
from penstock.engine.visibility import explanations
from penstock.engine.workers import cohorts, worker_registry
from tests.engine.matching.test_dispatcher import DispatcherHarness, names
from tests.engine.support.scene import ACTIVITY, NOTHING, WORKFLOW, Scene, a_poll, charge
from tests.support.builders import NOW_MS
from tests.support.claims import leased_of

STICKY_MS = 10_000


async def wake(scene: Scene, run: Run) -> None:
    """Send a signal that wakes the run."""
    await signals.send(scene.ctx, Signal(Address("default", run.workflow_id), "go", NOTHING))


async def kept(
    scene: Scene,
    workflow_id: str = "order-1",
    worker_id: str = "w1",
    *commands: ScheduleActivity,
    sticky_ms: int = STICKY_MS,
) -> Run:
    """A run that a worker caches, waiting for a signal."""
    run = await scene.start(workflow_id)
    leased = await scene.take(WORKFLOW, worker_id)
    assert leased.run.run_id == run.run_id
    await scene.complete(leased, *commands, concurrent=True, cached=True, sticky_ms=sticky_ms)
    return scene.run(run.run_id)


async def waiting(scene: Scene, workflow_id: str = "order-1", worker_id: str = "w1") -> Run:
    """A cached run that was signalled: its next task is ready."""
    run = await kept(scene, workflow_id, worker_id)
    await wake(scene, run)
    return run


def task_of(scene: Scene, run: Run) -> Task:
    [task] = scene.live(run.run_id)
    return task


# ── Who gets it ─────────────────────────────────────────────────────────────────────────────────────────


async def test_the_next_task_of_a_run_waits_for_the_worker_that_keeps_it(scene: Scene):
    run = await waiting(scene)
    task = task_of(scene, run)
    assert (task.sticky_worker_id, task.sticky_until_ms) == ("w1", NOW_MS + STICKY_MS)
    assert await scene.claim(WORKFLOW, "w2") is None
    leased = await scene.take(WORKFLOW, "w1")
    assert (leased.run.run_id, leased.seen) == (run.run_id, 2)


async def test_after_its_time_anybody_gets_it_with_the_whole_history(scene: Scene):
    run = await waiting(scene)
    await scene.advance(STICKY_MS - 1)
    assert await scene.claim(WORKFLOW, "w2") is None
    await scene.advance(1)
    leased = await scene.take(WORKFLOW, "w2")
    assert (leased.run.run_id, leased.seen, len(leased.events)) == (run.run_id, 0, 3)


async def test_events_that_came_while_the_task_was_leased_are_sticky_as_well(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    await wake(scene, leased.run)
    await scene.complete(leased, concurrent=True, cached=True, sticky_ms=STICKY_MS)
    assert task_of(scene, leased.run).sticky_worker_id == "w1"
    assert await scene.claim(WORKFLOW, "w2") is None


async def test_a_worker_that_asks_for_no_time_has_none(scene: Scene):
    run = await kept(scene, sticky_ms=0)
    await wake(scene, run)
    assert task_of(scene, run).sticky_worker_id is None
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


async def test_what_others_do_for_the_run_is_for_anybody(scene: Scene):
    await kept(scene, "order-1", "w1", charge())
    assert await scene.claim(ACTIVITY, "w2") is not None


async def test_the_worker_gets_what_is_its_own_and_what_is_anybodys_in_order_of_arrival(scene: Scene):
    first = await kept(scene, "order-1")
    other = await kept(scene, "order-2", "w2")
    await scene.start("order-3")
    for run in (first, other):
        await wake(scene, run)
    [verdict] = await scene.ask(a_poll(WORKFLOW, "w1", tasks_max=10))
    assert [leased.run.workflow_id for leased in leased_of(verdict)] == ["order-3", "order-1"]


async def test_a_more_urgent_task_of_anybody_goes_before_ones_own(scene: Scene):
    await waiting(scene)
    await scene.start("urgent", priority=TaskPriority(level=0))
    assert (await scene.take(WORKFLOW, "w1")).run.workflow_id == "urgent"
    assert (await scene.take(WORKFLOW, "w1")).run.workflow_id == "order-1"


async def test_a_cap_applies_to_sticky_tasks(scene: Scene):
    await waiting(scene)
    await scene.start("order-2")
    asked = PolicyUpdate({LimitSetting.LEASE_CAP: SettingChange(1)})
    await policies.configure(scene.ctx, "default", "orders", WORKFLOW, asked, "ops")
    assert (await scene.take(WORKFLOW, "w2")).run.workflow_id == "order-2"
    assert await scene.claim(WORKFLOW, "w1") is None


# ── When a reservation ends early ───────────────────────────────────────────────────────────────────────


async def test_a_task_that_failed_is_for_anybody(scene: Scene):
    run = await waiting(scene)
    await scene.fail(await scene.take(WORKFLOW, "w1"))
    assert scene.run(run.run_id).waits.cached is None
    await scene.advance(1_000)
    assert (await scene.take(WORKFLOW, "w2")).seen == 0


async def test_a_task_whose_lease_was_lost_is_for_anybody(scene: Scene):
    run = await waiting(scene)
    await scene.take(WORKFLOW, "w1")
    scene.clock.advance(10 * 60_000)
    await expired_leases(scene.ctx).sweep()
    assert task_of(scene, run).sticky_worker_id is None
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


async def test_tasks_sticky_to_a_worker_that_leaves_are_available_to_all_at_once(scene: Scene):
    run = await waiting(scene)
    assert await scene.claim(WORKFLOW, "w2") is None
    await worker_registry.deregister(scene.ctx, "default", "w1")
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


async def test_a_run_of_a_worker_that_has_left_does_not_wait_for_it(scene: Scene):
    run = await kept(scene)
    await worker_registry.deregister(scene.ctx, "default", "w1")
    await wake(scene, run)
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


async def test_a_run_does_not_wait_for_a_stale_worker(scene: Scene):
    run = await kept(scene)
    scene.clock.advance(10 * 60_000)
    await wake(scene, run)
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


async def test_a_run_of_a_worker_that_drains_does_not_wait_for_it(scene: Scene):
    await scene.register("w1", build_id="old")
    run = await kept(scene)
    await wake(scene, run)
    await cohorts.drain(scene.ctx, "default", "orders", "old")
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


async def test_a_run_does_not_wait_for_a_worker_whose_lease_ran_out(scene: Scene):
    """Recovery took the lease and the sticky wait, one after the other."""
    run = await kept(scene, "order-1", "w1", charge())
    await scene.take(ACTIVITY, "w1", lease_ms=2_000)
    scene.clock.advance(2_000)
    await wake(scene, run)
    assert await scene.claim(WORKFLOW, "w2") is None
    await expired_leases(scene.ctx).sweep()
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


async def test_a_run_does_not_wait_for_a_worker_that_missed_its_heartbeats(scene: Scene):
    await scene.register("w1", heartbeat_interval_s=2)
    run = await waiting(scene)
    scene.clock.advance(4_000)
    assert await scene.claim(WORKFLOW, "w2") is None
    scene.clock.advance(1)
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


async def test_a_worker_that_was_marked_dead_and_polls_again_is_waited_for(scene: Scene):
    run = await waiting(scene)
    scene.clock.advance(2_000)
    assert await death_detection.record_disconnect(scene.ctx, "default", "w1", 1_000)
    assert not await death_detection.record_disconnect(scene.ctx, "default", "w1", 1_000), (
        "it is known already"
    )
    scene.clock.advance(1)
    [verdict] = await scene.ask(a_poll(ACTIVITY, "w1"))
    assert leased_of(verdict) == ()
    assert (await worker_registry.describe(scene.ctx, "default", "w1")).heartbeat_at_ms == NOW_MS + 2_001
    assert await scene.claim(WORKFLOW, "w2") is None
    assert (await scene.take(WORKFLOW, "w1")).run.run_id == run.run_id


async def test_a_worker_with_a_later_heartbeat_is_not_marked_dead(scene: Scene):
    await scene.register("w1")
    scene.clock.advance(500)
    assert not await death_detection.record_disconnect(scene.ctx, "default", "w1", 1_000)
    assert not await death_detection.record_disconnect(scene.ctx, "default", "nobody", 1_000)


async def test_another_worker_that_takes_a_run_keeps_it_from_then_on(scene: Scene):
    run = await waiting(scene)
    await scene.advance(STICKY_MS)
    leased = await scene.take(WORKFLOW, "w2")
    await scene.complete(leased, concurrent=True, cached=True, sticky_ms=STICKY_MS)
    await wake(scene, run)
    assert await scene.claim(WORKFLOW, "w1") is None
    assert (await scene.take(WORKFLOW, "w2")).run.run_id == run.run_id


# ── Several polls ───────────────────────────────────────────────────────────────────────────────────────


async def test_of_polls_that_may_have_different_tasks_those_like_the_first_are_served(scene: Scene):
    await scene.register("w2")
    await waiting(scene)
    await scene.start("order-2")
    served, postponed = await scene.ask(a_poll(WORKFLOW, "w2"), a_poll(WORKFLOW, "w1"))
    assert [leased.run.workflow_id for leased in leased_of(served)] == ["order-2"]
    assert isinstance(postponed, Retry)
    assert postponed.reason is RetryReason.SERVED_APART
    [served] = await scene.ask(a_poll(WORKFLOW, "w1"))
    assert [leased.run.workflow_id for leased in leased_of(served)] == ["order-1"]


async def test_a_poll_that_finds_only_what_waits_for_others_knows_when_to_look_again(scene: Scene):
    await scene.register("w2")
    await waiting(scene)
    scene.clock.advance(1_000)
    [verdict] = await scene.ask(a_poll(WORKFLOW, "w2"))
    assert isinstance(verdict, Held)
    assert verdict.retry_in_ms == STICKY_MS - 1_000
    assert verdict.hold.poll_status is PollStatus.EMPTY


@pytest.fixture
async def harness(scene: Scene) -> AsyncIterator[DispatcherHarness]:
    opened = DispatcherHarness(scene.ctx)
    for name in ("w1", "w2", "w3"):
        await scene.register(name)
    yield opened
    await opened.close()


async def test_of_all_who_wait_the_worker_that_keeps_the_run_is_given_its_task(
    scene: Scene, harness: DispatcherHarness
):
    runs = {name: await kept(scene, f"order-of-{name}", name) for name in ("w1", "w2", "w3")}
    polls = {name: await harness.waiting(name) for name in ("w1", "w2", "w3")}
    for name in ("w3", "w1", "w2"):
        await wake(scene, runs[name])
        assert names(await polls.pop(name)) == [f"order-of-{name}"]
        await harness.quiet()
        assert not any(poll.done() for poll in polls.values())


async def test_polls_of_many_workers_are_all_given_their_own_by_one_look(
    scene: Scene, harness: DispatcherHarness
):
    runs = [await kept(scene, f"order-of-{name}", name) for name in ("w1", "w2")]
    for run in runs:
        await wake(scene, run)
    await scene.start("anybodys")
    answers = await asyncio.gather(*(harness.poll(0, name) for name in ("w3", "w2", "w1")))
    assert [names(answer) for answer in answers] == [["anybodys"], ["order-of-w2"], ["order-of-w1"]]


async def test_a_worker_behind_many_that_find_nothing_is_given_its_own(
    scene: Scene, harness: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dispatcher, "POLLS_PER_CLAIM", 1)
    await waiting(scene)
    others = [await harness.waiting("w2"), await harness.waiting("w3")]
    assert names(await harness.poll(0, "w1")) == ["order-1"]
    assert not any(poll.done() for poll in others)


async def test_a_poll_that_waits_looks_again_when_the_sticky_wait_ends(
    scene: Scene, harness: DispatcherHarness
):
    run = await kept(scene, sticky_ms=20)
    poll = await harness.waiting("w2")
    await wake(scene, run)
    await harness.quiet()
    assert not poll.done()
    scene.clock.advance(20)
    assert names(await poll) == ["order-1"]


async def test_a_poll_that_waits_looks_again_when_the_worker_leaves(scene: Scene, harness: DispatcherHarness):
    await waiting(scene)
    poll = await harness.waiting("w2")
    await worker_registry.deregister(scene.ctx, "default", "w1")
    assert names(await poll) == ["order-1"]


async def test_a_poll_that_waits_gets_the_sticky_tasks_of_a_worker_that_disconnected(
    scene: Scene, harness: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dispatcher, "DISCONNECTED_S", 0.02)
    run = await kept(scene)
    own, other = await harness.waiting("w1"), await harness.waiting("w2")
    scene.clock.advance(2_000)
    own.cancel()
    await asyncio.wait([own])
    await wake(scene, run)
    assert names(await other) == ["order-1"]
    assert scene.clock.now_ms() == NOW_MS + 2_000, "nothing waited for the time to pass"


async def test_a_worker_that_polls_again_has_not_died(
    scene: Scene, harness: DispatcherHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dispatcher, "DISCONNECTED_S", 0.0)
    run = await kept(scene)
    other = await harness.waiting("w2")
    scene.clock.advance(2_000)
    own, again = await harness.waiting("w1"), await harness.waiting("w1")
    own.cancel()
    await asyncio.wait([own])
    await asyncio.sleep(0.01)
    await harness.quiet()
    await wake(scene, run)
    assert names(await again) == ["order-1"]
    assert not other.done()


async def test_nobody_looks_again_and_again_for_what_waits_for_another(
    scene: Scene, harness: DispatcherHarness
):
    await waiting(scene)
    poll = await harness.waiting("w2")
    await harness.quiet()
    assert not poll.done()
    assert not harness.dispatcher._tasks


# ── Why ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_why_names_the_worker_that_the_task_waits_for_and_until_when(scene: Scene):
    run = await waiting(scene)
    found = (await explanations.workflow(scene.ctx, "default", run.workflow_id)).explanation
    assert found.binding is not None
    assert (found.binding.kind, found.binding.opens_at_ms) == (ConstraintKind.STICKY, NOW_MS + STICKY_MS)
    assert "the worker w1 has its run cached" in found.sentence
    assert [remedy.act for remedy in found.binding.frees] == [RemedyKind.WAIT]
    assert (found.expected.from_ms, found.expected.to_ms) == (NOW_MS, NOW_MS + STICKY_MS + 1_000)


@pytest.mark.parametrize("how", ["time", "leaving"])
async def test_nothing_binds_a_task_that_need_not_wait_for_its_worker(scene: Scene, how: str):
    await scene.register("w2")
    run = await waiting(scene)
    if how == "time":
        await scene.advance(STICKY_MS)
    else:
        await worker_registry.deregister(scene.ctx, "default", "w1")
    found = (await explanations.workflow(scene.ctx, "default", run.workflow_id)).explanation
    assert found.binding is None
    assert await scene.claim(WORKFLOW, "w2") is not None
