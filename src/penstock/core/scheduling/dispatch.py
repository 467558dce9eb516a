"""Which lanes of a queue are served next, within its gates and the limits of its keys.

A claim asks three questions of this module, in this order:

1. `allowance`: how many tasks do the gates allow (`gates.py`)? A closed gate is a `Hold` with a reason.
2. `decide`: which lanes give them? The snapshot's *lineup* is its lanes with new ones tagged, and what each key may
   still be given; `fairness.plan` picks from it in stride order. Where a queue has no fairness, tasks go in order of
   arrival, within the same bounds.
3. `settle`: once tasks were really taken, which may be fewer, what do lanes, clocks, keys, queue and scopes count now?

Keys that may not go on are put aside by `settle` (THROTTLED until their rate allows, else BLOCKED), so that the next
claim reads the lanes behind them. `budget-never-overspent`: only what was taken is charged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits import rates, windows
from penstock.core.limits.policies import DispatchOrder, KeyState, Rules
from penstock.core.limits.windows import Counts
from penstock.core.model import Queue, TaskKind, WorkerRecord
from penstock.core.scheduling import fairness
from penstock.core.scheduling.fairness import (
    Arrival,
    Lane,
    LaneKey,
    LanePlan,
    LaneState,
    PlanBounds,
    Starving,
    VirtualClock,
)
from penstock.core.scheduling.gates import (
    Gate,
    GateKind,
    ScopeState,
    charged,
    cost_budgets,
    gates,
)


class HoldReason(StrEnum):
    """Why a poll gets nothing now."""

    EMPTY = "empty"
    PAUSED = "paused"
    QUEUE_RATE = "queue_rate"
    QUEUE_LEASE_CAP = "queue_running"
    QUEUE_DISPATCHES = "queue_dispatches"
    KEY_LIMITS = "key_limits"
    SCOPE_PAUSED = "scope_paused"
    SCOPE_LEASE_CAP = "scope_running"
    SCOPE_DISPATCHES = "scope_dispatches"
    SCOPE_COST = "scope_cost"
    COOLING = "cooling"
    SLOTS = "slots"
    """The worker holds as many tasks as it has slots: for it there is nothing, whatever waits."""
    UNAVAILABLE = "unavailable"
    """Servers are to agree through a cache that cannot be reached."""


class PollStatus(StrEnum):
    """The outcome of a poll, in the contract's words."""

    LEASED = "leased"
    EMPTY = "empty"
    THROTTLED = "throttled"
    UNAVAILABLE = "unavailable"
    DRAINING = "draining"


class Hold(Struct, frozen=True):
    """No task now: why, and when it is worth looking again (None: on the next wakeup)."""

    reason: HoldReason
    look_again_at_ms: int | None = None
    scope: str | None = None
    """The scope whose limit it is, if it is not the queue's own."""

    @property
    def poll_status(self) -> PollStatus:
        return _STATUSES.get(self.reason, PollStatus.THROTTLED)


_STATUSES = {
    HoldReason.EMPTY: PollStatus.EMPTY,
    HoldReason.SLOTS: PollStatus.EMPTY,
    HoldReason.UNAVAILABLE: PollStatus.UNAVAILABLE,
}


class WorkerFilter(Struct, frozen=True):
    """Which tasks a worker can take: its types (none named: all), its build, and sticky tasks."""

    types: tuple[str, ...]
    build_id: str | None
    sticky_workers: tuple[str, ...] = ()
    """Workers whose sticky tasks are among them: the worker itself, and others that are gone (`sticky.py`)."""


def filter_for(worker: WorkerRecord, kind: TaskKind) -> WorkerFilter:
    """What the worker shares with all that are like it."""
    types = worker.workflow_types if kind is TaskKind.WORKFLOW else worker.activity_types
    return WorkerFilter(tuple(sorted(set(types))), worker.build_id)


def sticky_filter_for(worker: WorkerRecord, kind: TaskKind) -> WorkerFilter:
    """What the worker may take, including what is sticky to it."""
    return replace(filter_for(worker, kind), sticky_workers=(worker.worker_id,))


class BlockedLanes(Struct, frozen=True):
    """The busy lanes that were not read because their keys may not go."""

    next_open_ms: int | None = None
    """When the first of them may."""
    any_held: bool = False


