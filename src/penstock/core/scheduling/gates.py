"""Every gate that a dispatch must pass besides the turn of its key: pauses, leases, rates, budgets.

A gate says how many more may go through it now. Dispatch takes the least; the status of a queue and the answer
to "why does it wait" list them all: one function, so that they never disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits import rates, windows
from penstock.core.limits.admission import QueueLimits, ScopeRules, queue_scope
from penstock.core.limits.rate_reports import RateSource
from penstock.core.limits.windows import NOTHING, Counts
from penstock.core.model import Queue

RAMP_S = 10
"""How long a budget group takes to open fully after a refusal upstream."""
COOL_DOWN_MAX_MS = 24 * 3_600_000


class GateKind(StrEnum):
    PAUSED = "paused"
    COOLING = "cooling"
    LEASES = "active_leases"
    RATE = "rate"
    DISPATCHES = "dispatches_per_minute"
    COST = "cost_per_minute"


class Gate(Struct, frozen=True):
    """One limit as it stands: how much of it is used, how many more may go, and when it may open."""

    kind: GateKind
    scope: str
    left: int
    most: int | None = None
    used: int | None = None
    opens_at_ms: int | None = None
    """When time alone opens it; None: when something else changes."""
    rate_micro: int | None = None
    rate_source: RateSource = RateSource.NONE
    """How many go through a gate of a rate in a million seconds, and who says so."""

    @property
    def is_closed(self) -> bool:
        return self.left <= 0


class ScopeState(Struct, frozen=True):
    """What a scope counts, read under its lock: leases by what was granted and what has ended since."""

    scope_id: int
    name: str
    granted: int = 0
    ended: int = 0
    window: Counts = NOTHING
    costs: Counts = NOTHING
    cool_until_ms: int | None = None
    cool_given: int = 0
    """How many went since the group began to open again."""

    @property
    def running(self) -> int:
        return self.granted - self.ended


def gates(
    queue: Queue, running: int, states: Mapping[str, ScopeState], now_ms: int, cost: int = 0
) -> list[Gate]:
    """All gates of a line, in the order in which they are named when several are closed.

    Invariant `cap-never-exceeded`: leases are counted under the locks of the queue and of its scopes, in the
    transaction that adds to them, so at every commit no more run than each limit allows. `cost` is the estimate
    of the task that would go next; a task that costs more than a whole budget goes when the budget is untouched.
    """
    limits = queue.limits
    if not limits.scopes:
        return own_gates(queue, running, now_ms)
    scopes = [(each, states.get(each.name) or ScopeState(0, each.name)) for each in _outwards(limits.scopes)]
    return [
        *_paused(queue, scopes),
        *_cooling(scopes, now_ms),
        *_leases(queue, running, scopes),
        *_rate(queue, now_ms),
        *_dispatches(queue, limits, scopes, now_ms),
        *_costs(scopes, now_ms, cost),
    ]


def own_gates(queue: Queue, running: int, now_ms: int) -> list[Gate]:
    """The gates of the line itself, which need no other row than its own."""
    return [
        *_paused(queue, ()),
        *_leases(queue, running, ()),
        *_rate(queue, now_ms),
        *_dispatches(queue, queue.limits, (), now_ms),
    ]


_Scopes = Sequence[tuple[ScopeRules, ScopeState]]


def _paused(queue: Queue, scopes: _Scopes) -> Iterator[Gate]:
    if queue.paused or queue.rules.paused:
        yield Gate(GateKind.PAUSED, _own(queue), 0)
    for rules, _ in scopes:
        if rules.paused:
            yield Gate(GateKind.PAUSED, rules.name, 0)


def _cooling(scopes: _Scopes, now_ms: int) -> Iterator[Gate]:
    for rules, state in scopes:
        if state.cool_until_ms is None or now_ms >= state.cool_until_ms + RAMP_S * 1_000:
            continue
        if now_ms < state.cool_until_ms:
            yield Gate(GateKind.COOLING, rules.name, 0, opens_at_ms=state.cool_until_ms)
            continue
        second = (now_ms - state.cool_until_ms) // 1_000
        most = 2 ** (second + 1) - 1
        left = max(0, most - state.cool_given)
        opens_at_ms = None if left else state.cool_until_ms + (second + 1) * 1_000
        yield Gate(GateKind.COOLING, rules.name, left, most, state.cool_given, opens_at_ms)


def _leases(queue: Queue, running: int, scopes: _Scopes) -> Iterator[Gate]:
    most = queue.rules.lease_cap
    if most is not None:
        yield Gate(GateKind.LEASES, _own(queue), max(0, most - running), most, running)
    for rules, state in scopes:
        if rules.leases is not None:
            left = max(0, rules.leases - state.running)
            yield Gate(GateKind.LEASES, rules.name, left, rules.leases, state.running)


def _rate(queue: Queue, now_ms: int) -> Iterator[Gate]:
    rate = queue.rules.queue_rate
    if rate is not None:
        left = rates.available(rate, queue.paid_until_ns, now_ms)
        opens = None if left else rates.open_at_ms(rate, queue.paid_until_ns, now_ms)
        source = queue.rules.queue_rate_source
        yield Gate(
            GateKind.RATE, _own(queue), left, opens_at_ms=opens, rate_micro=rate.micro, rate_source=source
        )


def _dispatches(queue: Queue, limits: QueueLimits, scopes: _Scopes, now_ms: int) -> Iterator[Gate]:
    if limits.dispatches is not None:
        yield _window(
            GateKind.DISPATCHES, _own(queue), limits.window, limits.dispatches, queue.window, now_ms
        )
    for rules, state in scopes:
        if rules.dispatches is not None:
            yield _window(
                GateKind.DISPATCHES, rules.name, rules.window, rules.dispatches, state.window, now_ms
            )


@dataclass(slots=True)
class CostBudget:
    """How much of a scope's cost is used while tasks are taken one after the other."""

    most: int
    used: int

    def affords(self, cost: int) -> bool:
        return self.most - self.used >= _asked(cost, self.most)


