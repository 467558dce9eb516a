"""Change sets by the clock: applied when scheduled, ended when their time is over, on any number of servers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.limits.admission import group_scope, namespace_scope, queue_scope
from penstock.core.limits.change_sets import ChangeSetState, ItemTarget, Stored
from penstock.core.limits.policies import LimitSetting
from penstock.core.model import TaskKind
from penstock.engine.limits import admission, change_sets, policies
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.change_set_state import ChangeSetView
from penstock.engine.limits.change_sets import ChangeSetRequest
from penstock.engine.limits.policies import PolicyUpdate, SettingChange
from penstock.engine.maintenance.sweepers.due_timers import due_change_sets
from penstock.errors import ValidationFailed
from tests.engine.support.scene import Scene, a_poll, charge
from tests.support.claims import leased_of
from tests.support.people import operator

QUEUE = queue_scope("default", "orders", "activity")
CAP, RATE = ItemTarget(QUEUE, "max_running"), ItemTarget(QUEUE, "queue_rps_limit")
WEIGHT = ItemTarget(QUEUE, "fairness_weight_override", "acme")
OF_NAMESPACE = ItemTarget(namespace_scope("default"), "max_running")
AGING_WAIT, AGING_EVERY = ItemTarget(QUEUE, "aging_wait_seconds"), ItemTarget(QUEUE, "aging_every")
HOUR_MS = 3_600_000
ADA, BEN = operator("ada"), operator("ben")


async def propose(scene: Scene, asked: dict[ItemTarget, Stored], **options: Any) -> ChangeSetView:
    return await change_sets.propose(scene.ctx, "default", ChangeSetRequest(asked, "why", **options), ADA)


async def applied(scene: Scene, asked: dict[ItemTarget, Stored], **options: Any) -> str:
    change_set_id = (await propose(scene, asked, **options)).change_set.change_set_id
    view = await change_sets.apply(scene.ctx, "default", change_set_id, BEN)
    assert view.change_set.state is ChangeSetState.APPLIED
    return change_set_id


async def values(scene: Scene, *targets: ItemTarget) -> list[Stored]:
    """The present values of settings, as the next change set would see them."""
    asked: dict[ItemTarget, Stored] = {}
    asked.update((target, 999) for target in targets)
    view = await propose(scene, asked)
    await change_sets.withdraw(scene.ctx, "default", view.change_set.change_set_id, ADA)
    return [view.current[target].value for target in targets]


async def state(scene: Scene, change_set_id: str) -> ChangeSetView:
    return await change_sets.get(scene.ctx, "default", change_set_id)


async def rolled_back(scene: Scene, change_set_id: str) -> str:
    view = await change_sets.roll_back(scene.ctx, "default", change_set_id, "worse", ADA)
    await change_sets.apply(scene.ctx, "default", view.change_set.change_set_id, BEN)
    return view.change_set.change_set_id


async def set_cap(scene: Scene, cap: int, ends_at_ms: int | None = None) -> None:
    await configure(scene, LimitSetting.LEASE_CAP, SettingChange(cap, None, ends_at_ms))


async def configure(scene: Scene, setting: LimitSetting, change: SettingChange) -> None:
    update = PolicyUpdate({setting: change})
    await policies.configure(scene.ctx, "default", "orders", TaskKind.ACTIVITY, update, "eve")


async def limit_namespace(scene: Scene, cap: int, ends_at_ms: int) -> None:
    update = ScopeUpdate({LimitSetting.LEASE_CAP: SettingChange(cap)}, None, ends_at_ms)
    await admission.configure(scene.ctx, OF_NAMESPACE.scope, update, "eve")


async def test_limits_of_a_queue_a_key_and_the_namespace_are_in_force_with_the_same_grant(
    scene: Scene,
) -> None:
    await scene.register(activity_slots=10)
    for number in range(6):
        await scene.start_activity(f"a-{number}")
    await applied(scene, {CAP: 4, WEIGHT: 3_000, OF_NAMESPACE: 2})
    [granted] = await scene.ask(a_poll(TaskKind.ACTIVITY, tasks_max=6))
    assert len(leased_of(granted)) == 2
    [more] = await scene.ask(a_poll(TaskKind.ACTIVITY, tasks_max=6))
    assert not leased_of(more)


async def test_leases_from_before_a_namespace_was_limited_count(scene: Scene) -> None:
    await scene.register(activity_slots=10)
    for number in range(6):
        await scene.start_activity(f"a-{number}")
    [granted] = await scene.ask(a_poll(TaskKind.ACTIVITY, tasks_max=3))
    assert len(leased_of(granted)) == 3
    await applied(scene, {CAP: 9, OF_NAMESPACE: 4})
    [more] = await scene.ask(a_poll(TaskKind.ACTIVITY, tasks_max=6))
    assert len(leased_of(more)) == 1


@pytest.mark.parametrize("limited_before", [True, False])
async def test_leases_of_all_queues_that_join_a_group_at_once_count(
    scene: Scene, *, limited_before: bool
) -> None:
    names, group = ("q1", "q2"), ItemTarget(group_scope("default", "llm"), "max_running")
    for name in names:
        await scene.register(f"w-{name}", task_queue=name, activity_slots=10)
        for number in range(6):
            await scene.start_activity(f"{name}-{number}", charge(queue=name), task_queue=name)
        [granted] = await scene.ask(a_poll(TaskKind.ACTIVITY, f"w-{name}", task_queue=name, tasks_max=2))
        assert len(leased_of(granted)) == 2
    limit: dict[ItemTarget, Stored] = {group: 5}
    join: dict[ItemTarget, Stored] = {
        ItemTarget(queue_scope("default", name, "activity"), "dispatch_budget_group"): "llm" for name in names
    }
    for asked in [limit, join] if limited_before else [limit | join]:
        await applied(scene, asked)
    assert await admission.check(scene.ctx, group.scope) == 0
    [more] = await scene.ask(a_poll(TaskKind.ACTIVITY, "w-q1", task_queue="q1", tasks_max=6))
    assert len(leased_of(more)) == 1


async def test_a_change_set_gives_every_setting_its_old_value_back_when_its_time_is_over(
    scene: Scene,
) -> None:
    await set_cap(scene, 7)
    change_set_id = await applied(scene, {CAP: 5, WEIGHT: 3_000, OF_NAMESPACE: 50}, lasts_ms=HOUR_MS)
    sweeper = due_change_sets(scene.ctx)
    scene.clock.advance(HOUR_MS - 1)
    assert await sweeper.sweep() == 0
    assert await values(scene, CAP, WEIGHT, OF_NAMESPACE) == [5, 3_000, 50]
    scene.clock.advance(1)
    assert await sweeper.sweep() == 1
    assert await values(scene, CAP, WEIGHT, OF_NAMESPACE) == [7, None, None]
    view = await state(scene, change_set_id)
    assert (view.change_set.state, view.moved) == (ChangeSetState.EXPIRED, ())
    assert await sweeper.sweep() == 0


async def test_an_expiry_leaves_a_setting_that_somebody_changed_meanwhile_and_says_whose_it_is(
    scene: Scene,
) -> None:
    change_set_id = await applied(scene, {CAP: 5, WEIGHT: 3_000}, lasts_ms=HOUR_MS)
    await set_cap(scene, 6)
    scene.clock.advance(HOUR_MS)
    await due_change_sets(scene.ctx).sweep()
    assert await values(scene, CAP, WEIGHT) == [6, None]
    [left] = (await state(scene, change_set_id)).moved
    assert (left.item.target, left.now.value, left.now.author) == (CAP, 6, "eve")


async def test_a_scheduled_change_set_is_applied_at_its_time_by_one_of_several_servers(scene: Scene) -> None:
    at_ms = scene.clock.now_ms() + HOUR_MS
    found = await propose(scene, {CAP: 5}, apply_at_ms=at_ms, lasts_ms=HOUR_MS)
    change_set_id = found.change_set.change_set_id
    assert found.change_set.state is ChangeSetState.SCHEDULED
    sweepers = [due_change_sets(scene.ctx), due_change_sets(scene.ctx)]
    assert [await each.sweep() for each in sweepers] == [0, 0]
    scene.clock.advance(HOUR_MS)
    done = [
        await change_sets.act_when_due(scene.ctx, change_set_id),
        await change_sets.act_when_due(scene.ctx, change_set_id),
    ]
    assert done == [True, False]
    assert await values(scene, CAP) == [5]
    scene.clock.advance(HOUR_MS)
    assert [await each.sweep() for each in sweepers] == [1, 0]
    assert await values(scene, CAP) == [None]


async def test_a_scheduled_change_set_that_is_stale_at_its_time_changes_nothing_and_says_why(
    scene: Scene,
) -> None:
    at_ms = scene.clock.now_ms() + HOUR_MS
    found = await propose(scene, {CAP: 5, WEIGHT: 3_000}, apply_at_ms=at_ms)
    await set_cap(scene, 6)
    scene.clock.advance(HOUR_MS)
    await due_change_sets(scene.ctx).sweep()
    assert await values(scene, CAP, WEIGHT) == [6, None]
    view = await state(scene, found.change_set.change_set_id)
    assert view.change_set.state is ChangeSetState.REFUSED
    assert [(each.item.target, each.now.author) for each in view.moved] == [(CAP, "eve")]


async def test_a_cap_for_an_hour_still_ends_after_a_change_set_gave_it_back(scene: Scene) -> None:
    ends_at_ms = scene.clock.now_ms() + HOUR_MS
    await set_cap(scene, 3, ends_at_ms)
    await limit_namespace(scene, 30, ends_at_ms)
    await applied(scene, {CAP: 5, OF_NAMESPACE: 50}, lasts_ms=HOUR_MS // 2)
    scene.clock.advance(HOUR_MS // 2)
    await due_change_sets(scene.ctx).sweep()
    assert await values(scene, CAP, OF_NAMESPACE) == [3, 30]
    scene.clock.advance(HOUR_MS // 2)
    assert await values(scene, CAP, OF_NAMESPACE) == [None, None]


@pytest.mark.parametrize("way", ["expiry", "rollback"])
async def test_a_cap_that_ended_meanwhile_is_not_given_back(scene: Scene, way: str) -> None:
    await set_cap(scene, 3, scene.clock.now_ms() + HOUR_MS // 2)
    change_set_id = await applied(scene, {CAP: 5, WEIGHT: 3_000}, lasts_ms=HOUR_MS)
    scene.clock.advance(HOUR_MS)
    if way == "expiry":
        await due_change_sets(scene.ctx).sweep()
    else:
        await rolled_back(scene, change_set_id)
    assert await values(scene, CAP, WEIGHT) == [None, None]


async def test_a_cap_for_an_hour_becomes_a_lasting_one_if_a_change_set_asks_for_its_value(
    scene: Scene,
) -> None:
    await set_cap(scene, 5, scene.clock.now_ms() + HOUR_MS)
    await applied(scene, {CAP: 5})
    scene.clock.advance(HOUR_MS)
    assert await values(scene, CAP) == [5]


async def test_the_expiry_of_what_was_rolled_back_leaves_what_somebody_sets_later(scene: Scene) -> None:
    change_set_id = await applied(scene, {CAP: 5}, lasts_ms=HOUR_MS)
    await rolled_back(scene, change_set_id)
    assert (await state(scene, change_set_id)).change_set.due_at_ms is None
    await set_cap(scene, 5)
    scene.clock.advance(HOUR_MS)
    assert await due_change_sets(scene.ctx).sweep() == 0
    assert await values(scene, CAP) == [5]


async def test_a_rollback_that_is_rolled_back_puts_the_settings_in_force_until_their_expiry(
    scene: Scene,
) -> None:
    change_set_id = await applied(scene, {CAP: 5}, lasts_ms=HOUR_MS)
    again = await rolled_back(scene, await rolled_back(scene, change_set_id))
    assert await values(scene, CAP) == [5]
    scene.clock.advance(HOUR_MS)
    assert await due_change_sets(scene.ctx).sweep() == 1
    assert await values(scene, CAP) == [None]
    assert (await state(scene, again)).change_set.state is ChangeSetState.APPLIED


@pytest.mark.parametrize("half", [AGING_WAIT, AGING_EVERY])
async def test_one_half_of_aging_is_refused_when_it_is_proposed(scene: Scene, half: ItemTarget) -> None:
    with pytest.raises(ValidationFailed, match="Aging needs both"):
        await propose(scene, {half: 10_000})
    await applied(scene, {AGING_WAIT: 10_000, AGING_EVERY: 3})
    with pytest.raises(ValidationFailed, match="Aging needs both"):
        await propose(scene, {half: None})
    await applied(scene, {half: 20_000})
    assert await values(scene, half) == [20_000]


async def test_an_expiry_leaves_aging_on_that_somebody_adjusted_and_takes_back_the_rest(scene: Scene) -> None:
    change_set_id = await applied(scene, {AGING_WAIT: 10_000, AGING_EVERY: 3, CAP: 5}, lasts_ms=HOUR_MS)
    await configure(scene, LimitSetting.AGING_EVERY, SettingChange(7))
    scene.clock.advance(HOUR_MS)
    assert await due_change_sets(scene.ctx).sweep() == 1
    view = await state(scene, change_set_id)
    assert view.change_set.state is ChangeSetState.EXPIRED
    assert {each.item.target for each in view.moved} == {AGING_WAIT, AGING_EVERY}
    assert await values(scene, AGING_WAIT, AGING_EVERY) == [10_000, 7]
    assert (
        await policies.read(scene.ctx, "default", "orders", TaskKind.ACTIVITY)
    ).queue.rules.lease_cap is None
