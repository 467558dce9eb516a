"""Worker deaths during activities: how they are reported, and when an activity is quarantined."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import ScheduleActivity
from penstock.core.model import ActivityStatus, RetrySchedule, RunStatus, TaskState
from penstock.core.scheduling.polls import Leased
from penstock.core.scheduling.worker_deaths import ON_LOST_LEASE, QUARANTINED, WORKER_CRASHED, OnLostLease
from penstock.core.why.values import ConstraintKind
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.runtime.stall_detector import GRACE_S, StallDetector
from penstock.engine.visibility import explanations
from penstock.engine.workers import worker_registry
from penstock.errors import Reason
from penstock.sdk.activities.outcomes import NOT_BEGUN, WORKER_SHUTDOWN
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, a_scene, charge, of, tries

CRASH = AttemptFailure("exit code 1", WORKER_CRASHED)
FOR_EVER = tries(1_000_000, 0)


def app_task(retry: RetrySchedule | None = None) -> ScheduleActivity:
    return replace(charge(retry), extra={ON_LOST_LEASE: OnLostLease.FAIL})


async def lose(scene: Scene, leased: Leased) -> None:
    """The worker stops sending heartbeats."""
    scene.clock.set(leased.task.lease_expires_at_ms or 0)
    assert await activity_reports.reclaim(scene.ctx, leased.task.task_id)


async def refusal(scene: Scene, leased: Leased) -> object:
    return (await scene.heartbeat(leased)).reason


# ── One death ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_task_without_retries_whose_worker_dies_has_failed_as_worker_crashed(scene: Scene):
    run = await scene.start_activity(command=app_task())
    leased = await scene.take(ACTIVITY)
    await lose(scene, leased)
    stored = scene.run(run.run_id)
    assert (stored.status, stored.closed_reason) == (RunStatus.FAILED, "failed")
    assert (await scene.types(run.run_id))[-2:] == ["ActivityFailed", "WorkflowFailed"]
    payload = await scene.payload(run.run_id, -2)
    assert (payload["exception_type"], payload["code"], payload["attempt_number"]) == (
        WORKER_CRASHED,
        None,
        1,
    )
    assert payload["activity_attempt_id"] == leased.task.lease_token
    activity = scene.activity(leased)
    assert (activity.status, activity.worker_deaths, activity.quarantined) == (ActivityStatus.FAILED, 1, 0)
    assert scene.task(leased.task.task_id).state is TaskState.DONE
    assert await scene.claim(ACTIVITY, "w2") is None
    assert await refusal(scene, leased) == Reason.RUN_CLOSED


async def test_a_task_with_retries_whose_worker_dies_is_tried_again(scene: Scene):
    run = await scene.start_activity(command=app_task(tries(2, 3)))
    first = await scene.take(ACTIVITY)
    await lose(scene, first)
    payload = await scene.payload(run.run_id, -1)
    assert (payload["exception_type"], payload["retry_after_attempt"]) == (WORKER_CRASHED, 1)
    await scene.advance(3_000)
    second = await scene.take(ACTIVITY, "w2")
    assert second.task.attempt == 2
    assert await refusal(scene, first) == Reason.STALE_ATTEMPT
    await scene.finish(second)
    assert scene.run(run.run_id).status is RunStatus.COMPLETED
    assert scene.activity(second).worker_deaths == 1


async def test_a_task_whose_policy_names_worker_crashed_is_not_tried_again(scene: Scene):
    run = await scene.start_activity(command=app_task(tries(9, 0, never=(WORKER_CRASHED,))))
    await lose(scene, await scene.take(ACTIVITY))
    assert scene.run(run.run_id).status is RunStatus.FAILED
    assert (await scene.payload(run.run_id, -2))["exception_type"] == WORKER_CRASHED


async def test_a_task_that_was_prefetched_is_given_back_without_a_death(scene: Scene):
    await scene.start_activity(command=app_task())
    leased = await scene.take(ACTIVITY, claim_lease_ms=5_000)
    await lose(scene, leased)
    again = await scene.take(ACTIVITY, "w2")
    assert (again.task.attempt, scene.activity(again).worker_deaths) == (1, 0)


async def test_a_worker_that_leaves_gives_its_tasks_back_and_has_not_died(scene: Scene):
    await scene.start_activity(command=app_task())
    leased = await scene.take(ACTIVITY)
    await worker_registry.deregister(scene.ctx, "default", "w1")
    again = await scene.take(ACTIVITY, "w2")
    assert (again.task.task_id, scene.activity(again).worker_deaths) == (leased.task.task_id, 0)


# ── One too many ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("retry", [None, FOR_EVER], ids=["no policy", "for ever"])
async def test_an_activity_of_a_workflow_that_kills_three_workers_is_quarantined(
    scene: Scene, retry: RetrySchedule | None
):
    await scene.start()
    await scene.decide(charge(retry))
    for number in range(3):
        leased = await scene.take(ACTIVITY, f"w{number}")
        await lose(scene, leased)
    payload = await scene.payload(leased.run.run_id, -1)
    assert (await scene.types(leased.run.run_id))[-1] == "ActivityFailed"
    assert (payload["exception_type"], payload["code"], payload["non_retryable"]) == (
        WORKER_CRASHED,
        QUARANTINED,
        True,
    )
    assert payload["exception"]["worker_deaths"] == 3
    assert "3 workers died" in payload["message"]
    activity = scene.activity(leased)
    assert (activity.status, activity.worker_deaths, activity.quarantined) == (ActivityStatus.FAILED, 3, 1)
    assert await scene.claim(ACTIVITY) is None
    await scene.take(WORKFLOW)  # the workflow is told


@pytest.mark.parametrize(("after", "deaths"), [("1", 1), ("2", 2), ("3", 3)])
async def test_a_task_whose_process_is_reported_dead_is_quarantined_after_as_many_as_set(
    after: str, deaths: int
):
    scene = a_scene(quarantine_after=after)
    run = await scene.start_activity(command=app_task(FOR_EVER))
    for _ in range(deaths):
        assert scene.run(run.run_id).is_open
        leased = await scene.take(ACTIVITY)
        receipt = await scene.fail_activity(leased, CRASH)
    assert (receipt.outcome, scene.run(run.run_id).status) == ("failed", RunStatus.FAILED)
    assert (await scene.payload(run.run_id, -2))["code"] == QUARANTINED
    assert (await scene.payload(run.run_id, -1))["exception"]["code"] == QUARANTINED
    assert (await scene.fail_activity(leased, CRASH)).repeated


async def test_both_kinds_of_death_count_and_failures_of_the_function_do_not(scene: Scene):
    run = await scene.start_activity(command=app_task(FOR_EVER))
    for failure in (AttemptFailure("boom"), CRASH, AttemptFailure("boom"), None, AttemptFailure("boom")):
        leased = await scene.take(ACTIVITY)
        await (lose(scene, leased) if failure is None else scene.fail_activity(leased, failure))
        assert scene.run(run.run_id).is_open
    last = await scene.take(ACTIVITY)
    assert scene.activity(last).worker_deaths == 2
    await lose(scene, last)
    assert scene.activity(last).quarantined


@pytest.mark.parametrize("code", [WORKER_SHUTDOWN, NOT_BEGUN])
async def test_a_process_that_ended_with_its_worker_or_before_the_task_began_is_no_death(
    scene: Scene, code: str
):
    await scene.start_activity(command=app_task(FOR_EVER))
    for _ in range(4):
        ended = replace(CRASH, extra={"code": code})
        await scene.fail_activity(await scene.take(ACTIVITY), ended)
    leased = await scene.take(ACTIVITY)
    assert (leased.task.attempt, scene.activity(leased).worker_deaths) == (5, 0)


async def test_nothing_is_quarantined_where_that_is_switched_off():
    scene = a_scene(quarantine_after="0")
    await scene.start_activity(command=charge())
    for number in range(20):
        await lose(scene, await scene.take(ACTIVITY, f"w{number}"))
    leased = await scene.take(ACTIVITY)
    assert (leased.task.attempt, scene.activity(leased).worker_deaths) == (21, 20)
    await scene.finish(leased)


async def test_the_queue_continues_behind_a_task_that_is_quarantined(scene: Scene):
    await scene.start_activity("poison", app_task(FOR_EVER))
    for number in range(3):
        await lose(scene, await scene.take(ACTIVITY, f"w{number}"))
    for name in ("one", "two"):
        await scene.start_activity(name, app_task())
        await scene.finish(await scene.take(ACTIVITY))


async def test_why_reports_worker_deaths_and_the_quarantine(scene: Scene):
    await scene.start_activity("poison", app_task(FOR_EVER))
    await lose(scene, await scene.take(ACTIVITY))
    leased = await scene.take(ACTIVITY, "w2")
    running = (await explanations.activity(scene.ctx, "default", "poison")).explanation
    assert "1 worker died running it before" in running.sentence
    await scene.fail_activity(leased, CRASH)
    await scene.fail_activity(await scene.take(ACTIVITY), CRASH)
    ended = (await explanations.activity(scene.ctx, "default", "poison")).explanation
    assert ended.binding is not None
    assert ended.binding.kind is ConstraintKind.QUARANTINED
    assert ended.sentence == "poison does not wait: it is quarantined: 3 workers died running it."


async def test_a_late_report_of_a_worker_that_was_taken_for_dead_changes_nothing(scene: Scene):
    """It had only lost its network: its death is counted, and its result is not recorded."""
    run = await scene.start_activity(command=app_task())
    leased = await scene.take(ACTIVITY)
    await lose(scene, leased)
    with pytest.raises(Exception) as refused:
        await direct.complete_activity(
            scene.ctx, "default", leased.task.task_id, of(leased), leased.run.input
        )
    assert getattr(refused.value, "reason", None) is Reason.RUN_CLOSED
    assert scene.run(run.run_id).status is RunStatus.FAILED


# ── A server that was away ──────────────────────────────────────────────────────────────────────────────


@dataclass
class Watch:
    """Seconds since a server started."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def restarted(scene: Scene, leased: Leased) -> tuple[Scene, Watch]:
    """`a_server` that starts after the lease has expired."""
    watch = Watch()
    scene.clock.set((leased.task.lease_expires_at_ms or 0) + 60_000)
    ctx = replace(scene.ctx, stall_detector=StallDetector(watch))
    ctx.stall_detector.looked()
    return dataclasses.replace(scene, ctx=ctx), watch


