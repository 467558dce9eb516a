"""From what an operator asked to what the dispatch decision looks at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits.policies import (
    NO_POLICY,
    PLAIN,
    Aging,
    DispatchOrder,
    KeySettings,
    KeyState,
    LimitSetting,
    Policy,
    Rules,
    SettingValue,
    changed,
    rules,
)
from penstock.core.limits.rate_reports import WorkerRate
from penstock.core.limits.rates import BURST_DEFAULT_MS, Rate
from tests.core.scheduling.queue_model import per_second


def a_policy(values: dict[LimitSetting, int | str] | None = None, **counts: int) -> Policy:
    settings = {
        setting_name: SettingValue(value, "ops", 5, "because")
        for setting_name, value in (values or {}).items()
    }
    return Policy(1, settings, **counts)


CONVEYED = WorkerRate(per_second(50), "worker-1", 7)


# ── Rules ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_nobody_asked_anything_of_is_fair_and_without_limits():
    assert rules(NO_POLICY) == PLAIN == Rules()
    assert PLAIN.order is DispatchOrder.FAIR
    assert not PLAIN.limits_keys
    assert not PLAIN.counts_leases_by_key


def test_a_setting_that_was_unset_leaves_the_rules_as_if_it_had_never_been_set():
    values: dict[LimitSetting, int | str] = {
        LimitSetting.QUEUE_RATE: 5,
        LimitSetting.KEY_RATE: 5,
        LimitSetting.LEASE_CAP: 5,
        LimitSetting.KEY_LEASE_CAP: 5,
        LimitSetting.FAIRNESS: "off",
        LimitSetting.COUNTS: "running",
        LimitSetting.AGING_WAIT: 5,
        LimitSetting.AGING_EVERY: 5,
        LimitSetting.QUEUE_BURST: 5,
        LimitSetting.KEY_BURST: 5,
    }
    assert rules(changed(a_policy(values), dict.fromkeys(LimitSetting), ())) == PLAIN


@pytest.mark.parametrize(
    ("namespace", "queue", "order"),
    [
        (True, None, DispatchOrder.FAIR),
        (False, None, DispatchOrder.ARRIVAL),
        (True, "off", DispatchOrder.ARRIVAL),
        (False, "on", DispatchOrder.FAIR),
        (True, "on", DispatchOrder.FAIR),
        (False, "off", DispatchOrder.ARRIVAL),
    ],
)
@pytest.mark.parametrize("others", [{}, {LimitSetting.QUEUE_RATE: 5}])
def test_what_a_queue_says_of_fairness_beats_what_its_namespace_says(
    namespace: bool, queue: str | None, order: DispatchOrder, others: dict[LimitSetting, int | str]
):
    values = others if queue is None else others | {LimitSetting.FAIRNESS: queue}
    assert rules(a_policy(values), fair_by_default=namespace).order is order


def test_what_a_worker_conveys_counts_until_an_operator_says_otherwise():
    assert rules(NO_POLICY, worker_rate=CONVEYED).queue_rate == Rate(per_second(50))
    assert rules(a_policy({LimitSetting.QUEUE_RATE: per_second(5)}), worker_rate=CONVEYED).queue_rate == Rate(
        per_second(5)
    )
    assert rules(
        a_policy({LimitSetting.QUEUE_RATE: per_second(90)}), worker_rate=CONVEYED
    ).queue_rate == Rate(per_second(90))


def test_an_operators_zero_closes_the_queue_even_if_a_worker_conveys_a_rate():
    rate = rules(a_policy({LimitSetting.QUEUE_RATE: 0}), worker_rate=CONVEYED).queue_rate
    assert rate is not None
    assert rate.is_closed


def test_the_operators_burst_holds_for_the_workers_rate_too():
    rate = rules(a_policy({LimitSetting.QUEUE_BURST: 0}), worker_rate=CONVEYED).queue_rate
    assert rate == Rate(per_second(50), 0)


def test_a_burst_without_a_rate_limits_nothing():
    found = rules(a_policy({LimitSetting.QUEUE_BURST: 0, LimitSetting.KEY_BURST: 0}))
    assert (found.queue_rate, found.key_rate, found.limits_keys) == (None, None, False)


@pytest.mark.parametrize(
    ("values", "aging"),
    [
        ({LimitSetting.AGING_WAIT: 30_000, LimitSetting.AGING_EVERY: 20}, Aging(30_000, 20)),
        ({LimitSetting.AGING_WAIT: 0, LimitSetting.AGING_EVERY: 2}, Aging(0, 2)),
        ({LimitSetting.AGING_WAIT: 30_000}, None),
        ({LimitSetting.AGING_EVERY: 20}, None),
    ],
)
def test_levels_age_only_when_both_the_wait_and_the_turns_are_set(
    values: dict[LimitSetting, int | str], aging: Aging | None
):
    assert rules(a_policy(values)).aging == aging


@pytest.mark.parametrize(
    ("policy", "limits_keys", "counts_leases_by_key"),
    [
        (a_policy({LimitSetting.KEY_RATE: 5}), True, False),
        (a_policy({LimitSetting.KEY_RATE: 0}), True, False),
        (a_policy({LimitSetting.KEY_LEASE_CAP: 5}), True, True),
        (a_policy({LimitSetting.LEASE_CAP: 5}), False, True),
        (a_policy({LimitSetting.COUNTS: "running"}), False, True),
        (a_policy({LimitSetting.COUNTS: "dispatches"}), False, False),
        (a_policy({LimitSetting.QUEUE_RATE: 5}), False, False),
        (a_policy(limited_keys=1), True, False),
        (a_policy(limited_keys=1, capped_keys=1), True, True),
        (a_policy(overridden_keys=3), False, False),
    ],
)
def test_keys_are_looked_at_and_leases_counted_only_where_something_depends_on_it(
    policy: Policy, limits_keys: bool, counts_leases_by_key: bool
):
    found = rules(policy)
    assert (found.limits_keys, found.counts_leases_by_key) == (limits_keys, counts_leases_by_key)


@given(
    values=st.dictionaries(
        st.sampled_from(
            [
                setting_name
                for setting_name in LimitSetting
                if setting_name not in (LimitSetting.FAIRNESS, LimitSetting.COUNTS)
            ]
        ),
        st.integers(0, 1000),
    ),
    fair=st.booleans(),
)
def test_every_number_arrives_where_the_decision_looks_for_it(
    values: dict[LimitSetting, int | str], fair: bool
):
    found = rules(a_policy(values), fair_by_default=fair)
    key_burst = values.get(LimitSetting.KEY_BURST, BURST_DEFAULT_MS)
    queue_rate, key_rate = values.get(LimitSetting.QUEUE_RATE), values.get(LimitSetting.KEY_RATE)
    assert found.order is (DispatchOrder.FAIR if fair else DispatchOrder.ARRIVAL)
    assert (found.queue_rate and found.queue_rate.micro) == queue_rate
    assert (found.key_rate and (found.key_rate.micro, found.key_rate.burst_ms)) == (
        None if key_rate is None else (key_rate, key_burst)
    )
    assert (found.lease_cap, found.key_lease_cap) == (
        values.get(LimitSetting.LEASE_CAP),
        values.get(LimitSetting.KEY_LEASE_CAP),
    )


# ── One key ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_without_a_rate_of_its_own_gets_the_default_scaled_by_its_weight():
    found = rules(a_policy({LimitSetting.KEY_RATE: per_second(10), LimitSetting.KEY_BURST: 300}))
    assert found.rate_of(KeyState("a"), 2500) == Rate(per_second(25), 300)
    assert found.rate_of(KeyState("a"), 1000) == Rate(per_second(10), 300)


def test_a_keys_own_rate_is_what_was_said_whatever_its_weight():
    found = rules(a_policy({LimitSetting.KEY_RATE: per_second(10), LimitSetting.KEY_BURST: 300}))
    assert found.rate_of(KeyState("a", rate_micro=per_second(3)), 2500) == Rate(per_second(3), 300)
    closed = found.rate_of(KeyState("a", rate_micro=0), 2500)
    assert closed is not None
    assert closed.is_closed


def test_without_a_default_only_a_key_with_a_rate_of_its_own_is_limited():
    found = rules(a_policy(limited_keys=1))
    assert found.rate_of(KeyState("a"), 1000) is None
    assert found.rate_of(KeyState("b", rate_micro=5), 1000) == Rate(5, BURST_DEFAULT_MS)


def test_a_keys_own_running_limit_beats_the_default_even_if_it_is_zero():
    found = rules(a_policy({LimitSetting.KEY_LEASE_CAP: 4}))
    assert found.lease_cap_of(KeyState("a")) == 4
    assert found.lease_cap_of(KeyState("a", lease_cap=9)) == 9
    assert found.lease_cap_of(KeyState("a", lease_cap=0)) == 0
    assert PLAIN.lease_cap_of(KeyState("a")) is None


@pytest.mark.parametrize(
    ("fields", "is_limited", "is_empty"),
    [
        ({}, False, True),
        ({"weight_milli": 1}, False, False),
        ({"rate_micro": 0}, True, False),
        ({"lease_cap": 0}, True, False),
        ({"paused": 1}, True, False),
    ],
)
def test_a_weight_limits_no_key_but_a_zero_does(fields: dict[str, Any], is_limited: bool, is_empty: bool):
    settings = KeySettings("a", **fields)
    assert (settings.is_limited, settings.is_empty) == (is_limited, is_empty)


# ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_change_sets_some_unsets_others_keeps_the_rest_and_counts_up():
    before = a_policy({LimitSetting.QUEUE_RATE: 1, LimitSetting.LEASE_CAP: 2, LimitSetting.FAIRNESS: "off"})
    story = SettingValue(9, "ann", 11, "less load")
    after = changed(
        before,
        {LimitSetting.QUEUE_RATE: story, LimitSetting.LEASE_CAP: None, LimitSetting.KEY_RATE: None},
        (),
    )
    assert after.version == 2
    assert after.settings == {
        LimitSetting.QUEUE_RATE: story,
        LimitSetting.FAIRNESS: before.settings[LimitSetting.FAIRNESS],
    }
    assert before.number(LimitSetting.QUEUE_RATE) == 1, "the policy before is left as it was"


def test_a_number_is_no_word_and_a_word_no_number():
    policy = a_policy({LimitSetting.QUEUE_RATE: 1, LimitSetting.FAIRNESS: "off"})
    assert (policy.number(LimitSetting.QUEUE_RATE), policy.word(LimitSetting.QUEUE_RATE)) == (1, None)
    assert (policy.number(LimitSetting.FAIRNESS), policy.word(LimitSetting.FAIRNESS)) == (None, "off")
    assert (policy.number(LimitSetting.LEASE_CAP), policy.word(LimitSetting.LEASE_CAP)) == (None, None)


maybe = st.one_of(st.none(), st.integers(0, 9))
key_settings = st.builds(
    KeySettings,
    st.sampled_from("abcd"),
    maybe,
    maybe,
    maybe,
    st.integers(0, 1),
    st.none(),
    st.none(),
    st.none(),
)


@given(changes=st.lists(st.lists(key_settings, max_size=4, unique_by=lambda each: each.key), max_size=8))
def test_after_any_changes_the_counts_are_those_of_the_keys_as_they_are(changes: list[list[KeySettings]]):
    policy, keys = NO_POLICY, {key: KeySettings(key) for key in "abcd"}
    for change in changes:
        policy = changed(policy, {}, [(keys[after.key], after) for after in change])
        keys |= {after.key: after for after in change}
    assert policy.version == len(changes)
    assert policy.overridden_keys == sum(each.weight_milli is not None for each in keys.values())
    assert policy.limited_keys == sum(each.is_limited for each in keys.values())
    assert policy.capped_keys == sum(each.lease_cap is not None for each in keys.values())
