"""Limits as they are shown: what is set above what is declared, with what is used of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.core import limits
from penstock.core.admission import (
    Admission,
    Declaration,
    Declared,
    Field,
    ScopeDeclared,
    ScopeRow,
    ScopeRules,
)
from penstock.core.limits import Counted, Limit, LimitsView, Part
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.policies import PAUSED, Knob, Policy, Setting
from penstock.core.scheduling.gates import RAMP_S, ScopeState
from penstock.core.windows import Window

NOW_MS = 1_790_000_000_000
SECOND = NOW_MS // 1_000
DECLARED = Declaration(
    defaults={"activity": {Field.QUEUE_LEASES: 20, Field.NAMESPACE_LEASES: 100}},
    overrides={
        "prod:payments": {"activity": {Field.GROUP: "stripe", Field.GROUP_DISPATCHES: 60}},
        "refunds": {"activity": {Field.GROUP: "stripe", Field.GROUP_DISPATCHES: 30}},
        "test:payments": {"activity": {Field.GROUP: "sandbox", Field.GROUP_DISPATCHES: 5}},
        "prod:*": {"activity": {Field.NAMESPACE_LEASES: 50}},
    },
    scopes={"cluster": ScopeDeclared(leases=500), "group:*/openai": ScopeDeclared(cost=9_000)},
)


def a_setting(value: int | str, ends_at_ms: int | None = None) -> Setting:
    return Setting(value, "ops", NOW_MS, "why", ends_at_ms)


def admission(rows: Mapping[str, Policy] | None = None) -> Admission:
    found = [ScopeRow(number, name, policy) for number, (name, policy) in enumerate((rows or {}).items())]
    return Admission(1, DECLARED, found)


def a_line(name: str = "payments", policy: Policy | None = None) -> Queue:
    own = policy or Policy()
    found = admission().of("prod", name, "activity", own, NOW_MS)
    return Queue(QueueId(1), "prod", name, TaskKind.ACTIVITY, policy=own, limits=found, at_ms=NOW_MS)


def limit(view: LimitsView, knob: Knob) -> Limit:
    return next(each for each in view.limits if each.knob is knob)


def scope(name: str, rows: Mapping[str, Policy] | None = None, state: ScopeState | None = None) -> LimitsView:
    return limits.of_scope(admission(rows), name, [a_line()], state, NOW_MS)


def test_what_is_set_for_a_line_beats_what_is_declared_and_both_are_told():
    policy = Policy(3, {Knob.RUNNING: a_setting(5)})
    view = limits.of_line(admission(), a_line(policy=policy), 2, NOW_MS)
    leases = limit(view, Knob.RUNNING)
    assert (leases.value, leases.source) == (5, "task_queue.limits")
    assert leases.declared == Declared(20, "server.admission.activity_tasks.max_active_leases_per_queue")
    assert (view.version, view.leases.left) == (3, 3)
    assert limit(view, Knob.GROUP).value == "stripe"
    assert view.dispatches == Counted()


def test_what_has_ended_is_not_set_any_more():
    policy = Policy(3, {Knob.RUNNING: a_setting(5, NOW_MS), Knob.PAUSED: a_setting(PAUSED, NOW_MS + 1)})
    view = limits.of_line(admission(), a_line(policy=policy), 2, NOW_MS)
    assert (limit(view, Knob.RUNNING).value, limit(view, Knob.RUNNING).live) == (20, None)
    assert limit(view, Knob.PAUSED).value == PAUSED


def test_a_namespace_goes_by_what_is_declared_for_its_queues_in_general():
    found = limit(scope("namespace:prod/activity"), Knob.RUNNING)
    assert (found.value, found.source) == (50, "server.admission.queue_overrides")
    assert limit(scope("namespace:test/activity"), Knob.RUNNING).value == 100
    assert limit(scope("namespace:prod/workflow"), Knob.RUNNING).value is None
    assert limit(scope("namespace:prod"), Knob.RUNNING).value is None


def test_the_queues_of_a_group_may_declare_different_limits_and_the_least_is_told():
    assert limit(scope("group:prod/stripe/activity"), Knob.DISPATCHES).value == 30
    assert limit(scope("group:test/sandbox/activity"), Knob.DISPATCHES).value == 5
    assert limit(scope("group:prod/sandbox/activity"), Knob.DISPATCHES).value is None
    assert limit(scope("group:prod/stripe"), Knob.DISPATCHES).value is None


def test_whole_scopes_are_told_with_their_declaration():
    assert limit(scope("cluster"), Knob.RUNNING).value == 500
    assert limit(scope("group:*/openai"), Knob.COST).source == "server.admission.scopes"


def test_a_scope_that_nobody_limits_counts_nothing():
    view = scope("namespace:test", state=ScopeState(1, "namespace:test", granted=9, ended=2))
    assert (view.leases, view.dispatches, view.cost) == (Counted(), Counted(), Counted())


def test_a_paused_scope_counts_what_runs_though_nothing_limits_it():
    rows = {"namespace:test": Policy(1, {Knob.PAUSED: a_setting(PAUSED)})}
    view = scope("namespace:test", rows, ScopeState(1, "namespace:test", granted=9, ended=2))
    assert view.leases == Counted(None, 7)


def test_what_a_scope_counts_is_measured_by_its_window():
    settings = {Knob.DISPATCHES: a_setting(10), Knob.COST: a_setting(100), Knob.WINDOW: a_setting("sliding")}
    state = ScopeState(1, "group:prod/a", window=((SECOND - 59, 4), (SECOND, 1)), costs=((SECOND - 90, 80),))
    view = scope("group:prod/a", {"group:prod/a": Policy(1, settings)}, state)
    assert view.dispatches == Counted(10, 5)
    assert (view.cost or Counted()).left == 100


@pytest.mark.parametrize(
    ("since_ms", "closed"),
    [(-1, True), (0, False), (RAMP_S * 1_000 - 1, False), (RAMP_S * 1_000, None)],
)
def test_a_scope_cools_down_and_then_opens_step_by_step(since_ms: int, closed: bool | None):
    state = ScopeState(1, "group:prod/a", cool_until_ms=NOW_MS - since_ms)
    cooling = scope("group:prod/a", state=state).cooling
    assert (None if cooling is None else cooling.is_closed) is closed
    rules = ScopeRules("group:prod/a", window=Window.MINUTE)
    assert limits.use(rules, state, NOW_MS).cooling == cooling


def test_groups_are_those_that_are_limited_declared_or_named():
    rows = {
        "group:prod/set/activity": Policy(1),
        "group:test/theirs": Policy(1),
        "namespace:prod": Policy(1),
    }
    moved = a_line(policy=Policy(1, {Knob.GROUP: a_setting("moved")}))
    assert limits.groups(admission(rows), "prod", [moved]) == [
        ("prod", "moved"),
        ("*", "openai"),
        ("prod", "set"),
        ("prod", "stripe"),
    ]


def test_a_group_that_namespaces_share_has_no_parts():
    assert limits.group_parts("*", "openai") == {Part.ALL: "group:*/openai"}
    assert limits.group_parts("prod", "stripe")[Part.WORKFLOW] == "group:prod/stripe/workflow"
    assert limits.cluster_parts()[Part.ACTIVITY] == "cluster/activity"
    assert limits.namespace_parts("prod")[Part.ALL] == "namespace:prod"
