"""Deletion of one run by a caller: with everything that it had, once, and with a record."""

from __future__ import annotations

import pytest

from penstock.core.history.commands import StartChild
from penstock.engine.maintenance.sweepers.pending_outbox import pending_outbox
from penstock.engine.operations import run_deletion
from penstock.errors import Conflict, NotFound, Reason
from tests.engine.support.scene import ACTIVITY, DONE, NOTHING, Scene, charge


async def delete(scene: Scene, workflow_id: str) -> run_deletion.Deletion:
    return await run_deletion.delete_run(scene.ctx, "default", workflow_id, None, "asked for")


async def test_nothing_of_a_deleted_run_is_left_but_its_record(scene: Scene):
    run = await scene.start()
    await scene.decide(charge())
    await scene.finish(await scene.take(ACTIVITY))
    await scene.decide(DONE)
    deleted = await delete(scene, "order-1")
    assert (deleted.run_id, deleted.events, deleted.reason) == (run.run_id, 4, "asked for")
    tables = scene.tables
    left = (tables.runs, tables.instances, tables.events, tables.activities, tables.tasks)
    assert [len(each) for each in left] == [0] * len(left)
    found = await run_deletion.deletions(scene.ctx, "default", None, None, 10)
    assert list(found) == [deleted]
    assert await run_deletion.deletions(scene.ctx, "elsewhere", None, None, 10) == []
    with pytest.raises(NotFound):
        await delete(scene, "order-1")


async def test_a_child_is_not_deleted_before_its_parent_has_its_outcome(scene: Scene):
    await scene.start()
    await scene.decide(StartChild("Ship", None, NOTHING, "ship-1"))
    await scene.decide(DONE)
    with pytest.raises(Conflict) as refused:
        await delete(scene, "ship-1")
    assert refused.value.reason is Reason.RUN_IN_USE
    assert not (await run_deletion.deletions(scene.ctx, "default", None, None, 10))
    while await pending_outbox(scene.ctx).sweep():
        pass
    assert (await delete(scene, "ship-1")).workflow_id == "ship-1"
