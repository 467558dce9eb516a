"""Sweepers: unfinished work is found and handled through the same transactions."""

from __future__ import annotations

import asyncio

from penstock.core.history.commands import StartTimer
from penstock.core.model import RunStatus, TaskState
from penstock.engine.maintenance.scheduler import SweeperScheduler
from penstock.engine.maintenance.sweeper import BATCH, Sweeper
from penstock.engine.maintenance.sweepers.due_tasks import due_tasks
from penstock.engine.maintenance.sweepers.due_timers import due_timers
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.maintenance.sweepers.old_records import old_records
from penstock.engine.maintenance.sweepers.overdue_activities import overdue_activities
from penstock.engine.maintenance.sweepers.overdue_runs import overdue_runs
from penstock.errors import Reason, Unavailable
from penstock.ports.store import Tx
from tests.engine.support.scene import ACTIVITY, WORKFLOW, Scene, charge, tries
from tests.support.builders import NOW_MS


async def test_nothing_is_found_where_nothing_is_due(scene: Scene):
    await scene.start(run_timeout_s=60)
    await scene.decide(charge(start_to_close_ms=1_000), StartTimer(60))
    await scene.take(ACTIVITY)
    for sweeper in (
        due_tasks(scene.ctx),
        due_timers(scene.ctx),
        expired_leases(scene.ctx),
        overdue_activities(scene.ctx),
        overdue_runs(scene.ctx),
        old_records(scene.ctx),
    ):
        assert await sweeper.sweep() == 0


async def test_expired_leases_of_both_kinds_are_taken_back(scene: Scene):
    await scene.start("order-1")
    await scene.decide(charge())
    await scene.start("order-2")
    activity, workflow = await scene.take(ACTIVITY), await scene.take(WORKFLOW)
    sweeper = expired_leases(scene.ctx)
    scene.clock.set(workflow.task.lease_expires_at_ms or 0)
    assert await sweeper.sweep() == 1
    assert scene.task(workflow.task.task_id).state is TaskState.READY
    assert scene.task(activity.task.task_id).state is TaskState.LEASED
    scene.clock.set(activity.task.lease_expires_at_ms or 0)
    assert await sweeper.sweep() == 1
    assert scene.task(activity.task.task_id).state is TaskState.READY
    assert await sweeper.sweep() == 0


async def test_due_timers_fire_in_one_sweep(scene: Scene):
    run = await scene.start()
    await scene.decide(*[StartTimer(seconds) for seconds in (1, 2, 3)])
    scene.clock.advance(2_000)
    assert await due_timers(scene.ctx).sweep() == 2
    assert (await scene.types(run.run_id)).count("TimerFired") == 2
    assert scene.run(run.run_id).open_timers == 1


async def test_tasks_whose_backoff_has_ended_become_ready(scene: Scene):
    await scene.start()
    await scene.decide(charge(tries(2, 5)))
    first = await scene.take(ACTIVITY)
    await scene.fail_activity(first)
    scene.clock.advance(5_000)
    assert await due_tasks(scene.ctx).sweep() == 1
    assert scene.task(first.task.task_id).state is TaskState.READY


async def test_overdue_activities_time_out(scene: Scene):
    run = await scene.start()
    await scene.decide(charge(start_to_close_ms=1_000), charge(schedule_to_start_ms=1_000))
    await scene.take(ACTIVITY)
    scene.clock.advance(1_000)
    assert await overdue_activities(scene.ctx).sweep() == 2
    assert (await scene.types(run.run_id)).count("ActivityTimedOut") == 2
    assert await overdue_activities(scene.ctx).sweep() == 0


async def test_overdue_runs_are_closed(scene: Scene):
    run = await scene.start(run_timeout_s=1)
    scene.clock.advance(1_000)
    assert await overdue_runs(scene.ctx).sweep() == 1
    assert scene.run(run.run_id).status is RunStatus.FAILED
    assert await overdue_runs(scene.ctx).sweep() == 0


async def test_old_nonces_are_forgotten_and_young_ones_kept(scene: Scene):
    async def remember(tx: Tx) -> None:
        assert await tx.nonces.register("worker", "old", NOW_MS + 10)
        assert await tx.nonces.register("worker", "young", NOW_MS + 10_000)

    await scene.ctx.store.transact(remember, key="nonces")
    scene.clock.advance(1_000)
    assert await old_records(scene.ctx).sweep() == 1
    assert scene.tables.rows("SELECT key, nonce FROM nonces") == [("worker", "young")]
    assert await old_records(scene.ctx).sweep() == 0


async def test_an_item_that_fails_does_not_block_the_others(scene: Scene):
    mended: list[int] = []

    async def find(*_: object) -> list[int]:
        return [1, 2, 3]

    async def handle(_: object, number: int) -> bool:
        if number == 2:
            raise RuntimeError("stuck")
        mended.append(number)
        return True

    sweeper = Sweeper[int]("test", scene.ctx, find, handle)
    assert await sweeper.sweep() == 3
    assert mended == [1, 3]


async def test_a_sweep_that_fails_is_tried_again_later(scene: Scene):
    async def find(*_: object) -> list[int]:
        raise Unavailable(Reason.STORE_UNAVAILABLE, "The store is away.")

    async def handle(*_: object) -> bool:
        return True

    assert await Sweeper[int]("test", scene.ctx, find, handle).try_sweep() == 0


async def test_a_full_batch_asks_for_another_sweep(scene: Scene):
    async def find(_: object, limit: int) -> list[int]:
        return list(range(limit))

    async def handle(*_: object) -> bool:
        return True

    sweeper = Sweeper[int]("test", scene.ctx, find, handle)
    assert await sweeper.sweep() == BATCH
    assert await sweeper.try_sweep() == BATCH


async def test_a_sweeper_that_runs_is_woken_by_a_timer_that_is_due_at_once(scene: Scene):
    run = await scene.start()
    leased = await scene.take(WORKFLOW)
    sweeping = asyncio.create_task(SweeperScheduler(scene.ctx, [due_timers(scene.ctx)]).run())
    grown = asyncio.Event()
    silence = scene.wakeups.listen(f"run:{run.run_id}", grown.set)
    while not scene.wakeups._listeners.get("due"):
        await asyncio.sleep(0)
    try:
        await scene.complete(leased, StartTimer(0))
        while "TimerFired" not in await scene.types(run.run_id):
            grown.clear()
            await grown.wait()
    finally:
        silence()
        sweeping.cancel()
        await asyncio.wait([sweeping])
    assert scene.wakeups._listeners == {}