async def test_a_worker_gets_grace_whose_lease_expired_while_the_server_was_down(scene: Scene):
    run = await scene.start_activity(command=app_task())
    leased = await scene.take(ACTIVITY)
    scene, _ = await restarted(scene, leased)
    assert not await activity_reports.reclaim(scene.ctx, leased.task.task_id)
    assert (await scene.heartbeat(leased)).recorded
    await scene.finish(leased)
    assert scene.run(run.run_id).status is RunStatus.COMPLETED


async def test_a_worker_without_a_heartbeat_soon_after_the_restart_has_died(scene: Scene):
    run = await scene.start_activity(command=app_task())
    leased = await scene.take(ACTIVITY)
    scene, watch = await restarted(scene, leased)
    watch.now = GRACE_S
    assert await refusal(scene, leased) == Reason.LEASE_EXPIRED
    assert await activity_reports.reclaim(scene.ctx, leased.task.task_id)
    assert scene.run(run.run_id).status is RunStatus.FAILED


async def test_redelivery_does_not_wait_for_the_grace_period(scene: Scene):
    await scene.start_activity(command=charge())
    leased = await scene.take(ACTIVITY)
    scene, _ = await restarted(scene, leased)
    assert await refusal(scene, leased) == Reason.LEASE_EXPIRED
    assert await activity_reports.reclaim(scene.ctx, leased.task.task_id)
    again = await scene.take(ACTIVITY, "w2")
    assert (again.task.attempt, scene.activity(again).worker_deaths) == (2, 0)


@pytest.mark.parametrize("retry", [None, FOR_EVER], ids=["no policy", "for ever"])
async def test_a_server_that_is_away_again_and_again_quarantines_nothing(retry: RetrySchedule | None):
    scene = a_scene()
    await scene.start_activity(command=charge(retry))
    for number in range(5):
        leased = await scene.take(ACTIVITY, f"w{number}")
        scene, _ = await restarted(scene, leased)
        assert await activity_reports.reclaim(scene.ctx, leased.task.task_id)
    await scene.finish(await scene.take(ACTIVITY))


async def test_a_lease_that_a_new_server_gave_is_taken_back_in_time():
    watch, before = Watch(), a_scene(activity_task_timeout="2")
    scene = dataclasses.replace(before, ctx=replace(before.ctx, stall_detector=StallDetector(watch)))
    scene.ctx.stall_detector.looked()
    scene.clock.advance(1)
    await scene.start_activity(command=app_task())
    leased = await scene.take(ACTIVITY)
    watch.now = 2.001
    await lose(scene, leased)
