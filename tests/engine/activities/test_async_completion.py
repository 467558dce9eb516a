"""Activities that are completed from outside their worker: slots, caps, timeouts, and reports by token and by id."""

from __future__ import annotations

import pytest

from penstock.core.model import Blob, RunStatus, TaskState
from penstock.core.scheduling.leases import ASYNC_OWNER
from penstock.core.scheduling.polls import Leased
from penstock.engine.activities import activity_reports, async_completion
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.activities.async_completion import ActivityAddress
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.errors import Conflict, LeaseLost, NotFound, PenstockError, Reason
from tests.engine.support.scene import ACTIVITY, DONE, Scene, activity_of, charge, of, tries

RESULT = Blob("Ag==")


async def let_go(scene: Scene) -> Leased:
    leased = await scene.take(ACTIVITY)
    await async_completion.detach(scene.ctx, "default", leased.task.task_id, of(leased))
    return leased


def by_token(leased: Leased) -> ActivityAddress:
    assert leased.activity is not None
    return ActivityAddress("default", leased.activity.activity_id, attempt_id=leased.task.lease_token)


async def test_an_activity_is_completed_by_its_token_and_by_its_id(scene: Scene):
    for by_id in (False, True):
        run = await scene.start_activity(f"charge-{by_id}")
        leased = await let_go(scene)
        address = ActivityAddress("default", run.workflow_id) if by_id else by_token(leased)
        await async_completion.complete(scene.ctx, address, RESULT, "digest")
        assert scene.run(run.run_id).output == RESULT
        again = await async_completion.complete(scene.ctx, by_token(leased), RESULT, "digest")
        assert again.repeated


async def test_the_slot_of_the_worker_is_free_and_its_lease_does_not_expire(scene: Scene):
    await scene.register(activity_slots=1)
    first, second = [await scene.start_activity(f"charge-{number}") for number in range(2)]
    leased = await let_go(scene)
    assert (await scene.take(ACTIVITY)).task.run_id == second.run_id
    await scene.advance(24 * 3_600_000)
    await expired_leases(scene.ctx).sweep()
    task = scene.task(leased.task.task_id)
    assert (task.run_id, task.state, task.lease_owner) == (first.run_id, TaskState.LEASED, ASYNC_OWNER)


async def test_its_timeouts_hold_and_heartbeats_from_outside_restart_theirs(scene: Scene):
    await scene.start_activity(command=charge(start_to_close_ms=10_000, heartbeat_ms=2_000))
    leased = await let_go(scene)
    for _ in range(3):
        await scene.advance(1_500)
        assert (await async_completion.heartbeat(scene.ctx, by_token(leased), None, "")).recorded
    await scene.advance(2_000)
    assert leased.activity is not None
    assert await activity_reports.time_out(scene.ctx, leased.activity.activity_id)
    with pytest.raises(LeaseLost):
        await async_completion.complete(scene.ctx, by_token(leased), RESULT, "digest")


async def test_a_failure_from_outside_is_retried_and_its_token_is_stale_then(scene: Scene):
    await scene.start_activity(command=charge(retry=tries(2)))
    leased = await let_go(scene)
    await async_completion.fail(scene.ctx, by_token(leased), AttemptFailure("boom"), "one")
    again = await let_go(scene)
    assert again.task.attempt == 2
    with pytest.raises(Conflict) as reported:
        await async_completion.complete(scene.ctx, by_token(leased), RESULT, "two")
    assert reported.value.reason is Reason.COMPLETION_CONFLICT
    assert scene.task(again.task.task_id).state is TaskState.LEASED


async def test_a_result_that_comes_before_the_worker_has_let_go_counts(scene: Scene):
    run = await scene.start_activity()
    leased = await scene.take(ACTIVITY)
    await async_completion.complete(scene.ctx, by_token(leased), RESULT, "digest")
    with pytest.raises(PenstockError):
        await async_completion.detach(scene.ctx, "default", leased.task.task_id, of(leased))
    assert scene.run(run.run_id).status is RunStatus.COMPLETED


async def test_letting_go_twice_changes_nothing_and_the_worker_has_no_say_any_more(scene: Scene):
    await scene.start_activity()
    leased = await let_go(scene)
    await async_completion.detach(scene.ctx, "default", leased.task.task_id, of(leased))
    with pytest.raises(LeaseLost):
        await scene.finish(leased)


async def test_what_does_not_run_cannot_be_reported(scene: Scene):
    run = await scene.start_activity("charge-1")
    with pytest.raises(LeaseLost) as waiting:
        await async_completion.complete(scene.ctx, ActivityAddress("default", "charge-1"), RESULT, "")
    assert waiting.value.reason is Reason.TASK_NOT_LEASED
    for address in (
        ActivityAddress("default", "unknown"),
        ActivityAddress("default", activity_of(run), workflow_id="another"),
        ActivityAddress("default", activity_of(run), run_id="another"),
    ):
        with pytest.raises(NotFound):
            await async_completion.complete(scene.ctx, address, RESULT, "")


async def test_an_activity_of_a_workflow_is_completed_by_its_ids(scene: Scene):
    run = await scene.start("order-1")
    await scene.decide(charge())
    leased = await let_go(scene)
    assert leased.activity is not None
    address = ActivityAddress("default", leased.activity.activity_id, "order-1", run.run_id)
    await async_completion.complete(scene.ctx, address, RESULT, "digest")
    await scene.decide(DONE)
    assert scene.run(run.run_id).status is RunStatus.COMPLETED
