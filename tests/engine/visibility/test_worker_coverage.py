"""The unserved tasks that queues report agree with `why`, for random workers and tasks."""

from __future__ import annotations

import random

import pytest

from penstock.core.model import TaskKind, TaskState
from penstock.core.why.values import ConstraintKind
from penstock.core.why.workers import UNSERVED
from penstock.engine.visibility import explanations, task_queues
from penstock.engine.workers import cohorts
from penstock.wire.limits.admission import QueueAdmissionState, admission
from tests.engine.support.scene import ACTIVITY, Scene, a_scene, charge
from tests.support.effort import times

BLOCKING = UNSERVED | {ConstraintKind.SATURATED}


async def status(scene: Scene) -> str:
    view = await task_queues.describe(scene.ctx, "default", "orders")
    lines = {
        kind: QueueAdmissionState(
            view.queues[kind], view.stats[kind], view.gates[kind], 0, 0, {}, view.waits[kind]
        )
        for kind in TaskKind
    }
    stale_ms = scene.ctx.settings.polls.worker_stale_after_ms
    sections = admission(lines, [*view.workers], view.now_ms, stale_ms, lock_supported=True)
    return str(sections["activity_tasks"]["status"])


async def a_random_scene(dice: random.Random) -> Scene:
    scene = a_scene()
    await scene.start()
    for number in range(dice.randint(0, 4)):
        types = dice.choice([(), ("Charge",), ("Ship",), ("Charge", "Ship")])
        slots, build = dice.choice([0, 1, 3]), dice.choice([None, "b1", "b2"])
        await scene.register(f"w{number}", activity_types=types, build_id=build, activity_slots=slots)
    for number in range(dice.randint(1, 6)):
        command = charge(activity_type=dice.choice(["Charge", "Ship", "Refund"]))
        await scene.start_activity(
            f"a{number}", command, build_id=dice.choice([None, None, "b1", "b2", "b3"])
        )
    for _, worker_id in list(scene.tables.workers):
        if dice.random() < 0.4:
            await scene.claim(ACTIVITY, worker_id)
    if dice.random() < 0.3:
        await cohorts.drain(scene.ctx, "default", "orders", dice.choice([None, "b1"]))
    if dice.random() < 0.2:
        scene.clock.advance(10 * 60_000)
    return scene


@pytest.mark.parametrize("seed", range(times(150)))
async def test_a_queue_reports_exactly_the_ready_tasks_of_which_why_says_that_no_worker_takes_them(
    seed: int,
) -> None:
    scene = await a_random_scene(random.Random(seed))
    view = await task_queues.describe(scene.ctx, "default", "orders")
    reported = {
        (wait.task.type, wait.task.compatibility): wait.constraint.kind for wait in view.waits[ACTIVITY]
    }
    counts = {(wait.task.type, wait.task.compatibility): wait.ready for wait in view.waits[ACTIVITY]}
    ready = [
        each
        for each in scene.tables.tasks.values()
        if each.kind is ACTIVITY and each.state is TaskState.READY
    ]
    explained: dict[tuple[str, str | None], ConstraintKind] = {}
    for task in ready:
        why = (await explanations.task(scene.ctx, "default", task.task_id)).explanation
        result = [each for each in (why.binding, *why.next) if each is not None and each.kind in BLOCKING]
        if result:
            explained[task.type, task.compatibility] = result[0].kind
    assert reported == explained
    for route, count in counts.items():
        assert count == sum((task.type, task.compatibility) == route for task in ready)
    [listed] = await task_queues.list_queues(scene.ctx, "default")
    assert listed.waits == view.waits
    if await status(scene) == "accepting":
        assert not reported


async def test_a_queue_is_saturated_when_the_slots_for_what_waits_are_leased() -> None:
    scene = a_scene()
    await scene.start()
    await scene.register("w1", activity_types=("Charge",), activity_slots=1)
    await scene.register("w2", activity_types=("Ship",), activity_slots=10)
    await scene.start_activity("first")
    assert await status(scene) == "accepting"
    await scene.claim(ACTIVITY, "w1")
    await scene.start_activity("second")
    assert await status(scene) == "saturated"


async def test_a_queue_whose_workers_for_what_waits_have_no_slots_has_no_slots() -> None:
    scene = a_scene()
    await scene.start()
    await scene.register("w1", activity_types=("Charge",), activity_slots=0)
    await scene.register("w2", activity_types=("Ship",), activity_slots=10)
    await scene.start_activity("first")
    assert await status(scene) == "no_slots"
