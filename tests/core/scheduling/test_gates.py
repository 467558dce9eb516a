"""Gates: each limit with its numbers, which is named first, and dispatch that passes them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.limits import windows
from penstock.core.limits.admission import QueueLimits, ScopeRules
from penstock.core.limits.policies import LimitSetting, Policy, SettingValue
from penstock.core.limits.rate_reports import RateSource
from penstock.core.limits.windows import MINUTE_MS, NOTHING, Counts, Window
from penstock.core.model import Queue, QueueId, TaskKind
from penstock.core.scheduling.dispatch import (
    Grants,
    Hold,
    HoldReason,
    PollStatus,
    QueueSnapshot,
    affordable,
    allowance,
    decide,
    settle,
)
from penstock.core.scheduling.fairness import Lane
from penstock.core.scheduling.gates import (
    COOL_DOWN_MAX_MS,
    RAMP_S,
    Gate,
    GateKind,
    ScopeState,
    charged,
    cooled,
    corrected,
    counted_by,
    due,
    gates,
)
from penstock.core.scheduling.prefetch import without_limits
from tests.core.scheduling.queue_model import LEVEL, per_second

NOW_MS = 1_790_000_000_000
TURN_MS = (NOW_MS // MINUTE_MS + 1) * MINUTE_MS
"""When the next calendar minute begins."""
OWN = "queue:prod/payments/activity"
NAMESPACE, GROUP, CLUSTER = "namespace:prod/activity", "group:prod/openai/activity", "cluster"
NAMES = (CLUSTER, GROUP, NAMESPACE)
SLOT = (LEVEL, "a")


def a_line(
    *scopes: ScopeRules,
    window: Counts = NOTHING,
    settings: dict[LimitSetting, int | str] | None = None,
    **limits: Any,
) -> Queue:
    policy = Policy(
        1, {setting_name: SettingValue(value, "ops", 0) for setting_name, value in (settings or {}).items()}
    )
    ordered = tuple(sorted(scopes, key=lambda each: each.name))
    return Queue(
        QueueId(1),
        "prod",
        "payments",
        TaskKind.ACTIVITY,
        policy=policy,
        window=window,
        limits=QueueLimits(scopes=ordered, **limits),
    )


def counting(*states: ScopeState) -> dict[str, ScopeState]:
    return {state.name: state for state in states}


def gave(count: int, at_ms: int = NOW_MS) -> Counts:
    return windows.spent(Window.MINUTE, NOTHING, at_ms, count)


def passing(
    queue: Queue, *states: ScopeState, running: int = 0, now_ms: int = NOW_MS, cost: int = 0
) -> list[Gate]:
    return gates(queue, running, counting(*states), now_ms, cost)


# ── Each gate ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_without_limits_passes_no_gate_and_may_give_any_number():
    assert passing(a_line()) == []
    assert allowance(a_line(), 10**6, NOW_MS) is None


@pytest.mark.parametrize(
    ("queue", "scope"),
    [
        (replace(a_line(), paused=1), OWN),
        (a_line(settings={LimitSetting.PAUSED: "on"}), OWN),
        (a_line(ScopeRules(NAMESPACE, paused=True)), NAMESPACE),
        (a_line(ScopeRules(GROUP, paused=True)), GROUP),
        (a_line(ScopeRules(CLUSTER, paused=True)), CLUSTER),
    ],
)
def test_a_pause_closes_until_somebody_resumes(queue: Queue, scope: str):
    assert passing(queue) == [Gate(GateKind.PAUSED, scope, 0)]


def test_a_pause_that_has_ended_closes_nothing():
    queue = a_line()
    ending = Policy(1, {LimitSetting.PAUSED: SettingValue("on", "ops", 0, None, ends_at_ms=NOW_MS)})
    assert passing(replace(queue, policy=ending, at_ms=NOW_MS - 1)) != []
    assert passing(replace(queue, policy=ending, at_ms=NOW_MS)) == []


@pytest.mark.parametrize(("running", "left"), [(0, 3), (2, 1), (3, 0), (9, 0)])
def test_leases_of_a_line_leave_what_its_cap_allows_and_time_alone_opens_nothing(running: int, left: int):
    assert passing(a_line(leases=3), running=running) == [Gate(GateKind.LEASES, OWN, left, 3, running)]


def test_what_an_operator_sets_is_the_cap_of_a_line_whatever_is_declared():
    (gate,) = passing(a_line(leases=3, settings={LimitSetting.LEASE_CAP: 5}), running=4)
    assert (gate.most, gate.left) == (5, 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("granted", "ended", "left"), [(0, 0, 3), (7, 5, 1), (8, 5, 0), (9, 2, 0)])
def test_leases_of_a_scope_are_those_granted_less_those_ended(name: str, granted: int, ended: int, left: int):
    found = passing(a_line(ScopeRules(name, leases=3)), ScopeState(1, name, granted, ended))
    assert found == [Gate(GateKind.LEASES, name, left, 3, granted - ended)]


def test_dispatches_of_a_line_open_with_the_next_minute():
    queue = a_line(dispatches=3, window=gave(2))
    assert passing(queue) == [Gate(GateKind.DISPATCHES, OWN, 1, 3, 2)]
    full = replace(queue, window=gave(3))
    assert passing(full) == [Gate(GateKind.DISPATCHES, OWN, 0, 3, 3, TURN_MS)]
    assert passing(full, now_ms=TURN_MS) == [Gate(GateKind.DISPATCHES, OWN, 3, 3, 0)]


@pytest.mark.parametrize("name", NAMES)
def test_dispatches_of_a_scope_open_as_its_window_says(name: str):
    by_calendar, sliding = (ScopeRules(name, dispatches=3, window=window) for window in Window)
    full = ScopeState(1, name, window=gave(3))
    assert passing(a_line(by_calendar), full) == [Gate(GateKind.DISPATCHES, name, 0, 3, 3, TURN_MS)]
    opens_at_ms = NOW_MS + 1_000 + MINUTE_MS
    assert passing(a_line(sliding), full) == [Gate(GateKind.DISPATCHES, name, 0, 3, 3, opens_at_ms)]


def test_the_rate_of_a_line_is_a_gate_like_others():
    said = RateSource.OPERATOR
    queue = a_line(settings={LimitSetting.QUEUE_RATE: per_second(10)})
    assert passing(queue) == [Gate(GateKind.RATE, OWN, 10, rate_micro=per_second(10), rate_source=said)]
    closed = a_line(settings={LimitSetting.QUEUE_RATE: 0})
    assert passing(closed) == [Gate(GateKind.RATE, OWN, 0, rate_micro=0, rate_source=said)]


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_of_cost_is_open_while_the_next_task_fits_into_it(name: str):
    queue = a_line(ScopeRules(name, cost=100))
    state = ScopeState(1, name, costs=gave(60))
    assert passing(queue, state, cost=40) == [Gate(GateKind.COST, name, 40, 100, 60)]
    assert passing(queue, state, cost=41) == [Gate(GateKind.COST, name, 0, 100, 60, TURN_MS)]


def test_a_scope_that_nothing_was_counted_for_yet_is_empty():
    assert passing(a_line(ScopeRules(GROUP, leases=3))) == [Gate(GateKind.LEASES, GROUP, 3, 3, 0)]


@pytest.mark.parametrize(
    "queue",
    [
        a_line(leases=0),
        a_line(dispatches=0),
        a_line(leases=5, settings={LimitSetting.LEASE_CAP: 0}),
        *(a_line(ScopeRules(name, leases=0)) for name in NAMES),
        *(a_line(ScopeRules(name, dispatches=0)) for name in NAMES),
        *(a_line(ScopeRules(name, cost=0)) for name in NAMES),
    ],
)
@pytest.mark.parametrize("cost", [0, 1, 10**9])
def test_a_limit_of_zero_closes_and_time_does_not_open_it(queue: Queue, cost: int):
    (gate,) = passing(queue, cost=cost)
    assert gate.is_closed
    assert gate.opens_at_ms is None
    assert isinstance(allowance(queue, 0, NOW_MS, {}, cost), Hold)


# ── Which is named ──────────────────────────────────────────────────────────────────────────────────────

ORDER = [
    (GateKind.PAUSED, OWN, HoldReason.PAUSED),
    (GateKind.PAUSED, GROUP, HoldReason.SCOPE_PAUSED),
    (GateKind.COOLING, GROUP, HoldReason.COOLING),
    (GateKind.LEASES, OWN, HoldReason.QUEUE_LEASE_CAP),
    (GateKind.LEASES, NAMESPACE, HoldReason.SCOPE_LEASE_CAP),
    (GateKind.LEASES, GROUP, HoldReason.SCOPE_LEASE_CAP),
    (GateKind.LEASES, CLUSTER, HoldReason.SCOPE_LEASE_CAP),
    (GateKind.RATE, OWN, HoldReason.QUEUE_RATE),
    (GateKind.DISPATCHES, OWN, HoldReason.QUEUE_DISPATCHES),
    (GateKind.DISPATCHES, NAMESPACE, HoldReason.SCOPE_DISPATCHES),
    (GateKind.DISPATCHES, GROUP, HoldReason.SCOPE_DISPATCHES),
    (GateKind.DISPATCHES, CLUSTER, HoldReason.SCOPE_DISPATCHES),
    (GateKind.COST, NAMESPACE, HoldReason.SCOPE_COST),
    (GateKind.COST, GROUP, HoldReason.SCOPE_COST),
    (GateKind.COST, CLUSTER, HoldReason.SCOPE_COST),
]
"""Every gate by the order in which closed ones are named, and what a poll is told."""


def closing(closed: set[int]) -> tuple[Queue, dict[str, ScopeState]]:
    """A line with all gates, of which these are closed."""
    shut = {ORDER[index][:2] for index in closed}

    def most(kind: GateKind, scope: str) -> int:
        return 0 if (kind, scope) in shut else 50

    scopes = [
        ScopeRules(
            name,
            leases=most(GateKind.LEASES, name),
            dispatches=most(GateKind.DISPATCHES, name),
            cost=most(GateKind.COST, name),
            paused=(GateKind.PAUSED, name) in shut,
        )
        for name in NAMES
    ]
    settings: dict[LimitSetting, int | str] = {LimitSetting.QUEUE_RATE: per_second(most(GateKind.RATE, OWN))}
    if (GateKind.PAUSED, OWN) in shut:
        settings[LimitSetting.PAUSED] = "on"
    cool_until_ms = NOW_MS + 5 if (GateKind.COOLING, GROUP) in shut else None
    states = counting(ScopeState(1, GROUP, cool_until_ms=cool_until_ms))
    leases, dispatches = most(GateKind.LEASES, OWN), most(GateKind.DISPATCHES, OWN)
    return a_line(*scopes, settings=settings, leases=leases, dispatches=dispatches), states


@given(closed=st.sets(st.integers(0, len(ORDER) - 1)))
def test_of_several_closed_gates_the_first_in_the_contracts_order_is_named(closed: set[int]):
    """Queue leases, namespace leases, queue dispatches, namespace dispatches, group dispatches; pauses before."""
    queue, states = closing(closed)
    found = allowance(queue, 0, NOW_MS, states)
    if not closed:
        assert found == 50
        return
    _, scope, reason = ORDER[min(closed)]
    assert isinstance(found, Hold)
    assert found.reason is reason
    assert found.scope == (None if scope == OWN else scope)
    assert found.poll_status is PollStatus.THROTTLED


@given(closed=st.sets(st.integers(0, len(ORDER) - 1)))
def test_every_closed_gate_is_listed_though_one_is_named(closed: set[int]):
    queue, states = closing(closed)
    listed = [(gate.kind, gate.scope) for gate in gates(queue, 0, states, NOW_MS) if gate.is_closed]
    assert listed == [ORDER[index][:2] for index in sorted(closed)]


def test_a_hold_says_when_time_opens_the_gate():
    rules, full = ScopeRules(GROUP, dispatches=3), ScopeState(1, GROUP, window=gave(3))
    found = allowance(a_line(rules), 0, NOW_MS, counting(full))
    assert found == Hold(HoldReason.SCOPE_DISPATCHES, TURN_MS, GROUP)


numbers = st.one_of(st.none(), st.none(), st.integers(5, 12), st.integers(5, 12), st.integers(0, 5))
scope_numbers = st.tuples(numbers, numbers, numbers, st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))


@st.composite
def places(draw: st.DrawFn) -> tuple[Queue, int, dict[str, ScopeState]]:
    """A line with any limits, what it runs, and what its scopes count."""
    scopes, states = [], []
    for number, name in enumerate(NAMES, start=1):
        leases, dispatches, cost, running, went, paid = draw(scope_numbers)
        paused = draw(st.sampled_from([False] * 9 + [True]))
        scopes.append(ScopeRules(name, leases, dispatches, cost, draw(st.sampled_from(Window)), paused))
        ended = draw(st.integers(0, 3))
        states.append(ScopeState(number, name, running + ended, ended, gave(went), gave(paid)))
    queue = a_line(
        *scopes, leases=draw(numbers), dispatches=draw(numbers), window=gave(draw(st.integers(0, 5)))
    )
    return queue, draw(st.integers(0, 5)), counting(*states)


@given(place=places())
def test_a_line_may_give_what_the_narrowest_gate_leaves(place: tuple[Queue, int, dict[str, ScopeState]]):
    """A budget of cost says only whether anything may go: how many is asked task by task."""
    queue, running, states = place
    found = allowance(queue, running, NOW_MS, states)
    listed = gates(queue, running, states, NOW_MS)
    closed = [gate for gate in listed if gate.is_closed]
    if closed:
        assert isinstance(found, Hold)
    else:
        counted = [gate.left for gate in listed if gate.kind is not GateKind.COST]
        assert found == min(counted, default=None)


# ── Dispatch ────────────────────────────────────────────────────────────────────────────────────────────


def a_snapshot(place: tuple[Queue, int, dict[str, ScopeState]], waiting: int = 99) -> QueueSnapshot:
    queue, running, states = place
    lane = Lane(*SLOT, 0, 1000, 1000, waiting)
    return QueueSnapshot(queue, [lane], [], NOW_MS, running=running, scopes=states)


@given(place=places(), room=st.integers(1, 9), waiting=st.integers(1, 9))
def test_no_more_are_granted_than_every_gate_leaves_and_no_fewer(
    place: tuple[Queue, int, dict[str, ScopeState]], room: int, waiting: int
):
    queue, running, states = place
    decision = decide(a_snapshot(place, waiting), room)
    listed = gates(queue, running, states, NOW_MS)
    closed = next((gate for gate in listed if gate.is_closed), None)
    if closed is None:
        assert isinstance(decision, Grants)
        lefts = [gate.left for gate in listed if gate.kind is not GateKind.COST]
        assert len(decision.order) == min([room, waiting, *lefts])
    else:
        assert isinstance(decision, Hold)
        assert decision.scope == (None if closed.scope == OWN else closed.scope)
        assert decision.look_again_at_ms == closed.opens_at_ms


@given(place=places(), room=st.integers(1, 9))
def test_who_gets_nothing_beside_others_is_told_the_first_gate_that_they_closed(
    place: tuple[Queue, int, dict[str, ScopeState]], room: int
):
    snapshot = a_snapshot(place)
    decision = decide(snapshot, room)
    if isinstance(decision, Hold):
        return
    given_ = len(decision.order)
    settled = settle(snapshot, {SLOT: given_})
    after = replace(snapshot.queue, window=settled.window)
    listed = gates(after, snapshot.running + given_, counting(*settled.scopes), NOW_MS)
    closed = next((gate for gate in listed if gate.is_closed), None)
    if closed is None:
        assert decision.hold.reason is HoldReason.EMPTY
    else:
        assert decision.hold.scope == (None if closed.scope == OWN else closed.scope)
        assert decision.hold.look_again_at_ms == closed.opens_at_ms


@given(place=places(), room=st.integers(1, 9), cost=st.integers(0, 20), data=st.data())
def test_every_scope_is_charged_for_exactly_what_was_taken(
    place: tuple[Queue, int, dict[str, ScopeState]], room: int, cost: int, data: st.DataObject
):
    """Also when a lane gave less than was planned."""
    queue, _, states = place
    snapshot = a_snapshot(place)
    decision = decide(snapshot, room)
    planned = 0 if isinstance(decision, Hold) else len(decision.order)
    taken = data.draw(st.integers(0, planned))
    settled = settle(snapshot, {SLOT: taken} if taken else {}, cost if taken else 0)
    assert [state.name for state in settled.scopes] == [rules.name for rules in queue.limits.scopes]
    for rules, state in zip(queue.limits.scopes, settled.scopes, strict=True):
        before, window = states[rules.name], rules.window
        assert (state.running, state.ended) == (before.running + taken, before.ended)
        assert windows.used(window, state.window, NOW_MS) == (
            windows.used(window, before.window, NOW_MS) + taken
        )
        charged_cost = cost if taken and rules.cost is not None else 0
        assert windows.used(window, state.costs, NOW_MS) == (
            windows.used(window, before.costs, NOW_MS) + charged_cost
        )
    if queue.limits.dispatches is not None:
        assert windows.used(Window.MINUTE, settled.window, NOW_MS) == (
            windows.used(Window.MINUTE, queue.window, NOW_MS) + taken
        )


@given(place=places(), rooms=st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_however_often_one_asks_no_limit_is_passed(
    place: tuple[Queue, int, dict[str, ScopeState]], rooms: list[int]
):
    snapshot = a_snapshot(place)
    for room in rooms:
        decision = decide(snapshot, room)
        given_ = 0 if isinstance(decision, Hold) else len(decision.order)
        settled = settle(snapshot, {SLOT: given_} if given_ else {})
        snapshot = replace(
            snapshot,
            queue=replace(snapshot.queue, window=settled.window),
            running=snapshot.running + given_,
            scopes=counting(*settled.scopes),
        )
        if not given_:
            continue
        for gate in gates(snapshot.queue, snapshot.running, snapshot.scopes, NOW_MS):
            assert gate.most is None or gate.used is None or gate.used <= gate.most


def test_who_takes_tasks_ahead_of_time_is_held_by_pauses_and_rates_and_by_no_limit_that_counts_what_runs():
    rate: dict[LimitSetting, int | str] = {LimitSetting.QUEUE_RATE: per_second(10)}
    scopes = [ScopeRules(name, leases=0, dispatches=0, cost=0) for name in NAMES]
    queue = a_line(
        *scopes,
        leases=0,
        dispatches=0,
        settings=rate | {LimitSetting.LEASE_CAP: 0, LimitSetting.DISPATCHES: 0},
    )
    leases, rate_ = passing(without_limits(queue))
    assert leases.left > 0, "what runs is counted when it is started"
    assert (rate_.kind, rate_.scope, rate_.left) == (GateKind.RATE, OWN, 10)
    paused = a_line(replace(scopes[1], paused=True), settings={LimitSetting.PAUSED: "on"})
    assert [gate.scope for gate in passing(without_limits(paused))] == [OWN, GROUP]


def test_a_task_says_which_scopes_count_its_lease():
    assert counted_by([ScopeState(3, GROUP), ScopeState(7, CLUSTER)]) == " 3 7 "
    assert counted_by([]) == ""


# ── Cool-down ───────────────────────────────────────────────────────────────────────────────────────────

UNTIL_MS = NOW_MS + 30_000
CLOSABLE = ScopeRules(GROUP, dispatches=10**6)


def cooling_left(state: ScopeState, now_ms: int) -> int | None:
    gate = next((each for each in passing(a_line(CLOSABLE), state, now_ms=now_ms)), None)
    return gate.left if gate is not None and gate.kind is GateKind.COOLING else None


def test_a_refusal_upstream_closes_the_group_until_the_moment_that_was_named():
    state = ScopeState(1, GROUP, cool_until_ms=UNTIL_MS)
    for now_ms in (NOW_MS, UNTIL_MS - 1):
        found = allowance(a_line(CLOSABLE), 0, now_ms, counting(state))
        assert found == Hold(HoldReason.COOLING, UNTIL_MS, GROUP)
    assert allowance(a_line(CLOSABLE), 0, UNTIL_MS, counting(state)) == 1


@given(asks=st.lists(st.tuples(st.integers(0, 2_500), st.integers(0, 2_000)), max_size=40))
def test_a_group_opens_again_by_one_three_seven_fifteen_until_it_is_open(asks: list[tuple[int, int]]):
    """So many in all may have gone by the end of each second; nothing that this allows is refused."""
    state, now_ms, went = ScopeState(1, GROUP, cool_until_ms=UNTIL_MS), UNTIL_MS, 0
    for ms, amount in asks:
        now_ms += ms
        second = (now_ms - UNTIL_MS) // 1_000
        allowed = cooling_left(state, now_ms)
        if second >= RAMP_S:
            assert allowed is None
            continue
        assert allowed == [1, 3, 7, 15, 31, 63, 127, 255, 511, 1023][second] - went
        given_ = min(amount, allowed)
        state, went = charged(CLOSABLE, state, given_, 0, now_ms), went + given_


def test_a_group_that_gave_all_it_may_says_in_which_second_more_may_go():
    state = charged(CLOSABLE, ScopeState(1, GROUP, cool_until_ms=UNTIL_MS), 1, 0, UNTIL_MS)
    found = allowance(a_line(CLOSABLE), 0, UNTIL_MS + 999, counting(state))
    assert found == Hold(HoldReason.COOLING, UNTIL_MS + 1_000, GROUP)
    assert cooling_left(state, UNTIL_MS + 1_000) == 2


def test_a_group_that_has_opened_forgets_that_it_was_closed():
    opened_ms = UNTIL_MS + RAMP_S * 1_000
    state = ScopeState(1, GROUP, cool_until_ms=UNTIL_MS, cool_given=1023)
    assert cooling_left(state, opened_ms - 1) == 0
    assert cooling_left(state, opened_ms) is None
    after = charged(CLOSABLE, state, 5, 0, opened_ms)
    assert (after.cool_until_ms, after.cool_given) == (None, 0)


def test_of_two_refusals_the_later_end_holds_and_none_closes_for_longer_than_a_day():
    assert cooled(None, NOW_MS, 5_000) == NOW_MS + 5_000
    assert cooled(NOW_MS + 9_000, NOW_MS, 5_000) == NOW_MS + 9_000
    assert cooled(NOW_MS + 2_000, NOW_MS, 5_000) == NOW_MS + 5_000
    assert cooled(None, NOW_MS, 10**12) == NOW_MS + COOL_DOWN_MAX_MS


# ── Cost ────────────────────────────────────────────────────────────────────────────────────────────────


def a_budget(most: int, paid: int = 0) -> tuple[Queue, dict[str, ScopeState]]:
    rules = ScopeRules(GROUP, cost=most)
    return a_line(rules), counting(ScopeState(1, GROUP, costs=gave(paid)))


@pytest.mark.parametrize(
    ("paid", "costs", "allowed"),
    [
        (0, [40, 40, 40], 2),
        (0, [50, 50, 1], 2),
        (60, [40, 1], 1),
        (0, [90, 20, 1, 1], 1),
        (0, [500, 1], 1),
        (0, [1, 500], 1),
        (0, [0, 0, 100], 3),
        (0, [], 0),
    ],
)
def test_tasks_go_in_their_order_as_far_as_the_budget_reaches_and_none_is_stepped_over(
    paid: int, costs: list[int], allowed: int
):
    assert affordable(*a_budget(100, paid), costs, NOW_MS) == allowed


@pytest.mark.parametrize(("paid", "costs"), [(61, [40, 1]), (1, [500]), (100, [1]), (100, [0])])
def test_if_the_first_task_must_wait_all_wait_until_time_makes_room_for_it(paid: int, costs: list[int]):
    found = affordable(*a_budget(100, paid), costs, NOW_MS)
    assert found == Hold(HoldReason.SCOPE_COST, TURN_MS, GROUP)


def test_a_task_dearer_than_the_whole_budget_goes_alone_and_the_next_waits_for_the_window():
    queue, states = a_budget(100)
    assert affordable(queue, states, [500, 1], NOW_MS) == 1
    after = charged(queue.limits.scopes[0], states[GROUP], 1, 500, NOW_MS)
    assert affordable(queue, counting(after), [1], TURN_MS - 1) == Hold(HoldReason.SCOPE_COST, TURN_MS, GROUP)
    assert affordable(queue, counting(after), [500], TURN_MS) == 1


@given(
    most=st.integers(1, 30),
    paid=st.integers(0, 30),
    costs=st.lists(st.integers(0, 40), min_size=1, max_size=8),
)
def test_what_goes_is_the_longest_part_of_the_line_that_the_budget_affords(
    most: int, paid: int, costs: list[int]
):
    queue, states = a_budget(most, paid)
    found = affordable(queue, states, costs, NOW_MS)
    allowed = 0 if isinstance(found, Hold) else found
    spent = paid
    for cost in costs[:allowed]:
        assert spent + cost <= most or spent == 0, "only a task that finds the budget untouched may pass it"
        spent += cost
    if allowed < len(costs):
        dearest = min(costs[allowed], most)
        assert spent + dearest > most or spent >= most


def test_the_narrowest_of_several_budgets_counts():
    scopes = ScopeRules(GROUP, cost=100), ScopeRules(NAMESPACE, cost=30)
    assert affordable(a_line(*scopes), {}, [20, 10, 1], NOW_MS) == 2
    found = affordable(a_line(*scopes), counting(ScopeState(1, NAMESPACE, costs=gave(30))), [1], NOW_MS)
    assert isinstance(found, Hold)
    assert found.scope == NAMESPACE


def corrected_use(settlements: Sequence[tuple[int, int]], now_ms: int = NOW_MS, paid: int = 60) -> int:
    rules = ScopeRules(GROUP, cost=100)
    state = corrected(rules, ScopeState(1, GROUP, costs=gave(paid)), settlements, now_ms)
    return windows.used(Window.MINUTE, state.costs, now_ms)


def test_a_task_that_cost_less_gives_the_rest_back_and_one_that_cost_more_is_charged():
    assert corrected_use([(NOW_MS, -25)]) == 35
    assert corrected_use([(NOW_MS, 25)]) == 85
    assert corrected_use([(NOW_MS, -25), (NOW_MS, 5), (NOW_MS, -40)]) == 0


def test_what_a_task_gives_back_after_its_window_frees_nothing_and_what_it_owes_is_charged_now():
    assert corrected_use([(NOW_MS, -25)], TURN_MS) == 0
    assert corrected_use([(NOW_MS, 25)], TURN_MS) == 25


def test_a_budget_is_never_below_nothing_whatever_is_given_back():
    assert corrected_use([(NOW_MS, -1000)]) == 0


def test_where_cost_is_not_limited_none_is_counted():
    state = charged(ScopeRules(GROUP, leases=5), ScopeState(1, GROUP), 2, 70, NOW_MS)
    assert state.costs == NOTHING


# ── A clock that was set back ───────────────────────────────────────────────────────────────────────────


@given(
    window=st.sampled_from(Window),
    back_ms=st.integers(MINUTE_MS + 1, 10**9),
    went=st.integers(0, 3),
    paid=st.integers(0, 3),
)
def test_what_went_in_the_far_future_of_a_clock_that_was_set_back_falls_due_in_a_minute_and_a_second(
    window: Window, back_ms: int, went: int, paid: int
):
    rules, now_ms = ScopeRules(GROUP, dispatches=3, cost=3, window=window), NOW_MS - back_ms
    state = due(rules, ScopeState(1, GROUP, 5, 2, gave(went), gave(paid)), now_ms)
    assert (state.granted, state.ended) == (5, 2)
    assert windows.used(window, state.window, now_ms) == went
    assert windows.used(window, state.costs, now_ms) == paid
    later_ms = now_ms + MINUTE_MS + 1_000
    assert [gate.left for gate in passing(a_line(rules), state, now_ms=later_ms)] == [3, 3]


@pytest.mark.parametrize("back_ms", [0, 1, MINUTE_MS])
def test_where_nothing_went_in_the_far_future_nothing_needs_to_be_kept(back_ms: int):
    state = ScopeState(1, GROUP, window=gave(3), costs=gave(3))
    assert due(CLOSABLE, state, NOW_MS - back_ms) is state
