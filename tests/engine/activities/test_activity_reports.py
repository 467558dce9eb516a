"""Activities: their attempts, their four clocks, and whose report counts."""

from __future__ import annotations

import pytest

from penstock.core.model import ActivityStatus, Blob, RunStatus, TaskId, TaskState
from penstock.core.scheduling.leases import HANDED_BACK, Report
from penstock.core.scheduling.polls import Leased
from penstock.core.timestamps import iso
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import ActivityReceipt, AttemptFailure
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import Conflict, LeaseLost, NotFound, PenstockError, Reason
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, charge, of, tries
from tests.support.builders import NOW_MS


async def running(scene: Scene, *args: object, **limits: int) -> Leased:
    """A run with one running activity."""
    await scene.start()
    await scene.decide(charge(*args, **limits))  # type: ignore[arg-type]
    return await scene.take(ACTIVITY)


# ── Completion ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_result_is_recorded_and_wakes_the_run(scene: Scene):
    leased = await running(scene)
    receipt = await scene.finish(leased, "Ag==")
    assert (receipt.outcome, receipt.task.state) == ("completed", TaskState.DONE)
    assert scene.activity(leased).status is ActivityStatus.COMPLETED
    run_id = leased.run.run_id
    assert scene.run(run_id).open_activities == 0
    payload = await scene.payload(run_id, -1)
    assert (payload["result"], payload["payload_codec"], payload["sequence"]) == ("Ag==", "avro", 1)
    assert (payload["activity_attempt_id"], payload["attempt_number"]) == (leased.task.lease_token, 1)
    [task] = scene.live(run_id)
    assert (task.kind, task.task_id) == (WORKFLOW, receipt.next_task_id)


async def test_a_repeated_result_is_acknowledged_and_recorded_once(scene: Scene):
    leased = await running(scene)
    await scene.finish(leased)
    again = await scene.finish(leased)
    assert (again.repeated, again.outcome) == (True, "completed")
    assert (await scene.types(leased.run.run_id)).count("ActivityCompleted") == 1


async def test_a_repeated_result_is_acknowledged_even_after_the_run_has_closed(scene: Scene):
    leased = await running(scene)
    await scene.finish(leased)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    assert (await scene.finish(leased)).repeated


async def test_another_result_for_the_same_attempt_conflicts(scene: Scene):
    leased = await running(scene)
    await scene.finish(leased)
    with pytest.raises(Conflict) as refused:
        await scene.finish(leased, "other", of(leased, "other"))
    assert refused.value.reason is Reason.COMPLETION_CONFLICT
    with pytest.raises(Conflict):
        await scene.fail_activity(leased, report=of(leased, "failed"))


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────


async def reason_of(scene: Scene, leased: Leased, report: Report | None = None) -> Reason:
    """Why a result is refused; nothing may have changed."""
    before = scene.activity(leased), scene.task(leased.task.task_id), scene.run(leased.run.run_id)
    with pytest.raises(PenstockError) as refused:
        await scene.finish(leased, report=report)
    assert before == (scene.activity(leased), scene.task(leased.task.task_id), scene.run(leased.run.run_id))
    return refused.value.reason


@pytest.mark.parametrize("token", ["", "1", "1.guess", "2.later", "x.y", "-1.z", "1234567890.z", "١.z"])
async def test_an_attempt_that_never_was_is_not_found(scene: Scene, token: str):
    leased = await running(scene)
    assert await reason_of(scene, leased, Report("w1", token)) is Reason.ATTEMPT_NOT_FOUND


async def test_another_owner_learns_who_holds_the_lease(scene: Scene):
    leased = await running(scene)
    assert await reason_of(scene, leased, of(leased, owner="w2")) is Reason.LEASE_OWNER_MISMATCH


async def test_a_lapsed_lease_takes_no_result(scene: Scene):
    leased = await running(scene)
    scene.clock.set(leased.task.lease_expires_at_ms or 0)
    assert await reason_of(scene, leased) is Reason.LEASE_EXPIRED


