"""Approvals of change sets: who gives them, when they count, and that nothing gets around them."""

from __future__ import annotations

import pytest

from penstock.core.limits.admission import cluster_scope, namespace_scope, queue_scope
from penstock.core.limits.change_approvals import APPROVAL_LASTS_MS, ApprovalState
from penstock.core.limits.change_plans import CheckKind
from penstock.core.limits.change_sets import ChangeSetState, ItemTarget, Stored
from penstock.core.limits.policies import PAUSED, LimitSetting
from penstock.core.model import TaskKind
from penstock.core.permissions import Principal
from penstock.engine.limits import admission, change_approvals, change_plans, change_sets, policies
from penstock.engine.limits.admission import ScopeUpdate
from penstock.engine.limits.change_set_state import ChangeSetView
from penstock.engine.limits.change_sets import ApplyRequest, ChangeSetRequest
from penstock.engine.limits.policies import UNSET, KeySettingsChange, PolicyUpdate, SettingChange
from penstock.engine.maintenance.sweepers.due_timers import due_change_sets
from penstock.errors import Conflict, Forbidden, PenstockError, Reason
from tests.engine.support.scene import Scene, a_poll
from tests.support.claims import leased_of
from tests.support.people import admin, operator

ADA, BEN, CAT, ROOT = operator("ada"), operator("ben"), operator("cat"), admin("root")
QUEUE, NAMESPACE = queue_scope("default", "orders", "activity"), namespace_scope("default")
CAP, RATE = ItemTarget(QUEUE, "max_running"), ItemTarget(QUEUE, "queue_rps_limit")
OF_CLUSTER = ItemTarget(cluster_scope(), "max_running")
WANTED = ItemTarget(NAMESPACE, "change_approvals")
HOUR_MS = 3_600_000
FIVE: dict[ItemTarget, Stored] = {CAP: 5}


async def want(scene: Scene, approvals: int, scope: str = NAMESPACE) -> None:
    update = ScopeUpdate({LimitSetting.CHANGE_APPROVALS: SettingChange(approvals)})
    await admission.configure(scene.ctx, scope, update, "ada")


async def proposed(
    scene: Scene, asked: dict[ItemTarget, Stored] = FIVE, by: Principal = ADA, at_ms: int | None = None
) -> str:
    request = ChangeSetRequest(asked, "why", apply_at_ms=at_ms)
    return (await change_sets.propose(scene.ctx, "default", request, by)).change_set.change_set_id


async def approve(scene: Scene, change_set_id: str, *people: Principal) -> ChangeSetView:
    for each in people:
        view = await change_approvals.approve(scene.ctx, "default", change_set_id, each)
    return view


async def apply(
    scene: Scene, change_set_id: str, by: Principal = ADA, break_glass: str | None = None
) -> ChangeSetView:
    request = ApplyRequest(break_glass=break_glass)
    return await change_sets.apply(scene.ctx, "default", change_set_id, by, request)


async def refused(scene: Scene, change_set_id: str) -> int:
    """How many approvals an apply says are missing."""
    with pytest.raises(Conflict) as caught:
        await apply(scene, change_set_id)
    assert caught.value.reason is Reason.CHANGE_NEEDS_APPROVAL
    missing: int = caught.value.details["missing"]
    return missing


async def configure(scene: Scene, update: PolicyUpdate) -> None:
    await policies.configure(scene.ctx, "default", "orders", TaskKind.ACTIVITY, update, "eve")


@pytest.mark.parametrize("wanted", [1, 2])
async def test_a_change_set_is_applied_once_as_many_others_as_are_wanted_have_approved(
    scene: Scene, wanted: int
) -> None:
    await want(scene, wanted)
    change_set_id = await proposed(scene)
    for index, each in enumerate([BEN, CAT][:wanted]):
        assert await refused(scene, change_set_id) == wanted - index
        await approve(scene, change_set_id, each, each)
    view = await apply(scene, change_set_id)
    assert view.change_set.state is ChangeSetState.APPLIED
    assert [each.by for each in view.change_set.approvals] == ["ben", "cat"][:wanted]


async def test_the_author_cannot_approve_and_is_the_one_who_wrote_what_stands(scene: Scene) -> None:
    await want(scene, 1)
    change_set_id = await proposed(scene)
    with pytest.raises(Forbidden) as caught:
        await approve(scene, change_set_id, ADA)
    assert caught.value.reason is Reason.OWN_CHANGE_SET
    await change_sets.edit(scene.ctx, "default", change_set_id, ChangeSetRequest({CAP: 6}, "why"), BEN)
    with pytest.raises(Forbidden):
        await approve(scene, change_set_id, BEN)
    await approve(scene, change_set_id, ADA)
    assert (await apply(scene, change_set_id)).change_set.items[0].after == 6


