"""Ending a run from outside: everything open in it ends with it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.history.commands import StartTimer
from penstock.core.model import ActivityStatus, RunId, RunStatus, TaskState, TimerState
from penstock.engine.workflows import run_close
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import Conflict, LeaseLost, NotFound, Reason
from penstock.ports.store import Tx
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, charge, tries
from tests.support.builders import NOW_MS


@pytest.mark.parametrize(
    ("end", "status", "asked", "closing_event"),
    [
        (EndMode.CANCEL, RunStatus.CANCELLED, "CancelRequested", "WorkflowCancelled"),
        (EndMode.TERMINATE, RunStatus.TERMINATED, "TerminateRequested", "WorkflowTerminated"),
    ],
)
async def test_ending_a_run_closes_it_at_once_with_all_that_is_open(
    scene: Scene, end: EndMode, status: RunStatus, asked: str, closing_event: str
):
    run = await scene.start()
    await scene.decide(charge(), charge(), StartTimer(5))
    running = await scene.take(ACTIVITY)
    ended = (await run_close.end_run(scene.ctx, "default", "order-1", end, "no longer needed")).run
    assert ended == scene.run(run.run_id)
    assert (ended.status, ended.closed_reason, ended.closed_at_ms) == (status, status.value, NOW_MS)
    assert (await scene.types(run.run_id))[4:] == [
        asked,
        "ActivityCancelled",
        "ActivityCancelled",
        "TimerCancelled",
        closing_event,
    ]
    assert (await scene.payload(run.run_id, -1))["reason"] == "no longer needed"
    assert scene.live(run.run_id) == []
    assert scene.task(running.task.task_id).state is TaskState.CANCELLED
    assert {activity.status for activity in scene.tables.activities.values()} == {ActivityStatus.CANCELLED}
    assert {timer.state for timer in scene.tables.timers.values()} == {TimerState.CANCELLED}
    assert (ended.open_activities, ended.open_timers) == (0, 0)
    await scene.advance(10_000)
    assert (await scene.types(run.run_id))[-1] == closing_event


async def test_a_reason_is_always_recorded(scene: Scene):
    run = await scene.start()
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    assert (await scene.payload(run.run_id, -1))["reason"] == "cancel requested"


async def test_a_worker_that_decides_for_a_cancelled_run_is_refused(scene: Scene):
    await scene.start()
    leased = await scene.take(WORKFLOW)
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    with pytest.raises(LeaseLost) as refused:
        await scene.complete(leased, DONE)
    assert refused.value.reason is Reason.RUN_CLOSED
    assert refused.value.details["stop_reason"] == "run_cancelled"
    assert scene.run(leased.run.run_id).status is RunStatus.CANCELLED


async def test_work_in_backoff_is_cancelled_too(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(tries(3, 5)))
    await scene.fail_activity(await scene.take(ACTIVITY))
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None)
    await scene.advance(60_000)
    assert await scene.claim(ACTIVITY) is None
    assert scene.live(run.run_id) == []


async def test_a_closed_run_cannot_be_ended_again(scene: Scene):
    run = await scene.start()
    await scene.decide(DONE)
    with pytest.raises(Conflict) as refused:
        await run_close.end_run(scene.ctx, "default", "order-1", EndMode.TERMINATE, None)
    assert refused.value.reason is Reason.RUN_NOT_ACTIVE
    assert refused.value.details["status"] == "completed"
    assert scene.run(run.run_id).status is RunStatus.COMPLETED


async def test_an_unknown_workflow_and_another_namespaces_are_not_found(scene: Scene):
    await scene.start()
    for namespace, name in (("default", "nobody"), ("elsewhere", "order-1")):
        with pytest.raises(NotFound) as refused:
            await run_close.end_run(scene.ctx, namespace, name, EndMode.CANCEL, None)
        assert refused.value.reason is Reason.INSTANCE_NOT_FOUND


async def test_a_command_for_a_run_that_is_not_the_current_one_is_refused(scene: Scene):
    run = await scene.start()
    earlier = replace(run, run_id=RunId("earlier"), status=RunStatus.COMPLETED, last_sequence=0)

    async def insert(tx: Tx) -> None:
        tx.runs.insert(earlier)

    await scene.ctx.store.transact(insert, key="earlier")
    with pytest.raises(Conflict) as refused:
        await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None, earlier.run_id)
    assert refused.value.reason is Reason.HISTORICAL_RUN_COMMAND_REJECTED
    assert scene.run(run.run_id).is_open
    with pytest.raises(NotFound):
        await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None, RunId("nobody's"))
    ended = (await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None, run.run_id)).run
    assert ended.status is RunStatus.CANCELLED


async def test_what_waited_for_a_leased_task_does_not_outlive_the_run(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(), charge())
    first, second = await scene.take(ACTIVITY), await scene.take(ACTIVITY)
    await scene.finish(first)
    await scene.take(WORKFLOW)
    await scene.finish(second)
    assert scene.run(run.run_id).buffered == 1
    await run_close.end_run(scene.ctx, "default", "order-1", EndMode.CANCEL, None)
    assert scene.run(run.run_id).buffered == 0
    assert scene.tables.buffered_events == {}
    assert (await scene.types(run.run_id))[-1] == "WorkflowCancelled"


@pytest.mark.parametrize(
    ("timeouts", "kind"),
    [
        ({"run_timeout_s": 10}, "run_timeout"),
        ({"execution_timeout_s": 10}, "execution_timeout"),
        ({"run_timeout_s": 10, "execution_timeout_s": 20}, "run_timeout"),
        ({"run_timeout_s": 10, "execution_timeout_s": 10}, "execution_timeout"),
    ],
)
async def test_a_run_that_outlives_its_timeout_is_closed_without_its_code(
    scene: Scene, timeouts: dict[str, Any], kind: str
):
    run = await scene.start(**timeouts)
    await scene.decide(charge(), StartTimer(60))
    scene.clock.advance(9_999)
    assert not await run_close.expire_run(scene.ctx, run.run_id)
    scene.clock.advance(1)
    assert await run_close.expire_run(scene.ctx, run.run_id)
    assert not await run_close.expire_run(scene.ctx, run.run_id)
    stored = scene.run(run.run_id)
    assert (stored.status, stored.closed_reason) == (RunStatus.FAILED, "timed_out")
    assert (stored.open_activities, stored.open_timers, stored.deadline_at_ms) == (0, 0, None)
    assert (await scene.payload(run.run_id, -1))["timeout_kind"] == kind
    assert (await scene.types(run.run_id))[-1] == "WorkflowTimedOut"
    assert scene.live(run.run_id) == []


async def test_a_run_without_a_timeout_or_unknown_does_not_expire(scene: Scene):
    run = await scene.start()
    scene.clock.advance(10**10)
    assert not await run_close.expire_run(scene.ctx, run.run_id)
    assert not await run_close.expire_run(scene.ctx, RunId("nobody"))
