"""Which limits hold for a line: declared key by key, set by operators, and what ends by itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.limits.admission import (
    KINDS,
    NO_ADMISSION,
    NO_LIMITS,
    Admission,
    Declaration,
    DeclaredScope,
    DeclaredValue,
    LimitField,
    QueueLimits,
    ScopeRow,
    ScopeRules,
    Section,
    cluster_scope,
    declared,
    group_scope,
    namespace_scope,
    queue_scope,
)
from penstock.core.limits.policies import NO_POLICY, LimitSetting, Policy, SettingValue
from penstock.core.limits.windows import Window

NOW_MS = 1_790_000_000_000
OVERRIDES = "server.admission.queue_overrides"

SEED = Declaration(
    defaults={
        "workflow": {
            LimitField.QUEUE_LEASES: 25,
            LimitField.NAMESPACE_LEASES: 500,
            LimitField.QUEUE_DISPATCHES: 600,
            LimitField.NAMESPACE_DISPATCHES: 12_000,
        },
        "activity": {
            LimitField.QUEUE_LEASES: 100,
            LimitField.NAMESPACE_LEASES: 2000,
            LimitField.QUEUE_DISPATCHES: 1200,
            LimitField.NAMESPACE_DISPATCHES: 24_000,
        },
    },
    overrides={
        "production:payments": {
            "workflow": {
                LimitField.QUEUE_LEASES: 8,
                LimitField.QUEUE_DISPATCHES: 120,
                LimitField.GROUP: "downstream-openai",
                LimitField.GROUP_DISPATCHES: 600,
            },
            "activity": {LimitField.QUEUE_LEASES: 12, LimitField.QUEUE_DISPATCHES: 240},
        },
        "production:*": {
            "workflow": {LimitField.NAMESPACE_LEASES: 300, LimitField.NAMESPACE_DISPATCHES: 6000},
            "activity": {LimitField.NAMESPACE_LEASES: 1200, LimitField.NAMESPACE_DISPATCHES: 12_000},
        },
        "email": {
            "activity": {
                LimitField.QUEUE_LEASES: 4,
                LimitField.QUEUE_DISPATCHES: 60,
                LimitField.GROUP: "downstream-sendgrid",
                LimitField.GROUP_DISPATCHES: 300,
            }
        },
        "*": {"workflow": {LimitField.QUEUE_LEASES: 50}},
    },
)
"""The configuration of the first seed, whole."""


def a_policy(
    values: Mapping[LimitSetting, int | str], version: int = 1, ends_at_ms: int | None = None
) -> Policy:
    return Policy(
        version,
        {
            setting_name: SettingValue(each, "ops", 5, None, ends_at_ms)
            for setting_name, each in values.items()
        },
    )


def a_row(name: str, values: Mapping[LimitSetting, int | str], ends_at_ms: int | None = None) -> ScopeRow:
    return ScopeRow(1, name, a_policy(values, ends_at_ms=ends_at_ms))


def overriding(**sections: Section) -> Declaration:
    """Overrides for workflow tasks: `queue` for `prod:payments`, `namespace` for `prod:*`, and so on."""
    keys = {"queue": "prod:payments", "namespace": "prod:*", "name": "payments", "all": "*"}
    return Declaration(
        defaults={"workflow": sections.pop("default", {})},
        overrides={keys[which]: {"workflow": section} for which, section in sections.items()},
    )


def limits_of(
    source: Admission | Declaration,
    queue: str = "payments",
    kind: str = "workflow",
    policy: Policy = NO_POLICY,
    *,
    namespace: str = "prod",
    now_ms: int = NOW_MS,
) -> QueueLimits:
    admission = Admission(1, source) if isinstance(source, Declaration) else source
    return admission.of(namespace, queue, kind, policy, now_ms)


def scope_of(limits: QueueLimits, name: str) -> ScopeRules:
    return next(each for each in limits.scopes if each.name == name)


def names_of(limits: QueueLimits) -> list[str]:
    return [each.name for each in limits.scopes]


# ── Keys of overrides ───────────────────────────────────────────────────────────────────────────────────


@given(
    said=st.dictionaries(st.sampled_from(["queue", "namespace", "name", "all", "default"]), st.integers(0, 9))
)
def test_of_the_four_keys_the_first_that_names_a_field_is_heard_then_the_default(said: dict[str, int]):
    declaration = overriding(**{which: {LimitField.QUEUE_LEASES: value} for which, value in said.items()})
    found = declared(declaration, LimitField.QUEUE_LEASES, "prod", "payments", "workflow")
    heard = next((which for which in ("queue", "namespace", "name", "all", "default") if which in said), None)
    if heard is None:
        assert found is None
    elif heard == "default":
        source = "server.admission.workflow_tasks.max_active_leases_per_queue"
        assert found == DeclaredValue(said[heard], source)
    else:
        assert found == DeclaredValue(said[heard], OVERRIDES)


def test_each_field_is_looked_up_by_itself_so_one_line_may_hear_several_keys():
    limits = limits_of(
        overriding(
            queue={LimitField.QUEUE_LEASES: 1},
            namespace={LimitField.QUEUE_LEASES: 2, LimitField.NAMESPACE_LEASES: 3},
            name={LimitField.NAMESPACE_LEASES: 4, LimitField.QUEUE_DISPATCHES: 5, LimitField.GROUP: "openai"},
            all={LimitField.QUEUE_DISPATCHES: 6, LimitField.GROUP_DISPATCHES: 7},
            default={LimitField.QUEUE_LEASES: 8, LimitField.NAMESPACE_DISPATCHES: 9},
        )
    )
    namespace = scope_of(limits, namespace_scope("prod", "workflow"))
    assert (limits.leases, limits.dispatches, limits.group) == (1, 5, "openai")
    assert (namespace.leases, namespace.dispatches) == (3, 9)
    assert scope_of(limits, group_scope("prod", "openai", "workflow")).dispatches == 7


def test_a_null_goes_back_to_the_default_of_the_kind_whatever_wider_keys_say():
    said = overriding(
        queue={LimitField.QUEUE_LEASES: None},
        namespace={LimitField.QUEUE_LEASES: 3},
        default={LimitField.QUEUE_LEASES: 25},
    )
    limits = limits_of(said)
    assert limits.leases == 25
    assert limits.leases_source == "server.admission.workflow_tasks.max_active_leases_per_queue"
    assert limits_of(said, "others").leases == 3


def test_a_null_without_a_default_is_no_limit():
    assert (
        limits_of(overriding(queue={LimitField.QUEUE_LEASES: None}, all={LimitField.QUEUE_LEASES: 3})).leases
        is None
    )


def test_what_is_said_of_one_kind_or_of_another_line_is_not_heard():
    said = overriding(queue={LimitField.QUEUE_LEASES: 1})
    assert limits_of(said, kind="activity").leases is None
    assert limits_of(said, "email").leases is None
    assert limits_of(said, namespace="staging").leases is None


def test_a_key_with_a_namespace_is_not_taken_for_a_queue_elsewhere():
    said = Declaration(overrides={"prod:payments": {"workflow": {LimitField.QUEUE_LEASES: 1}}})
    assert limits_of(said, "payments", namespace="staging").leases is None
    assert limits_of(said, "prod:payments", namespace="staging").leases is None


# ── The seed ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("line", "own", "of_namespace", "group"),
    [
        (("production", "payments", "workflow"), (8, 120), (300, 6000), ("downstream-openai", 600)),
        (("production", "payments", "activity"), (12, 240), (1200, 12_000), None),
        (("production", "email", "activity"), (4, 60), (1200, 12_000), ("downstream-sendgrid", 300)),
        (("staging", "email", "activity"), (4, 60), (2000, 24_000), ("downstream-sendgrid", 300)),
        (("production", "email", "workflow"), (50, 600), (300, 6000), None),
        (("staging", "orders", "workflow"), (50, 600), (500, 12_000), None),
        (("staging", "orders", "activity"), (100, 1200), (2000, 24_000), None),
    ],
)
def test_the_seeds_configuration_gives_the_seeds_numbers(
    line: tuple[str, str, str],
    own: tuple[int, int],
    of_namespace: tuple[int, int],
    group: tuple[str, int] | None,
):
    namespace, queue, kind = line
    limits = limits_of(SEED, queue, kind, namespace=namespace)
    held = scope_of(limits, namespace_scope(namespace, kind))
    assert (limits.leases, limits.dispatches) == own
    assert (held.leases, held.dispatches) == of_namespace
    assert limits.group == (group[0] if group else None)
    budgets = {each.group: each.dispatches for each in limits.scopes if each.group is not None}
    assert budgets == (dict([group]) if group else {})


def test_the_seeds_numbers_say_where_they_come_from():
    payments = limits_of(SEED, "payments", namespace="production")
    orders = limits_of(SEED, "orders", "activity", namespace="staging")
    held = scope_of(orders, namespace_scope("staging", "activity"))
    assert (payments.leases_source, payments.dispatches_source) == (OVERRIDES, OVERRIDES)
    assert scope_of(payments, namespace_scope("production", "workflow")).leases_source == OVERRIDES
    assert orders.leases_source == "server.admission.activity_tasks.max_active_leases_per_queue"
    assert held.dispatches_source == (
        "server.admission.activity_tasks.max_dispatches_per_minute_per_namespace"
    )


# ── Two layers ──────────────────────────────────────────────────────────────────────────────────────────

PLAIN = overriding(
    default={LimitField.QUEUE_LEASES: 10, LimitField.QUEUE_DISPATCHES: 20, LimitField.NAMESPACE_LEASES: 30},
    all={LimitField.GROUP: "openai", LimitField.GROUP_DISPATCHES: 40},
)


def test_what_an_operator_sets_for_a_line_beats_what_is_declared_limit_by_limit():
    limits = limits_of(PLAIN, policy=a_policy({LimitSetting.LEASE_CAP: 99}))
    assert (limits.leases, limits.leases_source) == (99, "task_queue.limits")
    assert (limits.dispatches, limits.dispatches_source) == (
        20,
        "server.admission.workflow_tasks.max_dispatches_per_minute",
    )


def test_what_an_operator_sets_for_a_scope_beats_what_is_declared_limit_by_limit():
    namespace, group = namespace_scope("prod", "workflow"), group_scope("prod", "openai", "workflow")
    rows = [
        a_row(namespace, {LimitSetting.DISPATCHES: 5}),
        a_row(group, {LimitSetting.DISPATCHES: 6, LimitSetting.COST: 7}),
    ]
    limits = limits_of(Admission(2, PLAIN, rows))
    held, budget = scope_of(limits, namespace), scope_of(limits, group)
    assert (held.leases, held.dispatches, held.dispatches_source) == (30, 5, "namespace.limits")
    assert (budget.dispatches, budget.cost, budget.dispatches_source) == (6, 7, "group.limits")


def test_an_operator_moves_a_line_to_another_group():
    limits = limits_of(PLAIN, policy=a_policy({LimitSetting.GROUP: "sendgrid"}))
    assert limits.group == "sendgrid"
    assert group_scope("prod", "openai", "workflow") not in names_of(limits)


def test_a_blank_group_is_none():
    limits = limits_of(overriding(queue={LimitField.GROUP: "", LimitField.GROUP_DISPATCHES: 5}))
    assert limits.group is None
    assert not [each for each in limits.scopes if each.group is not None]


def test_limits_of_whole_scopes_are_declared_set_and_paused_like_others():
    declaration = Declaration(
        scopes={"cluster": DeclaredScope(leases=50), "group:*/openai": DeclaredScope(cost=900)}
    )
    rows = [a_row("cluster", {LimitSetting.PAUSED: "on"}), a_row("group:*/openai", {LimitSetting.COST: 800})]
    limits = limits_of(Admission(1, declaration, rows), policy=a_policy({LimitSetting.GROUP: "openai"}))
    cluster, group = scope_of(limits, "cluster"), scope_of(limits, "group:*/openai")
    assert (cluster.leases, cluster.paused, cluster.leases_source) == (50, True, "server.admission.scopes")
    assert (group.cost, group.group) == (800, "openai")


@pytest.mark.parametrize(
    ("policy", "window"),
    [(NO_POLICY, Window.SLIDING), (a_policy({LimitSetting.WINDOW: "minute"}), Window.MINUTE)],
)
def test_the_window_of_a_line_is_declared_for_all_until_an_operator_says_otherwise(
    policy: Policy, window: Window
):
    assert limits_of(replace(PLAIN, window=Window.SLIDING), policy=policy).window is window


def test_the_window_of_a_scope_is_what_an_operator_then_its_declaration_then_all_say():
    names = ["cluster", "cluster/workflow", "namespace:prod"]
    declaration = Declaration(
        scopes={
            "cluster": DeclaredScope(1, window=Window.MINUTE),
            "cluster/workflow": DeclaredScope(1),
            "namespace:prod": DeclaredScope(1, window=Window.MINUTE),
        },
        window=Window.SLIDING,
    )
    limits = limits_of(Admission(1, declaration, [a_row("namespace:prod", {LimitSetting.WINDOW: "sliding"})]))
    assert [scope_of(limits, name).window for name in names] == [
        Window.MINUTE,
        Window.SLIDING,
        Window.SLIDING,
    ]


# ── Zero ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("which", ["queue", "namespace", "name", "all", "default"])
def test_a_declared_zero_stays_zero_at_every_key(which: str):
    zeros: Section = {field: 0 for field in LimitField if field is not LimitField.GROUP} | {
        LimitField.GROUP: "openai"
    }
    limits = limits_of(overriding(**{which: zeros}))
    namespace = scope_of(limits, namespace_scope("prod", "workflow"))
    group = scope_of(limits, group_scope("prod", "openai", "workflow"))
    assert (limits.leases, limits.dispatches) == (0, 0)
    assert (namespace.leases, namespace.dispatches, group.dispatches) == (0, 0, 0)
    assert namespace.is_limited
    assert group.is_limited


def test_a_zero_of_a_narrow_key_is_not_replaced_by_a_wider_one():
    limits = limits_of(
        overriding(
            queue={LimitField.QUEUE_LEASES: 0},
            all={LimitField.QUEUE_LEASES: 5},
            default={LimitField.QUEUE_LEASES: 7},
        )
    )
    assert limits.leases == 0


def test_an_operators_zero_stays_zero_though_more_is_declared():
    names = [namespace_scope("prod", "workflow"), group_scope("prod", "openai", "workflow"), cluster_scope()]
    rows = [
        a_row(name, {LimitSetting.LEASE_CAP: 0, LimitSetting.DISPATCHES: 0, LimitSetting.COST: 0})
        for name in names
    ]
    policy = a_policy({LimitSetting.LEASE_CAP: 0, LimitSetting.DISPATCHES: 0})
    limits = limits_of(Admission(1, PLAIN, rows), policy=policy)
    assert (limits.leases, limits.dispatches) == (0, 0)
    for name in names:
        rules = scope_of(limits, name)
        assert (rules.leases, rules.dispatches, rules.cost) == (0, 0, 0)


def test_a_declared_zero_of_a_whole_scope_stays_zero():
    declaration = Declaration(scopes={"cluster": DeclaredScope(0, 0, 0)})
    rules = scope_of(limits_of(declaration), "cluster")
    assert (rules.leases, rules.dispatches, rules.cost) == (0, 0, 0)


# ── Scopes ──────────────────────────────────────────────────────────────────────────────────────────────


def test_scopes_have_names_that_tell_their_reach():
    assert (cluster_scope(), cluster_scope("activity")) == ("cluster", "cluster/activity")
    assert namespace_scope("prod") == "namespace:prod"
    assert group_scope("*", "openai") == "group:*/openai"
    assert group_scope("prod", "a:b", "workflow") == "group:prod/a:b/workflow"
    assert ScopeRules(group_scope("prod", "a:b", "workflow")).group == "a:b"
    assert ScopeRules(namespace_scope("prod")).group is None
    assert queue_scope("prod", "payments", "workflow") == "queue:prod/payments/workflow"


def test_a_line_passes_every_scope_that_it_is_in_by_the_order_of_their_names():
    names = [
        "cluster",
        "cluster/workflow",
        "group:*/openai",
        "group:prod/openai",
        "group:prod/openai/workflow",
        "namespace:prod",
        "namespace:prod/workflow",
    ]
    others = ["cluster/activity", "namespace:staging", "group:staging/openai", "group:prod/sendgrid"]
    rows = [a_row(name, {LimitSetting.LEASE_CAP: 5}) for name in reversed([*names, *others])]
    limits = limits_of(Admission(1, rows=rows), policy=a_policy({LimitSetting.GROUP: "openai"}))
    assert names_of(limits) == names


@given(
    lines=st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "email"]), st.sampled_from(KINDS)),
        min_size=2,
        max_size=4,
    ),
    groups=st.lists(st.sampled_from(["g", "h", None]), min_size=4, max_size=4),
    limited=st.sets(
        st.sampled_from(
            ["cluster", "cluster/workflow", "group:*/g", "group:a/h", "namespace:a", "namespace:b"]
        )
    ),
)
def test_any_two_lines_pass_the_scopes_that_they_share_in_the_same_order(
    lines: list[tuple[str, str, str]], groups: list[str | None], limited: set[str]
):
    rows = [a_row(name, {LimitSetting.LEASE_CAP: 5}) for name in limited]
    admission = Admission(1, SEED, rows)
    for (namespace, queue, kind), group in zip(lines, groups, strict=False):
        policy = NO_POLICY if group is None else a_policy({LimitSetting.GROUP: group})
        passed = names_of(admission.of(namespace, queue, kind, policy, NOW_MS))
        assert passed == sorted(set(passed))


def test_a_group_is_of_its_namespace_unless_it_is_shared_by_all():
    own = Admission(1, rows=[a_row("group:prod/openai", {LimitSetting.DISPATCHES: 5})])
    shared = Admission(1, rows=[a_row("group:*/openai", {LimitSetting.DISPATCHES: 5})])
    policy = a_policy({LimitSetting.GROUP: "openai"})
    assert names_of(limits_of(own, policy=policy)) == ["group:prod/openai"]
    assert names_of(limits_of(own, policy=policy, namespace="staging")) == []
    for namespace, kind in (("prod", "workflow"), ("staging", "activity")):
        found = limits_of(shared, "any", kind, policy, namespace=namespace)
        assert names_of(found) == ["group:*/openai"]


def test_a_scope_that_is_only_paused_is_passed_and_closed():
    limits = limits_of(Admission(1, rows=[a_row("namespace:prod", {LimitSetting.PAUSED: "on"})]))
    assert scope_of(limits, "namespace:prod").paused
    resumed = limits_of(Admission(2, rows=[a_row("namespace:prod", {LimitSetting.PAUSED: "off"})]))
    assert names_of(resumed) == []


def test_a_group_that_operators_know_counts_without_a_limit_so_that_it_can_be_closed():
    admission = Admission(1, rows=[a_row("group:prod/openai", {})])
    limits = limits_of(admission, policy=a_policy({LimitSetting.GROUP: "openai"}))
    assert not scope_of(limits, "group:prod/openai").is_limited


@pytest.mark.parametrize("field", [LimitField.NAMESPACE_LEASES, LimitField.NAMESPACE_DISPATCHES])
@pytest.mark.parametrize("key", ["prod:payments", "payments"])
def test_a_namespaces_limit_that_one_queue_declares_counts_the_leases_of_all_its_queues(
    key: str, field: LimitField
):
    """Else the queue that is limited would not see what the others hold."""
    declaration = Declaration(overrides={key: {"workflow": {field: 5}}})
    counted = scope_of(limits_of(declaration, "others"), namespace_scope("prod", "workflow"))
    assert not counted.is_limited
    assert names_of(limits_of(declaration, "others", "activity")) == []


def test_a_groups_limit_that_one_queue_declares_counts_every_queue_of_the_group():
    declaration = Declaration(
        overrides={
            "prod:payments": {"workflow": {LimitField.GROUP: "openai", LimitField.GROUP_DISPATCHES: 600}},
            "prod:chat": {"workflow": {LimitField.GROUP: "openai"}},
        }
    )
    group = group_scope("prod", "openai", "workflow")
    moved = limits_of(declaration, "other", policy=a_policy({LimitSetting.GROUP: "openai"}))
    assert names_of(limits_of(declaration, "chat")) == [group]
    assert names_of(moved) == [group]
    assert names_of(limits_of(declaration, "other")) == []


@pytest.mark.parametrize("which", ["queue", "namespace"])
def test_what_another_namespace_declares_for_itself_makes_nobody_else_count(which: str):
    declaration = overriding(**{which: {LimitField.NAMESPACE_LEASES: 5}})
    assert names_of(limits_of(declaration, namespace="staging")) == []


# ── No limits ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_nobody_said_anything_of_has_no_limits_and_nothing_is_worked_out(kind: str):
    assert limits_of(NO_ADMISSION, kind=kind) is NO_LIMITS
    assert limits_of(Admission(3, Declaration(window=Window.SLIDING)), kind=kind) is NO_LIMITS


def test_a_line_that_others_limits_do_not_reach_has_none():
    limits = limits_of(overriding(queue={LimitField.QUEUE_LEASES: 1}), "others")
    assert (limits.leases, limits.dispatches, limits.group, limits.scopes) == (None, None, None, ())


def test_a_setting_of_the_line_alone_is_heard_where_nothing_is_declared():
    assert limits_of(NO_ADMISSION, policy=a_policy({LimitSetting.DISPATCHES: 5})).dispatches == 5


# ── What ends by itself ─────────────────────────────────────────────────────────────────────────────────


@given(
    ends=st.dictionaries(
        st.sampled_from(list(LimitSetting)), st.one_of(st.none(), st.integers(NOW_MS - 5, NOW_MS + 5))
    ),
    now_ms=st.integers(NOW_MS - 10, NOW_MS + 10),
)
def test_a_setting_holds_until_the_millisecond_in_which_it_ends(
    ends: dict[LimitSetting, int | None], now_ms: int
):
    policy = Policy(
        7, {setting_name: SettingValue(1, "ops", 5, None, at_ms) for setting_name, at_ms in ends.items()}
    )
    holding = policy.at(now_ms)
    assert set(holding.settings) == {
        setting_name for setting_name, at_ms in ends.items() if at_ms is None or now_ms < at_ms
    }
    assert all(
        holding.settings[setting_name] is policy.settings[setting_name] for setting_name in holding.settings
    )
    assert holding.version == 7
    assert policy.next_end_ms == min((at_ms for at_ms in ends.values() if at_ms is not None), default=None)


def test_a_policy_of_which_nothing_has_ended_is_handed_back_as_it_is():
    policy = a_policy({LimitSetting.LEASE_CAP: 1}, ends_at_ms=NOW_MS + 1)
    assert policy.at(NOW_MS) is policy


def test_when_a_setting_of_a_line_ends_what_is_declared_holds_again():
    admission = Admission(1, PLAIN)
    policy = a_policy(
        {LimitSetting.LEASE_CAP: 99, LimitSetting.DISPATCHES: 98, LimitSetting.GROUP: "sendgrid"},
        ends_at_ms=NOW_MS,
    )
    before = limits_of(admission, policy=policy, now_ms=NOW_MS - 1)
    after = limits_of(admission, policy=policy, now_ms=NOW_MS)
    assert (before.leases, before.dispatches, before.group) == (99, 98, "sendgrid")
    assert (after.leases, after.dispatches, after.group) == (10, 20, "openai")


def test_when_a_setting_of_a_scope_ends_what_is_declared_holds_again():
    name = namespace_scope("prod", "workflow")
    admission = Admission(
        1, PLAIN, [a_row(name, {LimitSetting.LEASE_CAP: 99, LimitSetting.PAUSED: "on"}, ends_at_ms=NOW_MS)]
    )
    before = scope_of(limits_of(admission, now_ms=NOW_MS - 1), name)
    after = scope_of(limits_of(admission, now_ms=NOW_MS), name)
    assert (before.leases, before.paused) == (99, True)
    assert (after.leases, after.paused) == (30, False)


def test_a_scope_by_itself_knows_what_was_set_until_it_ends_and_nothing_of_single_queues():
    name = group_scope("prod", "openai", "workflow")
    admission = Admission(1, PLAIN, [a_row(name, {LimitSetting.DISPATCHES: 5}, ends_at_ms=NOW_MS)])
    assert admission.scope(name, NOW_MS - 1).dispatches == 5
    assert admission.scope(name, NOW_MS).dispatches is None


# ── What is remembered ──────────────────────────────────────────────────────────────────────────────────

endings = st.one_of(st.none(), st.integers(0, 6))
settings = st.dictionaries(
    st.sampled_from([LimitSetting.LEASE_CAP, LimitSetting.DISPATCHES]),
    st.tuples(st.integers(0, 3), endings),
    max_size=2,
)
policies = st.builds(
    lambda version, values: Policy(
        version,
        {
            setting_name: SettingValue(value, "ops", 0, None, ends)
            for setting_name, (value, ends) in values.items()
        },
    ),
    st.integers(0, 2),
    settings,
)


@given(
    rows=st.dictionaries(st.sampled_from(["cluster", "namespace:production", "group:*/g"]), policies),
    asks=st.lists(
        st.tuples(
            st.sampled_from(["production", "staging"]),
            st.sampled_from(["payments", "email", "*"]),
            st.sampled_from(KINDS),
            policies,
            st.integers(1, 8),
        ),
        max_size=12,
    ),
    declaration=st.sampled_from([SEED, PLAIN, Declaration()]),
)
def test_who_asked_before_changes_nothing(
    rows: dict[str, Policy], asks: list[tuple[str, str, str, Policy, int]], declaration: Declaration
):
    """What is remembered is never another line's, another policy's, or what has ended."""
    listed = [ScopeRow(number, name, policy) for number, (name, policy) in enumerate(rows.items())]
    asked_often = Admission(1, declaration, listed)
    for ask in asks:
        assert asked_often.of(*ask) == Admission(1, declaration, listed).of(*ask)


def test_a_change_that_was_taken_back_leaves_nothing_behind_under_its_version():
    admission = Admission(1, PLAIN)
    taken_back = limits_of(admission, policy=a_policy({LimitSetting.LEASE_CAP: 99}, version=2))
    made = limits_of(admission, policy=a_policy({LimitSetting.LEASE_CAP: 5}, version=2))
    assert (taken_back.leases, made.leases) == (99, 5)


def test_limits_are_worked_out_once_while_nothing_ends():
    admission, policy = Admission(1, PLAIN), a_policy({LimitSetting.LEASE_CAP: 1})
    assert limits_of(admission, policy=policy) is limits_of(admission, policy=policy, now_ms=NOW_MS + 10**9)
