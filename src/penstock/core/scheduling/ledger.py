"""What a claim writes to the counters of its queue, keys, lanes and scopes, as values.

A claim that grants charges all of them. A claim that grants nothing may have to write too: lanes that were placed or
put aside, costs that tasks settled since the last claim, and debts that a changed rate or a clock set back would
otherwise keep from falling due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from penstock.core.limits.policies import Rules
from penstock.core.limits.windows import Counts
from penstock.core.model import Queue
from penstock.core.scheduling import dispatch
from penstock.core.scheduling.dispatch import Settled
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


def of_claim(
    queue: Queue, settled: Settled, taken: Mapping[LaneKey, int], scopes: LockedScopes, now_ms: int
) -> Ledger:
    """The rows of a claim that looked at lanes, whether it granted tasks or not."""
    account = QueueAccount(settled.paid_until_ns, settled.aging_turn, settled.window)
    before = QueueAccount(queue.paid_until_ns, queue.aging_turn, queue.window)
    return Ledger(
        queue=None if account == before else account,
        scopes=settled.scopes if settled.order else uncharged(queue, scopes, now_ms),
        keys=_keys(queue, settled),
        lanes=[(lane, taken.get((lane.level, lane.key), 0)) for lane in settled.lanes],
        clocks=settled.clocks,
        reranks=queue.rules.counts_running,
        dispatched=len(settled.order),
    )


def of_closed_queue(queue: Queue, scopes: LockedScopes, now_ms: int) -> Ledger:
    """The rows of a claim that a limit of the queue itself held: only debts that must be kept to fall due."""
    queue_debt, window = dispatch.queue_debt(queue, now_ms), dispatch.window_debt(queue, now_ms)
    account = QueueAccount(queue_debt, queue.aging_turn, window)
    changed = (queue_debt, window) != (queue.paid_until_ns, queue.window)
    return Ledger(queue=account if changed else None, scopes=uncharged(queue, scopes, now_ms))


def announced(rules: Rules) -> int:
    """Whom the end of a lease is announced to: 1 its key and the queue, 2 the queue alone, 0 neither."""
    if rules.counts_leases:
        return 1
    return 0 if rules.lease_cap is None else 2


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
    if not rules.counts_leases:
        return {key: (paid, 0) for key, paid in settled.paid.items()}
    keys = [*settled.paid, *settled.spent]
    keys += [lane.key for lane in settled.lanes if lane.held_at is not None or rules.counts_running]
    return {key: (settled.paid.get(key), settled.spent.get(key, 0)) for key in keys}
