"""When a task may start: a range estimated from recent dispatches, the tasks ahead, and when limits open.

The range assumes that the load stays as it is. Counts of one or two minutes are small samples, so both ends allow for
twice the standard deviation; the late end also allows for tasks that arrive meanwhile and go first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

from msgspec import Struct

from penstock.core.limits import windows
from penstock.core.limits.rates import NANO_PER_MS
from penstock.core.limits.windows import Counts, Window
from penstock.core.model import Queue
from penstock.core.scheduling.gates import RAMP_S, Gate, GateKind, ScopeState
from penstock.core.timestamps import MINUTE_MS
from penstock.core.why.values import Constraint, ConstraintKind, Position, StartEstimate

SPREAD = 2.0
AT_ONCE_MS = 1_000
"""How soon an unblocked task is taken by a polling worker."""
SAMPLE_MIN_MS = 10_000
"""A calendar minute younger than this is too small a sample by itself."""
SHARE_MIN = 0.05
"""A level with a smaller share than this may wait forever."""
FLOWING = (ConstraintKind.LEASES, ConstraintKind.KEY_RUNNING, ConstraintKind.SATURATED)
"""Limits that completing work frees; recent dispatches show how often."""
TURNS = (
    ConstraintKind.PRIORITY,
    ConstraintKind.FAIRNESS_TURN,
    ConstraintKind.ARRIVAL_TURN,
    ConstraintKind.BEHIND_OWN_KEY,
)


class DispatchCounts(Struct, frozen=True):
    """Dispatches of this calendar minute and of the one before."""

    now: int = 0
    before: int = 0

    @property
    def any(self) -> bool:
        return bool(self.now or self.before)


NO_DISPATCHES = DispatchCounts()


class DispatchPace(Struct, frozen=True):
    """Recent dispatches of a queue."""

    queue: DispatchCounts = NO_DISPATCHES
    higher: DispatchCounts = NO_DISPATCHES
    """Of levels before the task's."""
    own: DispatchCounts = NO_DISPATCHES
    """Of the task's own key at its level."""


NO_PACE = DispatchPace()


class _Bounds(Struct, frozen=True):
    """Dispatches per millisecond: at least, at most."""

    low: float
    high: float


def _bounds(seen: DispatchCounts, now_ms: int) -> _Bounds | None:
    elapsed_ms = max(1, now_ms % MINUTE_MS)
    samples = []
    if seen.before:
        samples.append((seen.now + seen.before, elapsed_ms + MINUTE_MS))
    if seen.now and (elapsed_ms >= SAMPLE_MIN_MS or not seen.before):
        samples.append((seen.now, max(elapsed_ms, AT_ONCE_MS)))
    if not samples:
        return None
    return _Bounds(
        min(count / (1 + SPREAD / sqrt(count)) / ms for count, ms in samples),
        max((count + SPREAD * sqrt(count) + 1) / ms for count, ms in samples),
    )


def estimate_start(
    queue: Queue,
    closed: Sequence[Constraint],
    gates: Sequence[Gate],
    scopes: Mapping[str, ScopeState],
    place: Position,
    pace: DispatchPace,
    now_ms: int,
) -> StartEstimate:
    """When a ready task starts, or what must change before that can be estimated."""
    stuck = next((each for each in closed if _never(each)), None)
    if stuck is not None:
        return StartEstimate(unknown_because=f"Unknown until this changes: {stuck.message}.")
    bounds = _bounds(pace.queue, now_ms)
    waits_for_others = any(each.kind in FLOWING for each in closed) or place.ahead
    if bounds is None and waits_for_others:
        return StartEstimate(unknown_because="The queue dispatched nothing in this minute or the one before.")
    turns = _from_turns(bounds, place, pace, now_ms) if bounds else (0.0, 0.0)
    opens_ms = max((each.opens_at_ms or now_ms for each in closed), default=now_ms)
    return _range(_Limited(queue, scopes), gates, place, turns, opens_ms, now_ms)


def _range(
    limited: _Limited,
    gates: Sequence[Gate],
    place: Position,
    turns: tuple[float, float | None],
    opens_ms: int,
    now_ms: int,
) -> StartEstimate:
    """The estimate from the tasks ahead (`turns`), closed constraints (`opens_ms`) and limits."""
    soonest, latest = turns
    starts = _gate_starts(limited, gates, place.ahead + 1, now_ms)
    from_ms = max([opens_ms, *(starts or [now_ms + round(soonest)])])
    ends = [from_ms, *_gate_ends(limited, gates, place.ahead + 1, now_ms)]
    to_ms = None if latest is None else max([opens_ms + round(latest), *ends]) + AT_ONCE_MS
    return StartEstimate(from_ms, to_ms)