@pytest.mark.parametrize("name", ["", "nonsense", "run0001-1", "run0001-9"])
async def test_what_is_no_activity_task_is_not_found(scene: Scene, name: str):
    leased = await running(scene)
    with pytest.raises(NotFound) as refused:
        await direct.complete_activity(scene.ctx, "default", TaskId(name), of(leased), Blob(""))
    assert refused.value.reason is Reason.TASK_NOT_FOUND


async def test_another_namespace_does_not_see_the_task(scene: Scene):
    leased = await running(scene)
    with pytest.raises(NotFound):
        await activity_reports.heartbeat(scene.ctx, "elsewhere", leased.task.task_id, of(leased), None)


async def test_a_superseded_attempt_changes_nothing(scene: Scene):
    """`late-answers-change-nothing`."""
    first = await running(scene, tries(3))
    await scene.fail_activity(first)
    second = await scene.take(ACTIVITY, "w2")
    assert (await scene.fail_activity(first)).repeated, "the same report once more is only acknowledged"
    with pytest.raises(Conflict):
        await scene.finish(first, report=of(first, "another"))
    scene.clock.set(second.task.lease_expires_at_ms or 0)
    await activity_reports.reclaim(scene.ctx, second.task.task_id)
    third = await scene.take(ACTIVITY, "w3")
    assert third.task.attempt == 3
    assert await reason_of(scene, second) is Reason.STALE_ATTEMPT
    await scene.finish(third)
    assert await reason_of(scene, second) is Reason.STALE_ATTEMPT


async def test_an_attempt_whose_lease_was_taken_back_is_stale_before_and_after_the_next_begins(scene: Scene):
    """Also when an earlier attempt of the same task had been reported."""
    first = await running(scene, tries(5))
    await scene.fail_activity(first)
    second = await scene.take(ACTIVITY, "w2")
    scene.clock.set(second.task.lease_expires_at_ms or 0)
    await activity_reports.reclaim(scene.ctx, second.task.task_id)
    assert await reason_of(scene, second) is Reason.STALE_ATTEMPT
    beat = await scene.heartbeat(second)
    assert (beat.recorded, beat.reason) == (False, "stale_attempt")


@pytest.mark.parametrize(
    ("end", "reason"), [(EndMode.CANCEL, Reason.RUN_CANCELLED), (EndMode.TERMINATE, Reason.RUN_TERMINATED)]
)
async def test_a_late_report_to_a_closed_run_learns_how_it_closed(scene: Scene, end: EndMode, reason: Reason):
    leased = await running(scene)
    await run_close.end_run(scene.ctx, "default", "order-1", end, None)
    assert await reason_of(scene, leased) is reason
    with pytest.raises(LeaseLost) as refused:
        await scene.fail_activity(leased)
    assert refused.value.details["cancel_requested"] is True
    assert refused.value.details["can_continue"] is False


# ── Failure and retries ─────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_attempt_is_retried_with_backoff_as_the_same_task(scene: Scene):
    first = await running(scene, tries(3, 2, 7))
    receipt = await scene.fail_activity(first, AttemptFailure("no answer", "Timeout"))
    assert (receipt.outcome, receipt.next_task_id) == ("failed", first.task.task_id)
    assert receipt.task.state is TaskState.DELAYED
    run_id = first.run.run_id
    payload = await scene.payload(run_id, -1)
    assert payload["retry_available_at"] == iso(NOW_MS + 2_000)
    assert (payload["retry_backoff_seconds"], payload["retry_after_attempt"], payload["max_attempts"]) == (
        2,
        1,
        3,
    )
    assert (payload["message"], payload["exception_type"]) == ("no answer", "Timeout")
    await scene.advance(1_999)
    assert await scene.claim(ACTIVITY) is None
    await scene.advance(1)
    second = await scene.take(ACTIVITY)
    assert (second.task.task_id, second.task.attempt) == (first.task.task_id, 2)
    assert second.activity is not None
    assert second.activity.activity_id == scene.activity(first).activity_id
    await scene.fail_activity(second)
    await scene.advance(7_000)
    third = await scene.take(ACTIVITY)
    await scene.fail_activity(third, AttemptFailure("at last", "Down", "Outage", extra={"code": 7}))
    assert await scene.types(run_id) == [
        "WorkflowStarted",
        "ActivityScheduled",
        "ActivityRetryScheduled",
        "ActivityRetryScheduled",
        "ActivityFailed",
    ]
    payload = await scene.payload(run_id, -1)
    assert (payload["message"], payload["exception_type"], payload["exception_class"]) == (
        "at last",
        "Down",
        "Outage",
    )
    assert (payload["failure_category"], payload["non_retryable"], payload["code"]) == ("activity", False, 7)
    assert payload["attempt_number"] == 3
    assert scene.activity(first).status is ActivityStatus.FAILED
    assert scene.run(run_id).open_activities == 0
    assert [task.kind for task in scene.live(run_id)] == [WORKFLOW]


