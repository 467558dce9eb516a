"""Operators pause, resume and reset one activity, change its options, and run it now."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import ScheduleActivity
from penstock.core.model import ActivityTimeouts
from penstock.engine.activities import activity_control
from penstock.engine.activities.activity_control import ActivityOutcome, ControlResult
from penstock.engine.maintenance.sweepers.overdue_activities import overdue_activities
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_pause
from penstock.errors import Conflict, NotFound, Reason
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, charge, of, tries


async def scheduled(scene: Scene, command: ScheduleActivity | None = None) -> str:
    """The id of an activity that a workflow scheduled."""
    run = await scene.start()
    await scene.decide(command or charge(tries(3, 60)), concurrent=True)
    return f"{run.run_id}-a1"


async def pause(scene: Scene, activity_id: str) -> ActivityOutcome:
    return (await activity_control.pause(scene.ctx, "default", activity_id, "card is checked")).outcome


async def resume(scene: Scene, activity_id: str) -> ActivityOutcome:
    return (await activity_control.resume(scene.ctx, "default", activity_id, None)).outcome


async def run_now(scene: Scene, activity_id: str) -> ActivityOutcome:
    return (await activity_control.run_now(scene.ctx, "default", activity_id, None)).outcome


async def reset(scene: Scene, activity_id: str) -> ControlResult:
    return await activity_control.reset(scene.ctx, "default", activity_id, None)


async def test_a_paused_activity_is_not_dispatched_until_it_is_resumed(scene: Scene):
    activity_id = await scheduled(scene)
    assert await pause(scene, activity_id) is ActivityOutcome.PAUSED
    assert await pause(scene, activity_id) is ActivityOutcome.ALREADY_PAUSED
    assert await scene.claim(ACTIVITY) is None
    assert await resume(scene, activity_id) is ActivityOutcome.RESUMED
    assert await resume(scene, activity_id) is ActivityOutcome.NOT_PAUSED
    await scene.finish(await scene.take(ACTIVITY))
    assert await scene.claim(WORKFLOW) is not None


async def test_a_running_attempt_ends_and_its_retry_waits(scene: Scene):
    activity_id = await scheduled(scene, charge(tries(3)))
    running = await scene.take(ACTIVITY)
    await pause(scene, activity_id)
    beat = await scene.heartbeat(running)
    assert beat.activity.step in beat.run.waits.paused_steps
    await scene.fail_activity(running)
    assert await scene.claim(ACTIVITY) is None
    await resume(scene, activity_id)
    assert (await scene.take(ACTIVITY)).task.attempt == 2


async def test_a_paused_activity_keeps_its_backoff_when_it_moves_to_another_queue(scene: Scene):
    activity_id = await scheduled(scene)
    await scene.fail_activity(await scene.take(ACTIVITY))
    await pause(scene, activity_id)
    await activity_control.update_options(
        scene.ctx, "default", activity_id, lambda each: replace(each, task_queue="others"), None
    )
    await resume(scene, activity_id)
    await scene.advance(59_000)
    assert await scene.claim(ACTIVITY, "w2", task_queue="others") is None
    await scene.advance(1_000)
    assert await scene.claim(ACTIVITY, "w2", task_queue="others") is not None


async def test_an_activity_of_a_paused_run_waits_for_both(scene: Scene):
    activity_id = await scheduled(scene)
    await pause(scene, activity_id)
    address = Address("default", "order-1")
    await run_pause.pause(scene.ctx, address, None)
    await run_pause.resume(scene.ctx, address, None)
    assert await scene.claim(ACTIVITY) is None
    await resume(scene, activity_id)
    assert await scene.claim(ACTIVITY) is not None


async def test_run_now_skips_the_backoff(scene: Scene):
    activity_id = await scheduled(scene)
    assert await run_now(scene, activity_id) is ActivityOutcome.ALREADY_DUE
    await scene.fail_activity(await scene.take(ACTIVITY))
    assert await scene.claim(ACTIVITY) is None
    assert await run_now(scene, activity_id) is ActivityOutcome.DUE_NOW
    running = await scene.take(ACTIVITY)
    with pytest.raises(Conflict) as refused:
        await run_now(scene, activity_id)
    assert refused.value.reason is Reason.ACTIVITY_RUNNING
    await scene.finish(running)
    with pytest.raises(Conflict) as refused:
        await run_now(scene, activity_id)
    assert refused.value.reason is Reason.ACTIVITY_NOT_ACTIVE


async def test_run_now_of_a_paused_activity_waits_for_the_resume_only(scene: Scene):
    activity_id = await scheduled(scene)
    await scene.fail_activity(await scene.take(ACTIVITY))
    await pause(scene, activity_id)
    await run_now(scene, activity_id)
    assert await scene.claim(ACTIVITY) is None
    await resume(scene, activity_id)
    assert await scene.claim(ACTIVITY) is not None


async def test_a_reset_gives_all_attempts_back(scene: Scene):
    activity_id = await scheduled(scene, charge(tries(2)))
    await scene.fail_activity(await scene.take(ACTIVITY))
    assert (await reset(scene, activity_id)).activity.attempt == 0
    for attempt in (1, 2):
        leased = await scene.take(ACTIVITY)
        assert leased.task.attempt == attempt
        await scene.fail_activity(leased)
    assert await scene.claim(ACTIVITY) is None


async def test_a_late_report_of_an_attempt_before_the_reset_changes_nothing(scene: Scene):
    activity_id = await scheduled(scene, charge(tries(3)))
    old = await scene.take(ACTIVITY)
    await scene.fail_activity(old)
    await reset(scene, activity_id)
    await scene.take(ACTIVITY)
    assert (await scene.finish(old)).repeated, "it is answered as before"
    with pytest.raises((Conflict, NotFound)):
        await scene.finish(old, report=of(old, "another"))
    assert scene.run(old.run.run_id).open_activities == 1


async def test_new_options_apply_to_a_waiting_activity(scene: Scene):
    activity_id = await scheduled(scene, charge(tries(2, 60)))
    done = await activity_control.update_options(
        scene.ctx,
        "default",
        activity_id,
        lambda each: replace(
            each, retry=tries(1), timeouts=ActivityTimeouts(schedule_to_start_ms=5_000), task_queue="other"
        ),
        None,
    )
    assert done.outcome is ActivityOutcome.UPDATED
    assert await scene.claim(ACTIVITY) is None
    await scene.fail_activity(await scene.take(ACTIVITY, "w2", task_queue="other"))
    assert await scene.claim(WORKFLOW) is not None, "there is one attempt only"


async def test_a_new_start_timeout_counts(scene: Scene):
    activity_id = await scheduled(scene)
    await activity_control.update_options(
        scene.ctx,
        "default",
        activity_id,
        lambda each: replace(each, timeouts=ActivityTimeouts(schedule_to_start_ms=5_000)),
        None,
    )
    scene.clock.advance(6_000)
    await overdue_activities(scene.ctx).sweep()
    assert await scene.claim(ACTIVITY) is None
    assert await scene.claim(WORKFLOW) is not None


async def test_a_running_attempt_does_not_move_to_another_queue(scene: Scene):
    activity_id = await scheduled(scene)
    await scene.take(ACTIVITY)
    with pytest.raises(Conflict) as refused:
        await activity_control.update_options(
            scene.ctx, "default", activity_id, lambda each: replace(each, task_queue="other"), None
        )
    assert refused.value.reason is Reason.ACTIVITY_RUNNING


async def test_a_standalone_activity_is_named_by_its_own_id(scene: Scene):
    await scene.start_activity("charge-1")
    await pause(scene, "charge-1")
    assert await scene.claim(ACTIVITY) is None
    await resume(scene, "charge-1")
    await scene.finish(await scene.take(ACTIVITY))
    with pytest.raises(NotFound):
        await pause(scene, "charge-2")
