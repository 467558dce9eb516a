"""Worker registration, liveness and deregistration, and build-id cohorts."""

from __future__ import annotations

import pytest

from penstock.core.model import ActivityStatus, TaskState, WorkerStatus
from penstock.engine.activities import death_detection
from penstock.engine.workers import cohorts, worker_registry
from penstock.errors import Conflict, NotFound, PenstockError, Reason
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, charge, tries
from tests.support.builders import NOW_MS


async def test_a_worker_without_a_name_is_given_one(scene: Scene):
    worker = await worker_registry.register(
        scene.ctx, worker_registry.Registration("default", None, "orders", "python")
    )
    assert worker.worker_id == "worker-run0001"
    assert worker.status is WorkerStatus.ACTIVE


async def test_registering_again_renews_and_keeps_the_first_moment(scene: Scene):
    await scene.register(workflow_types=("Order",))
    scene.clock.advance(5_000)
    worker = await scene.register(workflow_types=("Order", "Mail"), task_queue="mail")
    assert (worker.registered_at_ms, worker.heartbeat_at_ms) == (NOW_MS, NOW_MS + 5_000)
    assert (worker.workflow_types, worker.task_queue) == (("Order", "Mail"), "mail")
    assert await worker_registry.describe(scene.ctx, "default", "w1") == worker


async def test_the_code_of_an_active_worker_does_not_change_under_its_id(scene: Scene):
    before = await scene.register(fingerprints={"Order": "one"})
    with pytest.raises(Conflict) as refused:
        await scene.register(fingerprints={"Order": "two"})
    assert refused.value.reason is Reason.WORKFLOW_DEFINITION_CHANGED
    assert await worker_registry.describe(scene.ctx, "default", "w1") == before
    await scene.register("w2", fingerprints={"Order": "two"})


async def test_a_worker_that_crashed_comes_back_with_new_code_under_its_id(scene: Scene):
    """A pod with a stable id could not register again for a week."""
    await scene.register(fingerprints={"Order": "one"})
    scene.clock.advance(scene.ctx.settings.polls.worker_stale_after_ms)
    with pytest.raises(Conflict):
        await scene.register(fingerprints={"Order": "two"})
    scene.clock.advance(1)
    worker = await scene.register(fingerprints={"Order": "two"})
    assert worker.fingerprints == {"Order": "two"}
    assert worker.status is WorkerStatus.ACTIVE
    with pytest.raises(Conflict):
        await scene.register(fingerprints={"Order": "three"})


async def test_a_worker_that_is_known_to_be_dead_comes_back_with_new_code_at_once(scene: Scene):
    await scene.register(fingerprints={"Order": "one"})
    scene.clock.advance(2_000)
    await death_detection.record_disconnect(scene.ctx, "default", "w1", 1_000)
    worker = await scene.register(fingerprints={"Order": "two"})
    assert (worker.fingerprints, worker.status) == ({"Order": "two"}, WorkerStatus.ACTIVE)


async def test_a_draining_worker_that_disconnects_stays_draining(scene: Scene):
    await scene.register(build_id="old")
    await cohorts.drain(scene.ctx, "default", "orders", "old")
    scene.clock.advance(2_000)
    assert not await death_detection.record_disconnect(scene.ctx, "default", "w1", 1_000)
    assert (await worker_registry.describe(scene.ctx, "default", "w1")).status is WorkerStatus.DRAINING


async def test_fingerprints_are_kept_for_types_that_are_still_advertised(scene: Scene):
    await scene.register(fingerprints={"Order": "one", "Mail": "m"}, workflow_types=("Order", "Mail"))
    worker = await scene.register(fingerprints={"Ship": "s"}, workflow_types=("Order", "Ship"))
    assert worker.fingerprints == {"Order": "one", "Ship": "s"}


async def test_a_heartbeat_refreshes_liveness_and_keeps_what_it_does_not_mention(scene: Scene):
    await scene.register(task_slots={"workflow_available": 3}, heartbeat_interval_s=20)
    scene.clock.advance(1_000)
    worker = await worker_registry.heartbeat(scene.ctx, "default", "w1", None, {"cpu": 1}, None)
    assert worker.heartbeat_at_ms == NOW_MS + 1_000
    assert (worker.task_slots, worker.process_metrics) == ({"workflow_available": 3}, {"cpu": 1})
    assert worker.heartbeat_interval_s == 20


async def test_an_unknown_worker_can_neither_heartbeat_nor_leave_nor_be_described(scene: Scene):
    await scene.register()
    with pytest.raises(NotFound) as refused:
        await worker_registry.heartbeat(scene.ctx, "elsewhere", "w1", None, None, None)
    assert refused.value.reason is Reason.WORKER_NOT_REGISTERED
    for ask in (worker_registry.deregister, worker_registry.describe):
        with pytest.raises(NotFound) as refused:
            await ask(scene.ctx, "default", "nobody")
        assert refused.value.reason is Reason.WORKER_NOT_FOUND


async def test_the_fleet_is_listed_by_queue(scene: Scene):
    await scene.register("w1")
    await scene.register("w2", task_queue="mail")
    assert {
        each.worker_id for each in (await worker_registry.list_workers(scene.ctx, "default", None)).workers
    } == {
        "w1",
        "w2",
    }
    fleet = await worker_registry.list_workers(scene.ctx, "default", "mail")
    assert [each.worker_id for each in fleet.workers] == ["w2"]
    assert fleet.now_ms == NOW_MS