class QueueSnapshot(Struct, frozen=True, dict=True):
    """What a claim may decide on, read under the queue's lock."""

    queue: Queue
    lanes: Sequence[Lane]
    """At least the `room` least lanes of each busy level that hold a task the asker fits."""
    clocks: Sequence[VirtualClock]
    now_ms: int = 0
    keys: Mapping[str, KeyState] = field(default_factory=dict)
    """The keys of those lanes that have a row of their own; read only where keys can be blocked."""
    running: int = 0
    """Live leases of the queue; read only where they are limited."""
    starving: Sequence[Starving] = ()
    """Read only where levels age."""
    arrivals: Sequence[Arrival] = ()
    """The first tasks in order of arrival that the asker fits; read only where keys have no shares."""
    blocked: BlockedLanes = BlockedLanes()
    scopes: Mapping[str, ScopeState] = field(default_factory=dict)
    """What the scopes of the queue count, under their locks."""

    @cached_property
    def lineup(self) -> _Lineup:
        """Its lanes once new ones are tagged, and what each key may still be given."""
        rules, lanes, clocks = self.queue.rules, _woken(self), self.clocks
        fair, aging = rules.order is DispatchOrder.FAIR, rules.aging
        if fair:
            tagged, clocks = fairness.assign_tags(
                [lane for lane in lanes if lane.state == LaneState.NEW], clocks
            )
            lanes = [*(lane for lane in lanes if lane.state != LaneState.NEW), *tagged]
        # Of a key with lanes on several levels the weight of the highest level counts.
        by_level = sorted(lanes, key=lambda each: each.level, reverse=True) if rules.limits_keys else ()
        weights = {lane.key: lane.effective_milli for lane in by_level}
        bounds = PlanBounds(
            left=_left(rules, weights, self.keys, self.now_ms) if weights else {},
            running={key: state.running for key, state in self.keys.items()}
            if rules.shares_by_running and fair
            else None,
            starving=self.starving if aging else (),
            aging_every=aging.every if aging else 0,
            aging_turn=self.queue.aging_turn,
        )
        return _Lineup(self, rules, lanes, clocks, self.arrivals, weights, bounds)


class Grants(Struct, frozen=True):
    """How many tasks to take from which lane, in order."""

    plan: LanePlan
    hold: Hold
    """What is said to the polls that get none of them."""

    @property
    def order(self) -> tuple[LaneKey, ...]:
        return self.plan.order

    def counts(self) -> dict[LaneKey, int]:
        """How many of each lane, in order of first service."""
        return Counter(self.plan.order)


def allowance(
    queue: Queue, running: int, now_ms: int, scopes: Mapping[str, ScopeState] | None = None, cost: int = 0
) -> int | Hold | None:
    """How many the queue may give now as far as its gates go; None: any number. A closed one holds it.

    `scopes` None: as far as the queue itself goes, which is worth asking before its scopes are locked.
    """
    allowed: int | None = None
    for gate in gates(queue, running, scopes, now_ms, cost):
        if gate.is_closed:
            return _until_changed(_held_by(gate), queue)
        if gate.kind is not GateKind.COST:
            allowed = gate.left if allowed is None else min(allowed, gate.left)
    return allowed


_OF_QUEUE = {
    GateKind.PAUSED: HoldReason.PAUSED,
    GateKind.LEASES: HoldReason.QUEUE_LEASE_CAP,
    GateKind.RATE: HoldReason.QUEUE_RATE,
    GateKind.DISPATCHES: HoldReason.QUEUE_DISPATCHES,
}
_OF_SCOPE = {
    GateKind.PAUSED: HoldReason.SCOPE_PAUSED,
    GateKind.COOLING: HoldReason.COOLING,
    GateKind.LEASES: HoldReason.SCOPE_LEASE_CAP,
    GateKind.DISPATCHES: HoldReason.SCOPE_DISPATCHES,
    GateKind.COST: HoldReason.SCOPE_COST,
}


def _held_by(gate: Gate) -> Hold:
    if gate.scope.startswith("queue:"):
        return Hold(_OF_QUEUE[gate.kind], gate.opens_at_ms)
    return Hold(_OF_SCOPE[gate.kind], gate.opens_at_ms, gate.scope)


def _until_changed(hold: Hold, queue: Queue) -> Hold:
    """The hold, to be looked at again also when a setting expires, or the rate that workers reported."""
    lapses_at_ms = None if queue.reported_rate is None else queue.reported_rate.until_ms
    ends = (hold.look_again_at_ms, queue.limits.changes_at_ms, lapses_at_ms)
    moments = [at_ms for at_ms in ends if at_ms is not None]
    return replace(hold, look_again_at_ms=min(moments, default=None))


