"""Limits as they are shown: what is set above what is declared, with what is used of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.core.limits.admission import (
    Admission,
    Declaration,
    DeclaredScope,
    DeclaredValue,
    LimitField,
    ScopeRow,
    ScopeRules,
)
from penstock.core.limits.policies import PAUSED, LimitSetting, Policy, SettingValue
from penstock.core.limits.windows import Window
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.operations import limits_view
from penstock.core.operations.limits_view import LimitPart, LimitsView, LimitView, Usage
from penstock.core.scheduling.gates import RAMP_S, ScopeState

NOW_MS = 1_790_000_000_000
SECOND = NOW_MS // 1_000
DECLARED = Declaration(
    defaults={"activity": {LimitField.QUEUE_LEASES: 20, LimitField.NAMESPACE_LEASES: 100}},
    overrides={
        "prod:payments": {"activity": {LimitField.GROUP: "stripe", LimitField.GROUP_DISPATCHES: 60}},
        "refunds": {"activity": {LimitField.GROUP: "stripe", LimitField.GROUP_DISPATCHES: 30}},
        "test:payments": {"activity": {LimitField.GROUP: "sandbox", LimitField.GROUP_DISPATCHES: 5}},
        "prod:*": {"activity": {LimitField.NAMESPACE_LEASES: 50}},
    },
    scopes={"cluster": DeclaredScope(leases=500), "group:*/openai": DeclaredScope(cost=9_000)},
)


def a_setting(value: int | str, ends_at_ms: int | None = None) -> SettingValue:
    return SettingValue(value, "ops", NOW_MS, "why", ends_at_ms)


def admission(rows: Mapping[str, Policy] | None = None) -> Admission:
    found = [ScopeRow(number, name, policy) for number, (name, policy) in enumerate((rows or {}).items())]
    return Admission(1, DECLARED, found)


def a_line(name: str = "payments", policy: Policy | None = None) -> Queue:
    own = policy or Policy()
    found = admission().of("prod", name, "activity", own, NOW_MS)
    return Queue(QueueId(1), "prod", name, TaskKind.ACTIVITY, policy=own, limits=found, at_ms=NOW_MS)


def limit(view: LimitsView, setting_name: LimitSetting) -> LimitView:
    return next(each for each in view.limits if each.setting_name is setting_name)


def scope(name: str, rows: Mapping[str, Policy] | None = None, state: ScopeState | None = None) -> LimitsView:
    return limits_view.scope_limits(admission(rows), name, [a_line()], state, NOW_MS)


def test_what_is_set_for_a_line_beats_what_is_declared_and_both_are_told():
    policy = Policy(3, {LimitSetting.LEASE_CAP: a_setting(5)})
    view = limits_view.queue_limits(admission(), a_line(policy=policy), 2, NOW_MS)
    leases = limit(view, LimitSetting.LEASE_CAP)
    assert (leases.value, leases.source) == (5, "task_queue.limits")
    assert leases.declared == DeclaredValue(20, "server.admission.activity_tasks.max_active_leases_per_queue")
    assert (view.version, view.leases.left) == (3, 3)
    assert limit(view, LimitSetting.GROUP).value == "stripe"
    assert view.dispatches == Usage()


def test_what_has_ended_is_not_set_any_more():
    policy = Policy(
        3, {LimitSetting.LEASE_CAP: a_setting(5, NOW_MS), LimitSetting.PAUSED: a_setting(PAUSED, NOW_MS + 1)}
    )
    view = limits_view.queue_limits(admission(), a_line(policy=policy), 2, NOW_MS)
    assert (limit(view, LimitSetting.LEASE_CAP).value, limit(view, LimitSetting.LEASE_CAP).live) == (20, None)
    assert limit(view, LimitSetting.PAUSED).value == PAUSED


def test_a_namespace_goes_by_what_is_declared_for_its_queues_in_general():
    found = limit(scope("namespace:prod/activity"), LimitSetting.LEASE_CAP)
    assert (found.value, found.source) == (50, "server.admission.queue_overrides")
    assert limit(scope("namespace:test/activity"), LimitSetting.LEASE_CAP).value == 100
    assert limit(scope("namespace:prod/workflow"), LimitSetting.LEASE_CAP).value is None
    assert limit(scope("namespace:prod"), LimitSetting.LEASE_CAP).value is None


def test_the_queues_of_a_group_may_declare_different_limits_and_the_least_is_told():
    assert limit(scope("group:prod/stripe/activity"), LimitSetting.DISPATCHES).value == 30
    assert limit(scope("group:test/sandbox/activity"), LimitSetting.DISPATCHES).value == 5
    assert limit(scope("group:prod/sandbox/activity"), LimitSetting.DISPATCHES).value is None
    assert limit(scope("group:prod/stripe"), LimitSetting.DISPATCHES).value is None


def test_whole_scopes_are_told_with_their_declaration():
    assert limit(scope("cluster"), LimitSetting.LEASE_CAP).value == 500
    assert limit(scope("group:*/openai"), LimitSetting.COST).source == "server.admission.scopes"


def test_a_scope_that_nobody_limits_counts_nothing():
    view = scope("namespace:test", state=ScopeState(1, "namespace:test", granted=9, ended=2))
    assert (view.leases, view.dispatches, view.cost) == (Usage(), Usage(), Usage())


def test_a_paused_scope_counts_what_runs_though_nothing_limits_it():
    rows = {"namespace:test": Policy(1, {LimitSetting.PAUSED: a_setting(PAUSED)})}
    view = scope("namespace:test", rows, ScopeState(1, "namespace:test", granted=9, ended=2))
    assert view.leases == Usage(None, 7)


def test_what_a_scope_counts_is_measured_by_its_window():
    settings = {
        LimitSetting.DISPATCHES: a_setting(10),
        LimitSetting.COST: a_setting(100),
        LimitSetting.WINDOW: a_setting("sliding"),
    }
    state = ScopeState(1, "group:prod/a", window=((SECOND - 59, 4), (SECOND, 1)), costs=((SECOND - 90, 80),))
    view = scope("group:prod/a", {"group:prod/a": Policy(1, settings)}, state)
    assert view.dispatches == Usage(10, 5)
    assert (view.cost or Usage()).left == 100


@pytest.mark.parametrize(
    ("since_ms", "closed"),
    [(-1, True), (0, False), (RAMP_S * 1_000 - 1, False), (RAMP_S * 1_000, None)],
)
def test_a_scope_cools_down_and_then_opens_step_by_step(since_ms: int, closed: bool | None):
    state = ScopeState(1, "group:prod/a", cool_until_ms=NOW_MS - since_ms)
    cooling = scope("group:prod/a", state=state).cooling
    assert (None if cooling is None else cooling.is_closed) is closed
    rules = ScopeRules("group:prod/a", window=Window.MINUTE)
    assert limits_view.use(rules, state, NOW_MS).cooling == cooling


def test_groups_are_those_that_are_limited_declared_or_named():
    rows = {
        "group:prod/set/activity": Policy(1),
        "group:test/theirs": Policy(1),
        "namespace:prod": Policy(1),
    }
    moved = a_line(policy=Policy(1, {LimitSetting.GROUP: a_setting("moved")}))
    assert limits_view.groups(admission(rows), "prod", [moved]) == [
        ("prod", "moved"),
        ("*", "openai"),
        ("prod", "set"),
        ("prod", "stripe"),
    ]


def test_a_group_that_namespaces_share_has_no_parts():
    assert limits_view.group_parts("*", "openai") == {LimitPart.ALL: "group:*/openai"}
    assert limits_view.group_parts("prod", "stripe")[LimitPart.WORKFLOW] == "group:prod/stripe/workflow"
    assert limits_view.cluster_parts()[LimitPart.ACTIVITY] == "cluster/activity"
    assert limits_view.namespace_parts("prod")[LimitPart.ALL] == "namespace:prod"
