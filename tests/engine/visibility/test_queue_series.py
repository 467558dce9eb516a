"""Samples that a server takes of its queues."""

from __future__ import annotations

import pytest

from penstock.core.limits.policies import LimitSetting
from penstock.core.model import TaskPriority
from penstock.core.series.samples import FINE
from penstock.core.series.waits import quantile_ms
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why.forecast_score import ForecastCoverage
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.maintenance.queue_samples import queue_samples
from penstock.engine.visibility import queue_series, start_reports, waiting_tasks
from penstock.engine.visibility.queue_series import QueueSeries
from tests.engine.support.scene import ACTIVITY, Scene


async def series(scene: Scene) -> QueueSeries:
    return await queue_series.read(scene.ctx, "default", "orders", ACTIVITY, None, None)


async def test_arrivals_dispatches_backlog_and_limits_are_sampled(scene: Scene) -> None:
    scene.clock.advance(FINE.step_ms - scene.clock.now_ms() % FINE.step_ms)
    for number in range(3):
        priority = TaskPriority(key="acme" if number else "globex")
        await scene.start_activity(f"charge-{number}", priority=priority)
    cap = PolicyUpdate({LimitSetting.LEASE_CAP: SettingChange(1)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, cap, "ops")
    await scene.take(ACTIVITY)
    scene.clock.advance(2_000)
    sweeper = queue_samples(scene.ctx)
    assert await sweeper.sweep() == 1
    scene.clock.advance(FINE.step_ms)
    assert await sweeper.sweep() == 1
    first, second = (await series(scene)).samples
    assert (first.added, first.dispatched, first.ready, first.running) == (3, 1, 2, 1)
    assert (second.added, second.dispatched, second.ready) == (0, 0, 2)
    assert (first.dispatchable, first.oldest_wait_ms) == (0, 2_000)
    assert [(gate.kind, gate.used, gate.most, gate.is_closed) for gate in first.gates] == [
        ("active_leases", 1, 1, True)
    ]
    assert {share.key for share in first.keys} <= {"acme", "globex"}
    assert sum(share.waiting for share in first.keys) == 2


async def test_a_task_that_came_just_before_the_minute_ended_is_counted_in_the_first_sample_of_its_queue(
    scene: Scene,
) -> None:
    scene.clock.advance(MINUTE_MS - scene.clock.now_ms() % MINUTE_MS - 1)
    await scene.start_activity()
    scene.clock.advance(1)
    sweeper = queue_samples(scene.ctx)
    assert await sweeper.sweep() == 1
    scene.clock.advance(FINE.step_ms)
    assert await sweeper.sweep() == 1
    assert [each.added for each in (await series(scene)).samples] == [1, 0]


async def test_two_servers_sample_a_step_once(scene: Scene) -> None:
    await scene.start_activity()
    step = await queue_series.next_step(scene.ctx)
    assert step is not None
    assert await queue_series.take_samples(scene.ctx, step)
    assert not await queue_series.take_samples(scene.ctx, step)
    assert await queue_series.next_step(scene.ctx) is None
    assert len((await series(scene)).samples) == 1


async def test_a_queue_without_work_costs_no_row(scene: Scene) -> None:
    step = await queue_series.next_step(scene.ctx)
    assert step is not None
    assert await queue_series.take_samples(scene.ctx, step)
    assert not (await series(scene)).samples


async def test_waits_of_what_started_stand_in_the_series_whichever_server_took_the_sample(
    scene: Scene,
) -> None:
    await scene.start_activity("first", priority=TaskPriority(key="acme"))
    await scene.start_activity("second", priority=TaskPriority(key="acme"))
    step = await queue_series.next_step(scene.ctx)
    assert step is not None
    assert await queue_series.take_samples(scene.ctx, step)
    scene.clock.advance(4_000)
    queue = await scene.queue(ACTIVITY)
    scene.ctx.starts.delivered(queue.queue_id, [await scene.take(ACTIVITY)])
    assert await queue_series.next_step(scene.ctx) == step, "there is something to add to the step"
    assert not await queue_series.take_samples(scene.ctx, step)
    (waits,) = (await series(scene)).waits
    assert (waits.key, waits.count) == ("acme", 1)
    assert quantile_ms(waits.buckets, 0.5) == pytest.approx(4_000, rel=0.1)
    assert await queue_series.next_step(scene.ctx) is None


async def test_forecasts_that_somebody_read_are_judged_by_what_happened(scene: Scene) -> None:
    await scene.register()
    starts, queue = scene.ctx.starts, await scene.queue(ACTIVITY)

    async def forecast(name: str) -> None:
        await scene.start_activity(name)
        await waiting_tasks.waiting(scene.ctx, "default", "orders", ACTIVITY, 20)

    await forecast("first")
    assert starts.coverage().share is None
    starts.delivered(queue.queue_id, [await scene.take(ACTIVITY)])
    assert starts.coverage() == ForecastCoverage(held=1)
    await forecast("second")
    scene.clock.advance(600_000)
    await start_reports.judge_overdue(scene.ctx)
    assert starts.coverage() == ForecastCoverage(held=1, late=1), "it still waits"
    assert not starts.overdue(scene.clock.now_ms(), 9), "and is not judged again"
