"""History export: complete, as of one moment, and never held in memory."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from penstock.core.model import RunId
from penstock.engine.operations import history_export
from penstock.engine.operations.history_export import EVENTS_AT_ONCE
from penstock.errors import NotFound
from penstock.ports.store import Tx
from tests.engine.support.scene import DONE, Scene, a_scene, charge
from tests.support.builders import an_event


async def sequences(scene: Scene, run_id: RunId) -> list[list[int]]:
    found = scene.run(run_id)
    return [[event.sequence for event in page] async for page in history_export.pages(scene.ctx, found)]


async def test_the_current_run_and_a_named_one_are_found() -> None:
    scene = a_scene()
    run = await scene.start()
    await scene.decide(charge())
    bundle = await history_export.find(scene.ctx, "default", "order-1")
    assert (bundle.run.run_id, bundle.current_run_id) == (run.run_id, run.run_id)
    assert list(bundle.outline.activities) == [f"{run.run_id}-a1"]
    named = await history_export.find(scene.ctx, "default", "order-1", run.run_id)
    assert named.run == bundle.run


@pytest.mark.parametrize(
    ("workflow_id", "run_id", "namespace", "reason"),
    [
        ("nobody", None, "default", "instance_not_found"),
        ("order-1", "nobody", "default", "run_not_found"),
        ("order-1", None, "elsewhere", "instance_not_found"),
        ("charge-1", None, "default", "instance_not_found"),
    ],
)
async def test_what_is_not_there_is_refused(
    workflow_id: str, run_id: str | None, namespace: str, reason: str
) -> None:
    scene = a_scene()
    await scene.start()
    await scene.start_activity()
    with pytest.raises(NotFound) as refusal:
        await history_export.find(scene.ctx, namespace, workflow_id, run_id)
    assert refusal.value.reason == reason


async def test_a_long_history_comes_in_portions_and_without_what_came_since() -> None:
    scene = a_scene()
    run = await scene.start()

    async def lengthen(tx: Tx) -> None:
        found = await tx.runs.lock(run.run_id)
        assert found is not None
        tx.histories.append([an_event(run.run_id, number) for number in range(2, EVENTS_AT_ONCE + 51)])
        tx.runs.save(replace(found, last_sequence=EVENTS_AT_ONCE + 2))

    await scene.ctx.store.transact(lengthen, key=run.run_id)
    first, second = await sequences(scene, run.run_id)
    assert first == [*range(1, EVENTS_AT_ONCE + 1)]
    assert second == [EVENTS_AT_ONCE + 1, EVENTS_AT_ONCE + 2]


async def test_a_run_that_is_deleted_meanwhile_is_not_exported_in_part() -> None:
    scene = a_scene()
    run = await scene.start()
    await scene.decide(DONE)
    closed = scene.run(run.run_id)

    async def forget(tx: Tx) -> None:
        tx.retention.forget(closed)
        await tx.retention.clear(run.run_id, 100)

    await scene.ctx.store.transact(forget, key=run.run_id)
    with pytest.raises(NotFound):
        _ = [page async for page in history_export.pages(scene.ctx, closed)]
