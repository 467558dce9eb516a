"""Continue-as-new: the run closes and its successor takes over what was not seen yet."""

from __future__ import annotations

import json

import pytest

from penstock.core import payload_codec
from penstock.core.history.commands import (
    ContinueAsNew,
    OpenConditionWait,
    StartTimer,
    UpsertMemo,
    UpsertSearchAttributes,
)
from penstock.core.model import Blob, Run, RunStatus, TaskState, TimerState
from penstock.engine.messaging import signals
from penstock.engine.messaging.signals import Signal
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import Conflict, LeaseLost, Reason
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, WORKFLOW, Scene, charge
from tests.support.builders import NOW_MS

PAID = OpenConditionWait("paid", "f00d")
AGAIN = ContinueAsNew(Blob("AQ=="))


def newest(scene: Scene, workflow_id: str = "order-1") -> Run:
    return scene.run(scene.tables.instances["default", workflow_id].run_id)


async def send(scene: Scene, name: str = "pay") -> None:
    await signals.send(scene.ctx, Signal(Address("default", "order-1"), name, NOTHING))


async def test_the_next_run_starts_at_once_with_a_history_of_its_own(scene: Scene):
    first = await scene.start(memo='{"a":1}', business_key="b-1")
    await scene.decide(AGAIN)
    next_run = newest(scene)
    assert (scene.run(first.run_id).status, scene.run(first.run_id).closed_reason) == (
        RunStatus.COMPLETED,
        "continued",
    )
    assert (next_run.run_number, next_run.input, next_run.memo) == (2, "AQ==", '{"a":1}')
    assert next_run.business_key == "b-1"
    assert await scene.types(next_run.run_id) == ["WorkflowStarted"]
    assert (await scene.payload(next_run.run_id, 0))["continued_from_run_id"] == first.run_id
    payload = await scene.payload(first.run_id, -1)
    assert (payload["continued_to_run_id"], payload["continued_to_run_number"]) == (next_run.run_id, 2)
    leased = await scene.take(WORKFLOW)
    assert leased.run.run_id == next_run.run_id
    await scene.complete(leased, DONE)


async def test_a_chain_is_as_long_as_the_code_wants(scene: Scene):
    await scene.start()
    for _ in range(20):
        await scene.decide(AGAIN)
    await scene.decide(DONE)
    runs = [run for run in scene.tables.runs.values() if run.workflow_id == "order-1"]
    assert sorted(run.run_number for run in runs) == list(range(1, 22))
    assert {run.closed_reason for run in runs if run.run_number <= 20} == {"continued"}
    assert newest(scene).closed_reason == "completed"


async def test_what_was_open_ends_with_the_run(scene: Scene):
    first = await scene.start()
    await scene.decide(charge(), charge(), StartTimer(60))
    running, other = await scene.take(ACTIVITY), await scene.take(ACTIVITY)
    await scene.finish(other)
    await scene.decide(AGAIN)
    assert scene.task(running.task.task_id).state is TaskState.CANCELLED
    assert {timer.state for timer in scene.tables.timers.values()} == {TimerState.CANCELLED}
    with pytest.raises(LeaseLost) as refused:
        await scene.finish(running)
    assert refused.value.reason is Reason.RUN_CLOSED
    await scene.advance(60_000)
    assert (await scene.types(first.run_id))[-1] == "WorkflowContinuedAsNew"


async def test_signals_that_came_with_the_last_decision_reach_the_next_run_in_order(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    await send(scene, "one")
    await send(scene, "two")
    await scene.complete(leased, AGAIN)
    next_run = newest(scene)
    assert next_run.unseen_signals == 2
    await scene.decide(PAID)
    payload = [json.loads(event.payload) for event in await scene.events(next_run.run_id)]
    assert [each["signal_name"] for each in payload if "signal_name" in each] == ["one", "two"]
    await scene.decide(DONE)


async def test_signals_that_the_last_decision_has_seen_stay_where_they_were(scene: Scene):
    await scene.start()
    await scene.decide(PAID)
    await send(scene)
    await scene.decide(AGAIN)
    assert await scene.types(newest(scene).run_id) == ["WorkflowStarted"]
    await scene.decide(PAID)
    assert "SignalReceived" not in await scene.types(newest(scene).run_id)


async def test_results_that_came_with_the_last_decision_are_not_taken_along(scene: Scene):
    await scene.start()
    await scene.decide(charge(), StartTimer(0))
    await scene.advance(0)
    running, leased = await scene.take(ACTIVITY), await scene.take(WORKFLOW)
    await scene.finish(running)
    await scene.complete(leased, AGAIN)
    await scene.decide(PAID)
    assert await scene.types(newest(scene).run_id) == ["WorkflowStarted", "ConditionWaitOpened"]


async def test_receipts_count_on_through_the_chain(scene: Scene):
    await scene.start()
    await scene.decide(PAID)
    await send(scene)
    await scene.decide(AGAIN)
    await send(scene)
    assert newest(scene).last_request == 2


async def test_the_clock_of_the_execution_continues_and_that_of_the_run_starts_again(scene: Scene):
    await scene.start(execution_timeout_s=60, run_timeout_s=20)
    scene.clock.advance(15_000)
    await scene.decide(AGAIN)
    next_run = newest(scene)
    assert next_run.run_deadline_at_ms == NOW_MS + 35_000
    assert next_run.execution_deadline_at_ms == NOW_MS + 60_000
    scene.clock.set(NOW_MS + 35_000)
    assert await run_close.expire_run(scene.ctx, next_run.run_id)
    assert newest(scene).closed_reason == "timed_out"


async def test_attributes_that_are_upserted_with_the_last_decision_are_taken_along(scene: Scene):
    await scene.start(memo='{"a":1}')
    entries = {"b": 2}
    await scene.decide(UpsertMemo(entries, payload_codec.encode(entries)), UpsertSearchAttributes({}), AGAIN)
    assert json.loads(newest(scene).memo) == {"a": 1, "b": 2}


async def test_the_next_run_may_be_of_another_type_in_another_queue(scene: Scene):
    await scene.start()
    await scene.decide(ContinueAsNew(NOTHING, "Refund", "mail"))
    assert await scene.claim(WORKFLOW) is None
    leased = await scene.take(WORKFLOW, "w2", task_queue="mail")
    assert (leased.run.workflow_type, leased.run.task_queue) == ("Refund", "mail")


async def test_a_workflow_id_addresses_the_newest_run(scene: Scene):
    first = await scene.start()
    await scene.decide(AGAIN)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    assert newest(scene).status is RunStatus.CANCELLED
    assert scene.run(first.run_id).status is RunStatus.COMPLETED
    with pytest.raises(Conflict) as refused:
        await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None, first.run_id)
    assert refused.value.reason is Reason.HISTORICAL_RUN_COMMAND_REJECTED


async def test_a_decision_that_is_sent_again_starts_nothing_twice(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    await scene.complete(leased, AGAIN)
    again = await scene.complete(leased, AGAIN)
    assert again.repeated
    assert len(scene.tables.runs) == 2
    assert newest(scene).lineage.continued_from == leased.run.run_id
