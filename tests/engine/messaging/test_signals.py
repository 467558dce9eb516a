"""Signals: recorded in order of arrival, once per request id, and delivered to waiting code."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core import payload_codec
from penstock.core.history.commands import Command, ContinueAsNew, FailWorkflow, OpenConditionWait
from penstock.core.model import Blob, Run, TaskState, TimerState
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal, SignalReceipt
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_close, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import StartOutcome, StartResult
from penstock.errors import Conflict, InvalidInput, NotFound, PenstockError, Reason
from tests.engine.support.scene import DONE, NOTHING, WORKFLOW, Scene, a_scene, a_start, charge

PAID = OpenConditionWait("paid", "f00d")
ONE, TWO = payload_codec.encode([1]), payload_codec.encode([2])


async def send(scene: Scene, name: str = "pay", arguments: Blob = NOTHING, **changes: Any) -> SignalReceipt:
    address = Address("default", changes.pop("workflow_id", "order-1"), changes.pop("run_id", None))
    return await signals.send(scene.ctx, Signal(address, name, arguments, **changes))


async def a_waiting_run(scene: Scene) -> Run:
    run = await scene.start()
    await scene.decide(PAID)
    return run


async def received(scene: Scene, run: Run) -> list[str]:
    """The names of the signals in a history, in order."""
    places = [place for place, kind in enumerate(await scene.types(run.run_id)) if kind == "SignalReceived"]
    return [(await scene.payload(run.run_id, place))["signal_name"] for place in places]


# ── Hearing ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_signal_wakes_the_code_that_waits_for_a_condition(scene: Scene):
    run = await a_waiting_run(scene)
    await send(scene, "pay", ONE)
    payload = await scene.payload(run.run_id, -1)
    assert (payload["signal_name"], payload["arguments"], payload["payload_codec"]) == ("pay", ONE, "avro")
    assert "sequence" not in payload, "a signal is no step"
    await scene.decide(DONE)
    assert (await scene.types(run.run_id))[-2:] == ["ConditionWaitSatisfied", "WorkflowCompleted"]


async def test_a_signal_to_code_that_awaits_something_else_is_kept_and_does_not_wake_it(scene: Scene):
    run = await scene.start()
    await scene.decide(charge())
    await send(scene)
    assert await received(scene, run) == ["pay"]
    assert await scene.claim(WORKFLOW) is None


async def test_signals_are_received_in_order_of_arrival(scene: Scene):
    run = await a_waiting_run(scene)
    for name in ("one", "two", "three"):
        await send(scene, name)
    assert await received(scene, run) == ["one", "two", "three"]
    assert scene.run(run.run_id).unseen_signals == 3
    await scene.decide(PAID)
    assert scene.run(run.run_id).unseen_signals == 0


async def test_a_signal_that_races_with_a_decision_comes_after_it(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    await send(scene)
    assert await scene.types(run.run_id) == ["WorkflowStarted"]
    await scene.complete(leased, PAID)
    assert (await scene.types(run.run_id))[1:] == ["ConditionWaitOpened", "SignalReceived"]
    assert await scene.claim(WORKFLOW) is not None, "the code must look at it"


async def test_a_signal_before_the_first_task_waits_for_it(scene: Scene):
    """Code that sees it at once must not be mistaken for code that waited."""
    run = await scene.start()
    await send(scene)
    assert await scene.types(run.run_id) == ["WorkflowStarted"]
    await scene.decide(PAID)
    assert (await scene.types(run.run_id))[1:] == ["ConditionWaitOpened", "SignalReceived"]
    await scene.decide(DONE)


async def test_a_signal_after_a_timeout_waits_until_the_code_has_looked(scene: Scene):
    run = await scene.start()
    await scene.decide(OpenConditionWait("paid", "f00d", 5))
    await scene.advance(5_000)
    await send(scene)
    assert (await scene.types(run.run_id))[-1] == "TimerFired"
    await scene.decide(OpenConditionWait("shipped", "beef"))
    assert (await scene.types(run.run_id))[-3:] == ["TimerFired", "ConditionWaitOpened", "SignalReceived"]


async def test_signals_that_waited_for_a_task_that_failed_wait_for_the_next(scene: Scene):
    run = await scene.start()
    await send(scene)
    await scene.fail(await scene.take(WORKFLOW))
    await scene.advance(1_000)
    await scene.decide(PAID)
    assert (await scene.types(run.run_id))[1:] == ["ConditionWaitOpened", "SignalReceived"]


@pytest.mark.parametrize("last", [DONE, FailWorkflow("no stock"), ContinueAsNew(NOTHING)])
async def test_the_timer_of_a_condition_goes_with_the_run_that_ends_when_it_is_met(
    scene: Scene, last: Command
):
    run = await scene.start()
    await scene.decide(OpenConditionWait("paid", "f00d", 30))
    await send(scene)
    await scene.decide(last)
    assert {timer.state for timer in scene.tables.timers.values()} == {TimerState.CANCELLED}
    before = await scene.types(run.run_id)
    await scene.advance(30_000)
    assert await scene.types(run.run_id) == before


# ── Once ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_signal_that_is_sent_again_is_received_once_and_gets_the_same_receipt(scene: Scene):
    run = await a_waiting_run(scene)
    first = await send(scene, "pay", ONE, request_id="a")
    again = await send(scene, "pay", ONE, request_id="a")
    assert (first.retained, again.retained) == (False, True)
    assert first.receipt == again.receipt
    assert await received(scene, run) == ["pay"]


async def test_signals_without_a_request_id_are_all_received(scene: Scene):
    run = await a_waiting_run(scene)
    one, two = await send(scene), await send(scene)
    assert one.receipt["command_id"] != two.receipt["command_id"]
    assert await received(scene, run) == ["pay", "pay"]


@pytest.mark.parametrize(
    ("name", "arguments", "differs"), [("refund", ONE, ["name"]), ("pay", TWO, ["input"])]
)
async def test_a_request_id_is_for_one_signal(scene: Scene, name: str, arguments: Blob, differs: list[str]):
    await a_waiting_run(scene)
    first = await send(scene, "pay", ONE, request_id="a")
    with pytest.raises(Conflict) as refused:
        await send(scene, name, arguments, request_id="a")
    assert refused.value.reason is Reason.REQUEST_ID_CONFLICT
    assert refused.value.details["conflict"] == differs
    assert refused.value.details["retained_command_id"] == first.receipt["command_id"]


async def test_a_receipt_outlives_the_run(scene: Scene):
    await a_waiting_run(scene)
    first = await send(scene, request_id="a")
    await scene.decide(DONE)
    assert (await send(scene, request_id="a")).receipt == first.receipt


async def test_request_ids_of_two_workflows_have_nothing_to_do_with_each_other(scene: Scene):
    for name in ("order-1", "order-2"):
        await scene.start(name)
    await send(scene, "pay", ONE, request_id="a")
    assert not (await send(scene, "pay", TWO, request_id="a", workflow_id="order-2")).retained


# ── To whom ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_signal_reaches_the_run_that_continues(scene: Scene):
    first = await scene.start()
    await scene.decide(ContinueAsNew(NOTHING))
    accepted = await send(scene)
    assert accepted.run.run_id != first.run_id
    with pytest.raises(Conflict) as refused:
        await send(scene, run_id=first.run_id)
    assert refused.value.reason is Reason.HISTORICAL_RUN_COMMAND_REJECTED


async def test_a_signal_to_a_missing_or_standalone_run_is_refused(scene: Scene):
    await scene.start_activity("charge-1")
    for name in ("nobody", "charge-1"):
        with pytest.raises(NotFound) as refused:
            await send(scene, workflow_id=name)
        assert refused.value.reason is Reason.INSTANCE_NOT_FOUND


async def test_a_signal_that_the_code_does_not_know_is_refused_where_that_is_known(scene: Scene):
    contract = {
        "signals": ["pay"],
        "signal_contracts": [
            {"name": "pay", "parameters": [{"name": "amount", "type": "int", "required": True}]}
        ],
    }
    await scene.register("w1", advertised={"workflow_command_contracts": {"Order": contract}})
    await scene.start()
    for name, arguments, reason in (
        ("ship", ONE, Reason.UNKNOWN_SIGNAL),
        ("pay", payload_codec.encode(["much"]), Reason.INVALID_SIGNAL_ARGUMENTS),
        ("pay", Blob("!"), Reason.INVALID_SIGNAL_ARGUMENTS),
    ):
        with pytest.raises(PenstockError) as refused:
            await send(scene, name, arguments)
        assert refused.value.reason is reason
    assert not (await send(scene, "pay", ONE)).retained


async def test_the_number_of_unseen_signals_is_bounded():
    scene = a_scene(max_pending_signals="2")
    run = await scene.start()
    await send(scene)
    await send(scene)
    with pytest.raises(InvalidInput) as refused:
        await send(scene)
    assert refused.value.reason is Reason.STRUCTURAL_LIMIT_EXCEEDED
    await scene.decide(PAID)
    await scene.decide(PAID)
    assert scene.run(run.run_id).unseen_signals == 0
    await send(scene)


# ── With a start ────────────────────────────────────────────────────────────────────────────────────────


async def start_with(scene: Scene, name: str = "pay", **changes: Any) -> tuple[StartResult, SignalReceipt]:
    request_id = changes.pop("request_id", None)
    signal = Signal(Address("default", "order-1"), name, ONE, request_id)
    return await starts.signal_with_start(scene.ctx, a_start(**changes), signal)


async def test_a_workflow_starts_with_a_signal_that_its_code_receives(scene: Scene):
    begun, accepted = await start_with(scene)
    assert begun.outcome is StartOutcome.STARTED_NEW
    assert accepted.receipt["run_id"] == begun.run.run_id
    await scene.decide(PAID)
    await scene.decide(DONE)
    assert await received(scene, begun.run) == ["pay"]


async def test_the_run_that_is_there_gets_the_signal_instead(scene: Scene):
    run = await a_waiting_run(scene)
    begun, _ = await start_with(scene)
    assert (begun.outcome, begun.run.run_id) == (StartOutcome.RETURNED_EXISTING_ACTIVE, run.run_id)
    assert await received(scene, run) == ["pay"]
    assert await scene.claim(WORKFLOW) is not None


async def test_a_start_with_a_signal_that_is_sent_again_signals_once(scene: Scene):
    begun, first = await start_with(scene, request_id="a")
    _, again = await start_with(scene, request_id="a")
    assert (again.retained, again.receipt) == (True, first.receipt)
    await scene.decide(PAID)
    assert await received(scene, begun.run) == ["pay"]


async def test_a_workflow_that_has_closed_is_neither_started_nor_signalled(scene: Scene):
    run = await scene.start()
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    with pytest.raises(Conflict) as refused:
        await start_with(scene)
    assert refused.value.reason is Reason.INSTANCE_ALREADY_STARTED
    assert await received(scene, run) == []


async def test_a_refused_signal_leaves_no_trace(scene: Scene):
    run = await a_waiting_run(scene)
    await send(scene, "pay", ONE, request_id="a")
    before = scene.run(run.run_id)
    with pytest.raises(Conflict):
        await send(scene, "refund", ONE, request_id="a")
    assert scene.run(run.run_id) == before
    assert {task.state for task in scene.live(run.run_id)} == {TaskState.READY}