def _never(constraint: Constraint) -> bool:
    """Whether neither time nor the work itself removes a constraint."""
    if constraint.kind in TURNS or constraint.opens_at_ms is not None:
        return False
    return constraint.kind not in FLOWING or constraint.most == 0


def _from_turns(
    bounds: _Bounds, place: Position, pace: DispatchPace, now_ms: int
) -> tuple[float, float | None]:
    """How long until the tasks ahead are dispatched, soonest and latest; latest None: possibly never."""
    count = place.ahead + 1
    soonest = max(0.0, count - SPREAD * sqrt(count)) / bounds.high
    mixed = count + place.ahead_of_others
    latest = (mixed + SPREAD * sqrt(mixed) + 1) / bounds.low
    own = _bounds(pace.own, now_ms) if place.ahead_of_own else None
    if own is not None:
        mine = place.ahead_of_own + 1
        soonest = min(soonest, max(0.0, mine - SPREAD * sqrt(mine)) / own.high)
        latest = max(latest, (mine + SPREAD * sqrt(mine) + 1) / own.low)
    share = _share_left(pace)
    return soonest, None if share < SHARE_MIN else latest / share


def _share_left(pace: DispatchPace) -> float:
    """The share of dispatches that higher levels leave, at their recent rate."""
    total, higher = pace.queue.now + pace.queue.before, pace.higher.now + pace.higher.before
    return max(0.0, 1 - higher / total) if total else 1.0


class _Limited(Struct, frozen=True):
    """A queue with the counters of its windows."""

    queue: Queue
    scopes: Mapping[str, ScopeState]

    def window(self, scope: str) -> Window:
        found = next((each.window for each in self.queue.limits.scopes if each.name == scope), None)
        return self.queue.limits.window if found is None else found

    def counts(self, scope: str) -> Counts:
        state = self.scopes.get(scope)
        return self.queue.window if state is None else state.window


def _gate_starts(limited: _Limited, gates: Sequence[Gate], count: int, now_ms: int) -> list[int]:
    """The earliest times at which each limit allows `count` dispatches.

    Limited queues dispatch in bursts, so their limits say more about the soonest start than the recent rate.
    """
    return [at_ms for gate in gates if (at_ms := _lets_go_at(limited, gate, count, now_ms)) is not None]


def _lets_go_at(limited: _Limited, gate: Gate, count: int, now_ms: int) -> int | None:
    over = count - gate.left
    if over <= 0:
        return None
    if gate.kind is GateKind.RATE:
        rate = limited.queue.rules.queue_rate
        assert rate is not None, "a gate of a rate has one"
        opens_ms = now_ms if gate.opens_at_ms is None else gate.opens_at_ms
        return opens_ms + (over - 1) * rate.interval_ns // NANO_PER_MS if not rate.is_closed else None
    if gate.kind is GateKind.DISPATCHES and gate.most:
        if limited.window(gate.scope) is Window.MINUTE:
            turn_ms = (now_ms // MINUTE_MS + 1) * MINUTE_MS
            return turn_ms + (over - 1) // gate.most * MINUTE_MS
        rounds, amount = divmod(count - 1, gate.most)
        counts = limited.counts(gate.scope)
        opens_at_ms = windows.opens_at_ms(Window.SLIDING, gate.most, counts, now_ms, amount + 1)
        return (opens_at_ms or now_ms) + rounds * MINUTE_MS
    return gate.opens_at_ms


def _gate_ends(limited: _Limited, gates: Sequence[Gate], count: int, now_ms: int) -> list[int]:
    """The latest times, if other queues use the shared limits first."""
    ends = []
    for gate in gates:
        at_ms = _lets_go_at(limited, gate, count, now_ms)
        if at_ms is not None:
            shared = not gate.scope.startswith("queue:") or gate.kind is GateKind.DISPATCHES
            ends.append(
                at_ms + (MINUTE_MS if shared and gate.kind is not GateKind.COOLING else RAMP_S * 1_000)
            )
    return ends
