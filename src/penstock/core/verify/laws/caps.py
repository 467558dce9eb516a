"""Lease caps in the journal, checked whenever a lease begins to count. A lowered cap only stops new leases."""

from __future__ import annotations

from penstock.core.verify.findings import Findings, Law, LawViolation, shown_leases
from penstock.core.verify.journal import LeaseGranted, LeaseStarted, ScopeLimits
from penstock.core.verify.live_leases import LiveLease, LiveLeases


class CapLaw:
    """Checks "cap" and "closed" for every lease that begins to count."""

    def __init__(self, book: Findings, leases: LiveLeases) -> None:
        self._book = book
        self._leases = leases

    def taken(self, line: LeaseGranted | LeaseStarted, live: LiveLease) -> None:
        for limits in live.counted:
            if 0 in (limits.max_active_leases, limits.max_dispatches_per_minute):
                self._is_closed(line, limits)
            else:
                self._is_held(line, limits)

    def _is_held(self, line: LeaseGranted | LeaseStarted, limits: ScopeLimits) -> None:
        cap = limits.max_active_leases
        if cap is None:
            return
        self._book.checked[Law.CAP] += 1
        holders = self._leases.holders(limits.scope)
        if len(holders) > cap:
            self._book.find(
                LawViolation(
                    Law.CAP,
                    f"{len(holders)} leases live where {cap} may",
                    line.at_ms,
                    line.seq,
                    limits.scope,
                    len(holders),
                    cap,
                    shown_leases(live.holder for live in holders.values()),
                )
            )

    def _is_closed(self, line: LeaseGranted | LeaseStarted, limits: ScopeLimits) -> None:
        self._book.checked[Law.CLOSED] += 1
        self._book.find(
            LawViolation(
                Law.CLOSED,
                f"task {line.task_id} was given out of a scope with a limit of zero",
                line.at_ms,
                line.seq,
                limits.scope,
                1,
                0,
            )
        )
