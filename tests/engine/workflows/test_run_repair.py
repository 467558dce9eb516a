"""Repair: work that should run and does not is requeued."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.core.model import Run, RunId, TaskState
from penstock.core.waits import ConditionWait, Waits
from penstock.engine.runs.address import Address
from penstock.engine.runs.history_writer import is_stranded
from penstock.engine.workflows import run_repair
from penstock.engine.workflows.run_repair import RepairOutcome
from penstock.errors import Conflict, NotFound
from penstock.ports.store import Tx
from tests.engine.support.scene import DONE, WORKFLOW, Scene, a_scene, charge
from tests.support.builders import a_run

LEASE_MS = 60_000
ORDER = Address("default", "order-1")


async def repaired(scene: Scene, address: Address = ORDER) -> RepairOutcome:
    return (await run_repair.repair(scene.ctx, address)).outcome


async def lose_the_task(scene: Scene, run: Run) -> None:
    """As a manual change to the database would."""

    async def operation(tx: Tx) -> None:
        for task in await tx.tasks.lock_live_of(run.run_id):
            tx.tasks.save(replace(task, state=TaskState.CANCELLED), task.state)

    await scene.ctx.store.transact(operation, key=run.run_id)


async def test_a_run_that_is_queued_needs_no_repair() -> None:
    scene = a_scene()
    await scene.start()
    assert await repaired(scene) is RepairOutcome.NOT_NEEDED


async def test_a_run_whose_workflow_task_is_missing_gets_one() -> None:
    scene = a_scene()
    run = await scene.start()
    await lose_the_task(scene, run)
    assert await repaired(scene) is RepairOutcome.DISPATCHED
    await scene.decide(DONE)
    assert not scene.run(run.run_id).is_open


async def test_a_task_in_backoff_after_a_failure_is_ready_at_once() -> None:
    scene = a_scene()
    await scene.start()
    await scene.fail(await scene.take(WORKFLOW))
    assert await scene.claim(WORKFLOW) is None
    assert await repaired(scene) is RepairOutcome.DISPATCHED
    assert await scene.claim(WORKFLOW) is not None


async def test_a_lease_that_has_ended_is_taken_back_and_a_live_one_is_not() -> None:
    scene = a_scene()
    await scene.start()
    await scene.take(WORKFLOW)
    assert await repaired(scene) is RepairOutcome.NOT_NEEDED
    scene.clock.advance(LEASE_MS)
    assert await repaired(scene) is RepairOutcome.DISPATCHED
    assert await scene.claim(WORKFLOW, "w2") is not None


async def test_a_run_that_waits_for_an_activity_needs_no_repair() -> None:
    scene = a_scene()
    await scene.start()
    await scene.decide(charge())
    assert await repaired(scene) is RepairOutcome.NOT_NEEDED


async def test_a_closed_run_cannot_be_repaired_nor_one_that_is_not_there() -> None:
    scene = a_scene()
    await scene.start()
    await scene.decide(DONE)
    with pytest.raises(Conflict) as closed:
        await repaired(scene)
    assert closed.value.reason == "run_not_active"
    with pytest.raises(NotFound):
        await repaired(scene, Address("default", "nobody"))


@pytest.mark.parametrize(
    ("changes", "stranded"),
    [
        ({}, True),
        ({"open_activities": 1}, False),
        ({"open_timers": 1}, False),
        ({"open_children": 1}, False),
        ({"waits": Waits(condition=ConditionWait("c1", 1))}, False),
        ({"open_activities": 1, "owed": 1}, True),
        ({"open_activities": 1, "open_updates": 1}, True),
    ],
)
def test_a_run_without_a_task_is_stranded_unless_it_waits_for_something(
    changes: dict[str, Any], stranded: bool
) -> None:
    assert is_stranded(a_run(**changes)) is stranded


async def test_a_pass_repairs_leases_and_runs_of_its_own_namespace() -> None:
    scene = a_scene()
    lost = await scene.start("lost")
    await lose_the_task(scene, lost)
    await scene.start("late")
    await scene.take(WORKFLOW)
    elsewhere = await scene.start("lost", namespace="elsewhere")
    await lose_the_task(scene, elsewhere)
    scene.clock.advance(LEASE_MS)
    found = await run_repair.candidates(scene.ctx, "default", 10)
    assert [run.run_id for run in found.runs] == [lost.run_id]
    assert len(found.tasks) == 1
    done = await run_repair.repair_all(scene.ctx, "default", 10)
    assert (done.tasks_repaired, done.runs_repaired, done.task_failures, done.run_failures) == (1, 1, [], [])
    assert len(scene.live(lost.run_id)) == 1
    assert not scene.live(elsewhere.run_id)
    again = await run_repair.repair_all(scene.ctx, "default", 10)
    assert (again.tasks_found, again.runs_found) == (0, 0)


async def test_a_pass_over_named_runs_looks_at_no_others() -> None:
    scene = a_scene()
    runs = [await scene.start(f"lost-{number}") for number in range(3)]
    for run in runs:
        await lose_the_task(scene, run)
    names = [runs[0].run_id, RunId("nobody"), runs[0].run_id]
    done = await run_repair.repair_all(scene.ctx, "default", 10, names, "lost-1")
    assert (done.runs_found, done.runs_repaired) == (2, 2)
    assert [len(scene.live(run.run_id)) for run in runs] == [1, 1, 0]
    other = await run_repair.repair_all(scene.ctx, "elsewhere", 10, [runs[2].run_id])
    assert other.runs_found == 0