def affordable(
    queue: Queue, scopes: Mapping[str, ScopeState], costs: Sequence[int], now_ms: int
) -> int | Hold:
    """How many of the tasks that would go, in their order, the budgets of cost allow; or a hold if not the first.

    None is stepped over: else a dear task would wait for ever behind cheap ones.
    """
    budgets = cost_budgets(queue, scopes, now_ms)
    for count, cost in enumerate(costs):
        if not all(budget_.affords(cost) for budget_ in budgets):
            return count or _unaffordable(queue, scopes, now_ms, cost)
        for budget_ in budgets:
            budget_.used += cost
    return len(costs)


def _unaffordable(queue: Queue, scopes: Mapping[str, ScopeState], now_ms: int, cost: int) -> Hold:
    closed = (gate for gate in gates(queue, 0, scopes, now_ms, cost) if gate.kind is GateKind.COST)
    return _held_by(next(gate for gate in closed if gate.is_closed))


def _charged_scopes(
    queue: Queue, states: Mapping[str, ScopeState], count: int, cost: int, now_ms: int
) -> dict[str, ScopeState]:
    return {
        each.name: charged(each, states.get(each.name) or ScopeState(0, each.name), count, cost, now_ms)
        for each in queue.limits.scopes
    }


def charged_queue(queue: Queue, given: int, now_ms: int) -> tuple[int, Counts]:
    """Until when the queue has paid at its present rate, and its dispatch window, after it gave so many more.

    With none given the rate's debt is capped (`rates.paid`), which must be stored to fall due.
    """
    rate, limits = queue.rules.queue_rate, queue.limits
    paid_until_ns, window = queue.paid_until_ns, queue.window
    if rate is not None:
        paid_until_ns = rates.paid(rate, paid_until_ns, now_ms, given)
    if limits.dispatches is not None:
        window = windows.spent(limits.window, window, now_ms, given)
    return paid_until_ns, window


def window_debt(queue: Queue, now_ms: int) -> Counts:
    """What the queue gave in the last minute, to be kept when the clock was set back."""
    if queue.limits.dispatches is None or not windows.is_ahead(queue.window, now_ms):
        return queue.window
    return windows.spent(queue.limits.window, queue.window, now_ms, 0)


class KeyHoldReason(StrEnum):
    """Why a key may not go on now."""

    PAUSED = "paused"
    RATE = "rate"
    RUNNING = "running"


class KeyHold(Struct, frozen=True):
    reason: KeyHoldReason
    open_at_ms: int | None = None
    """When tokens come; None: when something else changes."""
    held_at: int | None = None
    """The running limit that is reached, if that is it."""


def key_hold(rules: Rules, state: KeyState, weight_milli: int, now_ms: int, given: int = 0) -> KeyHold | None:
    """What keeps a key from going on after it was `given` so many; None: nothing does."""
    limit, rate = rules.lease_cap_of(state), rules.rate_of(state, weight_milli)
    if state.paused:
        return KeyHold(KeyHoldReason.PAUSED)
    if rate is not None and rate.is_closed:
        return KeyHold(KeyHoldReason.RATE)
    if limit is not None and state.running + given >= limit:
        return KeyHold(KeyHoldReason.RUNNING, held_at=limit)
    if rate is None:
        return None
    paid_until_ns = rates.paid(rate, state.paid_until_ns, now_ms, given)
    if rates.available(rate, paid_until_ns, now_ms):
        return None
    return KeyHold(KeyHoldReason.RATE, rates.open_at_ms(rate, paid_until_ns, now_ms))


def decide(snapshot: QueueSnapshot, room: int, asked: int | None = None) -> Grants | Hold:
    """Choose the next tasks, at most `room` of them, or return the reason why there is none.

    If as many as `asked` are granted, no poll waits and no hold is computed. Lanes that turn out to be blocked are
    parked by `settle`, so that the next claim reads further.
    """
    allowed = allowance(snapshot.queue, snapshot.running, snapshot.now_ms, snapshot.scopes)
    if isinstance(allowed, Hold):
        return allowed
    room = room if allowed is None else min(room, allowed)
    planned = snapshot.lineup.plan(room)
    if asked is not None and len(planned.order) >= asked:
        return Grants(planned, Hold(HoldReason.EMPTY))
    hold = _closed_gate(snapshot, len(planned.order)) or _blocked_keys(snapshot, planned.order)
    return Grants(planned, hold) if planned.order else hold


