"""Workflow tasks: the effects of completions, buffered events, and failures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import CompleteWorkflow, FailWorkflow, ScheduleActivity, StartTimer
from penstock.core.model import ActivityStatus, Blob, RunStatus, TaskId, TaskState, TimerState
from penstock.core.scheduling.leases import HANDED_BACK, Report
from penstock.core.scheduling.polls import Leased
from penstock.engine.workflows import workflow_reports
from penstock.engine.workflows.workflow_reports import WAITING_FOR_HISTORY
from penstock.errors import Conflict, InvalidInput, LeaseLost, NotFound, PenstockError, Reason
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, a_scene, charge, of, tries
from tests.support.builders import NOW_MS


async def a_lease(scene: Scene) -> Leased:
    await scene.start()
    return await scene.take(WORKFLOW)


# ── Completion ──────────────────────────────────────────────────────────────────────────────────────────


async def test_an_activity_that_was_asked_for_waits_on_its_queue_with_the_standing_of_its_run(scene: Scene):
    leased = await a_lease(scene)
    receipt = await scene.complete(leased, charge(), charge(queue="mail"))
    assert receipt.outcome == "completed"
    assert receipt.created == (f"{leased.run.run_id}-2", f"{leased.run.run_id}-3")
    first, second = (scene.task(task_id) for task_id in receipt.created)
    assert (first.kind, first.state, first.task_queue, second.task_queue) == (
        ACTIVITY,
        TaskState.READY,
        "orders",
        "mail",
    )
    run = scene.run(leased.run.run_id)
    assert (run.status, run.open_activities, run.last_step) == (RunStatus.WAITING, 2, 2)
    assert await scene.types(run.run_id) == ["WorkflowStarted", "ActivityScheduled", "ActivityScheduled"]


async def test_the_events_of_a_task_name_the_task(scene: Scene):
    leased = await a_lease(scene)
    await scene.complete(leased, charge())
    assert [event.task_id for event in await scene.events(leased.run.run_id)] == [None, leased.task.task_id]


async def test_a_run_continues_when_its_activity_ends_and_closes_with_its_output(scene: Scene):
    leased = await a_lease(scene)
    run_id = leased.run.run_id
    await scene.complete(leased, charge())
    await scene.finish(await scene.take(ACTIVITY))
    await scene.decide(DONE)
    run = scene.run(run_id)
    assert (run.status, run.output, run.open_activities) == (RunStatus.COMPLETED, DONE.result, 0)
    assert await scene.types(run_id) == [
        "WorkflowStarted",
        "ActivityScheduled",
        "ActivityCompleted",
        "WorkflowCompleted",
    ]
    assert scene.live(run_id) == []


async def test_a_timer_fires_once_and_wakes_the_run(scene: Scene):
    leased = await a_lease(scene)
    run_id = leased.run.run_id
    await scene.complete(leased, StartTimer(60))
    await scene.advance(59_999)
    assert scene.live(run_id) == []
    await scene.advance(1)
    await scene.advance(60_000)
    assert await scene.types(run_id) == ["WorkflowStarted", "TimerScheduled", "TimerFired"]
    fired = await scene.payload(run_id, -1)
    assert (fired["timer_id"], fired["sequence"], fired["delay_seconds"]) == (f"{run_id}-t1", 1, 60)
    assert scene.run(run_id).open_timers == 0
    assert len(scene.live(run_id)) == 1


async def test_a_timer_without_delay_fires_at_once(scene: Scene):
    leased = await a_lease(scene)
    await scene.complete(leased, StartTimer(0))
    await scene.advance(0)
    assert (await scene.types(leased.run.run_id))[-1] == "TimerFired"


async def test_failing_closes_the_run(scene: Scene):
    leased = await a_lease(scene)
    receipt = await scene.complete(leased, FailWorkflow("no stock"))
    assert (receipt.run.status, receipt.run.closed_reason) == (RunStatus.FAILED, "failed")
    assert receipt.created == ()


async def test_what_was_open_around_a_run_ends_with_it(scene: Scene):
    leased = await a_lease(scene)
    run_id = leased.run.run_id
    await scene.complete(leased, charge(), charge(), StartTimer(5))
    await scene.finish(await scene.take(ACTIVITY))
    running = await scene.take(ACTIVITY)
    await scene.decide(DONE)
    assert scene.live(run_id) == []
    assert scene.activity(running).status is ActivityStatus.CANCELLED
    assert scene.tables.timers[f"{run_id}-t3"].state is TimerState.CANCELLED
    run = scene.run(run_id)
    assert (run.open_activities, run.open_timers) == (0, 0)
    await scene.advance(60_000)
    assert (await scene.types(run_id))[-1] == "WorkflowCompleted"
    with pytest.raises(LeaseLost) as refused:
        await scene.finish(running)
    assert refused.value.reason is Reason.RUN_CLOSED


async def test_steps_asked_for_together_with_the_end_are_recorded_and_never_run(scene: Scene):
    leased = await a_lease(scene)
    receipt = await scene.complete(leased, charge(), StartTimer(0), DONE)
    assert receipt.created == ()
    await scene.advance(1_000)
    assert scene.live(leased.run.run_id) == []
    assert (await scene.types(leased.run.run_id))[-1] == "WorkflowCompleted"
    assert scene.tables.activities == {}


async def test_a_completion_that_breaks_a_limit_changes_nothing_and_keeps_the_lease():
    scene = a_scene(max_pending_activities="2")
    leased = await a_lease(scene)
    with pytest.raises(InvalidInput) as refused:
        await scene.complete(leased, charge(), StartTimer(1), charge(), charge())
    assert refused.value.reason is Reason.STRUCTURAL_LIMIT_EXCEEDED
    assert await scene.types(leased.run.run_id) == ["WorkflowStarted"]
    assert scene.task(leased.task.task_id) == leased.task
    await scene.complete(leased, charge(), charge())


async def test_a_completion_after_the_runs_deadline_is_refused(scene: Scene):
    await scene.start(run_timeout_s=10)
    leased = await scene.take(WORKFLOW)
    scene.clock.advance(10_000)
    with pytest.raises(LeaseLost) as refused:
        await scene.complete(leased, DONE)
    assert refused.value.reason is Reason.RUN_TIMED_OUT


# ── The same report once more ───────────────────────────────────────────────────────────────────────────


async def test_a_repeated_completion_gets_the_same_receipt_and_changes_nothing(scene: Scene):
    leased = await a_lease(scene)
    first = await scene.complete(leased, charge())
    again = await scene.complete(leased, charge())
    kept = replace(first.task, ended_lease=None, ended_how=None)
    assert (again.repeated, again.outcome, again.task) == (True, first.outcome, kept)
    assert again.run == first.run
    assert len(await scene.types(leased.run.run_id)) == 2


async def test_a_completion_that_closed_the_run_can_be_repeated(scene: Scene):
    leased = await a_lease(scene)
    await scene.complete(leased, DONE)
    assert (await scene.complete(leased, DONE)).repeated


async def test_another_outcome_for_the_same_lease_conflicts(scene: Scene):
    leased = await a_lease(scene)
    await scene.complete(leased, charge())
    with pytest.raises(Conflict) as refused:
        await scene.complete(leased, DONE, report=of(leased, "another"))
    assert refused.value.reason is Reason.COMPLETION_CONFLICT
    assert scene.run(leased.run.run_id).is_open


# ── Refusals ────────────────────────────────────────────────────────────────────────────────────────────


async def reason_of(scene: Scene, leased: Leased, report: Report | None = None) -> Reason:
    """Why this report is refused; the run must be as it was."""
    before = scene.run(leased.run.run_id)
    with pytest.raises(PenstockError) as refused:
        await scene.complete(leased, DONE, report=report)
    assert scene.run(leased.run.run_id) == before
    return refused.value.reason


async def test_only_the_holder_of_the_live_lease_completes(scene: Scene):
    leased = await a_lease(scene)
    assert await reason_of(scene, leased, Report("w2", "1")) is Reason.LEASE_OWNER_MISMATCH
    assert await reason_of(scene, leased, Report("w1", "2")) is Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH
    scene.clock.set(leased.task.lease_expires_at_ms or 0)
    assert await reason_of(scene, leased) is Reason.LEASE_EXPIRED
    await workflow_reports.reclaim(scene.ctx, leased.task.task_id)
    assert await reason_of(scene, leased) is Reason.TASK_NOT_LEASED
    await scene.take(WORKFLOW, "w2")
    assert await reason_of(scene, leased) is Reason.LEASE_OWNER_MISMATCH


async def test_another_namespace_does_not_see_the_task(scene: Scene):
    leased = await a_lease(scene)
    with pytest.raises(NotFound):
        await scene.complete(leased, DONE, namespace="elsewhere")
    await scene.complete(leased, DONE)
    with pytest.raises(NotFound):
        await scene.complete(leased, DONE, namespace="elsewhere")


@pytest.mark.parametrize("name", ["", "-", "nonsense", "run0001", "run0001-", "run0001-9", "run0001-a1"])
async def test_a_task_that_never_was_is_not_found(scene: Scene, name: str):
    leased = await a_lease(scene)
    await scene.complete(leased, charge())
    with pytest.raises(NotFound):
        await direct.complete_workflow_task(scene.ctx, "default", TaskId(name), of(leased), [DONE])


async def test_an_activity_task_takes_no_workflow_report(scene: Scene):
    await scene.start()
    await scene.decide(charge())
    activity = await scene.take(ACTIVITY)
    with pytest.raises(NotFound):
        await scene.complete(activity, DONE)


# ── What happens meanwhile ──────────────────────────────────────────────────────────────────────────────


async def busy_run(scene: Scene) -> tuple[Leased, Leased, Leased]:
    """A run whose workflow task is leased while two of its activities are running."""
    await scene.start()
    await scene.decide(charge(), charge(), charge(), StartTimer(1))
    first, second, third = [await scene.take(ACTIVITY) for _ in range(3)]
    await scene.finish(first)
    return await scene.take(WORKFLOW), second, third


async def test_events_from_outside_wait_while_a_workflow_task_is_leased_and_follow_its_own(scene: Scene):
    deciding, second, third = await busy_run(scene)
    run_id = deciding.run.run_id
    await scene.finish(third, "Aw==")
    await scene.advance(1_000)
    await scene.finish(second, "Ag==")
    assert len(await scene.types(run_id)) == deciding.run.last_sequence
    assert scene.run(run_id).buffered == 3
    receipt = await scene.complete(deciding, charge())
    assert (await scene.types(run_id))[deciding.run.last_sequence :] == [
        "ActivityScheduled",
        "ActivityCompleted",
        "TimerFired",
        "ActivityCompleted",
    ]
    reported = [(await scene.payload(run_id, place))["sequence"] for place in (-4, -3, -2, -1)]
    assert reported == [5, 3, 4, 2], "in order of arrival"
    run = scene.run(run_id)
    assert run.buffered == 0
    [task] = [task for task in scene.live(run_id) if task.kind is WORKFLOW]
    assert receipt.created == (f"{run_id}-6", task.task_id)


async def test_the_code_is_not_woken_when_nothing_waited(scene: Scene):
    deciding, *_ = await busy_run(scene)
    receipt = await scene.complete(deciding, charge())
    assert [task for task in scene.live(deciding.run.run_id) if task.kind is WORKFLOW] == []
    assert len(receipt.created) == 1


async def test_what_waited_is_dropped_when_the_task_closes_the_run(scene: Scene):
    deciding, second, _ = await busy_run(scene)
    await scene.finish(second)
    await scene.complete(deciding, DONE)
    assert (await scene.types(deciding.run.run_id))[-1] == "WorkflowCompleted"
    assert scene.run(deciding.run.run_id).buffered == 0
    assert scene.tables.buffered_events == {}


async def test_what_waited_follows_a_failure_and_is_there_for_the_next_attempt(scene: Scene):
    deciding, second, _ = await busy_run(scene)
    await scene.finish(second)
    await scene.fail(deciding)
    assert (await scene.types(deciding.run.run_id))[-1] == "ActivityCompleted"
    await scene.advance(1_000)
    again = await scene.take(WORKFLOW)
    assert again.task.task_id == deciding.task.task_id
    assert again.events[-1].type == "TimerFired"


async def test_a_run_has_one_workflow_task_however_much_happens(scene: Scene):
    run = await scene.start()
    await scene.decide(*[charge()] * 5, StartTimer(1))
    for _ in range(5):
        await scene.finish(await scene.take(ACTIVITY))
    await scene.advance(1_000)
    assert len([task for task in scene.live(run.run_id) if task.kind is WORKFLOW]) == 1
    leased = await scene.take(WORKFLOW)
    assert len(leased.events) == leased.run.last_sequence == 13


async def test_a_workflow_task_in_backoff_is_not_doubled_by_what_happens(scene: Scene):
    deciding, second, third = await busy_run(scene)
    await scene.fail(deciding)
    await scene.finish(second)
    await scene.finish(third)
    workflow_tasks = [task for task in scene.live(deciding.run.run_id) if task.kind is WORKFLOW]
    assert [task.state for task in workflow_tasks] == [TaskState.DELAYED]


async def test_a_retry_of_an_activity_is_not_shown_to_the_code_and_does_not_wake_it(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(tries(2, 5)))
    await scene.fail_activity(await scene.take(ACTIVITY))
    assert (await scene.types(run.run_id))[-1] == "ActivityRetryScheduled"
    assert [task.kind for task in scene.live(run.run_id)] == [ACTIVITY]


async def test_a_retry_that_waited_does_not_wake_the_code_either(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(), charge(tries(2, 5)))
    first, second = await scene.take(ACTIVITY), await scene.take(ACTIVITY)
    await scene.finish(first)
    deciding = await scene.take(WORKFLOW)
    await scene.fail_activity(second)
    receipt = await scene.complete(deciding, StartTimer(60))
    assert (await scene.types(run.run_id))[-2:] == ["TimerScheduled", "ActivityRetryScheduled"]
    assert receipt.created == ()


def grouped(index: int, size: int) -> ScheduleActivity:
    entry = {
        "parallel_group_base_sequence": 1,
        "parallel_group_size": size,
        "parallel_group_index": index,
    }
    return replace(charge(), extra={"parallel_group_path": [entry]})


async def test_a_group_wakes_the_run_when_its_last_member_has_ended(scene: Scene):
    run = await scene.start()
    await scene.decide(*(grouped(index, 3) for index in range(3)))
    members = [await scene.take(ACTIVITY) for _ in range(3)]
    await scene.finish(members[2])
    await scene.fail_activity(members[0])
    assert [task.kind for task in scene.live(run.run_id)] == [ACTIVITY]
    await scene.finish(members[1])
    assert [task.kind for task in scene.live(run.run_id)] == [WORKFLOW]


async def test_a_group_whose_last_members_ended_while_the_code_looked_wakes_it_afterwards(scene: Scene):
    run = await scene.start()
    await scene.decide(*(grouped(index, 3) for index in range(3)), StartTimer(1))
    members = [await scene.take(ACTIVITY) for _ in range(3)]
    await scene.finish(members[0])
    await scene.advance(1_000)
    looking = await scene.take(WORKFLOW)
    await scene.finish(members[2])
    await scene.finish(members[1])
    receipt = await scene.complete(looking, *(grouped(index, 3) for index in range(3)))
    assert scene.run(run.run_id).last_step == 4, "nothing was opened twice"
    [task] = scene.live(run.run_id)
    assert (task.kind, receipt.created) == (WORKFLOW, (task.task_id,))


# ── Failure ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_failed_workflow_task_backs_off_longer_each_time_and_the_run_stays_open(scene: Scene):
    run = await scene.start()
    for failures, rest_ms in ((1, 1_000), (2, 2_000), (3, 4_000)):
        leased = await scene.take(WORKFLOW)
        assert leased.task.attempt == failures
        receipt = await scene.fail(leased, "unknown step", "NonDeterminism")
        assert (receipt.outcome, receipt.task.state) == ("failed", TaskState.DELAYED)
        assert receipt.task.available_at_ms == scene.clock.now_ms() + rest_ms
        stored = scene.run(run.run_id)
        assert (stored.task_failures, stored.task_error) == (failures, "NonDeterminism: unknown step")
        assert stored.is_open
        await scene.advance(rest_ms - 1)
        assert await scene.claim(WORKFLOW) is None
        await scene.advance(1)
    await scene.decide(charge())
    assert (scene.run(run.run_id).task_failures, scene.run(run.run_id).task_error) == (0, None)
    assert "WorkflowFailed" not in await scene.types(run.run_id)


async def test_a_repeated_failure_is_counted_once(scene: Scene):
    leased = await a_lease(scene)
    first = await scene.fail(leased)
    again = await scene.fail(leased)
    assert (again.repeated, again.outcome) == (True, first.outcome)
    assert scene.run(leased.run.run_id).task_failures == 1


async def test_an_endless_error_message_is_cut(scene: Scene):
    leased = await a_lease(scene)
    receipt = await scene.fail(leased, "x" * 100_000)
    assert receipt.run.task_error is not None
    assert len(receipt.run.task_error) == len(receipt.task.last_error or "") == 4_000


async def test_a_replay_without_news_is_acknowledged_and_is_no_failure(scene: Scene):
    leased = await a_lease(scene)
    receipt = await scene.fail(leased, "nothing new", WAITING_FOR_HISTORY)
    assert (receipt.outcome, receipt.task.state) == ("waiting_for_history", TaskState.DONE)
    assert scene.run(leased.run.run_id).task_failures == 0
    assert await scene.types(leased.run.run_id) == ["WorkflowStarted"]
    assert scene.live(leased.run.run_id) == []


async def test_news_that_came_during_such_a_replay_brings_the_next_task(scene: Scene):
    deciding, second, _ = await busy_run(scene)
    await scene.finish(second)
    await scene.fail(deciding, "nothing new", WAITING_FOR_HISTORY)
    again = await scene.take(WORKFLOW)
    assert again.task.task_id != deciding.task.task_id
    assert again.events[-1].type == "ActivityCompleted"


# ── Leases ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_heartbeat_renews_the_lease(scene: Scene):
    leased = await a_lease(scene)
    lease_ms = scene.ctx.settings.leases.workflow_lease_ms
    scene.clock.advance(lease_ms - 1)
    receipt = await scene.heartbeat_workflow_task(leased)
    assert receipt.task.lease_expires_at_ms == scene.clock.now_ms() + lease_ms
    scene.clock.advance(lease_ms - 1)
    await scene.complete(leased, DONE)


async def test_a_lapsed_lease_is_never_brought_back(scene: Scene):
    leased = await a_lease(scene)
    scene.clock.set(leased.task.lease_expires_at_ms or 0)
    with pytest.raises(LeaseLost) as refused:
        await scene.heartbeat_workflow_task(leased)
    assert refused.value.reason is Reason.LEASE_EXPIRED
    assert scene.task(leased.task.task_id) == leased.task


async def test_holding_is_checked_without_a_change(scene: Scene):
    leased = await a_lease(scene)
    held = await workflow_reports.hold(scene.ctx, "default", leased.task.task_id, of(leased))
    assert held.task == leased.task
    with pytest.raises(LeaseLost):
        await workflow_reports.hold(scene.ctx, "default", leased.task.task_id, of(leased, owner="w2"))


async def test_an_expired_lease_is_taken_back_and_the_next_attempt_sees_what_waited(scene: Scene):
    deciding, second, _ = await busy_run(scene)
    await scene.finish(second)
    task_id = deciding.task.task_id
    assert not await workflow_reports.reclaim(scene.ctx, task_id)
    scene.clock.set(deciding.task.lease_expires_at_ms or 0)
    assert await workflow_reports.reclaim(scene.ctx, task_id)
    assert not await workflow_reports.reclaim(scene.ctx, task_id)
    assert scene.task(task_id).state is TaskState.READY
    assert "expired" in (scene.task(task_id).last_error or "")
    again = await scene.take(WORKFLOW, "w2")
    assert (again.task.task_id, again.task.attempt) == (task_id, 2)
    assert again.events[-1].type == "ActivityCompleted"
    assert scene.run(deciding.run.run_id).task_failures == 0


async def test_nothing_but_a_leased_workflow_task_is_taken_back_as_one(scene: Scene):
    await scene.start()
    await scene.decide(charge())
    activity = await scene.take(ACTIVITY)
    scene.clock.advance(10**9)
    assert not await workflow_reports.reclaim(scene.ctx, activity.task.task_id)
    assert not await workflow_reports.reclaim(scene.ctx, TaskId("no-such"))


async def test_output_of_any_size_is_kept_as_it_came(scene: Scene):
    leased = await a_lease(scene)
    await scene.complete(leased, CompleteWorkflow(Blob("A" * 10_000)))
    assert (await scene.payload(leased.run.run_id, -1))["output"] == "A" * 10_000


async def test_time_does_not_move_while_a_report_is_recorded(scene: Scene):
    leased = await a_lease(scene)
    scene.clock.advance(77)
    await scene.complete(leased, charge(), StartTimer(1))
    events = await scene.events(leased.run.run_id)
    assert [event.recorded_at_ms for event in events] == [NOW_MS, NOW_MS + 77, NOW_MS + 77]


async def test_a_workflow_task_that_a_worker_gives_back_waits_again_with_what_came_meanwhile(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(), charge())
    first, second = [await scene.take(ACTIVITY) for _ in range(2)]
    await scene.finish(first)
    leased = await scene.take(WORKFLOW)
    await scene.finish(second)
    report = of(leased, HANDED_BACK)
    receipt = await direct.hand_back_workflow_task(scene.ctx, "default", leased.task.task_id, report)
    assert (receipt.outcome, receipt.task.state) == (HANDED_BACK, TaskState.READY)
    assert (scene.run(run.run_id).task_failures, scene.run(run.run_id).buffered) == (0, 0)
    again = await scene.take(WORKFLOW, "w2")
    assert len(again.events) == again.run.last_sequence
    repeated = await direct.hand_back_workflow_task(scene.ctx, "default", leased.task.task_id, report)
    assert repeated.repeated
    with pytest.raises(Conflict):
        await scene.complete(leased, DONE)
    await scene.complete(again, DONE)