async def test_a_retry_without_backoff_is_ready_at_once(scene: Scene):
    leased = await running(scene, tries(2))
    receipt = await scene.fail_activity(leased)
    assert receipt.task.state is TaskState.READY
    assert (await scene.take(ACTIVITY)).task.attempt == 2


async def test_without_a_policy_a_failure_is_final(scene: Scene):
    leased = await running(scene)
    await scene.fail_activity(leased)
    assert (await scene.types(leased.run.run_id))[-1] == "ActivityFailed"


@pytest.mark.parametrize(
    "failure",
    [
        AttemptFailure("no", non_retryable=True),
        AttemptFailure("no", "CardDeclined"),
        AttemptFailure("no", "Error", "CardDeclined"),
    ],
)
async def test_what_another_attempt_would_not_cure_is_not_tried_again(scene: Scene, failure: AttemptFailure):
    leased = await running(scene, tries(5, never=("CardDeclined",)))
    await scene.fail_activity(leased, failure)
    payload = await scene.payload(leased.run.run_id, -1)
    assert (await scene.types(leased.run.run_id))[-1] == "ActivityFailed"
    assert payload["non_retryable"] is failure.non_retryable
    assert scene.activity(leased).status is ActivityStatus.FAILED


async def test_a_retry_that_would_come_too_late_is_not_planned(scene: Scene):
    leased = await running(scene, tries(5, 10), schedule_to_close_ms=10_000)
    await scene.fail_activity(leased)
    assert (await scene.types(leased.run.run_id))[-1] == "ActivityFailed"


# ── Heartbeats ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_heartbeat_renews_the_lease_and_the_heartbeat_clock(scene: Scene):
    leased = await running(scene, heartbeat_ms=5_000)
    scene.clock.advance(4_000)
    beat = await scene.heartbeat(leased, '{"current": 3}')
    assert beat.recorded
    assert beat.task.lease_expires_at_ms == scene.clock.now_ms() + scene.ctx.settings.leases.activity_lease_ms
    activity = scene.activity(leased)
    assert (activity.heartbeat_details, activity.deadline_at_ms) == ('{"current": 3}', NOW_MS + 9_000)
    assert not await activity_reports.time_out(scene.ctx, activity.activity_id)


async def test_a_heartbeat_without_details_keeps_the_previous_ones(scene: Scene):
    leased = await running(scene, tries(3))
    await scene.heartbeat(leased, '{"current": 3}')
    await scene.heartbeat(leased)
    assert scene.activity(leased).heartbeat_details == '{"current": 3}'
    await scene.fail_activity(leased)
    again = await scene.take(ACTIVITY)
    await scene.heartbeat(again)
    assert scene.activity(again).heartbeat_details == '{"current": 3}', "also what another attempt told"
    await scene.heartbeat(again, '{"current": 4}')
    assert scene.activity(again).heartbeat_details == '{"current": 4}'


async def test_each_attempt_counts_its_heartbeats_anew(scene: Scene):
    leased = await running(scene, tries(3))
    await scene.heartbeat(leased, '{"sequence": 9}')
    await scene.heartbeat(leased, '{"sequence": 8}')
    assert scene.activity(leased).heartbeat_details == '{"sequence": 9}'
    await scene.fail_activity(leased)
    again = await scene.take(ACTIVITY)
    await scene.heartbeat(again, '{"sequence": 1}')
    assert scene.activity(again).heartbeat_details == '{"sequence": 1}'


