"""Retention: what is kept, what is deleted, and what is archived first."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import pytest
from durable_workflow.history_bundle_verify import verify_bundle
from msgspec.structs import replace

from penstock.core.model import ChildState, Lineage, Run, RunId
from penstock.engine.maintenance.sweepers.expired_runs import EVERY_MS, expired_runs
from penstock.engine.operations import archival, history_export, namespaces, retention
from penstock.engine.operations.retention import DAY_MS, Obstacle
from penstock.errors import Unavailable
from penstock.ports.store import Tx
from penstock.stores.archive import DirectoryArchive
from tests.engine.support.scene import ACTIVITY, DONE, Scene, a_scene, charge
from tests.support.builders import a_child, an_instance


async def a_house(days: int = 30, archive: Path | None = None) -> Scene:
    scene = a_scene()
    await namespaces.ensure(scene.ctx, "default")
    await namespaces.update(scene.ctx, "default", None, days)
    if archive is None:
        return scene
    return dataclasses.replace(scene, ctx=replace(scene.ctx, archive=DirectoryArchive(archive)))


async def a_closed_run(scene: Scene, workflow_id: str = "order-1") -> Run:
    run = await scene.start(workflow_id)
    await scene.decide(charge())
    await scene.finish(await scene.take(ACTIVITY))
    await scene.decide(DONE)
    return scene.run(run.run_id)


async def test_a_run_goes_when_its_time_is_over_and_with_all_that_it_had() -> None:
    scene = await a_house()
    run = await a_closed_run(scene)
    scene.clock.advance(30 * DAY_MS)
    assert (await retention.prune(scene.ctx, run.run_id)).obstacle is Obstacle.NOT_EXPIRED
    scene.clock.advance(1)
    pruned = await retention.prune(scene.ctx, run.run_id)
    assert pruned.obstacle is None
    assert (pruned.cleared.events, pruned.cleared.activities) == (run.last_sequence, 1)
    tables = scene.tables
    left = (tables.runs, tables.instances, tables.events, tables.activities, tables.tasks)
    assert [len(each) for each in left] == [0] * len(left)
    assert tables.count("deleted_runs") == 0
    assert scene.ctx.upkeep.runs_pruned == 1


async def test_an_open_run_stays_however_old_it_is() -> None:
    scene = await a_house(days=1)
    run = await scene.start()
    scene.clock.advance(400 * DAY_MS)
    assert (await retention.prune(scene.ctx, run.run_id)).obstacle is Obstacle.OPEN
    await expired_runs(scene.ctx).sweep()
    assert scene.run(run.run_id).is_open


async def test_the_workflow_id_can_be_used_again_once_its_run_is_gone() -> None:
    scene = await a_house(days=1)
    run = await a_closed_run(scene)
    scene.clock.advance(2 * DAY_MS)
    await retention.prune(scene.ctx, run.run_id)
    again = await scene.start("order-1")
    assert again.run_id != run.run_id


async def test_of_a_chain_the_older_runs_go_first_and_the_workflow_id_with_the_last() -> None:
    scene = await a_house(days=1)
    current = await a_closed_run(scene)
    older = await a_closed_run(scene, "older")
    scene.tables.execute(
        "UPDATE runs SET workflow_id = ?, run_number = 0 WHERE run_id = ?", current.workflow_id, older.run_id
    )
    scene.tables.execute("DELETE FROM instances WHERE workflow_id = 'older'")
    scene.clock.advance(2 * DAY_MS)
    assert (await retention.prune(scene.ctx, current.run_id)).obstacle is Obstacle.OLDER_RUNS
    assert (await retention.prune(scene.ctx, older.run_id)).obstacle is None
    assert (await retention.prune(scene.ctx, current.run_id)).obstacle is None
    assert not scene.tables.instances


async def test_a_child_stays_while_its_open_parent_has_not_received_its_end() -> None:
    scene = await a_house(days=1)
    parent = await scene.start("parent")
    born = await a_closed_run(scene, "child")
    origin = Lineage(parent_run_id=parent.run_id, parent_workflow_id="parent", parent_step=1)
    child = replace(born, run_id=RunId("child-run"), lineage=origin)
    row = a_child(parent.run_id, 1, workflow_id="child", run_id=child.run_id)

    async def adopt(tx: Tx) -> None:
        tx.retention.forget(born)

    await scene.ctx.store.transact(adopt, key="adopt")

    async def insert(tx: Tx) -> None:
        await tx.runs.reserve(an_instance("child", child.run_id))
        tx.runs.insert(child)
        tx.children.insert(row)

    await scene.ctx.store.transact(insert, key="adopt")
    scene.clock.advance(2 * DAY_MS)
    assert (await retention.prune(scene.ctx, child.run_id)).obstacle is Obstacle.AWAITED

    async def close_child(tx: Tx) -> None:
        tx.children.save(replace(row, state=ChildState.CLOSED))

    await scene.ctx.store.transact(close_child, key="adopt")
    assert (await retention.prune(scene.ctx, child.run_id)).obstacle is None
    assert list(scene.tables.runs) == [parent.run_id]


async def test_the_sweeper_runs_once_a_minute_and_resumes_what_remains() -> None:
    scene = await a_house(days=1)
    runs = [await a_closed_run(scene, f"order-{number}") for number in range(3)]
    sweeper = expired_runs(scene.ctx)
    assert await sweeper.sweep() == 0
    scene.clock.advance(2 * DAY_MS)

    async def forget(tx: Tx) -> None:
        tx.retention.forget(runs[0])

    await scene.ctx.store.transact(forget, key="a server that died")
    assert await sweeper.sweep() == 3
    assert not scene.tables.runs
    assert not scene.tables.events
    assert await sweeper.sweep() == 0
    last = await a_closed_run(scene, "order-4")
    scene.clock.advance(EVERY_MS - 1)
    assert await sweeper.sweep() == 0
    scene.clock.advance(2 * DAY_MS)
    assert await sweeper.sweep() == 1
    assert last.run_id not in scene.tables.runs


async def test_another_namespace_keeps_what_this_one_does_not() -> None:
    scene = await a_house(days=1)
    await namespaces.create(scene.ctx, "patient", None, 365)
    run = await scene.start("kept", namespace="patient")
    closed = replace(
        scene.run(run.run_id),
        status=(await a_closed_run(scene)).status,
        closed_at_ms=scene.clock.now_ms(),
    )

    async def close(tx: Tx) -> None:
        for task in await tx.tasks.lock_live_of(run.run_id):
            tx.tasks.save(replace(task, state=type(task.state).CANCELLED), task.state)
        tx.runs.save(closed)

    await scene.ctx.store.transact(close, key=run.run_id)
    scene.clock.advance(2 * DAY_MS)
    await expired_runs(scene.ctx).sweep()
    assert list(scene.tables.runs) == [run.run_id]
    found = await retention.expired(scene.ctx, "patient", 10)
    assert (found.retention_days, [*found.run_ids]) == (365, [])
    pruned = await retention.prune(scene.ctx, run.run_id, "default")
    assert pruned.obstacle is Obstacle.GONE


async def test_a_history_is_archived_whole_before_it_goes(tmp_path: Path) -> None:
    scene = await a_house(1, tmp_path)
    run = await a_closed_run(scene)
    scene.clock.advance(2 * DAY_MS)
    await expired_runs(scene.ctx).sweep()
    [file] = tmp_path.rglob("*.json.gz")
    bundle = json.loads(gzip.decompress(file.read_bytes()))
    assert verify_bundle(bundle)["status"] == "ok"
    assert file.name == f"{run.run_id}.{bundle['integrity']['checksum']}.json.gz"
    assert file.parent.parent.name == "default"
    assert len(bundle["history_events"]) == run.last_sequence
    assert bundle["history_complete"] is True
    assert not scene.tables.runs
    assert scene.ctx.upkeep.runs_archived == 1


async def test_what_the_archive_holds_already_is_not_written_again(tmp_path: Path) -> None:
    scene = await a_house(1, tmp_path)
    run = await a_closed_run(scene)
    done = await archival.archive(scene.ctx, "default", "order-1")
    assert done.outcome == "archived"
    assert (await archival.archive(scene.ctx, "default", "order-1")).outcome == "archive_not_needed"
    before = [*tmp_path.rglob("*.json.gz")]
    scene.clock.advance(2 * DAY_MS)
    await retention.prune(scene.ctx, run.run_id)
    assert [*tmp_path.rglob("*.json.gz")] == before
    assert len(before) == 1


async def test_nothing_is_deleted_while_the_archive_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "a file, not a folder"
    blocked.write_text("in the way")
    scene = await a_house(1, blocked)
    runs = [await a_closed_run(scene, f"order-{number}") for number in range(2)]
    scene.clock.advance(2 * DAY_MS)
    with pytest.raises(Unavailable) as refusal:
        await retention.prune(scene.ctx, runs[0].run_id)
    assert refusal.value.reason == "archive_unavailable"
    sweeper = expired_runs(scene.ctx)
    await sweeper.sweep()
    assert len(scene.tables.runs) == 2
    assert "cannot be written" in str(scene.ctx.upkeep.trouble)
    assert scene.ctx.upkeep.archive_failures >= 2
    blocked.unlink()
    await sweeper.sweep()
    assert len(scene.tables.runs) == 2, "an archive that failed is left alone for a while"
    scene.clock.advance(EVERY_MS)
    await sweeper.sweep()
    assert not scene.tables.runs
    assert scene.ctx.upkeep.trouble is None
    assert not [*blocked.rglob("*.part")]


async def test_a_namespace_cannot_write_beside_its_folder(tmp_path: Path) -> None:
    scene = await a_house()
    bundle = await history_export.of_run(scene.ctx, await a_closed_run(scene))
    sly = dataclasses.replace(bundle, run=replace(bundle.run, namespace=".."))
    root = tmp_path / "archive"
    await DirectoryArchive(root).put(sly, history_export.pages(scene.ctx, bundle.run))
    assert [each.name for each in tmp_path.iterdir()] == ["archive"]
    assert [each.name for each in root.iterdir()] == ["%2E."]
