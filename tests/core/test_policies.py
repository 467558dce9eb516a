"""From what an operator asked to what the dispatch decision looks at."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.conveying import WorkerRate
from penstock.core.policies import (
    NO_POLICY,
    PLAIN,
    Aging,
    KeySettings,
    KeyState,
    Knob,
    Order,
    Policy,
    Rules,
    Setting,
    changed,
    rules,
)
from penstock.core.rates import BURST_DEFAULT_MS, Rate
from tests.core.queue_model import per_second


def a_policy(values: dict[Knob, int | str] | None = None, **counts: int) -> Policy:
    settings = {knob: Setting(value, "ops", 5, "because") for knob, value in (values or {}).items()}
    return Policy(1, settings, **counts)


CONVEYED = WorkerRate(per_second(50), "worker-1", 7)


# ── Rules ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_nobody_asked_anything_of_is_fair_and_without_limits():
    assert rules(NO_POLICY) == PLAIN == Rules()
    assert PLAIN.order is Order.FAIR
    assert not PLAIN.limits_keys
    assert not PLAIN.counts_leases


def test_a_setting_that_was_unset_leaves_the_rules_as_if_it_had_never_been_set():
    values: dict[Knob, int | str] = {
        Knob.QUEUE_RATE: 5,
        Knob.KEY_RATE: 5,
        Knob.RUNNING: 5,
        Knob.KEY_RUNNING: 5,
        Knob.FAIRNESS: "off",
        Knob.COUNTS: "running",
        Knob.AGING_WAIT: 5,
        Knob.AGING_EVERY: 5,
        Knob.QUEUE_BURST: 5,
        Knob.KEY_BURST: 5,
    }
    assert rules(changed(a_policy(values), dict.fromkeys(Knob), ())) == PLAIN


@pytest.mark.parametrize(
    ("namespace", "queue", "order"),
    [
        (True, None, Order.FAIR),
        (False, None, Order.ARRIVAL),
        (True, "off", Order.ARRIVAL),
        (False, "on", Order.FAIR),
        (True, "on", Order.FAIR),
        (False, "off", Order.ARRIVAL),
    ],
)
@pytest.mark.parametrize("others", [{}, {Knob.QUEUE_RATE: 5}])
def test_what_a_queue_says_of_fairness_beats_what_its_namespace_says(
    namespace: bool, queue: str | None, order: Order, others: dict[Knob, int | str]
):
    values = others if queue is None else others | {Knob.FAIRNESS: queue}
    assert rules(a_policy(values), fair_by_default=namespace).order is order


def test_what_a_worker_conveys_counts_until_an_operator_says_otherwise():
    assert rules(NO_POLICY, worker_rate=CONVEYED).queue_rate == Rate(per_second(50))
    assert rules(a_policy({Knob.QUEUE_RATE: per_second(5)}), worker_rate=CONVEYED).queue_rate == Rate(
        per_second(5)
    )
    assert rules(a_policy({Knob.QUEUE_RATE: per_second(90)}), worker_rate=CONVEYED).queue_rate == Rate(
        per_second(90)
    )


def test_an_operators_zero_closes_the_queue_even_if_a_worker_conveys_a_rate():
    rate = rules(a_policy({Knob.QUEUE_RATE: 0}), worker_rate=CONVEYED).queue_rate
    assert rate is not None
    assert rate.is_closed


def test_the_operators_burst_holds_for_the_workers_rate_too():
    rate = rules(a_policy({Knob.QUEUE_BURST: 0}), worker_rate=CONVEYED).queue_rate
    assert rate == Rate(per_second(50), 0)


def test_a_burst_without_a_rate_limits_nothing():
    found = rules(a_policy({Knob.QUEUE_BURST: 0, Knob.KEY_BURST: 0}))
    assert (found.queue_rate, found.key_rate, found.limits_keys) == (None, None, False)


@pytest.mark.parametrize(
    ("values", "aging"),
    [
        ({Knob.AGING_WAIT: 30_000, Knob.AGING_EVERY: 20}, Aging(30_000, 20)),
        ({Knob.AGING_WAIT: 0, Knob.AGING_EVERY: 2}, Aging(0, 2)),
        ({Knob.AGING_WAIT: 30_000}, None),
        ({Knob.AGING_EVERY: 20}, None),
    ],
)
def test_levels_age_only_when_both_the_wait_and_the_turns_are_set(
    values: dict[Knob, int | str], aging: Aging | None
):
    assert rules(a_policy(values)).aging == aging


@pytest.mark.parametrize(
    ("policy", "limits_keys", "counts_leases"),
    [
        (a_policy({Knob.KEY_RATE: 5}), True, False),
        (a_policy({Knob.KEY_RATE: 0}), True, False),
        (a_policy({Knob.KEY_RUNNING: 5}), True, True),
        (a_policy({Knob.RUNNING: 5}), False, True),
        (a_policy({Knob.COUNTS: "running"}), False, True),
        (a_policy({Knob.COUNTS: "dispatches"}), False, False),
        (a_policy({Knob.QUEUE_RATE: 5}), False, False),
        (a_policy(limited_keys=1), True, False),
        (a_policy(limited_keys=1, capped_keys=1), True, True),
        (a_policy(overridden_keys=3), False, False),
    ],
)
def test_keys_are_looked_at_and_leases_counted_only_where_something_depends_on_it(
    policy: Policy, limits_keys: bool, counts_leases: bool
):
    found = rules(policy)
    assert (found.limits_keys, found.counts_leases) == (limits_keys, counts_leases)


@given(
    values=st.dictionaries(
        st.sampled_from([knob for knob in Knob if knob not in (Knob.FAIRNESS, Knob.COUNTS)]),
        st.integers(0, 1000),
    ),
    fair=st.booleans(),
)
def test_every_number_arrives_where_the_decision_looks_for_it(values: dict[Knob, int | str], fair: bool):
    found = rules(a_policy(values), fair_by_default=fair)
    key_burst = values.get(Knob.KEY_BURST, BURST_DEFAULT_MS)
    queue_rate, key_rate = values.get(Knob.QUEUE_RATE), values.get(Knob.KEY_RATE)
    assert found.order is (Order.FAIR if fair else Order.ARRIVAL)
    assert (found.queue_rate and found.queue_rate.micro) == queue_rate
    assert (found.key_rate and (found.key_rate.micro, found.key_rate.burst_ms)) == (
        None if key_rate is None else (key_rate, key_burst)
    )
    assert (found.running_limit, found.key_running_limit) == (
        values.get(Knob.RUNNING),
        values.get(Knob.KEY_RUNNING),
    )


# ── One key ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_key_without_a_rate_of_its_own_gets_the_default_scaled_by_its_weight():
    found = rules(a_policy({Knob.KEY_RATE: per_second(10), Knob.KEY_BURST: 300}))
    assert found.rate_of(KeyState("a"), 2500) == Rate(per_second(25), 300)
    assert found.rate_of(KeyState("a"), 1000) == Rate(per_second(10), 300)


def test_a_keys_own_rate_is_what_was_said_whatever_its_weight():
    found = rules(a_policy({Knob.KEY_RATE: per_second(10), Knob.KEY_BURST: 300}))
    assert found.rate_of(KeyState("a", rate_micro=per_second(3)), 2500) == Rate(per_second(3), 300)
    closed = found.rate_of(KeyState("a", rate_micro=0), 2500)
    assert closed is not None
    assert closed.is_closed


def test_without_a_default_only_a_key_with_a_rate_of_its_own_is_limited():
    found = rules(a_policy(limited_keys=1))
    assert found.rate_of(KeyState("a"), 1000) is None
    assert found.rate_of(KeyState("b", rate_micro=5), 1000) == Rate(5, BURST_DEFAULT_MS)


def test_a_keys_own_running_limit_beats_the_default_even_if_it_is_zero():
    found = rules(a_policy({Knob.KEY_RUNNING: 4}))
    assert found.running_limit_of(KeyState("a")) == 4
    assert found.running_limit_of(KeyState("a", running_limit=9)) == 9
    assert found.running_limit_of(KeyState("a", running_limit=0)) == 0
    assert PLAIN.running_limit_of(KeyState("a")) is None


@pytest.mark.parametrize(
    ("fields", "is_limited", "says_nothing"),
    [
        ({}, False, True),
        ({"weight_milli": 1}, False, False),
        ({"rate_micro": 0}, True, False),
        ({"running_limit": 0}, True, False),
        ({"paused": 1}, True, False),
    ],
)
def test_a_weight_limits_no_key_but_a_zero_does(fields: dict[str, Any], is_limited: bool, says_nothing: bool):
    settings = KeySettings("a", **fields)
    assert (settings.is_limited, settings.says_nothing) == (is_limited, says_nothing)


# ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_change_sets_some_unsets_others_keeps_the_rest_and_counts_up():
    before = a_policy({Knob.QUEUE_RATE: 1, Knob.RUNNING: 2, Knob.FAIRNESS: "off"})
    story = Setting(9, "ann", 11, "less load")
    after = changed(before, {Knob.QUEUE_RATE: story, Knob.RUNNING: None, Knob.KEY_RATE: None}, ())
    assert after.version == 2
    assert after.settings == {Knob.QUEUE_RATE: story, Knob.FAIRNESS: before.settings[Knob.FAIRNESS]}
    assert before.number(Knob.QUEUE_RATE) == 1, "the policy before is left as it was"


def test_a_number_is_no_word_and_a_word_no_number():
    policy = a_policy({Knob.QUEUE_RATE: 1, Knob.FAIRNESS: "off"})
    assert (policy.number(Knob.QUEUE_RATE), policy.word(Knob.QUEUE_RATE)) == (1, None)
    assert (policy.number(Knob.FAIRNESS), policy.word(Knob.FAIRNESS)) == (None, "off")
    assert (policy.number(Knob.RUNNING), policy.word(Knob.RUNNING)) == (None, None)


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
    assert policy.capped_keys == sum(each.running_limit is not None for each in keys.values())
