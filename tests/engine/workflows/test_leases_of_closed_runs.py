"""Leases that outlive their run: they are not honoured and end quietly."""

from __future__ import annotations

import pytest

from penstock.core.model import RunStatus, TaskState
from penstock.core.scheduling.polls import Leased
from penstock.engine.activities import activity_reports
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.workflows import workflow_reports
from penstock.errors import LeaseLost, Reason
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, charge, of


async def a_leased_task(scene: Scene) -> Leased:
    """A leased workflow task of a run that is completed anyway."""
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    close(scene, leased)
    assert not scene.run(run.run_id).is_open
    return leased


async def a_leased_activity(scene: Scene) -> Leased:
    await scene.start()
    await scene.decide(charge())
    leased = await scene.take(ACTIVITY)
    close(scene, leased)
    return leased


def close(scene: Scene, leased: Leased) -> None:
    """Close the run and leave the lease, which no operation does."""
    scene.tables.execute(
        "UPDATE runs SET status = ?, closed_reason = 'completed', closed_at_ms = ? WHERE run_id = ?",
        RunStatus.COMPLETED.value,
        scene.clock.now_ms(),
        leased.run.run_id,
    )


async def test_a_report_on_a_leased_task_of_a_closed_run_is_refused_and_ends_nothing_again(scene: Scene):
    leased = await a_leased_task(scene)
    with pytest.raises(LeaseLost) as refused:
        await scene.complete(leased, DONE)
    assert refused.value.reason is Reason.RUN_ALREADY_CLOSED
    assert refused.value.details["run_status"] == "completed"
    assert await scene.types(leased.run.run_id) == ["WorkflowStarted"]


async def test_a_failure_and_a_heartbeat_of_a_leased_task_of_a_closed_run_are_refused_alike(scene: Scene):
    leased = await a_leased_task(scene)
    for report in (scene.fail(leased), scene.heartbeat_workflow_task(leased)):
        with pytest.raises(LeaseLost) as refused:
            await report
        assert refused.value.reason is Reason.RUN_ALREADY_CLOSED
    assert scene.task(leased.task.task_id).state is TaskState.LEASED


async def test_a_task_of_a_closed_run_that_nobody_holds_is_refused_by_the_other_name(scene: Scene):
    leased = await a_leased_task(scene)
    scene.tables.execute(
        "UPDATE tasks SET state = 'cancelled', lease_token = NULL, lease_expires_at_ms = NULL WHERE task_id = ?",
        leased.task.task_id,
    )
    with pytest.raises(LeaseLost) as refused:
        await scene.complete(leased, DONE, report=of(leased, digest="late"))
    assert refused.value.reason is Reason.RUN_CLOSED


async def test_a_leased_task_of_a_closed_run_is_cancelled_when_it_is_reclaimed(scene: Scene):
    leased = await a_leased_task(scene)
    assert await workflow_reports.reclaim(scene.ctx, leased.task.task_id, expired_only=False)
    assert scene.task(leased.task.task_id).state is TaskState.CANCELLED
    assert await scene.claim(WORKFLOW, "w2") is None


async def test_a_leased_activity_of_a_closed_run_is_cancelled_when_it_is_reclaimed(scene: Scene):
    leased = await a_leased_activity(scene)
    assert await activity_reports.reclaim(scene.ctx, leased.task.task_id, expired_only=False)
    assert scene.task(leased.task.task_id).state is TaskState.CANCELLED
    assert await scene.claim(ACTIVITY, "w2") is None


async def test_the_sweeper_clears_expired_leases_of_closed_runs_for_good(scene: Scene):
    leased = await a_leased_task(scene)
    scene.clock.set(leased.task.lease_expires_at_ms or 0)
    sweeper = expired_leases(scene.ctx)
    assert [await sweeper.sweep(), await sweeper.sweep()] == [1, 0]
    assert scene.task(leased.task.task_id).state is TaskState.CANCELLED
