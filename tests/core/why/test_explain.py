"""Why a task waits, from values alone: what binds, in which order, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.limits.admission import QueueLimits, ScopeRules
from penstock.core.limits.policies import KeyState, LimitSetting, Policy, SettingValue
from penstock.core.limits.windows import Window
from penstock.core.model import (
    Queue,
    QueueId,
    RunId,
    Task,
    TaskId,
    TaskKind,
    TaskState,
    WorkerRecord,
    WorkerStatus,
)
from penstock.core.scheduling.fairness import Lane, VirtualClock, plan, stride
from penstock.core.scheduling.gates import ScopeState, gates
from penstock.core.why.estimate import DispatchCounts, DispatchPace, estimate_start
from penstock.core.why.explain import WaitSnapshot, explain
from penstock.core.why.position import LaneContext, given_before, position, turn, turns
from penstock.core.why.sentences import duration_text, remedy_text, scope_text
from penstock.core.why.values import Constraint, ConstraintKind, Position, Remedy, RemedyKind
from penstock.core.why.workers import QueueWorkers

NOW = 1_790_000_000_000
QUEUE = Queue(QueueId(1), "default", "orders", TaskKind.ACTIVITY, at_ms=NOW)
TASK = Task(
    TaskId("r-1"), QueueId(1), "default", "orders", TaskKind.ACTIVITY, RunId("r"), None, "Charge", None,
    3, "acme", TaskState.READY, NOW, NOW,
)  # fmt: skip
WORKER = WorkerRecord(
    "default", "w1", "orders", "python", None, None, (), (), {}, 10, 10, WorkerStatus.ACTIVE, {}, None, None,
    None, NOW, NOW, NOW,
)  # fmt: skip


def situation(**changes: Any) -> WaitSnapshot:
    plain = WaitSnapshot(
        "charge-1", TASK, QUEUE, QueueWorkers([WORKER], [], {}, NOW, 60_000), KeyState("acme")
    )
    return replace(plain, **changes)


def limited(*scopes: ScopeRules, **limits: Any) -> Queue:
    return replace(QUEUE, limits=QueueLimits(scopes=scopes, **limits))


def bound(seen: WaitSnapshot) -> Constraint:
    found = explain(seen).binding
    assert found is not None
    return found


def test_nothing_binds_a_task_that_may_go() -> None:
    explanation = explain(situation())
    assert explanation.binding is None
    assert explanation.sentence == "charge-1 is next: the first poll of a worker that fits takes it."
    assert explanation.expected.from_ms == NOW


@pytest.mark.parametrize(
    ("kind", "rules", "state"),
    [
        (ConstraintKind.PAUSED, {"paused": True}, {}),
        (ConstraintKind.LEASES, {"leases": 2}, {"granted": 5, "ended": 3}),
        (ConstraintKind.DISPATCHES, {"dispatches": 2}, {"window": ((NOW // 1000, 2),)}),
        (ConstraintKind.COST, {"cost": 9}, {"costs": ((NOW // 1000, 9),)}),
        (ConstraintKind.COOLING, {}, {"cool_until_ms": NOW + 5_000}),
    ],
)
@pytest.mark.parametrize("scope", ["cluster", "namespace:default", "group:default/g", "group:*/g"])
def test_every_gate_of_every_scope_is_a_constraint(
    kind: ConstraintKind, rules: dict[str, Any], state: dict[str, Any], scope: str
) -> None:
    queue = limited(ScopeRules(scope, **rules))
    found = bound(situation(queue=queue, scopes={scope: ScopeState(1, scope, **state)}))
    assert (found.kind, found.scope, found.is_closed) == (kind, scope, True)
    assert found.frees


def test_who_could_take_it_is_named_before_what_may_be_given() -> None:
    queue = limited(ScopeRules("cluster", paused=True, leases=0))
    queue_workers = QueueWorkers([], [], {}, NOW, 60_000)
    explanation = explain(situation(queue=queue, queue_workers=queue_workers, is_coordinated=False))
    assert explanation.binding is not None
    kinds = [each.kind for each in (explanation.binding, *explanation.next)]
    assert kinds == [
        ConstraintKind.NO_WORKER,
        ConstraintKind.COORDINATION,
        ConstraintKind.PAUSED,
        ConstraintKind.LEASES,
    ]


def test_workers_without_a_slot_and_workers_without_a_free_one() -> None:
    none = replace(WORKER, worker_id="w0", activity_slots=0)
    found = bound(situation(queue_workers=QueueWorkers([none], [], {}, NOW, 60_000)))
    assert (found.kind, [each.act for each in found.frees]) == (
        ConstraintKind.NO_SLOTS,
        [RemedyKind.REGISTER],
    )
    full = bound(situation(queue_workers=QueueWorkers([none, WORKER], [], {"w1": 12}, NOW, 60_000)))
    assert (full.kind, full.frees[0]) == (
        ConstraintKind.SATURATED,
        Remedy(RemedyKind.END_LEASES, "queue:default/orders/activity", count=3, worker="w1"),
    )


def test_a_gate_that_fills_up_before_its_turn_binds_next() -> None:
    queue = limited(ScopeRules("cluster", leases=5))
    scopes = {"cluster": ScopeState(1, "cluster", granted=2)}
    place = Position(3, "acme", ahead_of_own=3)
    explanation = explain(situation(queue=queue, scopes=scopes, place=place))
    assert [(each.kind, each.is_closed) for each in explanation.next] == [(ConstraintKind.LEASES, False)]
    fewer = explain(situation(queue=queue, scopes=scopes, place=replace(place, ahead_of_own=2)))
    assert fewer.next == ()


def test_a_closed_gate_can_only_be_raised() -> None:
    queue = limited(ScopeRules("cluster", leases=0))
    found = bound(situation(queue=queue))
    assert found.frees == (Remedy(RemedyKind.RAISE, "cluster", to=1),)
    assert explain(situation(queue=queue)).expected.unknown_because is not None


def test_a_dear_task_keeps_those_behind_it_waiting() -> None:
    queue = limited(ScopeRules("group:default/g", cost=10))
    scopes = {"group:default/g": ScopeState(1, "group:default/g", costs=((NOW // 1000, 4),))}
    place = Position(3, "acme", ahead_of_own=1)
    found = bound(situation(queue=queue, scopes=scopes, place=place, head_cost=7))
    assert (found.kind, found.frees[-1].to) == (ConstraintKind.COST, 11)
    assert "the task that goes first is estimated at 7" in found.message


def test_a_pause_tells_who_made_it_and_until_when() -> None:
    pause = SettingValue("on", "ann", NOW, "too hot", NOW + 60_000)
    queue = replace(QUEUE, policy=Policy(1, {LimitSetting.PAUSED: pause}))
    found = bound(situation(queue=queue, pauses={"queue:default/orders/activity": pause}))
    assert found.message == "the task queue orders is paused; it opens in 1 min (by ann: too hot)"
    assert (
        explain(situation(queue=queue, pauses={"queue:default/orders/activity": pause})).expected.from_ms
        == NOW + 60_000
    )


class TestPosition:
    @given(
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from([300, 1_000, 2_500, 7_000]), st.integers(1, 12)),
            min_size=1,
            max_size=6,
        ),
        st.data(),
    )
    def test_the_number_ahead_is_what_the_plan_gives_first(
        self, rows: list[tuple[int, int, int]], data: st.DataObject
    ) -> None:
        """For any tags, weights and counts: as many go before it as the plan of dispatch puts before it."""
        lanes = [
            Lane(3, f"k{number}", tag * stride(1_000) // 2, weight, weight, count)
            for number, (tag, weight, count) in enumerate(rows)
        ]
        own = data.draw(st.sampled_from(lanes))
        before = data.draw(st.integers(0, own.count - 1))
        around = LaneContext(own, before, lanes, len(lanes) - 1, VirtualClock(3), ())
        place = position(replace(TASK, key=own.key), around)
        order = plan(lanes, [VirtualClock(3)], sum(lane.count for lane in lanes)).order
        mine = [index for index, lane_key in enumerate(order) if lane_key == own.lane_key]
        assert place.ahead == mine[before]
        assert place.ahead_of_others == mine[before] - before

    def test_equal_tags_go_by_key(self) -> None:
        lane = Lane(3, "b", 100, 1_000, 1_000, 1)
        assert given_before(lane, 100, "c", 0) == 1
        assert given_before(lane, 100, "a", 0) == 0

    def test_no_credit_for_time_in_which_a_lane_stood_aside(self) -> None:
        assert turn(Lane(3, "a", 5, 1_000, 1_000, 1), 0, 100) == 100

    def test_what_was_not_read_is_estimated_from_what_was(self) -> None:
        own = Lane(3, "own", 10, 1_000, 1_000, 1)
        others = [Lane(3, f"k{number}", 0, 1_000, 1_000, 1) for number in range(10)]
        place = position(replace(TASK, key="own"), LaneContext(own, 0, others, 500, VirtualClock(3), ()))
        assert (place.ahead, place.is_exact) == (500, False)

    def test_turns_are_named_from_the_outermost(self) -> None:
        place = Position(3, "a", ((1, 4),), ahead_of_others=2, ahead_of_own=1)
        assert [each.kind for each in turns(place, fair=True)] == [
            ConstraintKind.PRIORITY, ConstraintKind.FAIRNESS_TURN, ConstraintKind.BEHIND_OWN_KEY,
        ]  # fmt: skip
        assert [each.kind for each in turns(Position(3, "a"), fair=True)] == []


class TestExpectation:
    def told(self, queue: Queue, place: Position, pace: DispatchPace, **states: ScopeState) -> Any:
        found = gates(queue, 0, states, NOW)
        return estimate_start(queue, [], found, states, place, pace, NOW)

    def test_unknown_when_nothing_went_of_late(self) -> None:
        when = self.told(QUEUE, Position(3, "a", ahead_of_own=5), DispatchPace())
        assert when.from_ms is None
        assert "dispatched" in when.unknown_because

    def test_more_ahead_is_later_and_faster_lines_are_sooner(self) -> None:
        slow, fast = DispatchPace(DispatchCounts(40, 60)), DispatchPace(DispatchCounts(400, 600))
        near = self.told(QUEUE, Position(3, "a", ahead_of_own=10), slow)
        far = self.told(QUEUE, Position(3, "a", ahead_of_own=100), slow)
        quick = self.told(QUEUE, Position(3, "a", ahead_of_own=100), fast)
        assert near.from_ms < far.from_ms
        assert quick.to_ms < far.to_ms

    def test_the_latest_is_unknown_when_higher_levels_get_nearly_everything(self) -> None:
        when = self.told(
            QUEUE, Position(3, "a", ((1, 5),)), DispatchPace(DispatchCounts(50, 50), DispatchCounts(50, 49))
        )
        assert when.from_ms is not None
        assert when.to_ms is None

    @pytest.mark.parametrize("window", list(Window))
    def test_a_minute_budget_lets_so_many_go_and_no_more(self, window: Window) -> None:
        queue = replace(limited(dispatches=10, window=window), window=((NOW // 1000, 10),))
        first = self.told(queue, Position(3, "a"), DispatchPace(DispatchCounts(10)))
        later = self.told(queue, Position(3, "a", ahead_of_own=10), DispatchPace(DispatchCounts(10)))
        assert later.from_ms == first.from_ms + 60_000


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ("queue:default/orders/activity", "the task queue orders"),
        ("queue:default/a/b/workflow", "the task queue a/b"),
        ("namespace:prod", "the namespace prod"),
        ("namespace:prod/activity", "the namespace prod (activity tasks)"),
        ("group:prod/llm/workflow", "the budget group llm (workflow tasks)"),
        ("group:*/llm", "the shared budget group llm"),
        ("cluster/activity", "the cluster (activity tasks)"),
        ("key:default/orders/activity/acme", "the key acme"),
        ("key:default/orders/activity/", "the tasks without a key"),
    ],
)
def test_scopes_have_words(scope: str, words: str) -> None:
    assert scope_text(scope) == words


@pytest.mark.parametrize("act", list(RemedyKind))
def test_every_remedy_can_be_said(act: RemedyKind) -> None:
    assert remedy_text(Remedy(act, "cluster", to=3, at_ms=NOW, count=2, task_type="T", build_id="b"), NOW)


def test_times_are_told_in_their_largest_unit() -> None:
    assert [duration_text(ms) for ms in (-5, 250, 23_400, 60_000, 7_200_000, 90_000_000)] == [
        "0 ms", "250 ms", "23 s", "1 min", "2 h", "1 d",
    ]  # fmt: skip
