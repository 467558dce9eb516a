"""No worker gets more tasks than its slots, and a full one claims again when one of its leases ends."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.model import TaskKind
from penstock.core.scheduling.dispatch import HoldReason, PollStatus
from penstock.core.scheduling.leases import Report
from penstock.core.scheduling.polls import Leased, Refused
from penstock.core.why.values import ConstraintKind, RemedyKind
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.matching import permits
from penstock.engine.matching.dispatcher import Dispatcher
from penstock.engine.visibility import explanations
from penstock.engine.workers import worker_registry
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, a_poll, a_scene, of
from tests.support.claims import hold_of, leased_of
from tests.support.effort import times

pytestmark = pytest.mark.fault("F66")
PROCESS = {"host": "h1", "process_id": 7, "process_started_at": "2026-08-01T00:00:00Z"}


async def queue_up(scene: Scene, count: int) -> None:
    for number in range(count):
        await scene.start_activity(f"charge-{number}")


async def given_to(scene: Scene, worker_id: str, most: int, **changes: object) -> tuple[Leased, ...]:
    [verdict] = await scene.ask(a_poll(ACTIVITY, worker_id, tasks_max=most, **changes))
    return leased_of(verdict)


async def test_a_poll_for_more_than_the_slots_gets_as_many_as_there_are(scene: Scene):
    await scene.register(activity_slots=3)
    await queue_up(scene, 10)
    assert len(await given_to(scene, "w1", 10)) == 3
    [verdict] = await scene.ask(a_poll(ACTIVITY, tasks_max=10))
    hold = hold_of(verdict)
    assert hold is not None
    assert (hold.reason, hold.poll_status) == (HoldReason.SLOTS, PollStatus.EMPTY)


async def test_polls_of_one_worker_in_one_claim_share_its_slots_and_others_get_the_rest(scene: Scene):
    await scene.register("small", activity_slots=2)
    await scene.register("large", activity_slots=50)
    await queue_up(scene, 10)
    asked = [a_poll(ACTIVITY, name, tasks_max=4) for name in ("small", "small", "large", "small")]
    assert [len(leased_of(each)) for each in await scene.ask(*asked)] == [1, 1, 4, 0]


async def test_each_kind_has_its_own_slots(scene: Scene):
    await scene.register(workflow_slots=1, activity_slots=1)
    await queue_up(scene, 2)
    await scene.start("order-1")
    await scene.start("order-2")
    assert await scene.claim(ACTIVITY) is not None
    assert await scene.claim(WORKFLOW) is not None
    assert await scene.claim(ACTIVITY) is None
    assert await scene.claim(WORKFLOW) is None


async def test_what_was_prefetched_is_counted_apart_and_starts_within_the_slots(scene: Scene):
    await scene.register(activity_slots=2)
    await queue_up(scene, 10)
    ahead = await given_to(scene, "w1", 10, claim_lease_ms=60_000)
    assert len(ahead) == 2
    running = await given_to(scene, "w1", 10)
    assert len(running) == 2
    held = await permits.start(scene.ctx, "default", ahead[0].task.task_id, of(ahead[0]))
    assert held.hold is not None
    assert held.hold.reason is HoldReason.SLOTS
    await scene.finish(running[0])
    assert (await permits.start(scene.ctx, "default", ahead[0].task.task_id, of(ahead[0]))).hold is None
    assert len(await given_to(scene, "w1", 10)) == 0
    assert len(await given_to(scene, "w1", 10, claim_lease_ms=60_000)) == 1


async def test_a_redelivery_beside_a_poll_that_finds_its_worker_full_ends_that_wait_when_it_is_finished(
    scene: Scene,
):
    await scene.register(activity_slots=1)
    await queue_up(scene, 2)
    repeated = a_poll(ACTIVITY, poll_request_id="p1")
    [first] = await scene.ask(repeated)
    again, full = await scene.ask(repeated, a_poll(ACTIVITY))
    assert [each.task.task_id for each in leased_of(again)] == [
        each.task.task_id for each in leased_of(first)
    ]
    hold = hold_of(full)
    assert hold is not None
    assert hold.reason is HoldReason.SLOTS
    notified: list[str] = []
    [leased] = leased_of(again)
    scene.wakeups.listen(f"queue:{leased.task.queue_id}", lambda: notified.append("queue"))
    await scene.finish(leased)
    assert notified == ["queue"]


async def test_a_process_under_the_id_of_another_begins_with_free_slots(scene: Scene):
    await scene.register(activity_slots=2, process_metrics=PROCESS)
    await queue_up(scene, 6)
    assert len(await given_to(scene, "w1", 5)) == 2
    scene.clock.advance(1)
    await scene.register(activity_slots=2, process_metrics=PROCESS | {"process_id": 8})
    assert len(await given_to(scene, "w1", 5)) == 2


async def test_the_same_process_that_registers_again_has_what_it_holds(scene: Scene):
    await scene.register(activity_slots=2, process_metrics=PROCESS)
    await queue_up(scene, 6)
    assert len(await given_to(scene, "w1", 5)) == 2
    scene.clock.advance(1)
    await scene.register(activity_slots=2, process_metrics=PROCESS | {"memory_bytes": 1})
    assert len(await given_to(scene, "w1", 5)) == 0


async def test_a_worker_that_lowers_its_slots_keeps_what_it_has_and_gets_no_more_until_it_is_below(
    scene: Scene,
):
    await scene.register(activity_slots=4)
    await queue_up(scene, 10)
    held = await given_to(scene, "w1", 4)
    await worker_registry.heartbeat(scene.ctx, "default", "w1", None, None, None, slots=(None, 2))
    for leased in held[:2]:
        await scene.finish(leased)
        assert len(await given_to(scene, "w1", 5)) == 0
    await scene.finish(held[2])
    assert len(await given_to(scene, "w1", 5)) == 1


async def test_why_names_the_full_worker_and_what_would_free_a_slot(scene: Scene):
    await scene.register(activity_slots=1)
    await queue_up(scene, 2)
    await given_to(scene, "w1", 1)
    found = (await explanations.activity(scene.ctx, "default", "charge-1")).explanation.binding
    assert found is not None
    assert (found.kind, found.most, found.used) == (ConstraintKind.SATURATED, 1, 1)
    assert (found.frees[0].act, found.frees[0].worker) == (RemedyKind.END_LEASES, "w1")


@pytest.mark.parametrize("how", ["finished", "lost"])
async def test_a_full_worker_that_waits_is_answered_when_a_lease_of_it_ends(scene: Scene, how: str):
    """By notification: the dispatcher's periodic claim is not started here."""
    await scene.register(activity_slots=2)
    await queue_up(scene, 4)
    _, second = await given_to(scene, "w1", 2)
    dispatcher = Dispatcher(scene.ctx)
    waiting = asyncio.create_task(dispatcher.poll(a_poll(ACTIVITY), 60_000))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done()
    if how == "finished":
        await scene.finish(second)
    else:
        scene.clock.advance(10**6)
        await expired_leases(scene.ctx).sweep()
    answer = await asyncio.wait_for(waiting, 5)
    assert len(answer.leased) == 1
    await dispatcher.close()