async def test_an_edit_drops_the_approvals(scene: Scene) -> None:
    await want(scene, 1)
    change_set_id = await proposed(scene)
    await approve(scene, change_set_id, BEN)
    await change_sets.edit(scene.ctx, "default", change_set_id, ChangeSetRequest({CAP: 500}, "why"), ADA)
    assert await refused(scene, change_set_id) == 1


async def test_an_approval_that_is_taken_back_does_not_count(scene: Scene) -> None:
    await want(scene, 1)
    change_set_id = await proposed(scene)
    await approve(scene, change_set_id, BEN)
    await change_approvals.unapprove(scene.ctx, "default", change_set_id, BEN)
    assert await refused(scene, change_set_id) == 1


async def test_an_approval_does_not_outlive_the_settings_beside_those_that_it_saw(scene: Scene) -> None:
    change_set_id = await proposed(scene)
    await approve(scene, change_set_id, BEN)
    await configure(scene, PolicyUpdate({LimitSetting.QUEUE_RATE: SettingChange(1_000_000)}))
    await want(scene, 1)
    [verdict] = (await change_sets.get(scene.ctx, "default", change_set_id)).verdicts
    assert (verdict.state, verdict.moved) == (ApprovalState.OUTDATED, (QUEUE,))
    assert await refused(scene, change_set_id) == 1
    await approve(scene, change_set_id, BEN)
    assert (await apply(scene, change_set_id)).change_set.state is ChangeSetState.APPLIED


async def test_an_approval_expires(scene: Scene) -> None:
    await want(scene, 1)
    change_set_id = await proposed(scene)
    await approve(scene, change_set_id, BEN)
    scene.clock.advance(APPROVAL_LASTS_MS)
    [verdict] = (await change_sets.get(scene.ctx, "default", change_set_id)).verdicts
    assert verdict.state is ApprovalState.EXPIRED
    assert await refused(scene, change_set_id) == 1


async def test_a_plan_that_moved_is_neither_approved_nor_applied_by_the_hash_that_was_reviewed(
    scene: Scene,
) -> None:
    change_set_id = await proposed(scene)
    reviewed = (await change_sets.get(scene.ctx, "default", change_set_id)).plan
    await configure(scene, PolicyUpdate({LimitSetting.QUEUE_RATE: SettingChange(1_000_000)}))
    for act in (
        change_approvals.approve(scene.ctx, "default", change_set_id, BEN, reviewed),
        change_sets.apply(scene.ctx, "default", change_set_id, BEN, ApplyRequest(plan=reviewed)),
    ):
        with pytest.raises(Conflict) as caught:
            await act
        assert caught.value.reason is Reason.CHANGE_PLAN_MOVED


async def test_a_scheduled_change_set_without_its_approvals_is_refused_at_its_time(scene: Scene) -> None:
    await want(scene, 1)
    at_ms = scene.clock.now_ms() + HOUR_MS
    with_one, without = await proposed(scene, at_ms=at_ms), await proposed(scene, {RATE: 7}, at_ms=at_ms)
    await approve(scene, with_one, BEN)
    scene.clock.advance(HOUR_MS)
    await due_change_sets(scene.ctx).sweep()
    found = [(await change_sets.get(scene.ctx, "default", each)).change_set for each in (with_one, without)]
    assert [(each.state, each.lacked) for each in found] == [
        (ChangeSetState.APPLIED, 0),
        (ChangeSetState.REFUSED, 1),
    ]


async def test_an_apply_at_a_time_names_who_asked_for_it(scene: Scene) -> None:
    change_set_id = await proposed(scene)
    request = ApplyRequest(at_ms=scene.clock.now_ms() + HOUR_MS)
    view = await change_sets.schedule(scene.ctx, "default", change_set_id, CAT, request)
    assert view.change_set.state is ChangeSetState.SCHEDULED
    scene.clock.advance(HOUR_MS)
    await due_change_sets(scene.ctx).sweep()
    done = (await change_sets.get(scene.ctx, "default", change_set_id)).change_set
    assert (done.state, done.applied_by) == (ChangeSetState.APPLIED, "cat")


async def test_an_admin_breaks_the_glass_and_every_log_says_so(scene: Scene) -> None:
    await want(scene, 2)
    change_set_id = await proposed(scene)
    with pytest.raises(Forbidden):
        await apply(scene, change_set_id, BEN, "fire")
    await approve(scene, change_set_id, BEN)
    done = (await apply(scene, change_set_id, ROOT, "the database burns")).change_set
    glass = done.break_glass
    assert glass is not None
    assert (glass.by, glass.reason, glass.lacked) == ("root", "the database burns", 1)
    [entry, *_] = await policies.history(scene.ctx, "default", "orders", TaskKind.ACTIVITY, 1)
    assert "BREAK-GLASS by root: the database burns" in (entry.reason or "")


