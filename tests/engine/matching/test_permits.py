"""Prefetched tasks: leased briefly, not counted by limits, started before they run."""

from __future__ import annotations

import pytest

from penstock.core.limits.policies import LimitSetting
from penstock.core.scheduling.dispatch import HoldReason
from penstock.core.scheduling.polls import Leased
from penstock.engine.limits import policies
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.maintenance.sweepers.expired_leases import expired_leases
from penstock.engine.matching import permits
from penstock.engine.matching.permits import Permit
from penstock.errors import Conflict, PenstockError, Reason
from tests.engine.support import direct
from tests.engine.support.scene import ACTIVITY, Scene, a_scene, of

CLAIM_MS = 5_000


@pytest.fixture
async def scene() -> Scene:
    return a_scene()


async def ahead(scene: Scene, worker_id: str = "w1") -> Leased:
    return await scene.take(ACTIVITY, worker_id, claim_lease_ms=CLAIM_MS)


async def begin(scene: Scene, leased: Leased) -> Permit:
    return await permits.start(scene.ctx, "default", leased.task.task_id, of(leased))


async def capped(scene: Scene, most: int) -> None:
    ask = PolicyUpdate({LimitSetting.LEASE_CAP: SettingChange(most)})
    await policies.configure(scene.ctx, "default", "orders", ACTIVITY, ask, "ops")


async def test_more_are_handed_out_than_may_run_and_no_more_run_than_may(scene: Scene) -> None:
    await capped(scene, 1)
    for number in range(3):
        await scene.start_activity(f"charge-{number}")
    first, second, _ = [await ahead(scene) for _ in range(3)]
    assert (await begin(scene, first)).hold is None
    held = (await begin(scene, second)).hold
    assert held is not None
    assert held.reason is HoldReason.QUEUE_LEASE_CAP
    await scene.finish(first)
    assert (await begin(scene, second)).hold is None


async def test_a_permit_that_was_taken_is_not_taken_twice(scene: Scene) -> None:
    await capped(scene, 1)
    await scene.start_activity()
    leased = await ahead(scene)
    assert (await begin(scene, leased)).hold is None
    assert (await begin(scene, leased)).hold is None


async def test_what_has_no_permit_cannot_be_reported_on(scene: Scene) -> None:
    await scene.start_activity()
    leased = await ahead(scene)
    for report in (scene.finish, scene.fail_activity):
        with pytest.raises(Conflict) as refused:
            await report(leased)
        assert refused.value.reason is Reason.TASK_NOT_STARTED
    await begin(scene, leased)
    assert (await scene.finish(leased)).outcome == "completed"


async def test_a_heartbeat_keeps_what_was_not_started_for_as_short_again(scene: Scene) -> None:
    await scene.start_activity()
    leased = await ahead(scene)
    scene.clock.advance(CLAIM_MS - 1)
    beat = await scene.heartbeat(leased)
    assert beat.recorded
    assert beat.task.lease_expires_at_ms == scene.clock.now_ms() + CLAIM_MS
    assert scene.activity(leased).started_at_ms is None


async def test_a_claim_that_ran_out_goes_to_another_and_no_attempt_is_charged(scene: Scene) -> None:
    await scene.start_activity()
    first = await ahead(scene)
    scene.clock.advance(CLAIM_MS)
    await expired_leases(scene.ctx).sweep()
    second = await ahead(scene, "w2")
    assert (second.task.task_id, second.task.attempt) == (first.task.task_id, 1)
    with pytest.raises(PenstockError) as refused:
        await begin(scene, first)
    assert refused.value.reason in (Reason.STALE_ATTEMPT, Reason.ATTEMPT_NOT_FOUND)


async def test_a_permit_that_is_given_back_with_its_task_is_there_for_the_next_one(scene: Scene) -> None:
    await capped(scene, 1)
    for number in range(2):
        await scene.start_activity(f"charge-{number}")
    first, second = [await ahead(scene) for _ in range(2)]
    assert (await begin(scene, first)).hold is None
    assert (await begin(scene, second)).hold is not None
    await direct.hand_back_activity(scene.ctx, "default", first.task.task_id, of(first))
    assert (await begin(scene, second)).hold is None
    assert (await begin(scene, await ahead(scene))).hold is not None
