"""Concurrent runs: many steps open at once, and every event wakes the code."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.core.history.commands import (
    CancelExternal,
    CancelStep,
    CancelWorkflow,
    Command,
    CompleteUpdate,
    ContinueAsNew,
    FailUpdate,
    FailWorkflow,
    SignalExternal,
    StartChild,
    StartTimer,
)
from penstock.core.model import (
    ActivityStatus,
    Blob,
    ChildState,
    ClosePolicy,
    RetrySchedule,
    Run,
    RunStatus,
    TimerState,
    UpdateStatus,
)
from penstock.core.scheduling.polls import Leased
from penstock.engine.activities import activity_reports
from penstock.engine.activities.activity_reports import AttemptFailure
from penstock.engine.messaging import signals, updates
from penstock.engine.messaging.signals import Signal
from penstock.engine.messaging.updates import UpdateResult, UpdateSubmission
from penstock.engine.operations import batch_operations
from penstock.engine.operations.batch_operations import BatchAction, BatchJob
from penstock.engine.runs.address import Address
from penstock.engine.visibility.run_search import RunCriteria
from penstock.engine.workflows import outbox_relay, run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.workflow_reports import WorkflowTaskReceipt
from penstock.errors import Conflict, LeaseLost, Reason
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, charge, of, tries

ONE, TWO = Blob("AQ=="), Blob("Ag==")


async def step(scene: Scene, *commands: Command, cached: bool = False) -> WorkflowTaskReceipt:
    """Claim the ready workflow task and complete it as concurrent code."""
    return await scene.decide(*commands, concurrent=True, cached=cached)


async def a_run(scene: Scene, *commands: Command, workflow_id: str = "order-1") -> Run:
    run = await scene.start(workflow_id)
    await step(scene, *commands)
    return scene.run(run.run_id)


async def send(scene: Scene, name: str = "go", workflow_id: str = "order-1") -> None:
    await signals.send(scene.ctx, Signal(Address("default", workflow_id), name, NOTHING))


async def ask(scene: Scene, name: str = "approve") -> UpdateResult:
    asked = UpdateSubmission(Address("default", "order-1"), name, NOTHING)
    return await updates.accept(scene.ctx, asked, asyncio.Event())


async def cancel(scene: Scene, workflow_id: str = "order-1", **changes: Any) -> run_close.EndResult:
    return await run_close.end_run(
        scene.ctx, "default", workflow_id, EndMode.CANCEL, "enough", request_id=changes.get("request_id")
    )


async def deliver(scene: Scene) -> None:
    """Relay outbox messages and their answers."""
    while scene.tables.outbox:
        for message_id in list(scene.tables.outbox):
            await outbox_relay.deliver(scene.ctx, message_id)


def event_types(leased: Leased) -> list[str]:
    return [event.type for event in leased.events]


# ── Activations ─────────────────────────────────────────────────────────────────────────────────────────


async def test_every_completion_is_marked_with_what_its_code_had_seen(scene: Scene):
    run = await scene.start()
    await step(scene, charge(), charge())
    assert (await scene.types(run.run_id))[1:] == [
        "WorkflowTaskCompleted",
        "ActivityScheduled",
        "ActivityScheduled",
    ]
    assert await scene.payload(run.run_id, 1) == {"seen_through": 1}
    await scene.finish(await scene.take(ACTIVITY))
    await step(scene)
    assert await scene.payload(run.run_id, -1) == {"seen_through": 5}


async def test_a_completion_may_ask_for_nothing(scene: Scene):
    run = await a_run(scene)
    assert (run.status, scene.live(run.run_id)) == (RunStatus.WAITING, [])
    assert await scene.types(run.run_id) == ["WorkflowStarted", "WorkflowTaskCompleted"]


async def test_each_end_of_a_step_wakes_the_code(scene: Scene):
    run = await a_run(scene, charge(), charge())
    first, second = await scene.take(ACTIVITY), await scene.take(ACTIVITY)
    await scene.finish(second)
    await step(scene)
    await scene.finish(first)
    leased = await scene.take(WORKFLOW)
    assert event_types(leased).count("ActivityCompleted") == 2
    assert scene.run(run.run_id).open_activities == 0


async def test_a_report_that_is_repeated_has_no_second_effect(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    await scene.complete(leased, charge(), concurrent=True)
    again = await scene.complete(leased, charge(), report=of(leased), concurrent=True)
    assert again.repeated
    assert (await scene.types(run.run_id)).count("WorkflowTaskCompleted") == 1


async def test_a_run_keeps_the_manner_in_which_it_began(scene: Scene):
    await a_run(scene, charge())
    await scene.finish(await scene.take(ACTIVITY))
    with pytest.raises(Conflict) as refusal:
        await scene.decide(charge())
    assert refusal.value.reason is Reason.INVALID_COMMANDS


async def test_a_stepwise_run_is_not_gone_on_with_concurrently(scene: Scene):
    await scene.start()
    await scene.decide(charge())
    await scene.finish(await scene.take(ACTIVITY))
    with pytest.raises(Conflict) as refusal:
        await step(scene, charge())
    assert refusal.value.reason is Reason.INVALID_COMMANDS


async def test_timers_fire_to_the_millisecond(scene: Scene):
    run = await a_run(scene, StartTimer(1, delay_ms=250))
    assert (await scene.payload(run.run_id, -1))["delay_ms"] == 250
    await scene.advance(249)
    assert scene.live(run.run_id) == []
    await scene.advance(1)
    assert event_types(await scene.take(WORKFLOW))[-1] == "TimerFired"


async def test_attempts_are_made_after_pauses_of_milliseconds(scene: Scene):
    run = await a_run(scene, charge(RetrySchedule(2_147_483_647, True, backoff_ms=(150, 300))))
    for pause in (150, 300, 300):
        await scene.fail_activity(await scene.take(ACTIVITY))
        payload = await scene.payload(run.run_id, -1)
        assert (payload["retry_backoff_ms"], payload["retry_backoff_seconds"]) == (pause, 1)
        await scene.advance(pause - 1)
        assert await scene.claim(ACTIVITY) is None
        await scene.advance(1)


# ── Signals and updates ─────────────────────────────────────────────────────────────────────────────────


async def test_a_signal_wakes_the_code_whatever_it_waits_for(scene: Scene):
    await a_run(scene, charge())
    await send(scene)
    assert event_types(await scene.take(WORKFLOW))[-1] == "SignalReceived"


async def test_a_signal_before_the_first_task_is_delivered_after_it(scene: Scene):
    await scene.start()
    await send(scene)
    await step(scene)
    assert event_types(await scene.take(WORKFLOW))[-1] == "SignalReceived"


async def test_a_signal_during_a_task_waits_for_its_end_and_then_wakes(scene: Scene):
    run = await a_run(scene)
    await send(scene)
    leased = await scene.take(WORKFLOW)
    await send(scene, "again")
    await scene.complete(leased, charge(), concurrent=True)
    assert (await scene.types(run.run_id))[-3:] == [
        "WorkflowTaskCompleted",
        "ActivityScheduled",
        "SignalReceived",
    ]
    assert len(scene.live(run.run_id)) == 2


async def test_a_run_does_not_close_with_an_unhandled_signal(scene: Scene):
    run = await a_run(scene)
    await send(scene)
    leased = await scene.take(WORKFLOW)
    await send(scene, "again")
    with pytest.raises(LeaseLost):
        await scene.complete(leased, DONE, concurrent=True)
    assert scene.run(run.run_id).is_open
    await step(scene, DONE)


async def test_an_update_is_an_event_and_answered_in_any_later_task(scene: Scene):
    run = await a_run(scene)
    first, second = await ask(scene), await ask(scene)
    leased = await scene.take(WORKFLOW)
    assert leased.task.update_id is None
    assert event_types(leased)[-2:] == ["UpdateAccepted", "UpdateAccepted"]
    await scene.complete(leased, charge(), concurrent=True)
    assert scene.run(run.run_id).open_updates == 2
    await scene.finish(await scene.take(ACTIVITY))
    await step(
        scene,
        FailUpdate(second.update.update_id, "no", {"exception": {"cause": {"message": "why"}}}),
        CompleteUpdate(first.update.update_id, ONE),
    )
    kept = scene.tables.updates
    assert kept[first.update.update_id].status is UpdateStatus.COMPLETED
    assert kept[second.update.update_id].status is UpdateStatus.FAILED
    assert json.loads(kept[second.update.update_id].outcome or "")["exception"]["cause"] == {"message": "why"}
    assert (await scene.types(run.run_id))[-3:] == [
        "WorkflowTaskCompleted",
        "UpdateCompleted",
        "UpdateCompleted",
    ]
    assert (scene.run(run.run_id).open_updates, scene.live(run.run_id)) == (0, [])


async def test_an_update_from_before_the_first_task_is_delivered(scene: Scene):
    await scene.start()
    answered = await ask(scene)
    leased = await scene.take(WORKFLOW)
    assert event_types(leased)[-1] == "UpdateAccepted"
    await scene.complete(leased, CompleteUpdate(answered.update.update_id, ONE), concurrent=True)
    assert await scene.claim(WORKFLOW) is None


async def test_an_answer_that_is_given_again_is_ignored_and_another_one_refused(scene: Scene):
    run = await a_run(scene)
    update_id = (await ask(scene)).update.update_id
    await step(scene, CompleteUpdate(update_id, ONE), CompleteUpdate(update_id, ONE))
    assert (await scene.types(run.run_id)).count("UpdateCompleted") == 1
    await send(scene)
    await step(scene, CompleteUpdate(update_id, ONE))
    assert (await scene.types(run.run_id)).count("UpdateCompleted") == 1
    await send(scene)
    leased = await scene.take(WORKFLOW)
    for wrong in (
        CompleteUpdate(update_id, TWO),
        FailUpdate(update_id, "no"),
        CompleteUpdate("nobody's", ONE),
    ):
        with pytest.raises(Conflict) as refusal:
            await scene.complete(leased, wrong, concurrent=True)
        assert refusal.value.reason is Reason.INVALID_COMMANDS


async def test_an_update_that_the_last_task_answers_is_answered_so(scene: Scene):
    await a_run(scene)
    received, unheard = await ask(scene), await ask(scene)
    await step(scene, CompleteUpdate(received.update.update_id, ONE), DONE)
    kept = scene.tables.updates
    assert kept[received.update.update_id].status is UpdateStatus.COMPLETED
    assert kept[unheard.update.update_id].status is UpdateStatus.FAILED


async def test_a_successor_takes_over_the_updates_that_were_not_begun(scene: Scene):
    await a_run(scene)
    answered, received = await ask(scene), await ask(scene)
    leased = await scene.take(WORKFLOW)
    open_one = await ask(scene)
    ends = (CompleteUpdate(answered.update.update_id, ONE), ContinueAsNew(NOTHING))
    await scene.complete(leased, *ends, concurrent=True)
    assert scene.tables.updates[received.update.update_id].status is UpdateStatus.FAILED
    leased = await scene.take(WORKFLOW)
    assert event_types(leased) == ["WorkflowStarted", "UpdateAccepted"]
    await scene.complete(leased, CompleteUpdate(open_one.update.update_id, TWO), DONE, concurrent=True)
    assert scene.tables.updates[open_one.update.update_id].status is UpdateStatus.COMPLETED


# ── Giving up steps ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_cancelled_step_ends_and_records_nothing_more(scene: Scene):
    run = await a_run(scene, charge(), StartTimer(5), StartChild("Ship", "ships", NOTHING, "ship-1"))
    held = await scene.take(ACTIVITY)
    await send(scene)
    leased = await scene.take(WORKFLOW)
    await scene.complete(leased, CancelStep(1), CancelStep(2), CancelStep(3), concurrent=True)
    kept = scene.run(run.run_id)
    assert (kept.open_activities, kept.open_timers, kept.open_children) == (0, 0, 0)
    assert scene.activity(held).status is ActivityStatus.CANCELLED
    assert [timer.state for timer in scene.tables.timers.values()] == [TimerState.CANCELLED]
    children = await scene.read(lambda tx: tx.children.all_of(run.run_id))
    assert [child.state for child in children] == [ChildState.CANCELLED]
    assert (await scene.heartbeat(held)).reason == Reason.ACTIVITY_CANCELLED.value
    await deliver(scene)
    await scene.advance(10_000)
    assert (await scene.types(run.run_id))[-4:] == ["WorkflowTaskCompleted", *["StepCancelRequested"] * 3]
    assert await scene.payload(run.run_id, -1) == {"sequence": 3, "step_sequence": 3}
    assert scene.live(run.run_id) == []


async def test_events_of_a_cancelled_step_during_the_task_are_dropped(scene: Scene):
    run = await a_run(scene, charge(), charge())
    first, second = await scene.take(ACTIVITY), await scene.take(ACTIVITY)
    await send(scene)
    leased = await scene.take(WORKFLOW)
    await scene.finish(first)
    await scene.finish(second)
    await scene.complete(leased, CancelStep(1), concurrent=True)
    assert (await scene.types(run.run_id))[-3:] == [
        "WorkflowTaskCompleted",
        "StepCancelRequested",
        "ActivityCompleted",
    ]
    assert (await scene.payload(run.run_id, -1))["sequence"] == 2


async def test_a_step_that_is_cancelled_as_it_is_started_never_begins(scene: Scene):
    run = await a_run(
        scene,
        charge(),
        CancelStep(1),
        StartTimer(5),
        CancelStep(2),
        StartChild("Ship", None, NOTHING, "ship-1"),
        CancelStep(3),
        SignalExternal("order-2", "go", NOTHING),
        CancelStep(4),
    )
    assert (run.open_activities, run.open_timers, run.open_children) == (0, 0, 0)
    assert (scene.live(run.run_id), scene.tables.outbox) == ([], {})
    assert list(scene.tables.instances) == [("default", "order-1")]
    assert "ChildRunStarted" not in await scene.types(run.run_id)
    assert run.waits.external == ()


async def test_a_step_that_has_ended_may_be_cancelled_and_one_that_is_not_there_may_not(scene: Scene):
    run = await a_run(scene, charge())
    await scene.finish(await scene.take(ACTIVITY))
    leased = await scene.take(WORKFLOW)
    with pytest.raises(Conflict):
        await scene.complete(leased, CancelStep(2), concurrent=True)
    await scene.complete(leased, CancelStep(1), concurrent=True)
    assert (await scene.types(run.run_id))[-1] == "StepCancelRequested"


# ── Cancelling ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_code_is_asked_once_to_end_and_decides_how(scene: Scene):
    run = await a_run(scene, charge())
    first, second = await cancel(scene), await cancel(scene)
    assert (first.outcome, second.outcome) == ("cancel_requested", "cancel_requested")
    assert (await scene.types(run.run_id)).count("CancelRequested") == 1
    leased = await scene.take(WORKFLOW)
    assert event_types(leased)[-1] == "CancelRequested"
    await scene.complete(leased, CancelStep(1), charge(), concurrent=True)
    await scene.finish(await scene.take(ACTIVITY))
    await step(scene, CancelWorkflow("cleaned up"))
    closed = scene.run(run.run_id)
    assert (closed.status, closed.closed_reason) == (RunStatus.CANCELLED, "cancelled")
    assert await scene.payload(run.run_id, -1) == {
        "reason": "cleaned up",
        "message": "cleaned up",
        "closed_reason": "cancelled",
    }


async def test_a_cancel_request_that_is_repeated_is_answered_as_the_first_time(scene: Scene):
    await a_run(scene)
    await cancel(scene, request_id="r1")
    await step(scene, CancelWorkflow())
    assert (await cancel(scene, request_id="r1")).outcome == "cancel_requested"


async def test_a_cancel_request_during_a_task_is_delivered_after_it(scene: Scene):
    run = await a_run(scene)
    await send(scene)
    leased = await scene.take(WORKFLOW)
    await cancel(scene)
    await cancel(scene)
    await scene.complete(leased, charge(), concurrent=True)
    assert (await scene.types(run.run_id))[-1] == "CancelRequested"
    assert event_types(await scene.take(WORKFLOW)).count("CancelRequested") == 1


async def test_a_run_that_would_continue_as_new_receives_the_cancel_request_first(scene: Scene):
    run = await a_run(scene)
    await send(scene)
    leased = await scene.take(WORKFLOW)
    await cancel(scene)
    with pytest.raises(LeaseLost):
        await scene.complete(leased, ContinueAsNew(NOTHING), concurrent=True)
    assert (await scene.types(run.run_id))[-1] == "CancelRequested"


async def test_a_run_whose_code_has_not_run_closes_at_once(scene: Scene):
    run = await scene.start()
    assert (await cancel(scene)).outcome == "cancelled"
    assert not scene.run(run.run_id).is_open


async def test_terminating_does_not_ask_the_code(scene: Scene):
    run = await a_run(scene, charge())
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None)
    assert scene.run(run.run_id).status is RunStatus.TERMINATED


async def test_a_parent_that_closes_has_its_child_asked_to_end(scene: Scene):
    child = StartChild("Ship", None, NOTHING, "ship-1", ClosePolicy.REQUEST_CANCEL)
    await a_run(scene, child)
    await step(scene)
    await cancel(scene)
    await step(scene, CancelWorkflow())
    await deliver(scene)
    leased = await scene.take(WORKFLOW)
    assert leased.run.workflow_id == "ship-1"
    assert event_types(leased)[-1] == "CancelRequested"
    assert leased.run.is_open


async def test_a_child_that_was_asked_to_end_is_not_tried_again(scene: Scene):
    child = StartChild("Ship", None, NOTHING, "ship-1", retry=RetrySchedule(3, True))
    parent = await a_run(scene, child)
    await step(scene)
    await cancel(scene, "ship-1")
    await step(scene, FailWorkflow("boom", {"exception": {"cause": {"message": "why"}}}))
    await deliver(scene)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunFailed"
    assert (await scene.payload(parent.run_id, -1))["exception"] == {"cause": {"message": "why"}}


async def test_a_batch_asks_each_run_to_end(scene: Scene):
    runs = [await a_run(scene, workflow_id=f"order-{number}") for number in range(3)]
    batch = BatchJob(BatchAction.CANCEL, RunCriteria("default"), "b1", "enough")
    outcome = await batch_operations.run_batch(scene.ctx, batch, None, 10)
    assert (outcome.acted, outcome.asked) == (3, 3)
    for run in runs:
        assert (await scene.types(run.run_id))[-1] == "CancelRequested"


# ── Other workflows ─────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_signals_another_and_learns_that_it_did(scene: Scene):
    receiver = await a_run(scene, workflow_id="order-2")
    sender = await a_run(scene, SignalExternal("order-2", "go", ONE))
    assert await scene.payload(sender.run_id, -1) == {
        "sequence": 1,
        "kind": "signal",
        "workflow_id": "order-2",
        "signal_name": "go",
    }
    await deliver(scene)
    payload = await scene.payload(receiver.run_id, -1)
    assert (payload["signal_name"], payload["arguments"]) == ("go", ONE)
    assert (await scene.types(sender.run_id))[-1] == "ExternalRequestDelivered"
    assert await scene.payload(sender.run_id, -1) == {"sequence": 1}
    assert len(scene.live(sender.run_id)) == len(scene.live(receiver.run_id)) == 1


async def test_a_message_to_another_run_has_one_effect(scene: Scene):
    receiver = await a_run(scene, workflow_id="order-2")
    await a_run(scene, SignalExternal("order-2", "go", ONE))
    [message_id] = scene.tables.outbox
    assert await outbox_relay.deliver(scene.ctx, message_id)
    assert not await outbox_relay.deliver(scene.ctx, message_id)
    [answer_id] = scene.tables.outbox
    assert await outbox_relay.deliver(scene.ctx, answer_id)
    assert not await outbox_relay.deliver(scene.ctx, answer_id)
    assert (await scene.types(receiver.run_id)).count("SignalReceived") == 1


async def test_a_run_asks_another_to_end(scene: Scene):
    receiver = await a_run(scene, workflow_id="order-2")
    stepwise = await scene.start("order-3")
    await scene.decide(charge())
    sender = await a_run(scene, CancelExternal("order-2"), CancelExternal("order-3", reason="enough"))
    await deliver(scene)
    assert (await scene.types(receiver.run_id))[-1] == "CancelRequested"
    assert scene.run(stepwise.run_id).status is RunStatus.CANCELLED
    assert (await scene.types(sender.run_id)).count("ExternalRequestDelivered") == 2


async def test_what_cannot_be_delivered_is_reported_to_the_sender(scene: Scene):
    closed = await a_run(scene, DONE, workflow_id="order-2")
    sender = await a_run(
        scene,
        SignalExternal("nobody", "go", ONE),
        SignalExternal("order-2", "go", ONE),
        CancelExternal("order-2", closed.run_id),
        CancelExternal("order-2", "nobody's"),
    )
    await deliver(scene)
    events = [json.loads(each.payload) for each in await scene.events(sender.run_id)][-4:]
    assert [(each["sequence"], each["exception_type"]) for each in events] == [
        (1, "WorkflowNotFound"),
        (2, "WorkflowClosed"),
        (3, "WorkflowClosed"),
        (4, "WorkflowNotFound"),
    ]
    assert all(each["message"] for each in events)


async def test_an_answer_to_a_step_that_was_cancelled_is_dropped(scene: Scene):
    sender = await a_run(scene, SignalExternal("nobody", "go", ONE))
    await send(scene)
    await step(scene, CancelStep(1))
    await deliver(scene)
    assert (await scene.types(sender.run_id))[-1] == "StepCancelRequested"


async def test_the_last_task_of_a_run_may_signal_another(scene: Scene):
    receiver = await a_run(scene, workflow_id="order-2")
    await a_run(scene, SignalExternal("order-2", "go", ONE), DONE)
    await deliver(scene)
    assert (await scene.types(receiver.run_id))[-1] == "SignalReceived"


async def test_a_run_may_signal_itself(scene: Scene):
    run = await a_run(scene, SignalExternal("order-1", "go", ONE))
    await deliver(scene)
    assert (await scene.types(run.run_id))[-2:] == ["SignalReceived", "ExternalRequestDelivered"]


# ── Workers that keep runs in memory ────────────────────────────────────────────────────────────────────


async def test_a_worker_that_keeps_the_run_is_given_only_what_is_new(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    await send(scene)
    await scene.complete(leased, charge(), concurrent=True, cached=True)
    leased = await scene.take(WORKFLOW)
    assert (leased.seen, event_types(leased)) == (3, ["SignalReceived"])


async def test_another_worker_is_given_the_whole_history(scene: Scene):
    await scene.start()
    await step(scene, charge(), cached=True)
    await send(scene)
    leased = await scene.take(WORKFLOW, "w2")
    assert (leased.seen, event_types(leased)[0]) == (0, "WorkflowStarted")
    await scene.complete(leased, concurrent=True)
    await send(scene)
    assert (await scene.take(WORKFLOW)).seen == 0, "another worker has moved it on"


async def test_a_task_that_fails_makes_its_worker_forget(scene: Scene):
    await scene.start()
    await step(scene, charge(), cached=True)
    await send(scene)
    await scene.fail(await scene.take(WORKFLOW))
    await scene.advance(60_000)
    assert (await scene.take(WORKFLOW)).seen == 0


# ── Activities whose cancellation is waited for ─────────────────────────────────────────────────────────────

CANCELLED = AttemptFailure("stopped", "CancelledError", extra={"cancelled": True, "kind": "cancelled"})
STOP = CancelStep(1, wait=True)


async def asked_to_stop(scene: Scene, retry: RetrySchedule | None = None) -> tuple[Run, Leased]:
    """A run whose running activity was asked to stop; the code waits for its end."""
    run = await a_run(scene, charge(retry or tries(5)))
    working = await scene.take(ACTIVITY)
    await send(scene)
    await step(scene, STOP)
    return scene.run(run.run_id), working


async def ended_with(scene: Scene, run: Run) -> str:
    """The event that wakes the code; the activity is closed."""
    leased = await scene.take(WORKFLOW)
    left = scene.run(run.run_id)
    assert (left.open_activities, left.waits.ending) == (0, ())
    assert await scene.claim(ACTIVITY, "w2") is None
    return event_types(leased)[-1]


async def test_an_activity_that_was_asked_to_stop_learns_it_by_its_heartbeat_and_keeps_its_lease(
    scene: Scene,
):
    run, working = await asked_to_stop(scene)
    assert (await scene.types(run.run_id))[-1] == "StepCancelRequested"
    assert [task.task_id for task in scene.live(run.run_id)] == [working.task.task_id]
    beat = await scene.heartbeat(working)
    assert (beat.recorded, beat.cancel_requested) == (True, True)
    assert (await scene.fail_activity(working, CANCELLED)).outcome == "cancelled"
    assert await ended_with(scene, run) == "ActivityCancelled"
    assert (await scene.fail_activity(working, CANCELLED)).repeated


async def test_an_activity_that_was_asked_to_stop_may_complete_or_fail_instead_but_is_not_retried(
    scene: Scene,
):
    run, working = await asked_to_stop(scene)
    await scene.finish(working)
    assert await ended_with(scene, run) == "ActivityCompleted"


async def test_the_failure_of_an_activity_that_was_asked_to_stop_is_its_last(scene: Scene):
    run, working = await asked_to_stop(scene)
    await scene.fail_activity(working, AttemptFailure("boom"))
    assert await ended_with(scene, run) == "ActivityFailed"


async def test_an_activity_that_was_asked_to_stop_and_handed_back_is_cancelled(scene: Scene):
    run, working = await asked_to_stop(scene)
    await direct.hand_back_activity(scene.ctx, "default", working.task.task_id, of(working))
    assert await ended_with(scene, run) == "ActivityCancelled"


async def test_an_activity_that_was_asked_to_stop_and_whose_worker_died_is_cancelled(scene: Scene):
    run, working = await asked_to_stop(scene, RetrySchedule())
    scene.clock.set(working.task.lease_expires_at_ms or 0)
    await activity_reports.reclaim(scene.ctx, working.task.task_id)
    assert await ended_with(scene, run) == "ActivityCancelled"


@pytest.mark.parametrize(
    ("asked", "ended"),
    [
        (charge(tries(5), heartbeat_ms=1_000), "ActivityCancelled"),
        (charge(tries(5), start_to_close_ms=1_000), "ActivityTimedOut"),
    ],
)
async def test_a_clock_that_runs_out_is_the_end_of_an_activity_that_was_asked_to_stop(
    scene: Scene, asked: Command, ended: str
):
    run = await a_run(scene, asked)
    working = await scene.take(ACTIVITY)
    await send(scene)
    await step(scene, STOP)
    scene.clock.advance(1_000)
    assert working.task.activity_id is not None
    assert await activity_reports.time_out(scene.ctx, working.task.activity_id)
    assert await ended_with(scene, run) == ended


async def test_an_activity_that_waits_for_a_worker_is_cancelled_as_soon_as_it_is_asked_to_stop(scene: Scene):
    run = await a_run(scene, charge())
    await send(scene)
    await step(scene, STOP)
    assert await ended_with(scene, run) == "ActivityCancelled"


async def test_an_activity_that_waits_for_its_next_attempt_is_cancelled_as_soon_as_it_is_asked_to_stop(
    scene: Scene,
):
    run = await a_run(scene, charge(tries(5, 60)))
    await scene.fail_activity(await scene.take(ACTIVITY))
    await send(scene)
    await step(scene, STOP)
    assert await ended_with(scene, run) == "ActivityCancelled"


async def test_an_activity_that_is_asked_to_stop_by_the_task_that_starts_it_never_runs(scene: Scene):
    run = await a_run(scene, charge(), STOP)
    assert await ended_with(scene, run) == "ActivityCancelled"


async def test_an_activity_that_ended_while_it_was_asked_to_stop_reports_how(scene: Scene):
    run = await a_run(scene, charge())
    working = await scene.take(ACTIVITY)
    await send(scene)
    deciding = await scene.take(WORKFLOW)
    await scene.finish(working)
    await scene.complete(deciding, STOP, concurrent=True)
    assert await ended_with(scene, run) == "ActivityCompleted"


# ── A cancel before the code has begun ──────────────────────────────────────────────────────────────────────


async def test_a_cancel_before_a_worker_has_come_is_delivered_with_the_first_task(scene: Scene):
    run = await scene.start(delivers_cancel=True)
    assert (await cancel(scene)).outcome == "cancel_requested"
    assert (await cancel(scene)).outcome == "cancel_requested"
    leased = await scene.take(WORKFLOW)
    assert event_types(leased) == ["WorkflowStarted", "CancelRequested"]
    await scene.complete(leased, CancelWorkflow("enough"), concurrent=True)
    assert scene.run(run.run_id).status is RunStatus.CANCELLED


async def test_a_cancel_during_the_first_task_is_delivered_after_it(scene: Scene):
    await scene.start(delivers_cancel=True)
    leased = await scene.take(WORKFLOW)
    await cancel(scene)
    await scene.complete(leased, charge(), concurrent=True)
    assert event_types(await scene.take(WORKFLOW))[-1] == "CancelRequested"


async def test_a_cancel_does_not_wait_for_a_delayed_start(scene: Scene):
    await scene.start(delivers_cancel=True, delay_ms=3_600_000)
    assert await scene.claim(WORKFLOW) is None
    await cancel(scene)
    assert event_types(await scene.take(WORKFLOW))[-1] == "CancelRequested"


@pytest.mark.parametrize("leased_first", [False, True])
async def test_stepwise_code_that_cannot_handle_a_cancel_closes_with_its_first_task(
    scene: Scene, leased_first: bool
):
    run = await scene.start(delivers_cancel=True)
    leased = await scene.take(WORKFLOW) if leased_first else None
    await cancel(scene)
    with pytest.raises(LeaseLost) as refused:
        await scene.complete(leased or await scene.take(WORKFLOW), charge())
    assert refused.value.reason is Reason.RUN_CLOSED
    assert await scene.types(run.run_id) == ["WorkflowStarted", "CancelRequested", "WorkflowCancelled"]
    assert (await scene.payload(run.run_id, -1))["reason"] == "enough"
    assert (scene.run(run.run_id).status, scene.live(run.run_id)) == (RunStatus.CANCELLED, [])


async def test_stepwise_code_that_has_begun_closes_at_once_when_it_is_cancelled(scene: Scene):
    run = await scene.start(delivers_cancel=True)
    await scene.decide(charge())
    assert (await cancel(scene)).outcome == "cancelled"
    assert not scene.run(run.run_id).is_open


async def test_children_and_next_runs_of_concurrent_code_receive_a_cancel_with_their_first_task(scene: Scene):
    await a_run(scene, StartChild("Ship", "ships", NOTHING, "ship-1"))
    assert (await cancel(scene, "ship-1")).outcome == "cancel_requested"
    await send(scene)
    await step(scene, ContinueAsNew(NOTHING))
    assert (await cancel(scene)).outcome == "cancel_requested"
