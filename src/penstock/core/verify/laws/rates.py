"""Dispatch budgets in the journal: dispatches in each calendar minute, or in any sixty seconds.

A refunded dispatch counts from its grant until its refund: later dispatches may use its share.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from penstock.core.verify.findings import Findings, Law, LawViolation, LeaseEvidence, shown_leases
from penstock.core.verify.journal import LeaseEnded, LeaseGranted, LeaseId, LeaseStarted, ScopeLimits
from penstock.core.verify.journal_clock import JournalClock
from penstock.core.verify.live_leases import LiveLease

MINUTE_MS = 60_000


@dataclass(slots=True)
class Dispatches:
    """Dispatches of one scope in the last sixty seconds, and in the calendar minute of the last one."""

    era: int
    recent: deque[tuple[int, LeaseEvidence]] = field(default_factory=deque)
    minute: int = 0
    in_minute: int = 0

    def add(self, now_ms: int, holder: LeaseEvidence) -> None:
        self.recent.append((now_ms, holder))
        while self.recent[0][0] <= now_ms - MINUTE_MS:
            self.recent.popleft()
        minute = now_ms // MINUTE_MS
        self.in_minute = self.in_minute + 1 if minute == self.minute else 1
        self.minute = minute

    def take_back(self, at_ms: int, holder: LeaseEvidence) -> None:
        if (at_ms, holder) in self.recent:
            self.recent.remove((at_ms, holder))
        if at_ms // MINUTE_MS == self.minute:
            self.in_minute -= 1

    def within(self, window: str) -> int:
        return len(self.recent) if window == "sliding" else self.in_minute


class RateLaw:
    """Checks "rate" for every lease in a scope with a dispatch budget."""

    def __init__(self, book: Findings, clock: JournalClock) -> None:
        self._book = book
        self._clock = clock
        self._scopes: dict[str, Dispatches] = {}
        self._counted: dict[LeaseId, list[tuple[Dispatches, int, LeaseEvidence]]] = {}

    def taken(self, line: LeaseGranted | LeaseStarted, live: LiveLease) -> None:
        for limits in live.counted:
            if limits.max_dispatches_per_minute is not None:
                self._is_kept(line, live, limits, limits.max_dispatches_per_minute)

    def ended(self, line: LeaseEnded) -> None:
        counted = self._counted.pop(line.lease_id, ())
        for scope, at_ms, holder in counted if line.refunded else ():
            scope.take_back(at_ms, holder)

    def _is_kept(
        self, line: LeaseGranted | LeaseStarted, live: LiveLease, limits: ScopeLimits, rate: int
    ) -> None:
        now_ms = self._clock.now_ms
        scope = self._scopes.get(limits.scope)
        if scope is None or scope.era != self._clock.era:
            scope = self._scopes[limits.scope] = Dispatches(self._clock.era)
        scope.add(now_ms, live.holder)
        self._counted.setdefault(line.lease_id, []).append((scope, now_ms, live.holder))
        if rate == 0:
            return
        self._book.checked[Law.RATE] += 1
        count = scope.within(limits.window)
        if count > rate:
            window = "sixty seconds" if limits.window == "sliding" else "a calendar minute"
            said = f"{count} dispatches in {window} where {rate} may"
            self._book.find(
                LawViolation(
                    Law.RATE, said, line.at_ms, line.seq, limits.scope, count, rate, _last(scope, count)
                )
            )


def _last(scope: Dispatches, count: int) -> tuple[LeaseEvidence, ...]:
    return shown_leases(holder for (_, holder), _ in zip(reversed(scope.recent), range(count), strict=False))
