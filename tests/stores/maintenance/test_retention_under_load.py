"""Runs are deleted while others start, run and end: no open run is touched, and two servers do not collide."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from penstock.core.model import Run, RunId
from penstock.engine.context import EngineContext
from penstock.engine.maintenance.sweepers.expired_runs import expired_runs
from penstock.engine.operations import namespaces, retention
from penstock.engine.operations.retention import DAY_MS, Obstacle
from penstock.engine.workflows import run_close, starts
from penstock.engine.workflows.run_close import EndMode
from penstock.errors import Conflict
from penstock.ports.store import Store, Tx
from penstock.settings import load
from penstock.system_clock import SystemEntropy
from penstock.wakeups.local import LocalWakeups
from tests.engine.support.scene import a_start
from tests.stores.store_operations import look

RUNS = 40


def a_house(store: Store) -> EngineContext:
    return EngineContext(store, LocalWakeups(), SystemEntropy(), load({"DW_AUTH_DRIVER": "none"}))


async def start(ctx: EngineContext, workflow_id: str) -> Run:
    return (await starts.start_workflow(ctx, a_start(workflow_id))).run


async def end(ctx: EngineContext, workflow_id: str) -> None:
    await run_close.end_run(ctx, "default", workflow_id, EndMode.TERMINATE, "over")


async def age(ctx: EngineContext, run_id: RunId) -> None:
    """Backdate the end of a closed run."""

    async def operation(tx: Tx) -> None:
        run = await tx.runs.lock(run_id)
        assert run is not None
        tx.runs.save(replace(run, closed_at_ms=tx.now_ms - 400 * DAY_MS))

    await ctx.store.transact(operation, key=run_id)


async def old_runs(ctx: EngineContext, count: int) -> list[RunId]:
    runs = await asyncio.gather(*(start(ctx, f"old-{number}") for number in range(count)))
    await asyncio.gather(*(end(ctx, run.workflow_id) for run in runs))
    await asyncio.gather(*(age(ctx, run.run_id) for run in runs))
    return [run.run_id for run in runs]


async def test_what_is_old_goes_and_what_starts_and_ends_meanwhile_stays(store: Store):
    ctx = a_house(store)
    await namespaces.ensure(ctx, "default")
    old = await old_runs(ctx, RUNS)
    sweeper = expired_runs(ctx)

    async def traffic() -> list[RunId]:
        runs = [await start(ctx, f"new-{number}") for number in range(RUNS)]
        for run in runs[::2]:
            await end(ctx, run.workflow_id)
        return [run.run_id for run in runs]

    new, _ = await asyncio.gather(traffic(), sweeper.sweep())
    assert not any(await look(store, lambda tx: tx.runs.get_many(old)))
    assert all(await look(store, lambda tx: tx.runs.get_many(new)))
    assert await look(store, lambda tx: tx.retention.remains(10)) == []
    for run_id in old[:3]:
        assert not await look(store, lambda tx, run_id=run_id: tx.histories.page(run_id, 0, 10))  # type: ignore[misc]


async def test_two_who_prune_one_run_do_it_once(store: Store):
    ctx = a_house(store)
    await namespaces.ensure(ctx, "default")
    [run_id] = await old_runs(ctx, 1)
    results = await asyncio.gather(*(retention.prune(ctx, run_id) for _ in range(4)))
    assert sorted(str(each.obstacle) for each in results) == ["None", *[str(Obstacle.GONE)] * 3]
    assert ctx.upkeep.runs_pruned == 1


async def test_a_workflow_id_is_taken_again_while_its_old_run_goes(store: Store):
    """In either order, the id names exactly one existing run afterwards."""
    ctx = a_house(store)
    await namespaces.ensure(ctx, "default")
    old = await old_runs(ctx, RUNS)
    again = [start(ctx, f"old-{number}") for number in range(RUNS)]
    prunes = [retention.prune(ctx, run_id) for run_id in old]
    outcomes = await asyncio.gather(*again, *prunes, return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, BaseException)]
    assert {type(each) for each in refused} <= {Conflict}
    started = {each.workflow_id: each.run_id for each in outcomes if isinstance(each, Run)}
    for number in range(RUNS):
        name = f"old-{number}"
        instance = await look(store, lambda tx, name=name: tx.runs.instance("default", name))  # type: ignore[misc]
        assert (instance.run_id if instance else None) == started.get(name)
        if instance is not None:
            assert await look(store, lambda tx, run_id=instance.run_id: tx.runs.get(run_id)) is not None  # type: ignore[misc]