async def test_a_lapsed_lease_is_never_brought_back(scene: Scene):
    leased = await running(scene)
    scene.clock.set(leased.task.lease_expires_at_ms or 0)
    beat = await scene.heartbeat(leased)
    assert (beat.recorded, beat.reason) == (False, "lease_expired")
    assert scene.task(leased.task.task_id) == leased.task


async def test_a_heartbeat_informs_the_worker_of_a_cancelled_run(scene: Scene):
    leased = await running(scene)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    beat = await scene.heartbeat(leased)
    assert (beat.recorded, beat.reason, beat.run.status) == (False, "run_cancelled", RunStatus.CANCELLED)


async def test_a_heartbeat_is_a_sign_of_life_of_its_worker(scene: Scene):
    leased = await running(scene)
    scene.clock.advance(1_000)
    await scene.heartbeat(leased)
    assert scene.tables.workers["default", "w1"].heartbeat_at_ms == NOW_MS + 1_000


# ── The four clocks ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clock", ["schedule_to_close", "heartbeat", "start_to_close"])
async def test_a_running_activity_times_out_by_each_of_its_clocks(scene: Scene, clock: str):
    leased = await running(scene, **{f"{clock}_ms": 4_000})
    activity_id = scene.activity(leased).activity_id
    scene.clock.advance(3_999)
    assert not await activity_reports.time_out(scene.ctx, activity_id)
    scene.clock.advance(1)
    assert await activity_reports.time_out(scene.ctx, activity_id)
    payload = await scene.payload(leased.run.run_id, -1)
    assert (payload["timeout_kind"], payload["failure_category"]) == (clock, "timeout")
    assert scene.activity(leased).status is ActivityStatus.TIMED_OUT
    assert scene.task(leased.task.task_id).state is TaskState.DONE
    assert [task.kind for task in scene.live(leased.run.run_id)] == [WORKFLOW]
    assert not await activity_reports.time_out(scene.ctx, activity_id)
    assert await reason_of(scene, leased) is Reason.STALE_ATTEMPT


async def test_an_activity_that_is_not_started_times_out(scene: Scene):
    run = await scene.start()
    receipt = await scene.decide(charge(tries(5), schedule_to_start_ms=4_000))
    activity_id = next(iter(scene.tables.activities))
    scene.clock.advance(4_000)
    assert await activity_reports.time_out(scene.ctx, activity_id)
    assert (await scene.payload(run.run_id, -1))["timeout_kind"] == "schedule_to_start"
    assert scene.task(receipt.created[0]).state is TaskState.DONE
    assert await scene.claim(ACTIVITY) is None


@pytest.mark.parametrize("clock", ["heartbeat", "start_to_close"])
async def test_a_clock_of_one_attempt_leaves_the_other_attempts(scene: Scene, clock: str):
    first = await running(scene, tries(2, 1), **{f"{clock}_ms": 4_000})
    activity_id = scene.activity(first).activity_id
    scene.clock.advance(4_000)
    assert await activity_reports.time_out(scene.ctx, activity_id)
    assert (await scene.types(first.run.run_id))[-1] == "ActivityRetryScheduled"
    await scene.advance(1_000)
    second = await scene.take(ACTIVITY, "w2")
    assert second.task.attempt == 2
    assert not await activity_reports.time_out(scene.ctx, activity_id), "the clock starts anew"
    scene.clock.advance(4_000)
    assert await activity_reports.time_out(scene.ctx, activity_id)
    assert (await scene.types(first.run.run_id))[-1] == "ActivityTimedOut"


async def test_the_whole_limit_ends_all_attempts_even_one_in_backoff(scene: Scene):
    first = await running(scene, tries(9, 3), schedule_to_close_ms=4_000)
    await scene.fail_activity(first)
    scene.clock.advance(4_000)
    assert await activity_reports.time_out(scene.ctx, scene.activity(first).activity_id)
    assert (await scene.payload(first.run.run_id, -1))["timeout_kind"] == "schedule_to_close"
    await scene.advance(10_000)
    assert await scene.claim(ACTIVITY) is None


async def test_an_activity_that_is_unknown_or_over_does_not_time_out(scene: Scene):
    leased = await running(scene, start_to_close_ms=1_000)
    await scene.finish(leased)
    scene.clock.advance(5_000)
    activity = scene.activity(leased)
    assert not await activity_reports.time_out(scene.ctx, activity.activity_id)
    assert not await activity_reports.time_out(scene.ctx, type(activity.activity_id)("nonsense"))