async def test_limits_cannot_be_changed_around_the_approvals(scene: Scene) -> None:
    await want(scene, 1)
    cap = PolicyUpdate({LimitSetting.LEASE_CAP: SettingChange(5)})
    for act in (
        configure(scene, cap),
        configure(scene, PolicyUpdate(keys={"acme": KeySettingsChange(lease_cap=5)})),
        admission.configure(
            scene.ctx, NAMESPACE, ScopeUpdate({LimitSetting.LEASE_CAP: SettingChange(5)}), "eve"
        ),
        want(scene, 0),
    ):
        with pytest.raises(Conflict) as caught:
            await act
        assert caught.value.reason is Reason.CHANGE_NEEDS_APPROVAL
    found = await policies.read(scene.ctx, "default", "orders", TaskKind.ACTIVITY)
    assert found.queue.policy.version == 0


async def test_pausing_resuming_and_wanting_more_approvals_stay_free(scene: Scene) -> None:
    await want(scene, 1)
    await configure(scene, PolicyUpdate({LimitSetting.PAUSED: SettingChange(PAUSED)}))
    await configure(scene, PolicyUpdate({LimitSetting.PAUSED: SettingChange(UNSET)}))
    await configure(scene, PolicyUpdate(keys={"acme": KeySettingsChange(paused=True)}))
    await want(scene, 2)
    assert await refused(scene, await proposed(scene)) == 2


async def test_lowering_the_number_of_approvals_needs_them_itself(scene: Scene) -> None:
    await want(scene, 1)
    change_set_id = await proposed(scene, {WANTED: 0})
    assert await refused(scene, change_set_id) == 1
    await approve(scene, change_set_id, BEN)
    await apply(scene, change_set_id)
    await configure(scene, PolicyUpdate({LimitSetting.LEASE_CAP: SettingChange(5)}))


async def test_limits_of_all_namespaces_want_the_approvals_of_the_cluster_from_admins(scene: Scene) -> None:
    await want(scene, 1, cluster_scope())
    assert (await apply(scene, await proposed(scene))).change_set.state is ChangeSetState.APPLIED
    change_set_id = await proposed(scene, {OF_CLUSTER: 9}, ROOT)
    acts = [
        approve(scene, change_set_id, BEN),
        apply(scene, change_set_id),
        change_approvals.unapprove(scene.ctx, "default", change_set_id, BEN),
        change_sets.withdraw(scene.ctx, "default", change_set_id, BEN),
        change_sets.edit(scene.ctx, "default", change_set_id, ChangeSetRequest(FIVE, "why"), BEN),
        proposed(scene, {OF_CLUSTER: 8}, BEN),
    ]
    for act in acts:
        with pytest.raises(PenstockError) as caught:
            await act
        assert caught.value.reason is Reason.FORBIDDEN
    with pytest.raises(Conflict):
        await apply(scene, change_set_id, ROOT)
    await approve(scene, change_set_id, admin("kim"))
    assert (await apply(scene, change_set_id, ROOT)).change_set.state is ChangeSetState.APPLIED
    with pytest.raises(Forbidden):
        await change_sets.roll_back(scene.ctx, "default", change_set_id, "worse", BEN)


async def test_a_plan_warns_of_what_its_author_may_not_expect(scene: Scene) -> None:
    await scene.register(activity_slots=10)
    for number in range(4):
        await scene.start_activity(f"a-{number}")
    [granted] = await scene.ask(a_poll(TaskKind.ACTIVITY, tasks_max=4))
    assert len(leased_of(granted)) == 4
    closing = await proposed(scene, {CAP: 0, WANTED: 1})
    found = (await change_plans.plan(scene.ctx, "default", closing)).checks
    assert [(each.kind, each.stops) for each in found] == [(CheckKind.CLOSES, False)]
    await apply(scene, await proposed(scene, {ItemTarget(NAMESPACE, "max_running"): 6, WANTED: 2}))
    for cap, kind in ((3, CheckKind.OVERFULL), (7, CheckKind.CEILING)):
        plan = await change_plans.plan(scene.ctx, "default", await proposed(scene, {CAP: cap}))
        missing, found_one = plan.checks
        assert (missing.kind, missing.count, missing.stops) == (CheckKind.APPROVALS, 2, True)
        assert found_one.kind is kind
        assert found_one.use.used == 4
    lower = await change_plans.plan(scene.ctx, "default", await proposed(scene, {WANTED: None}))
    assert [each.kind for each in lower.checks] == [CheckKind.APPROVALS, CheckKind.LESS_STRICT]
