"""Workflow id reuse: each start has its own runs, and requests for one do not reach another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from penstock.core.history import lineage
from penstock.core.history.commands import (
    CancelExternal,
    ContinueAsNew,
    OpenConditionWait,
    SignalExternal,
    StartChild,
)
from penstock.core.id_policies import IdConflictPolicy, IdReusePolicy
from penstock.core.model import Run, RunHost, RunId, RunStatus
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.messaging import messages, signals
from penstock.engine.messaging.messages import OutgoingMessage
from penstock.engine.messaging.signals import Signal, SignalReceipt
from penstock.engine.operations import retention
from penstock.engine.operations.retention import DAY_MS
from penstock.engine.runs.address import Address
from penstock.engine.visibility import run_reader
from penstock.engine.visibility.run_reader import RunResult
from penstock.engine.workflows import run_close, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.engine.workflows.starts import StartOutcome, StartResult
from penstock.errors import Conflict, NotFound, Reason
from tests.engine.support.scene import DONE, NOTHING, WORKFLOW, Scene, a_start

ALLOW = IdReusePolicy.ALLOW_DUPLICATE
WAITS = OpenConditionWait("paid", "f00d")
REUSING = {"id_reuse_policy": ALLOW}


async def used_twice(scene: Scene) -> tuple[Run, Run, Run]:
    """An id with two starts: the first has two runs, which are closed, the second an open one."""
    first = await scene.start()
    await scene.decide(ContinueAsNew(NOTHING))
    await scene.decide(DONE)
    continued = next(run for run in scene.tables.runs.values() if run.run_id != first.run_id)
    scene.clock.advance(1000)
    again = await scene.start(**REUSING)
    await scene.decide(WAITS)
    return scene.run(first.run_id), continued, scene.run(again.run_id)


async def send(scene: Scene, request_id: str, **address: Any) -> SignalReceipt:
    meant = Address("default", "order-1", **address)
    return await signals.send(scene.ctx, Signal(meant, "pay", NOTHING, request_id))


# ── Chains ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_runs_are_numbered_on_and_a_chain_is_known_by_its_first_run(scene: Scene):
    first, continued, again = await used_twice(scene)
    assert [run.run_number for run in (first, continued, again)] == [1, 2, 3]
    assert lineage.first_of(continued) == lineage.first_of(first) == first.run_id
    assert lineage.first_of(again) == again.run_id
    page = await run_reader.runs_of(scene.ctx, "default", "order-1", None, 10)
    assert [run.run_id for run in page.runs] == [first.run_id, continued.run_id, again.run_id]
    assert page.run_count == 3


async def test_a_chain_is_described_by_any_of_its_runs_and_the_id_by_its_newest(scene: Scene):
    first, continued, again = await used_twice(scene)
    for member, newest in ((first, continued), (continued, continued), (again, again)):
        view = await run_reader.describe(scene.ctx, "default", "order-1", chain=member.run_id)
        assert view.run.run_id == newest.run_id
    assert (await run_reader.describe(scene.ctx, "default", "order-1")).run.run_id == again.run_id
    with pytest.raises(NotFound):
        await run_reader.describe(scene.ctx, "default", "order-1", chain=RunId("another"))


async def test_the_result_of_a_start_is_that_of_its_own_chain(scene: Scene):
    first, continued, again = await used_twice(scene)

    async def result(chain: RunId | None) -> RunResult:
        return await run_reader.result(scene.ctx, "default", "order-1", None, 0, asyncio.Event(), chain=chain)

    assert (await result(first.run_id)).run.run_id == continued.run_id
    assert (await result(again.run_id)).run.is_open
    assert (await result(None)).run.run_id == again.run_id


async def test_a_chain_whose_first_run_is_deleted_is_still_known_by_it(scene: Scene):
    first, continued, _ = await used_twice(scene)
    scene.clock.advance(400 * DAY_MS)
    assert (await retention.prune(scene.ctx, first.run_id)).obstacle is None
    view = await run_reader.describe(scene.ctx, "default", "order-1", chain=first.run_id)
    assert view.run.run_id == continued.run_id


async def test_what_is_sent_to_an_ended_start_does_not_reach_the_next_one(scene: Scene):
    first, _, again = await used_twice(scene)
    with pytest.raises(Conflict) as refused:
        await send(scene, "r1", chain=first.run_id)
    assert refused.value.reason is Reason.RUN_NOT_ACTIVE
    with pytest.raises(Conflict) as refused:
        await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None, chain=first.run_id)
    assert refused.value.reason is Reason.RUN_NOT_ACTIVE
    assert scene.run(again.run_id).is_open
    sent = await send(scene, "r1", chain=again.run_id)
    assert sent.receipt["run_id"] == again.run_id


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_request_that_is_sent_again_gets_its_receipt_after_the_id_was_used_again(scene: Scene):
    first = await scene.start()
    await scene.decide(WAITS)
    sent = await send(scene, "r1")
    await scene.decide(DONE)
    again = await scene.start(**REUSING)
    await scene.decide(WAITS)
    repeated = await send(scene, "r1")
    assert (repeated.receipt, repeated.retained) == (sent.receipt, True)
    assert repeated.receipt["run_id"] == first.run_id
    with pytest.raises(Conflict) as refused:
        await send(scene, "r1", chain=again.run_id)
    assert (refused.value.reason, refused.value.details["conflict"]) == (Reason.REQUEST_ID_CONFLICT, ["run"])
    assert "SignalReceived" not in await scene.types(again.run_id)


async def test_a_repeated_cancellation_is_answered_with_the_run_that_it_ended(scene: Scene):
    first = await scene.start()
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None, request_id="r")
    again = await scene.start(**REUSING)
    ended = await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None, request_id="r")
    assert ended.run.run_id == first.run_id
    assert scene.run(again.run_id).is_open


# ── A signal with a start ───────────────────────────────────────────────────────────────────────────────


async def signal_with_start(
    scene: Scene, request_id: str | None = None, **changes: Any
) -> tuple[StartResult, SignalReceipt]:
    signal = Signal(Address("default", "order-1"), "pay", NOTHING, request_id)
    return await starts.signal_with_start(scene.ctx, a_start(**changes), signal)


async def test_a_signal_with_start_starts_a_new_run_when_the_last_one_is_closed(scene: Scene):
    await scene.start()
    await scene.decide(DONE)
    begun, sent = await signal_with_start(scene, **REUSING)
    assert (begun.outcome, begun.run.run_number) == (StartOutcome.STARTED_NEW, 2)
    assert sent.receipt["run_id"] == begun.run.run_id


@pytest.mark.parametrize("key", [{"start_key": "k"}, {"request_id": "r"}])
async def test_a_signal_with_start_that_is_sent_again_signals_once_though_its_run_has_ended(
    scene: Scene, key: dict[str, str]
):
    run = await scene.start()
    await scene.decide(WAITS)
    _, sent = await signal_with_start(scene, **key, **REUSING)
    await scene.decide(DONE)
    begun, again = await signal_with_start(scene, **key, **REUSING)
    assert (begun.run.run_id, again.receipt) == (run.run_id, sent.receipt)
    assert len(scene.tables.runs) == 1


async def test_a_signal_with_start_may_terminate_what_runs(scene: Scene):
    first = await scene.start()
    begun, _ = await signal_with_start(scene, id_conflict_policy=IdConflictPolicy.TERMINATE_EXISTING)
    assert scene.run(first.run_id).status is RunStatus.TERMINATED
    assert begun.run.run_number == 2


# ── Children ────────────────────────────────────────────────────────────────────────────────────────────


async def a_closed(scene: Scene, workflow_id: str = "ship-1") -> Run:
    run = await scene.start(workflow_id)
    await scene.decide(DONE)
    return run


async def test_a_child_uses_the_id_of_a_closed_workflow_if_it_may(scene: Scene):
    closed = await a_closed(scene)
    parent = await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, "ship-1", reuse=ALLOW))
    task = await scene.take(WORKFLOW)
    assert (task.run.workflow_id, task.run.run_number) == ("ship-1", 2)
    assert task.run.run_id != closed.run_id
    await scene.complete(task, DONE)
    while await pending_outbox(scene.ctx).sweep():
        pass
    assert (await scene.types(parent.run_id))[-1] == "ChildRunCompleted"


@pytest.mark.parametrize("reuse", [IdReusePolicy.REJECT_DUPLICATE, IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY])
async def test_a_child_that_may_not_fails_and_its_parent_continues(scene: Scene, reuse: IdReusePolicy):
    await a_closed(scene)
    parent = await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, "ship-1", reuse=reuse))
    payload = await scene.payload(parent.run_id, -1)
    assert payload["exception_type"] == "WorkflowAlreadyStarted"
    await scene.decide(DONE)


async def test_of_two_children_that_take_one_id_at_once_the_second_fails(scene: Scene):
    await a_closed(scene)
    for workflow_id in ("ship-1", "ship-2"):
        parent = await scene.start(f"parent-of-{workflow_id}")
        two = [StartChild("Ship", "mail", NOTHING, workflow_id, reuse=ALLOW)] * 2
        await scene.decide(*two)
        types = await scene.types(parent.run_id)
        assert types.count("ChildRunFailed") == 1
        assert scene.run(parent.run_id).open_children == 1
        opened = [run for run in scene.tables.runs.values() if run.workflow_id == workflow_id and run.is_open]
        assert len(opened) == 1
        await scene.decide(DONE)


async def test_a_child_is_not_started_under_the_id_of_an_activity(scene: Scene):
    run = await scene.start_activity("ship-1")
    await run_close.end_run(scene.ctx, "default", "ship-1", EndMode.CANCEL, None)
    assert scene.run(run.run_id).host is RunHost.ACTIVITY
    parent = await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, "ship-1", reuse=ALLOW))
    assert (await scene.types(parent.run_id))[-1] == "ChildRunFailed"


async def test_a_child_with_an_impossible_id_fails_and_its_parent_continues(scene: Scene):
    parent = await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, problem="workflow_id: U+0009 is not allowed"))
    payload = await scene.payload(parent.run_id, -1)
    assert (await scene.types(parent.run_id))[-1] == "ChildRunFailed"
    assert payload["exception_type"] == "InvalidWorkflowId"
    assert "U+0009 is not allowed" in payload["message"]
    assert scene.run(parent.run_id).open_children == 0
    await scene.decide(DONE)
    assert len(scene.tables.instances) == 1


@pytest.mark.parametrize("command", [SignalExternal("ship-1", "pay", NOTHING), CancelExternal("ship-1")])
async def test_what_is_meant_for_a_child_does_not_reach_another_workflow_that_has_its_id(
    scene: Scene, command: SignalExternal | CancelExternal
):
    parent = await scene.start()
    task = await scene.take(WORKFLOW)
    await scene.complete(task, StartChild("Ship", None, NOTHING, "ship-1"), concurrent=True)
    await scene.decide(DONE)
    other = await scene.start("ship-1", **REUSING)
    while await pending_outbox(scene.ctx).sweep():
        pass
    task = await scene.take(WORKFLOW, task_queue="orders")
    while task.run.run_id != parent.run_id:
        task = await scene.take(WORKFLOW, task_queue="orders")
    for children_only in (True, False):
        await scene.complete(task, structs.replace(command, children_only=children_only), concurrent=True)
        while await pending_outbox(scene.ctx).sweep():
            pass
        payload = await scene.types(parent.run_id)
        assert payload[-1] == ("ExternalRequestFailed" if children_only else "ExternalRequestDelivered")
        touched = "SignalReceived" in await scene.types(other.run_id) or not scene.run(other.run_id).is_open
        buffered = scene.run(other.run_id).buffered > 0
        assert (touched or buffered) is not children_only
        task = await scene.take(WORKFLOW)


# ── Streams of messages ─────────────────────────────────────────────────────────────────────────────────


async def test_positions_of_messages_continue_and_a_new_start_reads_what_comes_next(scene: Scene):
    async def message(message_id: str) -> int:
        sending = OutgoingMessage(Address("default", "order-1"), "orders", message_id, NOTHING)
        return (await messages.send(scene.ctx, sending)).position

    await scene.start()
    await scene.decide(WAITS)
    assert [await message("m1"), await message("m2")] == [1, 2]
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None)
    again = await scene.start(**REUSING)
    assert [await message("m3"), await message("m2")] == [3, 2]
    assert (await scene.types(again.run_id))[:2] == ["WorkflowStarted", "SignalReceived"]
    payload = await scene.payload(again.run_id, 1)
    assert payload["through_position"] == 2