def cost_budgets(queue: Queue, states: Mapping[str, ScopeState], now_ms: int) -> list[CostBudget]:
    nothing = ScopeState(0, "")
    return [
        CostBudget(each.cost, windows.used(each.window, states.get(each.name, nothing).costs, now_ms))
        for each in queue.limits.scopes
        if each.cost is not None
    ]


def _asked(cost: int, most: int) -> int:
    """A task that costs more than a whole budget asks for all of it, and one that costs nothing for a place."""
    return max(1, min(cost, most))


def _costs(scopes: _Scopes, now_ms: int, cost: int) -> Iterator[Gate]:
    for rules, state in scopes:
        if rules.cost is not None:
            asked = _asked(cost, rules.cost)
            gate = _window(GateKind.COST, rules.name, rules.window, rules.cost, state.costs, now_ms, asked)
            yield replace(gate, left=gate.left if gate.left >= asked else 0)


def _window(
    kind: GateKind,
    scope: str,
    window: windows.Window,
    most: int,
    counts: Counts,
    now_ms: int,
    amount: int = 1,
) -> Gate:
    used = windows.used(window, counts, now_ms)
    left = max(0, most - used)
    opens_at_ms = None
    if left < amount:
        opens_at_ms = windows.opens_at_ms(window, most, counts, now_ms, amount)
    return Gate(kind, scope, left, most, used, opens_at_ms)


def _outwards(scopes: Sequence[ScopeRules]) -> Sequence[ScopeRules]:
    """The namespace, then its groups, then the cluster: the order in which full ones are named."""
    return sorted(scopes, key=lambda each: _FROM_INSIDE[each.name[0]]) if len(scopes) > 1 else scopes


_FROM_INSIDE = {"n": 0, "g": 1, "c": 2}
"""By the first letter of a scope's name."""


def _own(queue: Queue) -> str:
    return queue_scope(queue.namespace, queue.name, queue.kind)


def charged(rules: ScopeRules, state: ScopeState, count: int, cost: int, now_ms: int) -> ScopeState:
    """What a scope counts after so many were given that cost so much together."""
    return ScopeState(
        state.scope_id,
        state.name,
        state.granted + count,
        state.ended,
        windows.spent(rules.window, state.window, now_ms, count),
        state.costs if rules.cost is None else windows.spent(rules.window, state.costs, now_ms, cost),
        None if _is_open(state, now_ms) else state.cool_until_ms,
        _given(state, count, now_ms),
    )


def _given(state: ScopeState, count: int, now_ms: int) -> int:
    return 0 if state.cool_until_ms is None or _is_open(state, now_ms) else state.cool_given + count


def _is_open(state: ScopeState, now_ms: int) -> bool:
    return state.cool_until_ms is None or now_ms >= state.cool_until_ms + RAMP_S * 1_000


def cooled(until_ms: int | None, now_ms: int, retry_after_ms: int) -> int:
    """Until when a group is closed after one more refusal upstream: the later one holds."""
    return max(until_ms or 0, now_ms + min(retry_after_ms, COOL_DOWN_MAX_MS))


def due(rules: ScopeRules, state: ScopeState, now_ms: int) -> ScopeState:
    """The same, with what went in the future of a clock that was set back: it must be kept to fall due."""
    if not windows.is_ahead(state.window, now_ms) and not windows.is_ahead(state.costs, now_ms):
        return state
    return charged(rules, state, 0, 0, now_ms)


def corrected(
    rules: ScopeRules, state: ScopeState, settlements: Sequence[tuple[int, int]], now_ms: int
) -> ScopeState:
    """What a scope counts after tasks cost more or less than estimated: less is given back where it was counted."""
    costs = state.costs
    for at_ms, amount in settlements:
        if amount < 0:
            costs = windows.returned(rules.window, costs, at_ms, -amount)
        else:
            costs = windows.spent(rules.window, costs, now_ms, amount)
    return replace(state, costs=costs)


def counted_by(scopes: Sequence[ScopeState]) -> str:
    """How a task says which scopes count its lease."""
    return f" {' '.join(str(state.scope_id) for state in scopes)} " if scopes else ""
