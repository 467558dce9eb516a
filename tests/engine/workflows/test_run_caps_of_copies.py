"""Caps on runs and what operators make of runs: resets, forks, reruns and pauses."""

from __future__ import annotations

import pytest

from penstock.core.history.commands import FailWorkflow
from penstock.core.model import Run, RunId, RunStatus
from penstock.engine.maintenance.run_cap_sweepers import waiting_runs
from penstock.engine.runs.address import Address
from penstock.engine.workflows import run_close, run_pause
from penstock.engine.workflows.copies import redrive, rerun, reset
from penstock.engine.workflows.copies.reset import ForkTarget, Reapply, ResetRequest
from penstock.engine.workflows.copies.run_copies import SourceAddress
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import Conflict, Reason
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, charge
from tests.engine.support.why_scene import cap_runs

SOURCE = SourceAddress("default", "order-1")
FIRST_POINT = ResetRequest(2, Reapply.SIGNALS)


@pytest.fixture
async def running(scene: Scene) -> Run:
    """An open run with a decision and an open activity, the only one that the cap allows."""
    await cap_runs(scene, 1)
    run = await scene.start()
    await scene.decide(charge(), concurrent=True)
    return scene.run(run.run_id)


async def waiting(scene: Scene, workflow_id: str = "order-2") -> Run:
    run = scene.run((await scene.start(workflow_id)).run_id)
    assert run.waits.to_start
    return run


async def admitted(scene: Scene, run_id: RunId) -> bool:
    await waiting_runs(scene.ctx).sweep()
    return not scene.run(run_id).waits.to_start


async def terminate(scene: Scene, workflow_id: str) -> None:
    await run_close.end_run(scene.ctx, "default", workflow_id, EndMode.TERMINATE, None)


async def test_a_reset_of_an_open_run_keeps_its_place(scene: Scene, running: Run) -> None:
    behind = await waiting(scene)
    made = (await reset.reset(scene.ctx, SOURCE, FIRST_POINT)).run
    assert scene.run(running.run_id).status is RunStatus.TERMINATED
    assert scene.run(made.run_id).waits.places == running.waits.places
    assert not await admitted(scene, behind.run_id), "the chain is one run"
    await terminate(scene, "order-1")
    assert await admitted(scene, behind.run_id)


async def test_a_fork_beyond_the_cap_is_refused_and_leaves_nothing(scene: Scene, running: Run) -> None:
    before = len(scene.tables.runs), scene.tables.count("events"), scene.tables.count("tasks")
    with pytest.raises(Conflict) as refused:
        await reset.fork(scene.ctx, SOURCE, FIRST_POINT, ForkTarget("other"))
    assert refused.value.reason is Reason.RUN_CAP_REACHED
    assert (len(scene.tables.runs), scene.tables.count("events"), scene.tables.count("tasks")) == before


async def test_a_fork_takes_a_place(scene: Scene, running: Run) -> None:
    await cap_runs(scene, 2)
    made = (await reset.fork(scene.ctx, SOURCE, FIRST_POINT, ForkTarget("other"))).run
    assert scene.run(made.run_id).waits.places == running.waits.places
    behind = await waiting(scene)
    await terminate(scene, "other")
    assert await admitted(scene, behind.run_id)


async def test_a_reset_of_a_closed_run_needs_a_place(scene: Scene, running: Run) -> None:
    await terminate(scene, "order-1")
    second = await scene.start("order-2")
    with pytest.raises(Conflict) as refused:
        await reset.reset(scene.ctx, SOURCE, FIRST_POINT)
    assert refused.value.reason is Reason.RUN_CAP_REACHED
    await terminate(scene, second.workflow_id)
    made = (await reset.reset(scene.ctx, SOURCE, FIRST_POINT)).run
    assert scene.run(made.run_id).waits.places


async def test_a_rerun_beyond_the_cap_waits_to_start(scene: Scene, running: Run) -> None:
    await terminate(scene, "order-1")
    await scene.start("order-2")
    made = (await rerun.rerun(scene.ctx, SOURCE, None, None)).run
    assert scene.run(made.run_id).waits.to_start
    assert await scene.claim(WORKFLOW) is not None, "that of order-2"
    assert await scene.claim(WORKFLOW) is None
    await terminate(scene, "order-2")
    assert await admitted(scene, made.run_id)
    assert await scene.claim(WORKFLOW) is not None


async def test_a_pause_and_a_resume_let_no_run_past_the_cap(scene: Scene, running: Run) -> None:
    behind = await waiting(scene)
    address = Address("default", "order-2")
    await run_pause.pause(scene.ctx, address, None)
    await run_pause.resume(scene.ctx, address, None)
    assert not await admitted(scene, behind.run_id)
    assert await scene.claim(WORKFLOW) is None
    await run_pause.pause(scene.ctx, address, None)
    await terminate(scene, "order-1")
    assert await admitted(scene, behind.run_id)
    assert await scene.claim(WORKFLOW) is None, "it has its place, and is paused"
    await run_pause.resume(scene.ctx, address, None)
    taken = await scene.claim(WORKFLOW)
    assert taken is not None
    assert taken.task.run_id == behind.run_id


async def test_a_reset_lets_no_redriven_run_past_the_cap(scene: Scene, running: Run) -> None:
    await scene.finish(await scene.take(ACTIVITY))
    await scene.decide(FailWorkflow("no stock"), concurrent=True)
    second = await scene.start("order-2")
    redriven = (await redrive.redrive_run(scene.ctx, "default", "order-1", None, None)).run
    assert scene.run(redriven.run_id).waits.to_start
    with pytest.raises(Conflict) as refused:
        await reset.reset(scene.ctx, SOURCE, FIRST_POINT)
    assert refused.value.reason is Reason.RUN_CAP_REACHED
    assert scene.run(redriven.run_id).is_open
    await terminate(scene, second.workflow_id)
    assert await admitted(scene, redriven.run_id)
    made = (await reset.reset(scene.ctx, SOURCE, FIRST_POINT)).run
    assert scene.run(made.run_id).waits.places
