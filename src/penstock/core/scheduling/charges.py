"""Charges: what a claim writes to the counters of its queue, keys, lanes and scopes, and what a refund takes back.

A claim that grants charges all of them (`Ledger`). A claim that grants nothing may have to write too: lanes that were
tagged or put aside, costs that tasks settled since the last claim, and debts that a changed rate or a clock set back
would otherwise keep from falling due.

Each granted task has a `Charge`, made in the transaction that leases the task: of the dispatch windows of the queue
and of its scopes, their budgets of cost, the rate of the queue and of the key (GCRA), the fairness tag of the lane,
and the ramp of a group that opens after a cool-down. A poll may end before the answer of its claim arrives, or the
connection may break before the answer is sent. The task is then handed back and every one of these charges is
refunded, in the transaction that ends the lease. The token of the lease guards that transaction, so a refund
happens once.

Invariant `refund-never-exceeds-charge`. A refund removes a charge from where it was counted, never from somewhere
else:

* A window is reduced in the second (or calendar minute) in which the charge was counted. A charge that has left the
  window is not refunded, and a later minute is never touched.
* A rate is a schedule of slots: every dispatch occupies `[start, start + interval)`, slots do not overlap, and no
  slot starts before the moment of its dispatch. Removing a slot moves later ones forward, but not before the moments
  of their own dispatches, which lie before now. So at most the part of the slot that is still ahead of now is given
  back. After a change of the rate, at most the smaller of both intervals is given back.
* A lane pays one stride back, of the smaller of the weights then and now. It may stand behind the level's virtual
  time afterwards; its next dispatch starts at virtual time all the same, so it saves up nothing.

The charge travels with the lease in memory, because only the server that granted it knows that it was not
delivered. A lease that is delivered again (a repeated poll request id) has lost it: `of_row` reconstructs what the
row tells, and gives back less rather than more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.core.limits import rates, windows
from penstock.core.limits.policies import DispatchOrder, KeyState
from penstock.core.limits.rates import Payment
from penstock.core.limits.windows import SECOND_MS, Counts, Window
from penstock.core.model import Queue, Task
from penstock.core.scheduling import fairness
from penstock.core.scheduling.dispatch import QueueSnapshot, Settled, charged_queue, window_debt
from penstock.core.scheduling.fairness import Lane, LaneKey, VirtualClock
from penstock.core.scheduling.gates import ScopeState, due


class QueueAccount(Struct, frozen=True):
    """What a queue itself has paid and given."""

    paid_until_ns: int
    aging_turn: int
    window: Counts


class LockedScopes(Struct, frozen=True):
    """The scopes of a queue by name, under their locks."""

    states: Mapping[str, ScopeState] = field(default_factory=dict)
    corrected: Sequence[ScopeState] = ()
    """Those that differ from their rows, because tasks cost more or less than estimated."""


NO_SCOPES = LockedScopes()


class Ledger(Struct, frozen=True):
    """The rows to write, beside the leases themselves."""

    queue: QueueAccount | None = None
    """None: unchanged."""
    scopes: Sequence[ScopeState] = ()
    keys: Mapping[str, tuple[int | None, int]] = field(default_factory=dict)
    """Until when each key has paid (None: unchanged), and how many leases are counted to it."""
    lanes: Sequence[tuple[Lane, int]] = ()
    """Lanes that were billed, placed or put aside, and how many tasks each gave."""
    clocks: Sequence[VirtualClock] = ()
    reranks: bool = False
    """Whether lanes that gave a task change the rank of the other lanes of their keys."""
    dispatched: int = 0


def ledger_of(
    queue: Queue, settled: Settled, taken: Mapping[LaneKey, int], scopes: LockedScopes, now_ms: int
) -> Ledger:
    """The rows of a claim that looked at lanes, whether it granted tasks or not."""
    account = QueueAccount(settled.paid_until_ns, settled.aging_turn, settled.window)
    before = QueueAccount(queue.paid_until_ns, queue.aging_turn, queue.window)
    return Ledger(
        queue=None if account == before else account,
        scopes=settled.scopes if settled.order else uncharged(queue, scopes, now_ms),
        keys=_keys(queue, settled) if settled.paid or queue.rules.counts_leases_by_key else {},
        lanes=[(lane, taken.get((lane.level, lane.key), 0)) for lane in settled.lanes],
        clocks=settled.clocks,
        reranks=queue.rules.shares_by_running,
        dispatched=len(settled.order),
    )


def ledger_of_closed_queue(queue: Queue, scopes: LockedScopes, now_ms: int) -> Ledger:
    """The rows of a claim that a limit of the queue itself held: only debts that must be kept to fall due."""
    paid_until_ns, window = charged_queue(queue, 0, now_ms)[0], window_debt(queue, now_ms)
    account = QueueAccount(paid_until_ns, queue.aging_turn, window)
    changed = (paid_until_ns, window) != (queue.paid_until_ns, queue.window)
    return Ledger(queue=account if changed else None, scopes=uncharged(queue, scopes, now_ms))


def uncharged(queue: Queue, scopes: LockedScopes, now_ms: int) -> list[ScopeState]:
    """The scopes that must be written though nothing was granted: settled costs, and debts of a clock set back."""
    if not scopes.states:
        return []
    found = []
    for rules in queue.limits.scopes:
        state = scopes.states[rules.name]
        kept = due(rules, state, now_ms)
        if kept != state or state in scopes.corrected:
            found.append(kept)
    return found


def _keys(queue: Queue, settled: Settled) -> Mapping[str, tuple[int | None, int]]:
    """What keys have paid, and what each runs, where that is counted.

    The row of a key whose lane is blocked, or ranked by what it runs, is written too. The end of a lease locks that
    row, so it waits for this claim and then finds the lane where the claim left it.
    """
    rules = queue.rules
    if not rules.counts_leases_by_key:
        return {key: (paid, 0) for key, paid in settled.paid.items()}
    keys = [*settled.paid, *settled.spent]
    keys += [lane.key for lane in settled.lanes if lane.held_at is not None or rules.shares_by_running]
    return {key: (settled.paid.get(key), settled.spent.get(key, 0)) for key in keys}


class WindowCharge(Struct, frozen=True):
    """An amount counted in a window, and when."""

    window: Window
    at_ms: int
    amount: int = 1


class ScopeCharge(Struct, frozen=True):
    """What a scope counted for one task."""

    scope_id: int
    dispatch: WindowCharge
    cost: WindowCharge | None = None


class Charge(Struct, frozen=True):
    """Everything that one granted task was charged for."""

    granted_at_ms: int
    dispatch: WindowCharge | None = None
    """In the window of the queue itself."""
    queue_rate: Payment | None = None
    key_rate: Payment | None = None
    key_weight_milli: int = 0
    """The weight by which the rate of the key was scaled."""
    stride: int = 0
    """The stride its lane was billed; 0 in order of arrival, where lanes are not billed."""
    scopes: tuple[ScopeCharge, ...] = ()


def charges(
    snapshot: QueueSnapshot, settled: Settled, tasks: Sequence[Task], holders: Sequence[int]
) -> list[Charge]:
    """The charge of each granted task; `holders` names the poll that gets each task."""
    if not tasks:
        return []
    queue, rules, now_ms = snapshot.queue, snapshot.queue.rules, snapshot.now_ms
    lanes: Mapping[LaneKey, Lane] = {}
    if rules.order is DispatchOrder.FAIR:
        lanes = {(lane.level, lane.key): lane for lane in settled.lanes}
    weights, dispatch = snapshot.lineup.weights, None
    if queue.limits.dispatches is not None:
        dispatch = _counted(queue.limits.window, settled.window, 1)
    paid: Counter[tuple[int, str | None]] = Counter()
    found = []
    for task, holder in zip(tasks, holders, strict=True):
        lane, weight_milli, key_rate = lanes.get((task.level, task.key)), weights.get(task.key), None
        if weight_milli is not None:
            key_rate = rules.rate_of(snapshot.keys.get(task.key) or KeyState(task.key), weight_milli)
        queue_rate = rules.queue_rate
        found.append(
            Charge(
                now_ms,
                dispatch,
                None if queue_rate is None else _payment(queue_rate, now_ms, paid, (holder, None)),
                None if key_rate is None else _payment(key_rate, now_ms, paid, (holder, task.key)),
                weight_milli or 0,
                0 if lane is None else fairness.stride(lane.weight_milli),
                _of_scopes(queue, settled.scopes, task.cost) if settled.scopes else (),
            )
        )
    return found


def _payment(
    rate: rates.Rate, at_ms: int, paid: Counter[tuple[int, str | None]], limit: tuple[int, str | None]
) -> Payment | None:
    """What one task paid at a rate; `paid` counts the tasks of its poll that paid to the same limit before."""
    if rate.is_closed:
        return None
    paid[limit] += 1
    return Payment(rate.interval_ns, at_ms, paid[limit] - 1)


def _of_scopes(queue: Queue, states: Sequence[ScopeState], cost: int) -> tuple[ScopeCharge, ...]:
    by_name = {state.name: state for state in states}
    found = []
    for rules in queue.limits.scopes:
        state = by_name[rules.name]
        spent = _counted(rules.window, state.costs, cost) if rules.cost is not None and cost else None
        found.append(ScopeCharge(state.scope_id, _counted(rules.window, state.window, 1), spent))
    return tuple(found)


def _counted(window: Window, counts: Counts, amount: int) -> WindowCharge:
    """A charge that was just counted, in the newest second of its window."""
    return WindowCharge(window, counts[-1][0] * SECOND_MS if counts else 0, amount if counts else 0)


def of_row(queue: Queue, task: Task, states: Sequence[ScopeState]) -> Charge:
    """The charge as far as it can be reconstructed from the row of a leased task, for a redelivered lease.

    The rate intervals are unknown by then, so rates get no refund. The lane is refunded a stride of its present weight.
    """
    at_ms = task.granted_at_ms or 0
    dispatch = None
    if queue.limits.dispatches is not None and not task.claimed:
        dispatch = WindowCharge(queue.limits.window, at_ms)
    modes = {each.name: each.window for each in queue.limits.scopes}
    scopes = []
    for state in states:
        mode = modes.get(state.name, Window.MINUTE)
        cost = WindowCharge(mode, at_ms, task.cost) if task.cost else None
        scopes.append(ScopeCharge(state.scope_id, WindowCharge(mode, at_ms), cost))
    stride = fairness.stride(fairness.WEIGHT_MIN_MILLI) if queue.rules.order is DispatchOrder.FAIR else 0
    return Charge(at_ms, dispatch, stride=stride, scopes=tuple(scopes))


class Refund(Struct, frozen=True):
    """The counters of the queue, its key and its scopes after a refund."""

    paid_until_ns: int
    window: Counts
    key_paid_until_ns: int | None
    """None: unchanged."""
    scopes: tuple[ScopeState, ...]


def refund(
    queue: Queue, key: KeyState | None, states: Sequence[ScopeState], charge: Charge, now_ms: int
) -> Refund:
    """Subtract a charge from the counters of the queue, its key and its scopes."""
    paid_until_ns = queue.paid_until_ns
    rate = queue.rules.queue_rate
    if rate is not None and charge.queue_rate is not None:
        paid_until_ns = rates.returned(rate, paid_until_ns, now_ms, charge.queue_rate)
    by_id = {state.scope_id: state for state in states}
    return Refund(
        paid_until_ns,
        queue.window if charge.dispatch is None else _returned(queue.window, charge.dispatch),
        _key_paid_until_ns(queue, key, charge, now_ms),
        tuple(
            refunded(by_id[each.scope_id], each, charge.granted_at_ms)
            for each in charge.scopes
            if each.scope_id in by_id
        ),
    )


def _key_paid_until_ns(queue: Queue, key: KeyState | None, charge: Charge, now_ms: int) -> int | None:
    if key is None or charge.key_rate is None:
        return None
    rate = queue.rules.rate_of(key, charge.key_weight_milli)
    if rate is None:
        return None
    until_ns = rates.returned(rate, key.paid_until_ns, now_ms, charge.key_rate)
    return None if until_ns == key.paid_until_ns else until_ns


def refunded(state: ScopeState, charge: ScopeCharge, granted_at_ms: int) -> ScopeState:
    """The counters of a scope without a task's charge; the end of its lease is counted separately."""
    cool_until_ms, given = state.cool_until_ms, state.cool_given
    in_this_ramp = cool_until_ms is not None and granted_at_ms >= cool_until_ms and given > 0
    return replace(
        state,
        window=_returned(state.window, charge.dispatch),
        costs=state.costs if charge.cost is None else _returned(state.costs, charge.cost),
        cool_given=given - 1 if in_this_ramp else given,
    )


def _returned(counts: Counts, charge: WindowCharge) -> Counts:
    return windows.returned(charge.window, counts, charge.at_ms, charge.amount)
