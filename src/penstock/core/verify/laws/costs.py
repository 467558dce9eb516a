"""Cost budgets in the journal: a lease's reservation counts until its end settles the real cost.

A lease that ends without a cost has cost what it reserved; a refunded one has cost nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.core.verify.findings import Findings, Law, LawViolation, LeaseEvidence, shown_leases
from penstock.core.verify.journal import LeaseEnded, LeaseGranted, LeaseId, LeaseStarted, ScopeLimits
from penstock.core.verify.journal_clock import JournalClock
from penstock.core.verify.laws.rates import MINUTE_MS
from penstock.core.verify.live_leases import LiveLease


@dataclass(slots=True)
class Spending:
    """The cost of one lease in one scope, and when it was reserved."""

    at_ms: int
    holder: LeaseEvidence
    amount: int


@dataclass(slots=True)
class Spent:
    """The costs of one scope in the last sixty seconds, and in the calendar minute of the last lease."""

    era: int
    recent: deque[Spending] = field(default_factory=deque)
    in_window: int = 0
    minute: int = 0
    in_minute: int = 0

    def add(self, spending: Spending) -> None:
        self.recent.append(spending)
        self.in_window += spending.amount
        while self.recent[0].at_ms <= spending.at_ms - MINUTE_MS:
            self.in_window -= self.recent.popleft().amount
        minute = spending.at_ms // MINUTE_MS
        self.in_minute = (self.in_minute if minute == self.minute else 0) + spending.amount
        self.minute = minute

    def settle(self, spending: Spending, amount: int) -> None:
        if self.recent and self.recent[0].at_ms <= spending.at_ms:
            self.in_window += amount - spending.amount
        if spending.at_ms // MINUTE_MS == self.minute:
            self.in_minute += amount - spending.amount
        spending.amount = amount

    def within(self, window: str) -> int:
        return self.in_window if window == "sliding" else self.in_minute


class CostLaw:
    """Checks "cost" for every lease in a scope with a cost budget."""

    def __init__(self, book: Findings, clock: JournalClock) -> None:
        self._book = book
        self._clock = clock
        self._scopes: dict[str, Spent] = {}
        self._reserved: dict[LeaseId, dict[str, tuple[Spent, Spending]]] = {}

    def taken(self, line: LeaseGranted | LeaseStarted, live: LiveLease) -> None:
        for limits in live.counted:
            if limits.max_cost_per_minute is not None:
                self._is_kept(line, live, limits, limits.max_cost_per_minute)

    def ended(self, line: LeaseEnded) -> None:
        reserved = self._reserved.pop(line.lease_id, None)
        cost = 0 if line.refunded else line.cost
        if reserved is None or cost is None:
            return
        for spent, spending in reserved.values():
            spent.settle(spending, cost)

    def _is_kept(
        self, line: LeaseGranted | LeaseStarted, live: LiveLease, limits: ScopeLimits, budget: int
    ) -> None:
        spent = self._scopes.get(limits.scope)
        if spent is None or spent.era != self._clock.era:
            spent = self._scopes[limits.scope] = Spent(self._clock.era)
        spending = Spending(self._clock.now_ms, live.holder, limits.cost)
        spent.add(spending)
        self._reserved.setdefault(line.lease_id, {})[limits.scope] = spent, spending
        if not limits.cost:
            return
        self._book.checked[Law.COST] += 1
        cost = spent.within(limits.window)
        if cost > budget:
            window = "sixty seconds" if limits.window == "sliding" else "a calendar minute"
            said = f"a cost of {cost} in {window} where {budget} may"
            self._book.find(
                LawViolation(Law.COST, said, line.at_ms, line.seq, limits.scope, cost, budget, _last(spent))
            )


def _last(spent: Spent) -> tuple[LeaseEvidence, ...]:
    return shown_leases(spending.holder for spending in reversed(spent.recent))
