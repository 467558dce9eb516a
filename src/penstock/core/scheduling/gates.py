"""Gates: every limit a dispatch must pass besides the turn of its fairness key.

Theory of operation
-------------------
A *gate* is one limit as it stands now: how many more dispatches it allows (`left`), its limit and usage, and when time
alone opens it. `gates` lists all gates of a queue: pauses, the cool-down of budget groups, caps on active leases, the
rate, dispatches per minute, cost per minute; first the queue's own, then those of its scopes (namespace, budget
groups, cluster). Three callers use that one list, so that they cannot disagree: a claim takes the smallest `left`, the
status of a queue shows every gate, and "why" explains the closed ones.

The list is computed from rows that are locked by the transaction which grants: the queue's row and, by ascending id,
the rows of its scopes. A scope counts leases with two counters that only grow: `granted`, written by claims under the
lock, and `ended`, written where leases end without taking it. The difference can be too large for a moment, never too
small.

- Caps (leases) are levels: they are freed when a lease ends.
- Budgets (dispatches, cost) are flows: they are spent on grant and refilled by time (`windows.py`, `rates.py`).
- Cost is reserved by estimate on grant and settled with the real cost when the task ends (`corrected`).
- Cool-down: after a refusal by a downstream service a budget group is closed until the time that the service named,
  then opens exponentially (1, 3, 7, ... dispatches in its first seconds) for `RAMP_S`, so that the queues that share
  it do not send a burst into a service that has just recovered.

Invariants `cap-never-exceeded` and `budget-never-overspent`: both hold at every commit, for any number of servers.

Rejected: counting leased rows of all queues on each claim (exact only if all of them are locked), one counter that
goes up and down (every completion waits for the row that claims lock), and locks with a time to live in a cache (two
holders after a pause).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.limits import rates, windows
from penstock.core.limits.admission import ScopeRules, queue_scope
from penstock.core.limits.rate_reports import RateSource
from penstock.core.limits.windows import NOTHING, Counts
from penstock.core.model import Queue

RAMP_S = 10
"""How long a budget group takes to open fully after a cool-down."""
COOL_DOWN_MAX_MS = 24 * 3_600_000


class GateKind(StrEnum):
    PAUSED = "paused"
    COOLING = "cooling"
    LEASES = "active_leases"
    RATE = "rate"
    DISPATCHES = "dispatches_per_minute"
    COST = "cost_per_minute"


class Gate(Struct, frozen=True):
    """One limit as it stands now."""

    kind: GateKind
    scope: str
    left: int
    most: int | None = None
    used: int | None = None
    opens_at_ms: int | None = None
    """When time alone opens it; None: only a change does."""
    rate_micro: int | None = None
    rate_source: RateSource = RateSource.NONE
    """Of a rate: dispatches per million seconds, and where the value comes from."""

    @property
    def is_closed(self) -> bool:
        return self.left <= 0


class ScopeState(Struct, frozen=True):
    """The counters of a scope, read under its lock."""

    scope_id: int
    name: str
    granted: int = 0
    ended: int = 0
    window: Counts = NOTHING
    costs: Counts = NOTHING
    cool_until_ms: int | None = None
    cool_given: int = 0
    """Dispatches since the group began to open again."""

    @property
    def running(self) -> int:
        return self.granted - self.ended


def gates(
    queue: Queue, running: int, states: Mapping[str, ScopeState] | None, now_ms: int, cost: int = 0
) -> list[Gate]:
    """All gates of a queue, in the order in which closed ones are reported: by kind, then from the queue outwards.

    `states` None: only the queue's own, which need no row but the queue's. `cost` is the estimate of the task that
    would go next; a task that costs more than a whole budget is dispatched when the budget is unused.
    """
    own = _of_queue(queue, running, now_ms)
    if states is None or not queue.limits.scopes:
        return own
    scopes = sorted(queue.limits.scopes, key=lambda each: _FROM_INSIDE[each.name[0]])
    found = [
        _of_scope(each, states.get(each.name) or ScopeState(0, each.name), now_ms, cost) for each in scopes
    ]
    return sorted([*own, *(gate for each in found for gate in each)], key=lambda gate: _REPORTED[gate.kind])


_REPORTED = {kind: number for number, kind in enumerate(GateKind)}
_FROM_INSIDE = {"n": 0, "g": 1, "c": 2}
"""By the first letter of a scope's name: the namespace, then its groups, then the cluster."""