async def test_polls_behind_a_crowd_of_a_full_worker_are_served(scene: Scene):
    await scene.register("full", activity_slots=1)
    await scene.register("free", activity_slots=1)
    await queue_up(scene, 1)
    await given_to(scene, "full", 1)
    dispatcher = Dispatcher(scene.ctx)
    crowd = [asyncio.create_task(dispatcher.poll(a_poll(ACTIVITY, "full"), 60_000)) for _ in range(150)]
    last = asyncio.create_task(dispatcher.poll(a_poll(ACTIVITY, "free"), 60_000))
    for _ in range(50):
        await asyncio.sleep(0)
    await scene.start_activity("one-more")
    assert len((await asyncio.wait_for(last, 5)).leased) == 1
    assert not any(each.done() for each in crowd)
    dispatcher.drain()
    await asyncio.gather(*crowd)
    await dispatcher.close()


STEPS = st.one_of(
    st.tuples(st.just("poll"), st.integers(0, 2), st.integers(1, 5)),
    st.tuples(st.just("ahead"), st.integers(0, 2), st.integers(1, 5)),
    st.tuples(st.just("start"), st.integers(0, 2), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 2), st.integers(0, 9)),
    st.tuples(st.just("slots"), st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("pass"), st.integers(0, 2), st.integers(0, 400_000)),
)


@settings(deadline=None, max_examples=times(30), suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, max_size=40))
async def test_no_grant_or_permit_takes_a_worker_over_its_slots(steps: list[tuple[str, int, int]]):
    """Holds `worker-never-over-filled` after any steps: a full worker gets nothing."""
    scene = a_scene()
    slots = [2, 3, 1]
    for number, most in enumerate(slots):
        await scene.register(f"w{number}", activity_slots=most)
    await queue_up(scene, 30)
    for step, number, amount in steps:
        before = counts(scene, f"w{number}")
        await do(scene, step, f"w{number}", amount)
        if step == "slots":
            slots[number] = amount
        for kept, was in zip(counts(scene, f"w{number}"), before, strict=True):
            assert kept <= max(slots[number], was)


def counts(scene: Scene, worker_id: str) -> tuple[int, int]:
    """What a worker runs, and what it has prefetched."""
    held = [task for task in scene.tables.tasks.values() if task.lease_owner == worker_id]
    ahead = sum(task.claimed > 0 for task in held)
    return len(held) - ahead, ahead


async def do(scene: Scene, step: str, worker_id: str, amount: int) -> None:
    if step in ("poll", "ahead"):
        ahead = {"claim_lease_ms": 5_000} if step == "ahead" else {}
        [verdict] = await scene.ask(a_poll(TaskKind.ACTIVITY, worker_id, tasks_max=amount, **ahead))
        assert not isinstance(verdict, Refused)
    elif step == "slots":
        await worker_registry.heartbeat(
            scene.ctx, "default", worker_id, None, None, None, slots=(None, amount)
        )
    elif step == "pass":
        scene.clock.advance(amount)
        await expired_leases(scene.ctx).sweep()
    else:
        await report(scene, step, worker_id, amount)


async def report(scene: Scene, step: str, worker_id: str, amount: int) -> None:
    wanted = step == "start"
    held = [
        task
        for task in scene.tables.tasks.values()
        if task.lease_owner == worker_id and (task.claimed > 0) is wanted
    ]
    live = [task for task in held if (task.lease_expires_at_ms or 0) > scene.clock.now_ms()]
    if not live:
        return
    task = live[amount % len(live)]
    assert task.lease_token is not None
    if wanted:
        await permits.start(scene.ctx, "default", task.task_id, Report(worker_id, task.lease_token))
        return
    run = scene.run(task.run_id)
    activity = next(each for each in scene.tables.activities.values() if each.task_id == task.task_id)
    await scene.finish(Leased(task, run, activity))