# ── Lost leases ─────────────────────────────────────────────────────────────────────────────────────────


async def test_without_a_policy_a_lost_lease_is_delivered_again_and_leaves_no_event(scene: Scene):
    first = await running(scene)
    task_id = first.task.task_id
    assert not await activity_reports.reclaim(scene.ctx, task_id)
    scene.clock.set(first.task.lease_expires_at_ms or 0)
    assert await activity_reports.reclaim(scene.ctx, task_id)
    assert not await activity_reports.reclaim(scene.ctx, task_id)
    assert scene.activity(first).status is ActivityStatus.PENDING
    assert (await scene.types(first.run.run_id))[-1] == "ActivityScheduled"
    second = await scene.take(ACTIVITY, "w2")
    assert (second.task.task_id, second.task.attempt) == (task_id, 2)
    await scene.finish(second)


async def test_with_a_policy_a_lost_lease_counts_as_an_attempt(scene: Scene):
    first = await running(scene, tries(2, 3))
    scene.clock.set(first.task.lease_expires_at_ms or 0)
    assert await activity_reports.reclaim(scene.ctx, first.task.task_id)
    assert (await scene.types(first.run.run_id))[-1] == "ActivityRetryScheduled"
    await scene.advance(3_000)
    second = await scene.take(ACTIVITY, "w2")
    scene.clock.set(second.task.lease_expires_at_ms or 0)
    assert await activity_reports.reclaim(scene.ctx, second.task.task_id)
    assert (await scene.types(first.run.run_id))[-1] == "ActivityTimedOut"
    assert (await scene.payload(first.run.run_id, -1))["timeout_kind"] == "lease"


# ── Standing alone ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_standalone_activity_completes_its_host(scene: Scene):
    run = await scene.start_activity()
    leased = await scene.take(ACTIVITY)
    receipt = await scene.finish(leased, "Ag==")
    assert receipt.next_task_id is None
    stored = scene.run(run.run_id)
    assert (stored.status, stored.closed_reason, stored.output) == (RunStatus.COMPLETED, "completed", "Ag==")
    assert stored.open_activities == 0
    assert await scene.types(run.run_id) == [
        "WorkflowStarted",
        "ActivityScheduled",
        "ActivityCompleted",
        "WorkflowCompleted",
    ]
    assert scene.live(run.run_id) == []
    assert (await scene.finish(leased)).repeated


async def test_a_standalone_activity_is_tried_again_and_fails_its_host_at_last(scene: Scene):
    run = await scene.start_activity(command=charge(tries(2, 1)))
    await scene.fail_activity(await scene.take(ACTIVITY))
    assert scene.run(run.run_id).is_open
    await scene.advance(1_000)
    await scene.fail_activity(
        await scene.take(ACTIVITY), AttemptFailure("gone", "Outage", non_retryable=True)
    )
    stored = scene.run(run.run_id)
    assert (stored.status, stored.closed_reason) == (RunStatus.FAILED, "failed")
    assert (await scene.types(run.run_id))[-2:] == ["ActivityFailed", "WorkflowFailed"]
    payload = await scene.payload(run.run_id, -1)
    assert (payload["message"], payload["exception_type"], payload["non_retryable"]) == (
        "gone",
        "Outage",
        True,
    )


async def test_a_standalone_activity_that_times_out_closes_its_host_as_timed_out(scene: Scene):
    run = await scene.start_activity(command=charge(start_to_close_ms=1_000))
    leased = await scene.take(ACTIVITY)
    scene.clock.advance(1_000)
    await activity_reports.time_out(scene.ctx, scene.activity(leased).activity_id)
    stored = scene.run(run.run_id)
    assert (stored.status, stored.closed_reason) == (RunStatus.FAILED, "timed_out")
    assert (await scene.types(run.run_id))[-2:] == ["ActivityTimedOut", "WorkflowFailed"]


async def test_a_standalone_activity_can_be_cancelled(scene: Scene):
    run = await scene.start_activity()
    leased = await scene.take(ACTIVITY)
    await run_close.end_run(scene.ctx, "default", "charge-1", EndMode.CANCEL, None)
    assert await reason_of(scene, leased) is Reason.RUN_CANCELLED
    assert scene.live(run.run_id) == []