def _of_queue(queue: Queue, running: int, now_ms: int) -> list[Gate]:
    rules, limits, name = queue.rules, queue.limits, queue_scope(queue.namespace, queue.name, queue.kind)
    found: list[Gate] = []
    if queue.paused or rules.paused:
        found.append(Gate(GateKind.PAUSED, name, 0))
    if (most := rules.lease_cap) is not None:
        found.append(Gate(GateKind.LEASES, name, max(0, most - running), most, running))
    if (rate := rules.queue_rate) is not None:
        left = rates.available(rate, queue.paid_until_ns, now_ms)
        opens_at_ms = None if left else rates.open_at_ms(rate, queue.paid_until_ns, now_ms)
        gate = Gate(GateKind.RATE, name, left, opens_at_ms=opens_at_ms)
        found.append(replace(gate, rate_micro=rate.micro, rate_source=rules.queue_rate_source))
    if (most := limits.dispatches) is not None:
        found.append(_window(GateKind.DISPATCHES, name, limits.window, most, queue.window, now_ms))
    return found


def _of_scope(rules: ScopeRules, state: ScopeState, now_ms: int, cost: int) -> Iterator[Gate]:
    name, window = rules.name, rules.window
    if rules.paused:
        yield Gate(GateKind.PAUSED, name, 0)
    if state.cool_until_ms is not None and not _is_open(state, now_ms):
        yield _cooling(name, state.cool_until_ms, state.cool_given, now_ms)
    if (most := rules.leases) is not None:
        yield Gate(GateKind.LEASES, name, max(0, most - state.running), most, state.running)
    if (most := rules.dispatches) is not None:
        yield _window(GateKind.DISPATCHES, name, window, most, state.window, now_ms)
    if (most := rules.cost) is not None:
        asked = _asked(cost, most)
        gate = _window(GateKind.COST, name, window, most, state.costs, now_ms, asked)
        yield gate if gate.left >= asked else replace(gate, left=0)


def _cooling(name: str, until_ms: int, given: int, now_ms: int) -> Gate:
    """The gate of a group that a downstream service refused: closed, then opening second by second."""
    if now_ms < until_ms:
        return Gate(GateKind.COOLING, name, 0, opens_at_ms=until_ms)
    second = (now_ms - until_ms) // 1_000
    most = 2 ** (second + 1) - 1
    left = max(0, most - given)
    return Gate(GateKind.COOLING, name, left, most, given, None if left else until_ms + (second + 1) * 1_000)


@dataclass(slots=True)
class CostBudget:
    """A scope's cost budget while the tasks of one claim are taken one after the other."""

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
    """The amount a task needs: at least 1, and at most the whole budget."""
    return max(1, min(cost, most))


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


def charged(rules: ScopeRules, state: ScopeState, count: int, cost: int, now_ms: int) -> ScopeState:
    """The counters of a scope after a grant of `count` tasks with a total estimated `cost`."""
    return ScopeState(
        state.scope_id,
        state.name,
        state.granted + count,
        state.ended,
        windows.spent(rules.window, state.window, now_ms, count),
        state.costs if rules.cost is None else windows.spent(rules.window, state.costs, now_ms, cost),
        None if _is_open(state, now_ms) else state.cool_until_ms,
        0 if _is_open(state, now_ms) else state.cool_given + count,
    )


def _is_open(state: ScopeState, now_ms: int) -> bool:
    """Whether the group does not cool down, or has opened fully since."""
    return state.cool_until_ms is None or now_ms >= state.cool_until_ms + RAMP_S * 1_000


def cooled(until_ms: int | None, now_ms: int, retry_after_ms: int) -> int:
    """Until when a group is closed after another refusal downstream: the later of the two times."""
    return max(until_ms or 0, now_ms + min(retry_after_ms, COOL_DOWN_MAX_MS))


def due(rules: ScopeRules, state: ScopeState, now_ms: int) -> ScopeState:
    """The counters, with entries from after a clock step backwards moved to now, so that they expire."""
    if not windows.is_ahead(state.window, now_ms) and not windows.is_ahead(state.costs, now_ms):
        return state
    return charged(rules, state, 0, 0, now_ms)


def corrected(
    rules: ScopeRules, state: ScopeState, settlements: Sequence[tuple[int, int]], now_ms: int
) -> ScopeState:
    """The counters after tasks cost more or less than estimated.

    A lower cost is returned to the window in which the estimate was counted; a higher one is counted now.
    """
    costs = state.costs
    for at_ms, amount in settlements:
        if amount < 0:
            costs = windows.returned(rules.window, costs, at_ms, -amount)
        else:
            costs = windows.spent(rules.window, costs, now_ms, amount)
    return replace(state, costs=costs)


def counted_by(scopes: Sequence[ScopeState]) -> str:
    """The stored list of the scopes that count a lease (`Task.scopes`)."""
    return f" {' '.join(str(state.scope_id) for state in scopes)} " if scopes else ""