async def test_a_worker_that_leaves_gives_its_tasks_back_at_once(scene: Scene):
    await scene.start("order-1")
    await scene.decide(charge(tries(2)), charge())
    await scene.start("order-2")
    first, second, third = await scene.take(ACTIVITY), await scene.take(ACTIVITY), await scene.take(WORKFLOW)
    left = await worker_registry.deregister(scene.ctx, "default", "w1")
    assert (left.workflow_tasks, left.activity_tasks) == (1, 2)
    for leased in (first, second, third):
        assert scene.task(leased.task.task_id).state is TaskState.READY
    assert scene.activity(first).status is ActivityStatus.PENDING
    assert (await scene.types(first.run.run_id))[-1] == "ActivityScheduled", (
        "leaving spends no attempt's policy"
    )
    with pytest.raises(PenstockError):
        await scene.finish(first)
    again = await scene.take(ACTIVITY, "w2")
    assert again.task.attempt == 2
    await scene.finish(again)
    with pytest.raises(NotFound):
        await worker_registry.deregister(scene.ctx, "default", "w1")


async def test_tasks_of_others_stay_with_them(scene: Scene):
    await scene.start("order-1")
    await scene.start("order-2")
    await scene.take(WORKFLOW, "w1")
    kept = await scene.take(WORKFLOW, "w2")
    await worker_registry.deregister(scene.ctx, "default", "w1")
    await scene.complete(kept, DONE)


# ── Builds ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_draining_a_build_stops_new_work_and_lets_it_finish_what_it_holds(scene: Scene):
    await scene.register(build_id="one")
    await scene.start("order-1")
    held = await scene.take(WORKFLOW)
    cohort = await cohorts.drain(scene.ctx, "default", "orders", "one")
    assert (cohort.drain_intent, cohort.drained_at_ms) == ("draining", NOW_MS)
    assert (await worker_registry.describe(scene.ctx, "default", "w1")).status is WorkerStatus.DRAINING
    await scene.start("order-2")
    with pytest.raises(Conflict) as refused:
        await scene.claim(WORKFLOW)
    assert refused.value.reason is Reason.WORKER_DRAINING
    await scene.heartbeat_workflow_task(held)
    await scene.complete(held, DONE)


async def test_draining_again_keeps_the_first_moment_and_resuming_forgets_it(scene: Scene):
    await scene.register(build_id="one")
    await cohorts.drain(scene.ctx, "default", "orders", "one")
    scene.clock.advance(1_000)
    assert (await cohorts.drain(scene.ctx, "default", "orders", "one")).drained_at_ms == NOW_MS
    cohort = await cohorts.resume(scene.ctx, "default", "orders", "one")
    assert (cohort.drain_intent, cohort.drained_at_ms) == ("active", None)
    assert (await worker_registry.describe(scene.ctx, "default", "w1")).status is WorkerStatus.ACTIVE
    await scene.start()
    assert await scene.claim(WORKFLOW) is not None


async def test_a_worker_that_comes_to_a_draining_build_is_draining_from_the_start(scene: Scene):
    await cohorts.drain(scene.ctx, "default", "orders", None)
    assert (await scene.register()).status is WorkerStatus.DRAINING
    assert (await scene.register("w2", build_id="one")).status is WorkerStatus.ACTIVE
    await cohorts.resume(scene.ctx, "default", "orders", None)
    worker = await worker_registry.heartbeat(scene.ctx, "default", "w1", None, None, None)
    assert worker.status is WorkerStatus.ACTIVE


async def test_promoting_a_build_rolls_the_one_before_back(scene: Scene):
    await cohorts.promote(scene.ctx, "default", "orders", "one")
    scene.clock.advance(1_000)
    two = await cohorts.promote(scene.ctx, "default", "orders", "two")
    assert (two.new_start_selected, two.promoted_at_ms) == (1, NOW_MS + 1_000)
    one = scene.tables.cohorts["default", "orders", "one"]
    assert (one.new_start_selected, one.rolled_back_at_ms) == (0, NOW_MS + 1_000)
    assert (await scene.start()).compatibility == "two"
    scene.clock.advance(1_000)
    again = await cohorts.promote(scene.ctx, "default", "orders", "two")
    assert again.promoted_at_ms == NOW_MS + 1_000, "promoted again, it keeps the first moment"


async def test_promoting_the_unnamed_build_pins_no_run(scene: Scene):
    await cohorts.promote(scene.ctx, "default", "orders", "one")
    await cohorts.promote(scene.ctx, "default", "orders", None)
    assert (await scene.start()).compatibility is None


async def test_the_builds_of_a_queue_are_shown_with_their_workers(scene: Scene):
    await scene.register("w1", build_id="one")
    await scene.register("w2", build_id="two")
    await cohorts.drain(scene.ctx, "default", "orders", "one")
    views = await cohorts.list_cohorts(scene.ctx, "default", "orders")
    assert [(view.build_id, view.rollout_status) for view in views] == [
        ("two", "active"),
        ("one", "draining"),
    ]
    assert await cohorts.list_cohorts(scene.ctx, "default", "mail") == []