# ── Handing back ────────────────────────────────────────────────────────────────────────────────────────


async def give_back(scene: Scene, leased: Leased, report: Report | None = None) -> ActivityReceipt:
    report = report or of(leased, HANDED_BACK)
    return await direct.hand_back_activity(scene.ctx, "default", leased.task.task_id, report)


async def test_an_activity_that_a_worker_gives_back_waits_again_and_costs_no_attempt(scene: Scene):
    leased = await running(scene, tries(1), schedule_to_start_ms=5_000, start_to_close_ms=1_000)
    await scene.heartbeat(leased, '{"current": 3}')
    scene.clock.advance(500)
    receipt = await give_back(scene, leased)
    assert (receipt.outcome, receipt.next_task_id) == (HANDED_BACK, leased.task.task_id)
    activity = scene.activity(leased)
    assert (activity.status, activity.attempt, activity.started_at_ms) == (ActivityStatus.PENDING, 0, None)
    assert activity.deadline_at_ms == NOW_MS + 5_500
    again = await scene.take(ACTIVITY, "w2")
    assert (again.task.attempt, again.task.lease_token != leased.task.lease_token) == (1, True)
    assert scene.activity(again).heartbeat_details == '{"current": 3}'
    assert (await scene.finish(again)).outcome == "completed"


async def test_giving_back_once_more_is_only_acknowledged_also_when_another_worker_holds_the_task(
    scene: Scene,
):
    leased = await running(scene)
    await give_back(scene, leased)
    assert (await give_back(scene, leased)).repeated
    other = await scene.take(ACTIVITY, "w2")
    assert (await give_back(scene, leased)).repeated
    with pytest.raises(Conflict) as refused:
        await scene.finish(leased)
    assert refused.value.reason is Reason.COMPLETION_CONFLICT
    with pytest.raises(NotFound):
        await scene.heartbeat(leased)
    assert scene.task(other.task.task_id) == other.task


async def test_only_who_holds_an_activity_gives_it_back(scene: Scene):
    leased = await running(scene)
    with pytest.raises(LeaseLost) as refused:
        await give_back(scene, leased, of(leased, owner="w2"))
    assert refused.value.reason is Reason.LEASE_OWNER_MISMATCH
    await scene.finish(leased)
    with pytest.raises(Conflict):
        await give_back(scene, leased)


async def test_a_task_prefetched_can_be_given_back_unstarted(scene: Scene):
    await scene.start()
    await scene.decide(charge())
    claimed = await scene.take(ACTIVITY, claim_lease_ms=10_000)
    await give_back(scene, claimed)
    again = await scene.take(ACTIVITY, "w2")
    assert (again.task.attempt, again.task.claimed) == (1, 0)


@pytest.mark.parametrize(("asked_ms", "leased_ms"), [(2_000, 2_000), (None, 300_000), (86_400_000, 300_000)])
async def test_a_worker_may_ask_for_a_shorter_lease_than_the_server_gives_and_for_no_longer_one(
    scene: Scene, asked_ms: int | None, leased_ms: int
):
    """Scenario 33: a worker that stops renewing is detected soon."""
    await scene.start()
    await scene.decide(charge())
    leased = await scene.take(ACTIVITY, lease_ms=asked_ms)
    assert leased.task.lease_expires_at_ms == scene.clock.now_ms() + leased_ms
    scene.clock.advance(1_000)
    beat = await activity_reports.heartbeat(
        scene.ctx, "default", leased.task.task_id, of(leased), None, asked_ms
    )
    assert beat.task.lease_expires_at_ms == scene.clock.now_ms() + leased_ms


async def test_a_throttled_report_that_is_sent_again_is_only_acknowledged(scene: Scene):
    leased = await running(scene, tries(3))
    slow_down = AttemptFailure("slow down", throttled_ms=1_000)
    first = await scene.fail_activity(leased, slow_down)
    again = await scene.fail_activity(leased, slow_down)
    assert (first.outcome, again.outcome, again.repeated) == ("throttled", "throttled", True)
