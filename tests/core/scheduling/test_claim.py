"""A claim as a whole: what `plan_claim` may never do, whatever polls, workers, limits and tasks meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.core.limits.admission import QueueLimits, ScopeRules
from penstock.core.limits.policies import KeyState, LimitSetting, Policy, SettingValue
from penstock.core.model import Queue, QueueId, Task, TaskKind, TaskState, WorkerRecord
from penstock.core.scheduling.charges import LockedScopes
from penstock.core.scheduling.claim import (
    ClaimPlan,
    ClaimSnapshot,
    LaneView,
    LockedQueue,
    Need,
    NeedLanes,
    NeedLeaseCount,
    NeedLeaseEnds,
    NeedQueue,
    NeedScopes,
    NeedTasks,
    QueueState,
    plan_claim,
)
from penstock.core.scheduling.cohorts import DRAINING
from penstock.core.scheduling.dispatch import HoldReason, QueueSnapshot, WorkerFilter
from penstock.core.scheduling.fairness import Lane, LaneKey, LaneState
from penstock.core.scheduling.gates import ScopeState
from penstock.core.scheduling.polls import Held, Poll, Refused, Retry, RetryReason
from penstock.core.scheduling.slots import NO_LOAD, SlotUsage
from penstock.errors import Reason
from tests.support.builders import NOW_MS, a_cohort, a_task, a_worker, leased
from tests.support.effort import times

STALE_MS = 60_000
SCOPE = "group:default/shop"
UNLIMITED, UNUSED = QueueLimits(), ScopeState(7, SCOPE)
WORKFLOW, ACTIVITY = TaskKind.WORKFLOW, TaskKind.ACTIVITY


@dataclass
class World:
    """What a store would hold, as values: it answers the needs of a plan, and takes in what is planned."""

    tasks: list[Task]
    workers: dict[str, WorkerRecord]
    loads: Mapping[str, SlotUsage] = field(default_factory=dict)
    kind: TaskKind = ACTIVITY
    limits: QueueLimits = UNLIMITED
    settings_: Mapping[LimitSetting, int] = field(default_factory=dict)
    leases: int = 0
    scope: ScopeState = UNUSED
    redelivered: Mapping[str, Sequence[Task]] = field(default_factory=dict)
    paused: bool = False
    asked: list[Need] = field(default_factory=list)

    @property
    def queue(self) -> Queue:
        policy = Policy(
            1,
            {
                setting_name: SettingValue(value, "ann", NOW_MS)
                for setting_name, value in self.settings_.items()
            },
        )
        plain = Queue(QueueId(1), "default", "orders", self.kind, int(self.paused))
        return replace(plain, policy=policy, limits=self.limits)

    def plan(self, *polls: Poll, **changes: Any) -> ClaimPlan:
        snapshot = ClaimSnapshot(polls, self.workers_of(polls), {}, NOW_MS, STALE_MS, **changes)
        planning = plan_claim(snapshot)
        rows: Any = None
        while True:
            try:
                need = planning.send(rows)
            except StopIteration as planned:
                plan: ClaimPlan = planned.value
                return plan
            self.asked.append(need)
            rows = self._answer(need)

    def workers_of(self, polls: Sequence[Poll]) -> dict[str, WorkerRecord | None]:
        return {**self.workers, **{poll.worker_id: self.workers.get(poll.worker_id) for poll in polls}}

    def eligible(self, worker_filter: WorkerFilter) -> list[Task]:
        return [task for task in self.tasks if _fits(task, worker_filter)]

    def _answer(self, need: Need) -> Any:
        match need:
            case NeedQueue():
                return self._queue(need)
            case NeedLeaseCount():
                return self.leases
            case NeedScopes():
                return self._scopes()
            case NeedLanes():
                return self._lanes(need)
            case NeedTasks():
                waiting = self.eligible(need.worker_filter)
                return [_of(waiting, lane_key)[:count] for lane_key, count in need.counts.items()]
            case NeedLeaseEnds():
                return {each.worker_id: self.loads.get(each.worker_id, NO_LOAD) for each in need.workers}
        raise AssertionError(need)

    def _queue(self, need: NeedQueue) -> QueueState:
        requests = [poll.poll_request_id for poll in need.polls if poll.poll_request_id is not None]
        old = [self.redelivered.get(each, ()) for each in requests]
        if not self.eligible(need.worker_filter):
            return QueueState(None, old)
        loads = {each.worker_id: self.loads.get(each.worker_id, NO_LOAD) for each in need.workers}
        return QueueState(LockedQueue(self.queue, need.worker_filter, loads), old)

    def _scopes(self) -> LockedScopes:
        return LockedScopes({SCOPE: self.scope}) if self.limits.scopes else LockedScopes()

    def _lanes(self, need: NeedLanes) -> LaneView:
        counts = Counter((task.level, task.key) for task in self.eligible(need.worker_filter))
        lanes = [
            Lane(level, key, 0, 1000, 1000, count, state=LaneState.NEW)
            for (level, key), count in counts.items()
        ]
        keys: dict[str, KeyState] = {}
        scopes = self._scopes()
        snapshot = QueueSnapshot(need.queue, lanes, (), NOW_MS, keys, need.leases, scopes=scopes.states)
        return LaneView(snapshot, scopes)


def _fits(task: Task, worker_filter: WorkerFilter) -> bool:
    if worker_filter.types and task.type not in worker_filter.types:
        return False
    return not task.is_sticky(NOW_MS) or task.sticky_worker_id in worker_filter.sticky_workers


def _of(tasks: Sequence[Task], lane_key: LaneKey) -> list[Task]:
    return [task for task in tasks if (task.level, task.key) == lane_key]


def some_tasks(count: int, kind: TaskKind = ACTIVITY, **changes: Any) -> list[Task]:
    queue = Queue(QueueId(1), "default", "orders", kind)
    given_ = {"type": "Order" if kind is WORKFLOW else "Charge"} | changes
    return [a_task(queue, f"r{number}-1", **given_) for number in range(count)]


def a_poll(worker_id: str = "w1", kind: TaskKind = ACTIVITY, **changes: Any) -> Poll:
    return Poll("default", worker_id, "orders", kind, **changes)


def a_world(count: int = 3, **changes: Any) -> World:
    kind = changes.get("kind", ACTIVITY)
    workers = {name: a_worker(name) for name in ("w1", "w2", "w3")}
    return World(**({"tasks": some_tasks(count, kind), "workers": workers} | changes))


def given_to(plan: ClaimPlan) -> Counter[int]:
    return Counter(grant.poll for grant in plan.grants)


# ── Laws ────────────────────────────────────────────────────────────────────────────────────────────────


TYPES = (("Charge", "Ship"), ("Charge", "Ship"), ("Charge", "Ship"), ("Mail",), ())
LIMITS = (None, None, None, None, None, 5, 4, 3, 2, 1, 0)


def a_random_world(seed: int) -> tuple[World, list[Poll]]:
    """Tasks of some lanes and types, workers with a few slots, limits of the queue and of a scope, some polls."""
    dice = Random(seed)
    tasks = [
        replace(
            task,
            level=dice.randint(1, 3),
            key=dice.choice("abc"),
            type=dice.choice(("Charge", "Ship", "Mail")),
            cost=dice.randint(0, 4),
        )
        for task in some_tasks(dice.choice((0, 4, 12, 12)))
    ]
    workers = {
        name: a_worker(name, activity_slots=dice.choice((9, 5, 3, 0)), activity_types=dice.choice(TYPES))
        for name in ("w1", "w2", "w3")
    }
    cap, most = dice.choice(LIMITS), [dice.choice(LIMITS) for _ in range(4)]
    rules = ScopeRules(SCOPE, leases=most[0], dispatches=most[1], cost=most[2])
    world = World(
        tasks,
        workers,
        loads={name: SlotUsage(running=dice.choice((0, 0, 0, 1, 3))) for name in workers},
        limits=QueueLimits(dispatches=most[3], scopes=dice.choice(((rules,), ()))),
        settings_={} if cap is None else {LimitSetting.LEASE_CAP: cap},
        leases=dice.randint(0, 2),
        scope=ScopeState(7, SCOPE, granted=dice.randint(0, 2)),
        paused=not dice.randrange(20),
    )
    names = [dice.choice(("w1", "w2", "w3", "w1", "unknown")) for _ in range(dice.randint(1, 5))]
    return world, [a_poll(name, tasks_max=dice.randint(1, 4)) for name in names]


worlds = settings(max_examples=times(200))
drawn = st.integers(0, 1 << 32).map(a_random_world)


@worlds
@given(drawn)
def test_no_cap_is_exceeded(met: tuple[World, list[Poll]]):
    """Holds `cap-never-exceeded` and `budget-never-overspent` for the queue and its scopes."""
    world, polls = met
    plan = world.plan(*polls)
    granted = len(plan.grants)
    if not granted:
        return
    assert not world.paused
    cap = world.settings_.get(LimitSetting.LEASE_CAP)
    assert cap is None or world.leases + granted <= cap
    assert world.limits.dispatches is None or granted <= world.limits.dispatches
    for rules in world.limits.scopes:
        assert rules.leases is None or world.scope.running + granted <= rules.leases
        assert rules.dispatches is None or granted <= rules.dispatches
        costs = [grant.task.cost for grant in plan.grants if grant.task.cost]
        assert rules.cost is None or sum(costs) <= rules.cost or len(costs) == 1, "a dear task goes alone"


@worlds
@given(drawn)
def test_what_is_charged_is_what_is_granted(met: tuple[World, list[Poll]]):
    world, polls = met
    plan = world.plan(*polls)
    slots = Counter((grant.task.level, grant.task.key) for grant in plan.grants)
    assert plan.ledger.dispatched == len(plan.grants)
    assert {(lane.level, lane.key): count for lane, count in plan.ledger.lanes if count} == slots
    for state in plan.ledger.scopes if plan.grants else ():
        assert state.granted == world.scope.granted + len(plan.grants)


@worlds
@given(drawn)
def test_a_task_is_granted_once_and_only_to_a_worker_that_takes_it(met: tuple[World, list[Poll]]):
    """Holds `one-live-lease`."""
    world, polls = met
    plan = world.plan(*polls)
    ids = [grant.task.task_id for grant in plan.grants]
    assert len(ids) == len(set(ids))
    for grant in plan.grants:
        takes = world.workers[polls[grant.poll].worker_id].activity_types
        assert not takes or grant.task.type in takes
        assert grant.task.state is TaskState.READY


@worlds
@given(drawn)
def test_no_poll_gets_more_than_it_asked_for_and_no_worker_more_than_its_slots(
    met: tuple[World, list[Poll]],
):
    """Holds `worker-never-over-filled`."""
    world, polls = met
    plan = world.plan(*polls)
    by_worker: Counter[str] = Counter()
    for index, count in given_to(plan).items():
        assert count <= polls[index].tasks_max
        by_worker[polls[index].worker_id] += count
    for name, count in by_worker.items():
        assert count <= world.workers[name].activity_slots - world.loads[name].running


@worlds
@given(drawn)
def test_every_poll_is_answered_once_and_a_hold_has_a_reason(met: tuple[World, list[Poll]]):
    world, polls = met
    plan = world.plan(*polls)
    assert set(plan.answers) | set(given_to(plan)) == set(range(len(polls)))
    assert not set(plan.answers) & set(given_to(plan))
    for index, answer in plan.answers.items():
        match answer:
            case Refused():
                assert polls[index].worker_id == "unknown"
                assert answer.error.reason is Reason.WORKER_NOT_REGISTERED
            case Held():
                assert answer.hold.reason in HoldReason
            case Retry(held=None):
                assert answer.reason is not RetryReason.MORE_TO_SEE
            case Retry():
                assert answer.reason is RetryReason.MORE_TO_SEE


@worlds
@given(drawn)
def test_no_poll_is_held_while_a_task_a_slot_and_every_gate_are_free(met: tuple[World, list[Poll]]):
    """Holds `work-conserving`: who is held lacks an eligible task, or a slot, or an open gate."""
    world, polls = met
    plan = world.plan(*polls)
    left = [task for task in world.tasks if task not in [grant.task for grant in plan.grants]]
    by_worker = Counter(polls[grant.poll].worker_id for grant in plan.grants)
    for index, answer in plan.answers.items():
        if not isinstance(answer, Held):
            continue
        worker = world.workers[polls[index].worker_id]
        free = worker.activity_slots - world.loads[worker.worker_id].running - by_worker[worker.worker_id]
        eligible = [task for task in left if not worker.activity_types or task.type in worker.activity_types]
        match answer.hold.reason:
            case HoldReason.EMPTY:
                assert not eligible
            case HoldReason.SLOTS:
                assert free <= 0
            case HoldReason.PAUSED:
                assert world.paused
            case HoldReason.QUEUE_LEASE_CAP:
                assert world.leases + len(plan.grants) >= world.settings_[LimitSetting.LEASE_CAP]
            case HoldReason.QUEUE_DISPATCHES:
                assert len(plan.grants) >= (world.limits.dispatches or 0)
            case HoldReason.SCOPE_LEASE_CAP:
                assert world.scope.running + len(plan.grants) >= (world.limits.scopes[0].leases or 0)
            case HoldReason.SCOPE_DISPATCHES:
                assert len(plan.grants) >= (world.limits.scopes[0].dispatches or 0)
            case reason:
                assert reason is HoldReason.SCOPE_COST
                assert answer.hold.scope == SCOPE


# ── Each step ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_without_ready_tasks_is_asked_one_question():
    world = a_world(0)
    plan = world.plan(a_poll())
    assert [type(need) for need in world.asked] == [NeedQueue]
    assert plan.queue is None
    held = plan.answers[0]
    assert isinstance(held, Held)
    assert held.hold.reason is HoldReason.EMPTY


def test_lanes_are_read_before_scopes_are_needed_and_tasks_last():
    world = a_world(
        limits=QueueLimits(scopes=(ScopeRules(SCOPE, leases=9),)), settings_={LimitSetting.LEASE_CAP: 9}
    )
    world.plan(a_poll())
    assert [type(need) for need in world.asked] == [NeedQueue, NeedLeaseCount, NeedLanes, NeedTasks]


def test_a_closed_queue_is_not_read_further():
    world = a_world(paused=True)
    world.plan(a_poll())
    assert [type(need) for need in world.asked] == [NeedQueue]


def test_tasks_are_dealt_one_each_in_order_of_arrival():
    plan = a_world(3).plan(a_poll("w1", tasks_max=3), a_poll("w2"))
    assert [grant.poll for grant in plan.grants] == [0, 1, 0]


def test_a_drained_worker_is_refused_and_its_neighbour_is_served():
    world = a_world(workers={"w1": a_worker("w1", build_id="old"), "w2": a_worker("w2")})
    polls = [a_poll("w1"), a_poll("w2")]
    drained = {"old": a_cohort("old", drain_intent=DRAINING)}
    snapshot = ClaimSnapshot(polls, world.workers_of(polls), drained, NOW_MS, STALE_MS)
    planning = plan_claim(snapshot)
    need = next(planning)
    assert isinstance(need, NeedQueue)
    assert [poll.worker_id for poll in need.polls] == ["w2"]


def test_a_worker_that_takes_other_types_is_claimed_for_next():
    world = a_world(workers={"w1": a_worker("w1"), "w2": a_worker("w2", activity_types=("Mail",))})
    plan = world.plan(a_poll("w1"), a_poll("w2"))
    assert plan.answers[1] == Retry(RetryReason.OTHER_FILTER, WorkerFilter(("Mail",), None))
    assert given_to(plan) == {0: 1}


def test_a_poll_counts_as_the_heartbeat_that_its_worker_owes():
    silent = a_worker("w1", heartbeat_at_ms=NOW_MS - STALE_MS // 2)
    plan = a_world(0, workers={"w1": silent, "w2": a_worker("w2")}).plan(a_poll("w1"), a_poll("w2"))
    assert plan.alive == ["w1"]


def test_a_repeated_poll_gets_what_it_leased_before_and_nothing_new():
    [task] = some_tasks(1)
    old = leased(task, lease_owner="w1", lease_expires_at_ms=NOW_MS + 1, leased_at_ms=NOW_MS)
    world = a_world(3, redelivered={"p1": [old]})
    plan = world.plan(a_poll("w1", poll_request_id="p1"), a_poll("w2", poll_request_id="p2"))
    assert plan.redelivered == [(0, replace(old, leased_at_ms=NOW_MS + 1))], (
        "each delivery has its own moment"
    )
    assert given_to(plan) == {1: 1}


def test_an_expired_lease_is_not_delivered_again():
    [task] = some_tasks(1)
    old = leased(task, lease_owner="w1", lease_expires_at_ms=NOW_MS, leased_at_ms=NOW_MS - 1)
    plan = a_world(3, redelivered={"p1": [old]}).plan(a_poll(poll_request_id="p1"))
    assert plan.redelivered == []
    assert given_to(plan) == {0: 1}


def test_a_full_worker_is_looked_at_again_when_its_leases_end():
    world = a_world(loads={"w1": SlotUsage(running=20)})
    plan = world.plan(a_poll("w1"), a_poll("w2"))
    held = plan.answers[0]
    assert isinstance(held, Held)
    assert (held.hold.reason, held.retry_in_ms, held.others_may_be_served) == (HoldReason.SLOTS, None, True)
    assert given_to(plan) == {1: 1}
    assert isinstance(world.asked[-1], NeedLeaseEnds)


def test_a_worker_that_this_claim_filled_is_claimed_for_once_more():
    world = a_world(3, workers={"w1": a_worker("w1", activity_slots=1)})
    again = world.plan(a_poll("w1"), a_poll("w1")).answers[1]
    assert isinstance(again, Retry)
    assert again.reason is RetryReason.MORE_TO_SEE


def test_a_limited_queue_is_held_while_servers_cannot_agree():
    world = a_world(settings_={LimitSetting.LEASE_CAP: 5})
    held = world.plan(a_poll(), coordinated=False).answers[0]
    assert isinstance(held, Held)
    assert held.hold.reason is HoldReason.UNAVAILABLE


# ── Prefetch ────────────────────────────────────────────────────────────────────────────────────────────


def test_prefetch_is_bounded_by_the_buffer_and_by_no_cap():
    world = a_world(
        9, settings_={LimitSetting.LEASE_CAP: 1}, leases=1, loads={"w1": SlotUsage(running=20, prefetched=18)}
    )
    plan = world.plan(a_poll(tasks_max=9, claim_lease_ms=1_000))
    assert given_to(plan) == {0: 2}
    assert not any(isinstance(need, NeedLeaseCount) for need in world.asked)


def test_a_pause_holds_prefetch_as_well():
    held = a_world(paused=True).plan(a_poll(claim_lease_ms=1_000)).answers[0]
    assert isinstance(held, Held)
    assert held.hold.reason is HoldReason.PAUSED


# ── Sticky tasks ────────────────────────────────────────────────────────────────────────────────────────


def sticky_world(owner: str, until_ms: int = NOW_MS + 5_000, **changes: Any) -> World:
    mine = replace(some_tasks(1, WORKFLOW)[0], sticky_worker_id=owner, sticky_until_ms=until_ms)
    return a_world(kind=WORKFLOW, tasks=[mine], **changes)


def test_a_sticky_task_is_for_its_worker():
    plan = sticky_world("w1").plan(a_poll("w1", WORKFLOW), sticky_until={"w1": NOW_MS + 5_000})
    assert given_to(plan) == {0: 1}


def test_another_worker_waits_for_the_release_of_a_sticky_task():
    held = sticky_world("w1").plan(a_poll("w2", WORKFLOW), sticky_until={"w1": NOW_MS + 5_000}).answers[0]
    assert isinstance(held, Held)
    assert (held.hold.reason, held.retry_in_ms, held.others_may_be_served) == (HoldReason.EMPTY, 5_000, True)


def test_workers_that_may_take_different_sticky_tasks_are_served_apart():
    world, until = sticky_world("w1"), {"w1": NOW_MS + 5_000}
    plan = world.plan(a_poll("w1", WORKFLOW), a_poll("w2", WORKFLOW), sticky_until=until)
    assert given_to(plan) == {0: 1}
    assert plan.answers[1] == Retry(RetryReason.SERVED_APART, WorkerFilter(("Order",), None))


def test_what_is_sticky_to_a_dead_worker_is_for_all():
    dead = a_worker("w9", heartbeat_at_ms=NOW_MS - STALE_MS - 1)
    world = sticky_world("w9", workers={"w1": a_worker("w1"), "w9": dead})
    plan = world.plan(a_poll("w1", WORKFLOW), sticky_until={"w9": NOW_MS + 5_000})
    assert given_to(plan) == {0: 1}


@given(st.lists(st.sampled_from(("w1", "w2", "w3")), min_size=1, max_size=4), st.data())
def test_a_sticky_task_never_goes_to_a_worker_that_is_not_its_own(names: list[str], data: st.DataObject):
    owners = [data.draw(st.sampled_from(("w1", "w2", "w3", None))) for _ in range(6)]
    tasks = [
        replace(task, sticky_worker_id=owner, sticky_until_ms=None if owner is None else NOW_MS + 9)
        for task, owner in zip(some_tasks(6, WORKFLOW), owners, strict=True)
    ]
    until = {owner: NOW_MS + 9 for owner in owners if owner is not None}
    world = a_world(kind=WORKFLOW, tasks=tasks)
    polls = [a_poll(name, WORKFLOW, tasks_max=3) for name in names]
    for grant in world.plan(*polls, sticky_until=until).grants:
        assert grant.task.sticky_worker_id in (None, polls[grant.poll].worker_id)
