"""Polls held by a shared limit: they wait without busy-looping, and keys keep their limits."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from penstock.core.limits.admission import namespace_scope
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import TaskPriority
from penstock.core.scheduling.dispatch import PollStatus
from penstock.engine.limits import admission, policies
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.policies import KeySettingsChange, PolicyUpdate, SettingChange
from penstock.engine.matching import permits
from penstock.engine.matching.dispatcher import Dispatcher
from tests.engine.matching.test_crowded_queues import CountedStore
from tests.engine.support.scene import ACTIVITY, Scene, a_poll, a_scene, charge, of
from tests.support.patience import PATIENCE_S

LONG_MS = 60_000
TURNS = 2_000


@pytest.fixture
async def scene() -> Scene:
    return a_scene()


async def capped(scene: Scene, most: int) -> None:
    ask = ScopeUpdate({LimitSetting.LEASE_CAP: SettingChange(most)})
    await admission.configure(scene.ctx, namespace_scope("default"), ask, "ops")


@pytest.mark.parametrize("other", [{}, {"claim_lease_ms": 5_000}], ids=["other types", "fetching ahead"])
async def test_polls_of_two_kinds_that_a_scope_holds_back_do_not_make_the_server_spin(
    scene: Scene, other: dict[str, int]
) -> None:
    await scene.register("w1", activity_types=("Charge",))
    await scene.register("w2", activity_types=("Mail",))
    await capped(scene, 1)
    for number in range(3):
        await scene.start_activity(f"charge-{number}")
        if not other:
            await scene.start_activity(f"mail-{number}", charge(activity_type="Mail"))
    first = await scene.take(ACTIVITY, "w1")
    store = CountedStore(scene.ctx.store)
    dispatcher = Dispatcher(replace(scene.ctx, store=store))
    polls = [
        asyncio.create_task(dispatcher.poll(a_poll(ACTIVITY, "w1"), LONG_MS)),
        asyncio.create_task(dispatcher.poll(a_poll(ACTIVITY, "w2", **other), LONG_MS)),
    ]
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert store.claims < 20
    await scene.finish(first)
    done, _ = await asyncio.wait(polls, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    assert [poll.result().status for poll in done] == [PollStatus.LEASED]
    await dispatcher.close()
    await asyncio.gather(*polls)


async def test_tasks_that_were_prefetched_count_for_their_key(scene: Scene) -> None:
    change = PolicyUpdate({LimitSetting.LEASE_CAP: SettingChange(10)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, change, "ops")
    for number in range(6):
        await scene.start_activity(f"charge-{number}", priority=TaskPriority(key="k"))
    for _ in range(3):
        ahead = await scene.take(ACTIVITY, claim_lease_ms=LONG_MS)
        await permits.start(scene.ctx, "default", ahead.task.task_id, of(ahead))
    change = PolicyUpdate(keys={"k": KeySettingsChange(lease_cap=2)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, change, "ops")
    assert await scene.claim(ACTIVITY) is None
