"""Regression tests for defects found in a review of the limits."""

from __future__ import annotations

import asyncio

import pytest

from penstock.core.limits.policies import LimitSetting
from penstock.core.limits.rate_reports import RateReport
from penstock.core.model import QueueId, TaskKind, TaskPriority
from penstock.core.scheduling.fairness import TAGGED_AT_ONCE_MAX, LaneState
from penstock.engine.limits import policies
from penstock.engine.limits.policies import UNSET, KeySettingsChange, PolicyUpdate, SettingChange
from penstock.engine.limits.rate_reports import report_rate
from penstock.engine.maintenance.sweepers.idle_keys import idle_keys
from penstock.engine.maintenance.sweepers.idle_lanes import idle_lanes
from penstock.engine.matching.dispatcher import Dispatcher
from tests.engine.support.scene import Scene, a_poll
from tests.support.claims import leased_of

PER_SECOND = 1_000_000


async def enqueue(scene: Scene, key: str, times: int = 1, level: int = 3) -> None:
    for number in range(times):
        await scene.start_activity(f"{key}-{level}-{number}", priority=TaskPriority(level=level, key=key))


async def configure(scene: Scene, **settings: int | str) -> None:
    asks = {LimitSetting[name.upper()]: SettingChange(value) for name, value in settings.items()}
    await policies.configure(scene.ctx, "default", "orders", TaskKind.ACTIVITY, PolicyUpdate(asks), "me")


async def reported_rate(scene: Scene) -> int | None:
    view = await policies.read(scene.ctx, "default", "orders", TaskKind.ACTIVITY)
    return None if view.queue.worker_rate is None else view.queue.worker_rate.micro


async def keys_taken(scene: Scene, most: int) -> list[str]:
    [verdict] = await scene.ask(a_poll(TaskKind.ACTIVITY, tasks_max=most))
    return [each.task.key for each in leased_of(verdict)]


def places(scene: Scene, queue_id: QueueId) -> dict[str, int]:
    return {
        key: lane.state for (of, _, key), lane in scene.tables.lanes.items() if of == queue_id and lane.count
    }


async def test_a_poll_reports_its_rate_once_and_not_at_every_claim(scene: Scene):
    await scene.register()
    await scene.register("w2")
    dispatcher = Dispatcher(scene.ctx)
    asked = a_poll(TaskKind.ACTIVITY, activities_per_second_micro=5 * PER_SECOND)
    waiting = asyncio.create_task(dispatcher.poll(asked, 60_000))
    while await reported_rate(scene) is None:
        await asyncio.sleep(0)
    await report_rate(scene.ctx, "default", "orders", RateReport(77 * PER_SECOND, "w2"))
    await enqueue(scene, "a")
    assert (await waiting).leased
    assert await reported_rate(scene) == 77 * PER_SECOND, "who spoke last is heard, not who waits longest"
    await dispatcher.close()


async def test_lanes_of_idle_keys_are_forgotten_where_keys_never_had_shares(scene: Scene):
    await scene.register()
    await configure(scene, fairness="off")
    for number in range(5):
        await enqueue(scene, f"once-{number}")
    assert len(await keys_taken(scene, 5)) == 5
    await idle_lanes(scene.ctx).sweep()
    assert not [lane_id for lane_id in scene.tables.lanes if lane_id[2].startswith("once")]


async def test_no_lower_level_goes_first_when_more_keys_fall_due_than_one_claim_places(scene: Scene):
    await scene.register()
    await configure(scene, key_rate=PER_SECOND)
    low = [f"low-{number:03}" for number in range(TAGGED_AT_ONCE_MAX + 20)]
    for key in low:
        await enqueue(scene, key, 2, level=5)
    for _ in range(3):
        await keys_taken(scene, 2 * len(low))
    await scene.advance(1)
    await enqueue(scene, "urgent", 2, level=0)
    assert await keys_taken(scene, 1) == ["urgent"]
    await scene.advance(2_000)
    assert (await keys_taken(scene, 1) or await keys_taken(scene, 1)) == ["urgent"]


async def test_a_change_without_keys_leaves_blocked_lanes_alone(scene: Scene):
    await scene.register()
    await configure(scene, key_rate=PER_SECOND)
    await enqueue(scene, "a", 3)
    await keys_taken(scene, 1)
    queue = await scene.queue(TaskKind.ACTIVITY)
    assert places(scene, queue.queue_id) == {"a": LaneState.THROTTLED}
    await configure(scene, queue_rate=100 * PER_SECOND)
    assert places(scene, queue.queue_id) == {"a": LaneState.THROTTLED}
    await configure(scene, key_rate=2 * PER_SECOND)
    assert places(scene, queue.queue_id) == {"a": LaneState.DIRTY}


async def test_without_key_limits_no_lane_is_blocked(scene: Scene):
    await scene.register()
    await configure(scene, key_lease_cap=1)
    await enqueue(scene, "a", 3)
    assert await keys_taken(scene, 3) == ["a"]
    ask = PolicyUpdate({LimitSetting.KEY_LEASE_CAP: SettingChange(UNSET)})
    await policies.configure(scene.ctx, "default", "orders", TaskKind.ACTIVITY, ask, "me")
    queue = await scene.queue(TaskKind.ACTIVITY)
    assert places(scene, queue.queue_id) == {"a": LaneState.READY}
    assert await keys_taken(scene, 3) == ["a", "a"]


@pytest.mark.parametrize("old", [PER_SECOND // 100, PER_SECOND])
async def test_a_rate_that_is_raised_opens_by_the_new_one(scene: Scene, old: int):
    await scene.register()
    await configure(scene, queue_rate=old)
    await enqueue(scene, "a", 3)
    assert await keys_taken(scene, 3) == ["a"]
    await configure(scene, queue_rate=1_000 * PER_SECOND, queue_burst=0)
    await keys_taken(scene, 3)
    await scene.advance(10)
    assert await keys_taken(scene, 3)


async def test_idle_keys_of_a_queue_are_forgotten_together(scene: Scene):
    await scene.register()
    await configure(scene, key_rate=PER_SECOND)
    for number in range(5):
        await enqueue(scene, f"once-{number}")
    assert len(await keys_taken(scene, 5)) == 5
    kept = PolicyUpdate(keys={"kept": KeySettingsChange(weight_milli=2_000)})
    await policies.configure(scene.ctx, "default", "orders", TaskKind.ACTIVITY, kept, "me")
    await scene.advance(2_000)
    assert await idle_keys(scene.ctx).sweep() == 1
    queue = await scene.queue(TaskKind.ACTIVITY)
    found = await scene.read(lambda tx: tx.policies.key_states(queue.queue_id, ["once-0", "once-4", "kept"]))
    assert list(found) == ["kept"]
