"""Regression tests for defects found in a review of workflows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import (
    CancelSelectionOperation,
    Command,
    ContinueAsNew,
    OpenConditionWait,
    ScheduleActivity,
    SignalExternal,
    StartChild,
    StartTimer,
)
from penstock.core.history.decide import advance
from penstock.core.history.structural_limits import StructuralLimits
from penstock.core.model import Blob, ChildRun, OutboxKind, RunId, RunStatus, TimerId, TimerState
from penstock.core.payload_codec import encode
from penstock.core.scheduling.polls import Leased
from penstock.core.waits import ConditionWait, Waits
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweeper import BATCH, Sweeper
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.messaging import signals, updates
from penstock.engine.messaging.signals import Signal
from penstock.engine.messaging.updates import UpdateSubmission
from penstock.engine.operations.batch_operations import BatchAction, BatchJob, run_batch
from penstock.engine.runs.address import Address
from penstock.engine.runs.history_writer import UNHANDLED_SIGNAL_RETRIES_MAX
from penstock.engine.visibility.run_search import RunCriteria
from penstock.engine.workflows import outbox_relay, starts, timers, workflow_reports
from penstock.engine.workflows.run_close import EndMode, end_run
from penstock.engine.workflows.workflow_reports import WAITING_FOR_HISTORY
from penstock.errors import Conflict, LeaseLost, PenstockError, Reason, Unavailable
from penstock.ports.store import Tx
from tests.engine.support.scene import DONE, NOTHING, WORKFLOW, Scene, a_start
from tests.support.builders import NOW_MS, a_run

HERE = Address("default", "order-1")


def selected(index: int, kind: str) -> dict[str, Any]:
    entry = {
        "parallel_group_id": "select-calls:1:2",
        "parallel_group_base_sequence": 1,
        "parallel_group_size": 2,
        "parallel_group_index": index,
        "parallel_group_mode": "select",
        "selection_member_key": index,
        "selection_member_index": index,
        "selection_member_base_sequence": 1 + index,
        "selection_member_size": 1,
        "selection_member_kind": kind,
    }
    return {**entry, "parallel_group_path": [entry]}


async def children_of(scene: Scene, run_id: RunId) -> Sequence[ChildRun]:
    async def question(tx: Tx) -> Sequence[ChildRun]:
        return await tx.children.all_of(run_id)

    return await scene.read(question)


async def update(scene: Scene) -> str:
    asked = UpdateSubmission(HERE, "approve", NOTHING)
    return (await updates.accept(scene.ctx, asked, asyncio.Event())).update.update_id


async def relay_outbox(scene: Scene) -> None:
    for message_id in list(scene.tables.outbox):
        await outbox_relay.deliver(scene.ctx, message_id)


async def test_a_child_that_is_cancelled_by_the_task_that_ends_its_parent_ends_too(scene: Scene):
    ends: tuple[Command, ...] = (DONE, ContinueAsNew(NOTHING))
    for number, end in enumerate(ends):
        run = await scene.start(f"order-{number}")
        race = (
            StartChild("Kid", "nursery", NOTHING, extra=selected(0, "child")),
            StartTimer(1, selected(1, "timer")),
        )
        await scene.decide(*race)
        (child,) = await children_of(scene, run.run_id)
        await scene.advance(1_000)
        await timers.fire(scene.ctx, f"{run.run_id}-t2")
        await scene.decide(CancelSelectionOperation("select-calls:1:2", 0, {"member_index": 0}), end)
        await relay_outbox(scene)
        assert scene.tables.runs[child.run_id].status is RunStatus.CANCELLED


async def test_after_the_timeout_of_a_condition_the_code_looks_before_an_update_is_applied(scene: Scene):
    """However the task ends during which both arrived."""
    for number, way in enumerate(("looked", "failed")):
        run = await scene.start(f"order-{number}")
        await scene.decide(OpenConditionWait("paid", "f00d", 5))
        await signals.send(scene.ctx, Signal(Address("default", run.workflow_id), "poke", NOTHING))
        leased = await scene.take(WORKFLOW)
        asked = UpdateSubmission(Address("default", run.workflow_id), "approve", NOTHING)
        await updates.accept(scene.ctx, asked, asyncio.Event())
        await scene.advance(5_000)
        await timers.fire(scene.ctx, f"{run.run_id}-t1")
        await scene.fail(leased, "nothing", WAITING_FOR_HISTORY if way == "looked" else "Broken")
        await scene.advance(2_000)
        assert (await scene.types(run.run_id))[-1] == "TimerFired"
        plain = await scene.take(WORKFLOW)
        assert plain.task.update_id is None
        await scene.complete(plain, OpenConditionWait("shipped", "f00d"))
        assert (await scene.take(WORKFLOW)).task.update_id is not None


async def test_an_updates_task_that_fails_after_the_timeout_makes_way_for_a_plain_one(scene: Scene):
    run = await scene.start()
    await scene.decide(OpenConditionWait("paid", "f00d", 5))
    await update(scene)
    leased = await scene.take(WORKFLOW)
    assert leased.task.update_id is not None
    await scene.advance(5_000)
    await timers.fire(scene.ctx, f"{run.run_id}-t1")
    await scene.fail(leased, "broken", "Broken")
    await scene.advance(2_000)
    assert (await scene.take(WORKFLOW)).task.update_id is None


async def test_a_signal_with_start_that_is_repeated_with_its_key_signals_once(scene: Scene):
    signal = Signal(HERE, "poke", NOTHING)
    for _ in range(2):
        await starts.signal_with_start(scene.ctx, a_start(start_key="one"), signal)
    run = await scene.start("another")
    await scene.decide(OpenConditionWait("paid"))
    found = scene.tables.instances["default", "order-1"].run_id
    assert (await scene.types(found)).count("SignalReceived") == 1
    assert run.run_id != found


async def test_a_signal_with_start_is_acknowledged_though_its_run_has_ended_since(scene: Scene):
    signal = Signal(HERE, "poke", NOTHING, "request-1")
    begun, first = await starts.signal_with_start(scene.ctx, a_start(), signal)
    await end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None)
    again, second = await starts.signal_with_start(scene.ctx, a_start(), signal)
    assert second.retained
    assert second.receipt == first.receipt
    assert again.run.run_id == begun.run.run_id


def test_a_run_from_before_whose_code_selects_is_not_taken_to_have_sent_its_groups():
    entry = {
        "parallel_group_id": "parallel-activities:5:1",
        "parallel_group_base_sequence": 5,
        "parallel_group_size": 1,
        "parallel_group_index": 0,
    }
    command = ScheduleActivity("Charge", None, Blob("AA=="), extra={**entry, "parallel_group_path": [entry]})
    old = Waits(old=True, selected=True)
    run = a_run(last_step=6, last_task=9, open_timers=1, waits=old)
    step = advance(run, [command], StructuralLimits(10, 10, 10_000), NOW_MS)
    assert [event.payload["sequence"] for event in step.events] == [7]


def test_a_run_from_before_forgets_that_when_nothing_is_open():
    run = replace(a_run(last_step=6, last_task=9), waits=Waits(old=True))
    step = advance(run, [StartTimer(1)], StructuralLimits(10, 10, 10_000), NOW_MS)
    assert not step.run.waits.old


async def test_signals_that_the_code_has_looked_at_no_longer_count_as_unseen(scene: Scene):
    run = await scene.start()
    await scene.decide(OpenConditionWait("paid", "f00d"))
    for _ in range(3):
        await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
        await scene.fail(await scene.take(WORKFLOW), "nothing", WAITING_FOR_HISTORY)
    assert scene.tables.runs[run.run_id].unseen_signals == 0


async def test_the_timer_of_a_condition_that_was_met_ends_with_its_run(scene: Scene):
    ends: tuple[Command, ...] = (DONE, ContinueAsNew(NOTHING))
    for number, end in enumerate(ends):
        run = await scene.start(f"order-{number}")
        await scene.decide(OpenConditionWait("paid", "f00d", 1))
        await signals.send(scene.ctx, Signal(Address("default", run.workflow_id), "poke", NOTHING))
        await scene.decide(end)
        timer = scene.tables.timers[TimerId(f"{run.run_id}-t1")]
        assert timer.state is TimerState.CANCELLED
        if end is not DONE:
            await end_run(scene.ctx, "default", run.workflow_id, EndMode.CANCEL, None)


async def test_a_timer_that_is_open_though_its_run_is_closed_is_cancelled_and_touches_nothing(scene: Scene):
    run = await scene.start()
    await scene.decide(StartTimer(1))
    await end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    left = replace(scene.tables.timers[TimerId(f"{run.run_id}-t1")], state=TimerState.OPEN)
    scene.tables.execute("UPDATE timers SET state = 'open' WHERE timer_id = ?", left.timer_id)
    scene.clock.advance(1_000)
    before = await scene.types(run.run_id)
    assert await timers.fire(scene.ctx, left.timer_id)
    assert scene.tables.timers[left.timer_id].state is TimerState.CANCELLED
    assert await scene.types(run.run_id) == before


async def test_items_that_fail_are_skipped_and_do_not_block_the_others(scene: Scene):
    mended: set[int] = set()
    tried: list[int] = []

    async def find(ctx: EngineContext, limit: int) -> Sequence[int]:
        return [each for each in range(3 * BATCH) if each not in mended][:limit]

    async def handle(ctx: EngineContext, each: int) -> bool:
        tried.append(each)
        if each < BATCH:
            raise RuntimeError("poison")
        mended.add(each)
        return True

    sweeper = Sweeper("poisoned", scene.ctx, find, handle)
    while await sweeper.sweep():
        pass
    assert mended == set(range(BATCH, 3 * BATCH))
    # A slow machine may reach the end of a backoff, so an item that fails may be tried again; the others are not.
    assert set(tried) == set(range(3 * BATCH))
    assert len([each for each in tried if each >= BATCH]) == 2 * BATCH


async def test_a_run_that_would_close_with_an_unhandled_signal_handles_it_first(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
    with pytest.raises(LeaseLost) as refusal:
        await scene.complete(leased, DONE)
    assert refusal.value.reason is Reason.TASK_NOT_LEASED
    again = await scene.take(WORKFLOW)
    assert again.task.task_id == leased.task.task_id
    assert [event.type for event in again.events] == ["WorkflowStarted", "SignalReceived"]
    await scene.complete(again, DONE)
    assert (await scene.types(run.run_id))[-1] == "WorkflowCompleted"


async def test_signals_without_a_pause_do_not_keep_a_run_open_for_ever(scene: Scene):
    run = await scene.start()
    for _ in range(UNHANDLED_SIGNAL_RETRIES_MAX):
        leased = await scene.take(WORKFLOW)
        await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
        with pytest.raises(LeaseLost):
            await scene.complete(leased, DONE)
    leased = await scene.take(WORKFLOW)
    with pytest.raises(Unavailable) as refused:
        await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
    assert refused.value.reason is Reason.RUN_IS_ENDING
    await scene.complete(leased, DONE)
    types = await scene.types(run.run_id)
    assert types == [
        "WorkflowStarted",
        *["SignalReceived"] * UNHANDLED_SIGNAL_RETRIES_MAX,
        "WorkflowCompleted",
    ]
    with pytest.raises(Conflict) as ended:
        await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
    assert ended.value.reason is Reason.RUN_NOT_ACTIVE


async def about_to_end(scene: Scene) -> Leased:
    """The last task of a run whose completion was rejected for signals as often as allowed."""
    for _ in range(UNHANDLED_SIGNAL_RETRIES_MAX):
        leased = await scene.take(WORKFLOW)
        await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
        with pytest.raises(LeaseLost):
            await scene.complete(leased, DONE)
    return await scene.take(WORKFLOW)


async def test_a_signal_is_taken_again_when_the_run_does_not_end_or_its_task_is_lost(scene: Scene):
    run = await scene.start()
    leased = await about_to_end(scene)
    await workflow_reports.reclaim(scene.ctx, leased.task.task_id, expired_only=False)
    await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
    assert (await scene.types(run.run_id))[-1] == "SignalReceived", (
        "no task is leased, so the next one handles it"
    )
    await scene.decide(StartTimer(600))
    await scene.advance(600_000)
    leased = await scene.take(WORKFLOW)
    await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
    with pytest.raises(LeaseLost):
        await scene.complete(leased, DONE)
    received = (await scene.types(run.run_id)).count("SignalReceived")
    assert received == UNHANDLED_SIGNAL_RETRIES_MAX + 2


async def test_a_run_that_failed_often_still_takes_signals_while_its_code_looks(scene: Scene):
    await scene.start()
    for _ in range(UNHANDLED_SIGNAL_RETRIES_MAX + 5):
        await scene.fail(await scene.take(WORKFLOW))
        await scene.advance(600_000)
    leased = await scene.take(WORKFLOW)
    await signals.send(scene.ctx, Signal(HERE, "poke", NOTHING))
    with pytest.raises(LeaseLost):
        await scene.complete(leased, DONE)


async def test_what_another_run_tells_a_run_that_is_about_to_end_waits(scene: Scene):
    await scene.start()
    leased = await about_to_end(scene)
    await scene.start("sender", task_queue="others")
    poke = SignalExternal("order-1", "poke", NOTHING)
    sender = await scene.take(WORKFLOW, "w-others", task_queue="others")
    await scene.complete(sender, poke, concurrent=True)
    sweeper = pending_outbox(scene.ctx)
    await sweeper.sweep()
    [message] = scene.tables.outbox.values()
    assert message.kind is OutboxKind.EXTERNAL_SIGNAL
    await scene.complete(leased, DONE)
    await outbox_relay.deliver(scene.ctx, message.message_id)
    [answer] = scene.tables.outbox.values()
    assert json.loads(answer.payload)["payload"]["exception_type"] == "WorkflowClosed"


async def test_a_batch_of_signals_tells_of_a_run_that_is_about_to_end_and_reaches_the_others(scene: Scene):
    await scene.start()
    await about_to_end(scene)
    await scene.start("order-2")
    batch = BatchJob(BatchAction.SIGNAL, RunCriteria("default"), "batch-1", None, "poke", NOTHING)
    outcome = await run_batch(scene.ctx, batch, None, 10)
    assert (outcome.acted, [each.error.reason for each in outcome.failures]) == (1, [Reason.RUN_IS_ENDING])


async def test_what_was_sent_to_a_run_by_name_is_acknowledged_again_after_it_continued_as_new(scene: Scene):
    run = await scene.start()
    await scene.decide(OpenConditionWait("paid", "f00d"))
    named = Address("default", "order-1", run.run_id)
    signal = Signal(named, "poke", NOTHING, "request-1")
    asked = UpdateSubmission(named, "approve", NOTHING, "request-2")
    first = await signals.send(scene.ctx, signal)
    leased = await scene.take(WORKFLOW)
    accepted = await updates.accept(scene.ctx, asked, asyncio.Event())
    await scene.complete(leased, ContinueAsNew(NOTHING))
    again = await signals.send(scene.ctx, signal)
    assert again.retained
    assert again.receipt == first.receipt
    once_more = await updates.accept(scene.ctx, asked, asyncio.Event())
    assert once_more.retained
    assert once_more.update.update_id == accepted.update.update_id
    with pytest.raises(Conflict) as refused:
        await signals.send(scene.ctx, replace(signal, request_id="request-3"))
    assert refused.value.reason is Reason.HISTORICAL_RUN_COMMAND_REJECTED


def test_giving_up_again_what_has_ended_does_not_open_a_wait_anew():
    open_wait = ConditionWait("r1-w1", 1, "paid", "f00d")
    run = a_run(last_step=1, waits=Waits(condition=open_wait))
    again = CancelSelectionOperation("select-calls:1:2", 0, {"member_index": 0})
    step = advance(run, [again, OpenConditionWait("paid", "f00d")], StructuralLimits(10, 10, 10_000), NOW_MS)
    assert step.events == ()
    assert step.run.waits.condition == open_wait


async def test_an_update_that_the_code_does_not_know_or_with_arguments_that_do_not_fit_is_refused(
    scene: Scene,
):
    entry = {"name": "approve", "parameters": [{"name": "by", "type": "string", "required": True}]}
    contract = {"signals": [], "queries": [], "updates": ["approve"], "update_contracts": [entry]}
    payload = {"workflow_command_contracts": {"Order": contract}}
    await scene.register(advertised=payload)
    await scene.start(workflow_type="Order")
    for asked, reason in (
        (UpdateSubmission(HERE, "refuse", encode(["Ada"])), Reason.UNKNOWN_UPDATE),
        (UpdateSubmission(HERE, "approve", encode([5])), Reason.INVALID_UPDATE_ARGUMENTS),
    ):
        with pytest.raises(PenstockError) as refused:
            await updates.accept(scene.ctx, asked, asyncio.Event())
        assert refused.value.reason is reason
        assert refused.value.details["command_status"] == "rejected"
    await updates.accept(scene.ctx, UpdateSubmission(HERE, "approve", encode(["Ada"])), asyncio.Event())
