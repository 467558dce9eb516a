"""Cancellation with time to clean up: what a request and a delivery change, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.history.cancellation import CAPABILITY
from penstock.core.history.commands import (
    Command,
    ContinueAsNew,
    FailWorkflow,
    OpenConditionWait,
    RecordSideEffect,
    StartTimer,
)
from penstock.core.model import Blob, Run, RunStatus, TaskState
from penstock.core.scheduling.polls import Leased
from penstock.core.waits import CancellationDelivery
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.maintenance.sweepers.overdue_runs import overdue_runs
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal
from penstock.engine.runs.address import Address
from penstock.engine.workflows import cancellation_requests, run_close
from penstock.engine.workflows.cancellation_requests import DeliveryReceipt, RequestReceipt
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import PenstockError, Reason
from penstock.wire.matching.tasks import cancellation_request, workflow_task
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, charge, of

MINUTE_MS = 60_000
REQUESTED, DELIVERED = "CooperativeCancellationRequested", "CooperativeCancellationDelivered"
LET_THROUGH = FailWorkflow("workflow cancellation was requested", {"exception_type": "WorkflowCancelled"})


async def a_run(scene: Scene, *commands: Command, **changes: Any) -> Run:
    """A run with a capable worker, whose code has sent these commands."""
    await scene.register(advertised={"capabilities": [CAPABILITY]})
    run = await scene.start(**changes)
    if commands:
        await scene.decide(*commands)
    return run


async def ask(scene: Scene, reason: str | None = "enough", cleanup_s: int | None = None) -> RequestReceipt:
    return await cancellation_requests.request(scene.ctx, Address("default", "order-1"), reason, cleanup_s)


async def deliver(
    scene: Scene, leased: Leased, sequence: int, kind: str = "activity", span: int = 1, **changes: Any
) -> DeliveryReceipt:
    return await cancellation_requests.deliver(
        scene.ctx,
        "default",
        leased.task.task_id,
        changes.pop("report", of(leased)),
        changes.pop("request_id", f"{leased.run.run_id}-request-cancellation"),
        CancellationDelivery(sequence, kind, span, **changes),
    )


async def refused(attempt: Any) -> Reason:
    with pytest.raises(PenstockError) as refusal:
        await attempt
    return refusal.value.reason


async def test_a_request_wakes_the_code_and_is_shown_with_the_task(scene: Scene):
    run = await a_run(scene, charge())
    asked = (await ask(scene)).asked
    leased = await scene.take(WORKFLOW)
    assert [event.type for event in leased.events][-1] == REQUESTED
    body = workflow_task(leased.task, leased.run, leased.events)
    assert body["cancellation_request"]["request_id"] == asked.id == f"{run.run_id}-request-cancellation"
    assert asked.deadline_at_ms == asked.requested_at_ms + MINUTE_MS


async def test_a_delivery_cancels_the_open_activity_and_keeps_the_lease(scene: Scene):
    run = await a_run(scene, charge())
    working = await scene.take(ACTIVITY)
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 1)
    assert (await scene.types(run.run_id))[-2:] == [DELIVERED, "ActivityCancelled"]
    assert scene.task(working.task.task_id).state is TaskState.CANCELLED
    assert (await scene.heartbeat(working)).reason == "activity_cancelled"
    assert scene.run(run.run_id).open_activities == 0
    await scene.complete(leased, charge())
    assert (await scene.payload(run.run_id, -1))["sequence"] == 2


async def test_a_delivery_before_the_command_was_sent_uses_up_its_number(scene: Scene):
    run = await a_run(scene)
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 1, "parallel", 3)
    await scene.complete(leased, charge())
    assert (await scene.payload(run.run_id, -1))["sequence"] == 4


async def test_a_repeated_delivery_changes_nothing_and_another_one_is_refused(scene: Scene):
    run = await a_run(scene, charge())
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    first = await deliver(scene, leased, 1)
    before = await scene.types(run.run_id)
    again = await deliver(scene, leased, 1)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert await refused(deliver(scene, leased, 2)) is Reason.CANCELLATION_CALL_MISMATCH
    assert await scene.types(run.run_id) == before


async def test_only_the_holder_of_the_lease_delivers_and_only_the_request_there_is(scene: Scene):
    run = await a_run(scene, charge())
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    thief = of(leased, owner="thief")
    assert await refused(deliver(scene, leased, 1, report=thief)) is Reason.LEASE_OWNER_MISMATCH
    assert await refused(deliver(scene, leased, 1, request_id="other")) is Reason.CANCELLATION_NOT_REQUESTED
    assert DELIVERED not in await scene.types(run.run_id)


@pytest.mark.parametrize(("sequence", "kind"), [(1, "timer"), (3, "activity"), (7, "activity")])
async def test_a_call_that_the_code_cannot_wait_for_is_refused(scene: Scene, sequence: int, kind: str):
    await a_run(scene, charge())
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    assert await refused(deliver(scene, leased, sequence, kind)) is Reason.CANCELLATION_CALL_MISMATCH


async def test_a_call_with_a_result_before_the_request_is_not_interrupted(scene: Scene):
    run = await a_run(scene, charge())
    await scene.finish(await scene.take(ACTIVITY))
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    assert await refused(deliver(scene, leased, 1)) is Reason.CANCELLATION_CALL_RESOLVED
    await deliver(scene, leased, 2, "timer")
    assert (await scene.types(run.run_id))[-2:] == [REQUESTED, DELIVERED]


async def test_a_result_after_the_request_is_replaced_by_the_cancellation(scene: Scene):
    run = await a_run(scene, charge())
    working = await scene.take(ACTIVITY)
    await ask(scene)
    await scene.finish(working)
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 1)
    assert (await scene.types(run.run_id))[-3:] == [REQUESTED, "ActivityCompleted", DELIVERED]


async def test_what_comes_of_an_interrupted_call_later_is_not_recorded(scene: Scene):
    """The activity ends while the task is leased that delivers: its end waits in the buffer."""
    run = await a_run(scene, charge())
    working = await scene.take(ACTIVITY)
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await scene.finish(working)
    await deliver(scene, leased, 1)
    await scene.complete(leased, charge())
    assert (await scene.types(run.run_id))[-2:] == [DELIVERED, "ActivityScheduled"]
    assert scene.run(run.run_id).buffered == 0


async def test_a_request_behind_a_leased_task_is_shown_by_its_heartbeat_and_recorded_with_the_delivery(
    scene: Scene,
):
    run = await a_run(scene, charge())
    await scene.finish(await scene.take(ACTIVITY))
    leased = await scene.take(WORKFLOW)
    await ask(scene)
    assert REQUESTED not in await scene.types(run.run_id)
    renewed = await scene.heartbeat_workflow_task(leased)
    shown = cancellation_request(renewed.run, leased_before=True)
    assert shown["cancellation_request"]["request_id"]
    await deliver(scene, leased, 2, "local_activity")
    assert (await scene.types(run.run_id))[-2:] == [REQUESTED, DELIVERED]


async def test_a_request_behind_the_first_task_can_be_delivered_by_it(scene: Scene):
    run = await a_run(scene)
    leased = await scene.take(WORKFLOW)
    await ask(scene)
    renewed = await scene.heartbeat_workflow_task(leased)
    assert cancellation_request(renewed.run, leased_before=True)
    await deliver(scene, leased, 1, "local_activity")
    assert await scene.types(run.run_id) == ["WorkflowStarted", REQUESTED, DELIVERED]


async def test_a_request_behind_the_first_task_waits_for_its_end_like_signals(scene: Scene):
    """Signals before the first task are recorded behind its commands, and the request with them."""
    run = await a_run(scene)
    leased = await scene.take(WORKFLOW)
    await signals.send(scene.ctx, Signal(Address("default", "order-1"), "paid", NOTHING))
    await ask(scene)
    renewed = await scene.heartbeat_workflow_task(leased)
    assert cancellation_request(renewed.run, leased_before=True) == {}
    assert await refused(deliver(scene, leased, 1)) is Reason.CANCELLATION_NOT_REQUESTED
    await scene.complete(leased, charge())
    assert (await scene.types(run.run_id))[1:] == ["ActivityScheduled", "SignalReceived", REQUESTED]
    await deliver(scene, await scene.take(WORKFLOW), 1)


async def test_the_next_worker_delivers_if_the_first_one_died_before_it_did(scene: Scene):
    run = await a_run(scene, charge())
    await ask(scene, cleanup_s=3_600)
    dead = await scene.take(WORKFLOW)
    scene.clock.advance(scene.ctx.settings.leases.workflow_lease_ms + 1)
    await expired_leases(scene.ctx).sweep()
    leased = await scene.take(WORKFLOW)
    assert await refused(deliver(scene, dead, 1)) is Reason.WORKFLOW_TASK_ATTEMPT_MISMATCH
    await deliver(scene, leased, 1)
    assert (await scene.types(run.run_id)).count(DELIVERED) == 1


async def test_code_that_had_commands_before_the_call_runs_again_for_the_delivery(scene: Scene):
    run = await a_run(scene)
    await ask(scene)
    await scene.decide(RecordSideEffect(Blob("AQ==")))
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 2, "timer")
    assert (await scene.types(run.run_id))[-1] == DELIVERED


async def test_code_that_repeats_what_is_open_does_not_run_again_for_a_delivery(scene: Scene):
    """A shielded group that is not complete: its worker sends it with every task."""
    path = [
        {
            "parallel_group_id": "parallel-timers:1:2",
            "parallel_group_kind": "timer",
            "parallel_group_base_sequence": 1,
            "parallel_group_size": 2,
            "parallel_group_index": index,
        }
        for index in range(2)
    ]
    group = [StartTimer(60, each | {"parallel_group_path": [each]}) for each in path]
    await a_run(scene, *group)
    await ask(scene)
    await scene.decide(*group)
    assert await scene.claim(WORKFLOW) is None


async def test_a_condition_that_the_code_has_left_is_recorded_as_met_before_the_delivery(scene: Scene):
    """Otherwise its timeout could still be recorded, and a replay would see that instead."""
    run = await a_run(scene, OpenConditionWait("paid", timeout_s=30))
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 2, "timer")
    assert (await scene.types(run.run_id))[-3:] == ["ConditionWaitSatisfied", "TimerCancelled", DELIVERED]
    assert scene.run(run.run_id).open_timers == 0


async def test_an_interrupted_condition_ends_with_its_timer(scene: Scene):
    run = await a_run(scene, OpenConditionWait("paid", timeout_s=30))
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 1, "condition")
    assert (await scene.types(run.run_id))[-2:] == [DELIVERED, "TimerCancelled"]
    await scene.complete(leased, StartTimer(5))
    await scene.advance(31_000)
    assert (await scene.types(run.run_id))[-1] == "TimerFired"
    assert (scene.run(run.run_id).waits.condition, scene.run(run.run_id).open_timers) == (None, 0)


async def test_a_cancellation_that_the_code_lets_through_ends_the_run_as_cancelled(scene: Scene):
    run = await a_run(scene, charge())
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 1)
    await scene.complete(leased, LET_THROUGH)
    assert scene.run(run.run_id).status is RunStatus.CANCELLED
    assert (await scene.payload(run.run_id, -1))["reason"] == "enough"


async def test_such_a_failure_without_a_delivery_is_a_failure(scene: Scene):
    run = await a_run(scene, charge())
    await ask(scene)
    await scene.decide(LET_THROUGH)
    assert scene.run(run.run_id).status is RunStatus.FAILED


async def test_code_that_returns_after_the_delivery_completes(scene: Scene):
    run = await a_run(scene, charge())
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 1)
    await scene.complete(leased, DONE)
    assert scene.run(run.run_id).status is RunStatus.COMPLETED


@pytest.mark.parametrize("delivers", [False, True])
async def test_the_deadline_closes_the_run_as_cancelled_with_all_that_is_open(scene: Scene, delivers: bool):
    run = await a_run(scene, charge())
    asked = (await ask(scene, cleanup_s=5)).asked
    leased = await scene.take(WORKFLOW)
    if delivers:
        await deliver(scene, leased, 1)
        await scene.complete(leased, charge())
    scene.clock.advance(4_999)
    assert await overdue_runs(scene.ctx).sweep() == 0
    scene.clock.advance(1)
    if not delivers:
        assert await refused(deliver(scene, leased, 1)) is Reason.RUN_TIMED_OUT
    await overdue_runs(scene.ctx).sweep()
    assert (await scene.types(run.run_id))[-2:] == ["ActivityCancelled", "WorkflowCancelled"]
    last = await scene.payload(run.run_id, -1)
    assert (last["workflow_command_id"], last["reason"]) == (asked.id, "enough")
    assert scene.live(run.run_id) == []


async def test_a_run_timeout_before_the_deadline_is_still_a_timeout(scene: Scene):
    run = await a_run(scene, charge(), run_timeout_s=5)
    await ask(scene)
    scene.clock.advance(5_000)
    await overdue_runs(scene.ctx).sweep()
    assert (await scene.types(run.run_id))[-1] == "WorkflowTimedOut"


async def test_a_repeated_request_returns_the_first_one(scene: Scene):
    await a_run(scene, charge())
    first, again = await ask(scene, cleanup_s=5), await ask(scene, "other", cleanup_s=600)
    assert (again.duplicate, again.asked.deadline_at_ms) == (True, first.asked.deadline_at_ms)


async def test_a_request_for_a_closed_run_is_refused(scene: Scene):
    await a_run(scene, DONE)
    assert await refused(ask(scene)) is Reason.RUN_NOT_ACTIVE


@pytest.mark.parametrize(
    "worker",
    [
        {},
        {"advertised": {"capabilities": ["query_tasks"]}},
        {"advertised": {"capabilities": [CAPABILITY]}, "workflow_types": ("Other",)},
        {"advertised": {"capabilities": [CAPABILITY]}, "task_queue": "elsewhere"},
        {"advertised": {"capabilities": [CAPABILITY]}, "build_id": "b2"},
    ],
    ids=["none", "other capability", "other type", "other queue", "other build"],
)
async def test_a_request_is_refused_while_no_worker_of_the_run_can_deliver_it(
    scene: Scene, worker: dict[str, Any]
):
    run = await scene.start(build_id="b1") if "build_id" in worker else await scene.start()
    await scene.register("w2", **worker)
    assert await refused(ask(scene)) is Reason.COOPERATIVE_CANCELLATION_NOT_SUPPORTED
    assert await scene.types(run.run_id) == ["WorkflowStarted"]
    assert scene.run(run.run_id).deadline_at_ms is None


async def test_a_worker_that_is_silent_for_too_long_does_not_count(scene: Scene):
    await a_run(scene, charge())
    scene.clock.advance(scene.ctx.settings.polls.worker_stale_after_ms + 1)
    assert await refused(ask(scene)) is Reason.COOPERATIVE_CANCELLATION_NOT_SUPPORTED


async def test_a_task_that_an_incapable_worker_leased_goes_back_for_a_moment(scene: Scene):
    await a_run(scene, charge())
    await ask(scene)
    other = await scene.take(WORKFLOW, "w2")
    assert await cancellation_requests.withhold(scene.ctx, (other,)) == ()
    assert await scene.claim(WORKFLOW, "w2") is None
    await scene.advance(cancellation_requests.WITHHELD_MS)
    leased = await scene.take(WORKFLOW)
    assert await cancellation_requests.withhold(scene.ctx, (leased,)) == (leased,)


async def test_a_plain_cancel_still_closes_at_once(scene: Scene):
    run = await a_run(scene, charge())
    await ask(scene)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, "now")
    assert scene.run(run.run_id).status is RunStatus.CANCELLED


async def test_a_request_does_not_wait_for_a_delayed_start(scene: Scene):
    await a_run(scene, delay_ms=3_600_000)
    assert await scene.claim(WORKFLOW) is None
    await ask(scene)
    await scene.take(WORKFLOW)


async def test_the_next_run_receives_a_request_that_this_one_did_not(scene: Scene):
    run = await a_run(scene, charge())
    await ask(scene, cleanup_s=5)
    await scene.decide(ContinueAsNew(NOTHING))
    leased = await scene.take(WORKFLOW)
    assert [event.type for event in leased.events] == ["WorkflowStarted", REQUESTED]
    asked = leased.run.waits.cancellation
    assert asked is not None
    assert leased.run.deadline_at_ms == asked.deadline_at_ms
    await deliver(scene, leased, 1, request_id=f"{run.run_id}-request-cancellation")


async def test_the_next_run_has_no_request_if_this_one_received_it(scene: Scene):
    await a_run(scene, charge())
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await deliver(scene, leased, 1)
    await scene.complete(leased, ContinueAsNew(NOTHING))
    following = await scene.take(WORKFLOW)
    assert (following.run.waits.cancellation, following.run.deadline_at_ms) == (None, None)


async def test_signals_that_came_with_the_first_task_are_kept_over_a_delivery(scene: Scene):
    run = await a_run(scene)
    await ask(scene)
    leased = await scene.take(WORKFLOW)
    await signals.send(scene.ctx, Signal(Address("default", "order-1"), "paid", NOTHING))
    await deliver(scene, leased, 1, "condition")
    assert (await scene.types(run.run_id))[-1] == DELIVERED
    await scene.complete(leased, charge())
    assert (await scene.types(run.run_id))[-2:] == ["ActivityScheduled", "SignalReceived"]


# ── Concurrent runs ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_concurrent_run_receives_a_cancel_request_and_has_until_the_deadline(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(), concurrent=True)
    first = await ask(scene, cleanup_s=5)
    assert (await ask(scene)).asked == first.asked
    assert (await scene.types(run.run_id))[-1] == "CancelRequested"
    leased = await scene.take(WORKFLOW)
    assert "cancellation_request" not in workflow_task(leased.task, leased.run, leased.events)
    assert await cancellation_requests.withhold(scene.ctx, (leased,)) == (leased,)
    await scene.complete(leased, charge(), concurrent=True)
    scene.clock.advance(5_000)
    await overdue_runs(scene.ctx).sweep()
    assert (await scene.types(run.run_id))[-1] == "WorkflowCancelled"


async def test_a_deadline_may_follow_a_plain_cancel_of_a_concurrent_run(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(), concurrent=True)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, "please")
    assert not (await ask(scene, cleanup_s=5)).duplicate
    assert (await scene.types(run.run_id)).count("CancelRequested") == 1
    assert scene.run(run.run_id).deadline_at_ms is not None