def _closed_gate(snapshot: QueueSnapshot, given: int) -> Hold | None:
    """The gate that is closed once so many are given."""
    queue, now_ms = snapshot.queue, snapshot.now_ms
    paid_until_ns, window = charged_queue(queue, given, now_ms)
    if (paid_until_ns, window) != (queue.paid_until_ns, queue.window):
        queue = replace(queue, paid_until_ns=paid_until_ns, window=window)
    scopes = _charged_scopes(queue, snapshot.scopes, given, 0, now_ms)
    allowed = allowance(queue, snapshot.running + given, now_ms, scopes)
    return allowed if isinstance(allowed, Hold) else None


def _blocked_keys(snapshot: QueueSnapshot, order: Sequence[LaneKey]) -> Hold:
    """The limits of the keys that still have tasks once `order` is granted; if no key does, nothing is left."""
    given, spent, next_open_ms = (
        Counter(order),
        Counter(key for _, key in order),
        snapshot.blocked.next_open_ms,
    )
    opens = [] if next_open_ms is None or next_open_ms <= snapshot.now_ms else [next_open_ms]
    held = snapshot.blocked.any_held
    for lane in snapshot.lineup.lanes:
        if lane.fits and lane.count > given[lane.level, lane.key]:
            after = snapshot.lineup.after(lane, spent)
            held = held or after.state is LaneState.BLOCKED
            opens += [] if after.open_at_ms is None else [after.open_at_ms]
    if opens or held:
        return Hold(HoldReason.KEY_LIMITS, min(opens, default=None))
    return Hold(HoldReason.EMPTY)


class Settled(Struct, frozen=True):
    """What to record once the tasks were really taken."""

    order: tuple[LaneKey, ...]
    lanes: tuple[Lane, ...]
    """Lanes that were billed, placed, or put aside because their key may not go on."""
    clocks: tuple[VirtualClock, ...]
    """Those that moved."""
    spent: Mapping[str, int]
    """How many each key was given."""
    paid: Mapping[str, int]
    """Until when each key with a rate has paid: of keys that were given something, or whose debt was cut."""
    paid_until_ns: int
    aging_turn: int
    """The queue's own two."""
    window: Counts
    """What the queue gave in the last minute, where that is limited."""
    scopes: tuple[ScopeState, ...]
    """What each scope counts now."""


def settle(
    snapshot: QueueSnapshot, taken: Mapping[LaneKey, int], cost: int = 0, decided: LanePlan | None = None
) -> Settled:
    """Bill each lane for what it really gave, no more: `budget-never-overspent`.

    A lane may give less than planned, when its tasks do not fit the worker. What it did not give is not billed.
    `cost` is what the tasks are estimated to cost together; `decided` is the plan by which they were taken from the
    same snapshot, and need not be made again where as many were taken as it says.
    """
    lineup, queue, now_ms = snapshot.lineup, snapshot.queue, snapshot.now_ms
    total = sum(taken.values())
    whole = decided if decided is not None and len(decided.order) == total else lineup.plan(total)
    planned = whole if Counter(whole.order) == taken else lineup.only(taken).plan(total)
    spent = Counter(key for _, key in planned.order)
    clocks = {clock.level: clock for clock in (*lineup.clocks, *planned.clocks)}
    paid_until_ns, window = charged_queue(queue, total, now_ms)
    limits = queue.limits
    return Settled(
        planned.order,
        _changed_lanes(snapshot, planned, taken, spent),
        tuple([clock for clock in clocks.values() if clock not in snapshot.clocks]),
        spent,
        lineup.paid(spent) if lineup.weights else {},
        paid_until_ns,
        whole.aging_turn if total else queue.aging_turn,
        window,
        tuple(_charged_scopes(queue, snapshot.scopes, total, cost, now_ms).values()) if limits.scopes else (),
    )


def _changed_lanes(
    snapshot: QueueSnapshot, planned: LanePlan, taken: Mapping[LaneKey, int], spent: Mapping[str, int]
) -> tuple[Lane, ...]:
    """The lanes that were billed, tagged, or put aside because their key may not go on."""
    lineup = snapshot.lineup
    billed = {(lane.level, lane.key): lane.tag for lane in planned.lanes}
    before = {(lane.level, lane.key): lane for lane in snapshot.lanes}
    changed: list[Lane] = []
    for lane in lineup.lanes:
        lane_key = (lane.level, lane.key)
        given = taken.get(lane_key, 0)
        after = replace(lane, tag=billed.get(lane_key, lane.tag), count=lane.count - given)
        if lineup.rules.needs_keys:
            after = lineup.after(after, spent)
        if given or after != before[lane_key]:
            changed.append(after)
    return tuple(changed)


