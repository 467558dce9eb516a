"""The debug view of a run: its diagnosis and findings."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.model import ReplayBlock, Run, TaskState
from penstock.engine.visibility import run_debug
from penstock.engine.visibility.run_debug import RunDebugView
from penstock.errors import NotFound
from penstock.ports.store import Tx
from tests.engine.support.scene import ACTIVITY, DONE, WORKFLOW, Scene, a_scene, charge


async def inside(scene: Scene, workflow_id: str = "order-1") -> RunDebugView:
    return await run_debug.inspect(scene.ctx, "default", workflow_id)


def codes(seen: RunDebugView) -> list[str]:
    return [each.code for each in seen.findings]


async def change(scene: Scene, run: Run, **changes: Any) -> None:
    async def operation(tx: Tx) -> None:
        found = await tx.runs.lock(run.run_id)
        assert found is not None
        tx.runs.save(replace(found, **changes))

    await scene.ctx.store.transact(operation, key=run.run_id)


async def test_a_ready_task_without_pollers() -> None:
    scene = a_scene()
    await scene.start()
    seen = await inside(scene)
    assert (seen.diagnosis, codes(seen)) == ("needs_attention", ["no_active_pollers"])
    await scene.register()
    seen = await inside(scene)
    assert (seen.diagnosis, codes(seen)) == ("pending_work", [])
    assert [task.state for task in seen.workflow_tasks] == [TaskState.READY]
    assert seen.why is not None


async def test_a_run_that_is_decided_or_done() -> None:
    scene = a_scene()
    await scene.start()
    leased = await scene.take(WORKFLOW)
    assert (await inside(scene)).diagnosis == "running"
    await scene.complete(leased, DONE)
    seen = await inside(scene)
    assert (seen.diagnosis, codes(seen), seen.why) == ("terminal", [], None)
    assert seen.last_event is not None
    assert seen.last_event.type == "WorkflowCompleted"


async def test_an_activity_that_waits_and_one_that_failed() -> None:
    scene = a_scene()
    await scene.start()
    await scene.decide(charge())
    seen = await inside(scene)
    assert (seen.diagnosis, len(seen.activities)) == ("pending_work", 1)
    await scene.fail_activity(await scene.take(ACTIVITY))
    seen = await inside(scene)
    assert [each["message"] for each in seen.failures] == ["boom"]
    assert seen.activities == []


async def test_a_workflow_task_that_fails_again_and_again() -> None:
    scene = a_scene()
    await scene.start()
    await scene.fail(await scene.take(WORKFLOW), "no such activity")
    seen = await inside(scene)
    assert (seen.diagnosis, codes(seen)) == ("needs_attention", ["task_problem"])
    assert "no such activity" in seen.findings[0].message


async def test_a_blocked_run_is_reported_before_all_else() -> None:
    scene = a_scene()
    run = await scene.start()
    await change(scene, run, blocked=ReplayBlock(message="step 2 differs."))
    seen = await inside(scene)
    assert codes(seen) == ["workflow_replay_blocked", "no_active_pollers"]
    assert "step 2 differs." in seen.findings[0].message


async def test_a_lease_that_has_ended() -> None:
    scene = a_scene()
    await scene.start()
    await scene.take(WORKFLOW)
    scene.clock.advance(60_000)
    assert codes(await inside(scene)) == ["expired_leases"]


async def test_a_run_that_waits_for_nothing() -> None:
    scene = a_scene()
    run = await scene.start()

    async def lose(tx: Tx) -> None:
        for task in await tx.tasks.lock_live_of(run.run_id):
            tx.tasks.save(replace(task, state=TaskState.CANCELLED), task.state)

    await scene.ctx.store.transact(lose, key=run.run_id)
    assert codes(await inside(scene)) == ["repair_attention"]


async def test_a_run_near_one_of_its_limits() -> None:
    scene = a_scene(max_history_events="10")
    run = await scene.start()
    await scene.register()
    await change(scene, run, last_sequence=8)
    seen = await inside(scene)
    assert codes(seen) == ["limit_near"]
    assert seen.diagnosis == "pending_work", "a limit that is near is no trouble yet"
    assert "8 of 10" in seen.findings[0].message


async def test_a_run_that_waits_for_an_activity_elsewhere() -> None:
    scene = a_scene()
    await scene.start()
    await scene.decide(charge(queue="elsewhere"))
    seen = await inside(scene)
    assert (seen.diagnosis, codes(seen)) == ("needs_attention", ["no_active_pollers"])
    assert "elsewhere" in seen.findings[0].message
    await scene.register("w2", task_queue="elsewhere")
    assert codes(await inside(scene)) == []


async def test_a_task_whose_type_no_active_worker_takes_is_a_finding() -> None:
    scene = a_scene()
    await scene.register(workflow_types=("Refund",))
    await scene.start()
    seen = await inside(scene)
    assert (seen.diagnosis, codes(seen)) == ("needs_attention", ["no_worker_for_type"])
    assert "tasks of type Order" in seen.findings[0].message
    assert seen.why is not None
    assert seen.why.explanation.binding is not None
    assert codes(seen) == [seen.why.explanation.binding.kind]
    await scene.register("w2", workflow_types=("Order",))
    assert codes(await inside(scene)) == []


async def test_what_is_not_there() -> None:
    with pytest.raises(NotFound):
        await inside(a_scene(), "nobody")