class _Lineup(Struct, frozen=True):
    """The lanes of a snapshot in fair order, and what each key may still be given."""

    snapshot: QueueSnapshot
    rules: Rules
    lanes: Sequence[Lane]
    clocks: Sequence[VirtualClock]
    arrivals: Sequence[Arrival]
    weights: Mapping[str, int]
    """The weight of each key, where its limits depend on it."""
    bounds: PlanBounds

    def plan(self, room: int) -> LanePlan:
        if self.rules.order is DispatchOrder.ARRIVAL:
            return fairness.plan_arrivals(self.arrivals, room, self.bounds)
        return fairness.plan([lane for lane in self.lanes if lane.fits], self.clocks, room, self.bounds)

    def only(self, taken: Mapping[LaneKey, int]) -> _Lineup:
        """The same, where each lane gives no more than was taken from it."""
        giving = [replace(lane, count=min(lane.count, taken.get(lane.lane_key, 0))) for lane in self.lanes]
        left = dict(taken)
        arrivals = []
        for arrival in self.arrivals:
            lane_key = (arrival.level, arrival.key)
            if left.get(lane_key, 0) > 0:
                left[lane_key] -= 1
                arrivals.append(arrival)
        return replace(self, lanes=giving, arrivals=arrivals)

    def after(self, lane: Lane, spent: Mapping[str, int]) -> Lane:
        """The lane after its key was given `spent`: ranked again, and put aside if its key may not go on."""
        rules = self.rules
        if not rules.needs_keys:
            return lane
        state = self.snapshot.keys.get(lane.key) or KeyState(lane.key)
        given = spent.get(lane.key, 0)
        ranked = fairness.rank(state.running + given, lane.weight_milli) if rules.shares_by_running else 0
        lane = replace(lane, rank=ranked)
        if not rules.limits_keys:
            return lane
        hold = key_hold(rules, state, self.weights[lane.key], self.snapshot.now_ms, given)
        return lane if hold is None else _aside(lane, hold)

    def paid(self, spent: Mapping[str, int]) -> dict[str, int]:
        """Until when each key has paid after it was given `spent`; only of keys with a rate where it changed."""
        paid: dict[str, int] = {}
        for key, weight_milli in self.weights.items():
            state = self.snapshot.keys.get(key) or KeyState(key)
            rate = self.rules.rate_of(state, weight_milli)
            if rate is not None:
                until = rates.paid(rate, state.paid_until_ns, self.snapshot.now_ms, spent.get(key, 0))
                if until != state.paid_until_ns:
                    paid[key] = until
        return paid


def _aside(lane: Lane, hold: KeyHold) -> Lane:
    """The lane put aside. One that was not tagged first, because keys have no shares, gives up its remaining wait.

    Its weight is then the one in force: were it another, the store would have the lane looked at again at once.
    """
    if lane.weight_milli != lane.effective_milli:
        lane = replace(lane, weight_milli=lane.effective_milli, tag=min(lane.tag, lane.base or 0))
    lane_state = LaneState.BLOCKED if hold.open_at_ms is None else LaneState.THROTTLED
    return replace(lane, state=lane_state, open_at_ms=hold.open_at_ms, held_at=hold.held_at)


def _left(
    rules: Rules, weights: Mapping[str, int], keys: Mapping[str, KeyState], now_ms: int
) -> dict[str, int]:
    """How many more each key may be given now, by its rate, its running limit and its pause."""
    left: dict[str, int] = {}
    for key, weight_milli in weights.items():
        state = keys.get(key) or KeyState(key)
        bounds = [0] if state.paused else []
        limit, rate = rules.lease_cap_of(state), rules.rate_of(state, weight_milli)
        if limit is not None:
            bounds.append(max(0, limit - state.running))
        if rate is not None:
            bounds.append(rates.available(rate, state.paid_until_ns, now_ms))
        if bounds:
            left[key] = min(bounds)
    return left


def _woken(snapshot: QueueSnapshot) -> list[Lane]:
    """The lanes as if no key were limited; NEW ones still need a tag, by the weight that an operator set."""
    woken: list[Lane] = []
    for lane in snapshot.lanes:
        if lane.state == LaneState.NEW:
            state = snapshot.keys.get(lane.key)
            override_milli = None if state is None else state.weight_milli
            lane = replace(lane, override_milli=override_milli, rank=0, open_at_ms=None)
        elif lane.state != LaneState.READY:
            lane = replace(lane, state=LaneState.READY, open_at_ms=None)
        woken.append(lane)
    return woken
